"""Machines with tickets stay when fleet.yaml or a pool no longer names their queue."""

import pytest

from tests.rigs.trial import BUILDERS, ONE, WORLD_QUEUE, Trial, fleet_yaml

TICKETS = "{kind: tickets}"
SOON = BUILDERS.replace("idle_after: 10m", "idle_after: 1m, at: once")


def with_ticket(trial: Trial) -> None:
    """Give a machine of pool builders to a ticket of queue work."""
    trial.write(fleet_yaml(pools={"builders": SOON}, queue=TICKETS))
    trial.told("ticket", "open", "--tag", "worker:build-arch:amd64")
    trial.apply()
    trial.age(minutes=30)
    trial.apply()
    assert "resource=" in trial.told("ticket", "list")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"work: {TICKETS}", f"other: {TICKETS}"),
        (f"work: {TICKETS}", f"work: {TICKETS}\n  other: {TICKETS}"),
        (f"work: {TICKETS}", f"work: {WORLD_QUEUE}"),
    ],
    ids=["renamed", "not-served", "of-another-kind"],
)
def test_machine_stays_busy_when_fleet_yaml_lacks_its_queue(
    trial: Trial, old: str, new: str
) -> None:
    trial.begun(with_ticket)
    trial.wait_for()
    trial.change(old, new)
    if "other" in new:
        trial.change("image: trixie,", "image: trixie, serves: [other],")

    plan = trial.plan()

    assert [(each["worker"], each["reason"]) for each in plan["workers"]] == [(ONE, "busy")]
    assert trial.apply()
    assert trial.machines() == [ONE]
