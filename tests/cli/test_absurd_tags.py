"""Very long tags and very many of them neither fill the screen nor take minutes."""

import time
from pathlib import Path
from typing import Any

import pytest

from fleet.model.facts import Request
from fleet.schema.findings import listed
from fleet.tagrules.derive import derive
from fleet.tagrules.vocabulary import Vocabulary
from tests.builders import a_fleet
from tests.rigs.trial import Trial

LONG = "x" * 200_000
MANY = [f"tag-{number}" for number in range(3_000)]
MAX_SHOWN = 60_000
FLEET = """\
fleet: trial
providers: {desk: {kind: sim}}
queues: {work: {kind: world, path: world.json}}
tags: {"tag-*": {exclusive: true, asked_by: [user]}}
derive: [{from: host_architecture, ask: "worker:build-arch:{value}"}]
images: {trixie: {suite: trixie, architecture: amd64}}
pools: {builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}}
"""
ABSURD: dict[str, dict[str, Any]] = {
    "long-tag": {"required": [LONG]},
    "long-tag-of-a-pattern": {"required": [f"tag-{LONG}"]},
    "many-tags": {"required": MANY},
    "many-architectures": {"task_data": {"host_architecture": MANY}},
    "long-value": {"task_data": {"host_architecture": LONG}},
    "long-package": {"package": LONG, "required": ["tag-1"]},
    "long-names": {"task": LONG, "scope": LONG, "requester": LONG, "required": ["tag-1"]},
}


def ask(trial: Trial, **fields: object) -> None:
    trial.queue({"id": "1", "task": "sbuild", "package": "x", "required": [], **fields})


@pytest.fixture
def trial(project: Path) -> Trial:
    trial = Trial(project)
    trial.write(FLEET)
    trial.init()
    return trial


@pytest.mark.parametrize("kind", ABSURD)
@pytest.mark.parametrize(
    "command",
    [
        ("plan",),
        ("plan", "--markdown"),
        ("explain", "request", "1"),
        ("tags", "explain", "--request", "1"),
        ("status",),
    ],
    ids=" ".join,
)
def test_output_is_bounded_when_a_request_is_absurd(
    kind: str, command: tuple[str, ...], trial: Trial
) -> None:
    ask(trial, **ABSURD[kind])

    shown = trial.told(*command)

    assert shown
    assert len(shown) < MAX_SHOWN
    assert max(map(len, shown.splitlines())) < MAX_SHOWN // 10


def test_long_list_ends_in_a_count_when_more_names_follow() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([*map(str, range(21))]).endswith("19, 20")
    assert listed([*map(str, range(22))]).endswith("18, 19 and 2 more")


def test_long_tag_is_matched_within_a_second() -> None:
    fleet = a_fleet(
        tags={"x*": {}, "xx": {}}, derive=[{"tag": "x*", "ask": "y"}, {"tag": "z*", "ask": "q"}]
    )
    begin = time.process_time()

    assert Vocabulary(fleet).names_of(LONG) == ("x*",)
    assert [each.tag for each in derive(fleet, Request(id="1", task="t"), [LONG])] == ["y"]
    assert time.process_time() - begin < 1


def test_explain_proposes_no_tag_when_fleet_yaml_cannot_name_it(trial: Trial) -> None:
    ask(trial, required=["x" * 201])

    explained = trial.json("explain", "request", "1")

    assert explained["suggestions"] == []
