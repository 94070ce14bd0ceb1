"""A request of an unknown environment waits: its architecture is unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.model.facts import Request
from fleet.tagrules.derive import QueueContext
from fleet.tagrules.requests import Judge, TagRequirements
from tests.builders import NOW, a_fleet
from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial

ARCH = "worker:build-arch:{value.architecture}"
RULE: dict[str, Any] = {"from": "environment_id", "lookup": "environments", "ask": ARCH}
TABLE = {"77": {"architecture": "arm64"}, "79": {"codename": "sid"}}
FLEET = """\
fleet: trial
providers: {desk: {kind: sim}}
queues: {work: {kind: world, path: world.json%s}}
lookups: {environments: {"77": {architecture: arm64}}}
derive:
  - {from: environment_id, lookup: environments, ask: "worker:build-arch:{value.architecture}"}
images: {trixie: {suite: trixie, architecture: amd64}}
pools: {builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}}
"""


def asking(data: dict[str, Any], *rules: dict[str, Any], **more: Any) -> TagRequirements:  # noqa: ANN401
    request = Request(id="1", task="sbuild", task_data=data, required=more.pop("required", ()))
    lookups = more.pop("lookups", {"environments": TABLE})
    fleet = a_fleet(derive=list(rules or (RULE,)), lookups=lookups)
    return Judge(fleet, {}, NOW.date()).ask_of(request, QueueContext(**more))


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        ({"environment_id": 99}, [RULE]),
        ({"environment_id": "99"}, [RULE]),
        ({"environment_id": 79}, [RULE]),
        ({"environment_id": {"odd": 1}}, [RULE]),
        ({"environment": "debian/match:codename=trixie"}, [RULE | {"from": "environment"}]),
        ({"environment": 4711}, [RULE | {"from": "environment"}]),
        ({"environment": "trixie"}, [RULE | {"from": "environment"}]),
        ({"input": {"environment_id": 5}}, [RULE | {"from": "input.environment_id"}]),
        ({"environment_id": 99}, [RULE | {"lookup": "mine"}]),
        ({"environment_id": 99}, [RULE | {"ask": "environment:{value.codename}"}]),
        ({"environment_id": 99, "host_architecture": "amd64"}, [RULE]),
    ],
    ids=str,
)
@pytest.mark.parametrize("stored", [True, False])
def test_request_is_held_when_its_environment_is_unknown(
    data: dict[str, Any], rules: list[dict[str, Any]], *, stored: bool
) -> None:
    lookups = {"environments": TABLE, "mine": {"1": {"architecture": "amd64"}}}

    found = asking(data, *rules, stored=stored, lookups=lookups)

    assert found.held
    assert tells(found.refused[0].because, f"lookups.{rules[0]['lookup']}")
    assert found.refused[0].path == ("derive", 0)


@pytest.mark.parametrize(
    ("data", "more"),
    [
        ({"environment_id": 77}, {}),
        ({"environment_id": None}, {}),
        ({}, {}),
        ({"environment_id": 99}, {"required": ("worker:build-arch:amd64",)}),
        ({"environment_id": 99}, {"any_environment": True}),
        ({"environment_id": 99}, {"environments": {"99": {"architecture": "arm64"}}}),
        ({"environment": "debian/match:architecture=arm64"}, {}),
    ],
    ids=str,
)
def test_request_is_served_when_its_architecture_is_known(
    data: dict[str, Any], more: dict[str, Any]
) -> None:
    assert not asking(data, **more).held


def test_request_is_served_when_the_rule_is_for_another_task() -> None:
    assert not asking({"environment_id": 99}, RULE | {"task": "lintian"}).held


def test_request_is_served_when_a_look_up_concerns_another_value() -> None:
    rule = {"from": "package", "lookup": "sizes", "ask": "worker:class:{value.size}"}

    assert not asking({"package": "linux"}, rule, lookups={"sizes": {"gcc": {"size": "big"}}}).held


def waiting(trial: Trial, *environments: object, stored: bool = False) -> None:
    requests = [
        {"id": str(number), "task": "lintian", "task_data": {"environment_id": each}}
        for number, each in enumerate(environments, 1)
    ]
    read = {"read_at": "2026-11-21T08:00:00Z", "requests": requests, "stored": stored}
    demand = {"demand": read}
    world = {"fleet": "trial", "time": "2026-11-21T08:00:00Z", "queues": {"work": demand}}
    (trial.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")


@pytest.fixture
def trial(project: Path) -> Trial:
    trial = Trial(project)
    trial.write(FLEET % "")
    trial.init()
    return trial


@pytest.mark.parametrize(
    ("ask", "values"),
    [
        (ARCH, ["99", "100", None]),
        (ARCH, [{"odd": 1}, {"odd": 2}]),
        (ARCH, ["x" * 99 + "1", "x" * 99 + "2"]),
        ("cores>={value.cores}", ["many", "few"]),
    ],
    ids=str,
)
def test_signature_ids_differ_when_unknown_values_differ(
    ask: str, values: list[object], trial: Trial, run_fleet: RunFleet
) -> None:
    numbers = "tags: {cores: {kind: number}}\n"
    table = '{environments: {"77": {architecture: arm64}, many: {cores: x}, few: {cores: y}}}'
    text = (FLEET % "").replace('{environments: {"77": {architecture: arm64}}}', table)
    trial.write(text.replace(ARCH, ask) + (numbers if "cores" in ask else ""))
    waiting(trial, *values)

    plan = json.loads(run_fleet("plan", "--json").stdout)

    ids = [each["id"] for each in plan["signatures"]]
    assert len(ids) == len(set(ids)) == len(values)


@pytest.mark.parametrize(
    "rule",
    [
        {"from": "environment_id", "ask": "big"},
        {"from": "environment_id", "lookup": "environments", "ask": "big"},
        {"from": "environment_id", "lookup": "environments", "ask": "big-{value.size}"},
    ],
    ids=str,
)
def test_status_counts_each_signature_when_two_values_give_one_tag(
    rule: dict[str, str], trial: Trial, run_fleet: RunFleet
) -> None:
    text = (FLEET % "").replace('"77": {architecture: arm64}', "a: {size: xl}, b: {size: xl}")
    old = next(line for line in text.splitlines() if "ask:" in line)
    trial.write(text.replace(old, f"  - {json.dumps(rule)}").replace("max: 4", "max: 1"))
    waiting(trial, "a", "b", stored=True)

    status = json.loads(run_fleet("status", "--json").stdout)

    assert sorted(each["served"] for each in status["waiting"]) == [0, 1]
