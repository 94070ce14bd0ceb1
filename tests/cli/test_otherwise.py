"""A tag that no pool provides and that requests waive after a while (`otherwise`)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

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
