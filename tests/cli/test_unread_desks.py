"""Machines with tickets stay when the store does not say which queues have tickets."""

import pytest

from fleet.errors import StoreFailed
from fleet.state.store import Store
from tests.rigs.trial import BUILDERS, ONE, Trial, fleet_yaml

TICKETS = "{kind: tickets}"


def with_ticket(trial: Trial) -> None:
    """Give a machine of pool builders to a ticket of queue work."""
    pool = BUILDERS.replace("idle_after: 10m", "idle_after: 1m, at: once")
    trial.write(fleet_yaml(pools={"builders": pool}, queue=TICKETS))
    trial.told("ticket", "open", "--tag", "worker:build-arch:amd64")
    trial.apply()
    trial.age(minutes=30)
    trial.apply()


def test_machine_stays_when_queues_with_tickets_are_unread(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Store) -> tuple[str, ...]:
        raise StoreFailed("the server ended the connection")

    trial.begun(with_ticket)
    trial.wait_for()
    trial.change(f"work: {TICKETS}", "work: {kind: world, path: world.json}")
    monkeypatch.setattr(Store, "ticket_queues_in_use", fail)

    for _ in range(2):
        trial.do("apply")
        trial.age(minutes=30)

    assert trial.machines() == [ONE]
