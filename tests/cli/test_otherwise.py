"""A tag that no pool provides and that requests waive after a while (`otherwise`)."""

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
    since = (datetime.now(UTC) - timedelta(minutes=40)).isoformat()
    trial.queue({"id": "150", "required": ["sbuild", "power"], "pending_since": since})

    answer = trial.json("explain", "request", "150")
    findings = trial.json("doctor")["findings"]

    assert answer["never"] is not bool(otherwise)
    assert (answer["expected"] is None) is not bool(otherwise)
    notices = [each["about"] for each in findings if each["result"] == "notice"]
    assert ("queue work, requests" in notices) is not bool(otherwise)
