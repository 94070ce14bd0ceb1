"""A tag that no pool provides and that requests waive after a while (`otherwise`)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import Trial

FLEET = """\
fleet: trial
providers: {desk: {kind: sim}}
queues: {work: {kind: world, path: world.json}}
images: {t: {existing: {desk: t}, provides: [sbuild]}}
pools:
  small: {provider: desk, machine: ccx33, image: t, workers: {max: 4}}
tags:
  power: {OTHERWISE}
"""


@pytest.mark.parametrize("otherwise", ["otherwise: {after: 2h, drop: true}", ""])
def test_request_can_run_when_otherwise_waives_its_missing_tag(
    project: Path, otherwise: str
) -> None:
    trial = Trial(project)
    trial.write(FLEET.replace("OTHERWISE", otherwise))
    trial.init()
    now = datetime.now(UTC)
    request = {
        "id": "150",
        "required": ["sbuild", "power"],
        "pending_since": (now - timedelta(minutes=40)).isoformat(),
    }
    demand = {"read_at": now.isoformat(), "requests": [request]}
    queues = {"work": {"demand": demand}}
    world = {"fleet": "trial", "time": now.isoformat(), "queues": queues}
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    _, explained = trial.do("explain", "request", "150", "--json")
    _, diagnosed = trial.do("doctor", "--json")

    answer, findings = json.loads(explained), json.loads(diagnosed)["findings"]
    assert answer["never"] is not bool(otherwise)
    assert (answer["expected"] is None) is not bool(otherwise)
    notices = [each["about"] for each in findings if each["result"] == "notice"]
    assert ("queue work, requests" in notices) is not bool(otherwise)


@pytest.mark.parametrize(
    ("rule", "figures"),
    [
        ("{otherwise: {after: 2h, drop: true}}", ("power", "2h")),
        ("{otherwise: {after: 2h, drop: true}, limits: {total: 1}}", ("power", "2h", "`limits`")),
        ("{priority: low}", ("power", "`priority`")),
    ],
)
def test_check_has_the_wait_when_otherwise_waives_a_missing_tag(
    project: Path, rule: str, figures: tuple[str, ...]
) -> None:
    trial = Trial(project)
    trial.write(FLEET.replace("{OTHERWISE}", rule))

    said = " ".join(trial.told("validate").split())

    assert tells(said, *figures)
    assert "`otherwise`" not in said


@pytest.mark.parametrize("ask", ["tag: sbuild, ask: power", "from: package, ask: 'power-{value}'"])
def test_check_has_the_wait_of_a_derived_tag(project: Path, ask: str) -> None:
    trial = Trial(project)
    text = FLEET.replace("power: {OTHERWISE}", "'power*': {otherwise: {after: 2h, drop: true}}")
    trial.write(f"{text}derive: [{{{ask}}}]\n")

    said = " ".join(trial.told("validate").split())

    assert tells(said, "power", "2h")
    assert "forever" not in said
