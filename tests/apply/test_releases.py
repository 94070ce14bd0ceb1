"""Workers whose machines are gone are switched off before anything else; rivals are refused."""

from pathlib import Path

import pytest

from fleet.errors import SourceUnreachable
from fleet.guard import guard
from fleet.model.history import Outcome
from fleet.model.plan import Release
from fleet.reconcile import reconcile
from tests.builders import NOW, a_create, a_sim_fleet, some_inputs
from tests.builders.queue_desk import TicketDesk
from tests.builders.queue_worlds import FIRST, QUEUE, SECOND, a_debusine_world, ours
from tests.builders.sentences import tells
from tests.fakes.registry import FakeRegistry

GONE = Release(pool="builders", worker=FIRST, registry="debian", because="its machine is gone")


class Silent(FakeRegistry):
    """A registry that does not answer when it is to release a worker."""

    def release(self, worker: str) -> None:
        raise SourceUnreachable(f"the database does not answer about {worker}")


@pytest.fixture
def desk(tmp_path: Path) -> TicketDesk:
    return TicketDesk.at(tmp_path)


def test_worker_without_machine_is_released(desk: TicketDesk) -> None:
    outcome = desk.apply(releases=(GONE,))

    assert desk.registry.released == [FIRST]
    assert outcome.released == (FIRST,)
    assert any(tells(each, "builders", "release", FIRST) for each in desk.said)


def test_apply_continues_when_release_fails(desk: TicketDesk) -> None:
    desk.registry = Silent()
    create = a_create(worker=SECOND, inputs=some_inputs(name=SECOND))

    outcome = desk.apply(create, releases=(GONE,))

    assert (outcome.released, outcome.stacks[0].created) == ((), (SECOND,))
    assert tells(desk.said[0], FIRST, "released", "answer")


def test_apply_is_refused_when_queue_creates_machines_itself(desk: TicketDesk) -> None:
    create = a_create(worker=SECOND, serves=("debian/1",), inputs=some_inputs(name=SECOND))

    outcome = desk.apply(create, releases=(GONE,), rivals=("own-amd64", "own-arm64"))

    assert outcome.exit_code == 4
    assert tells(outcome.refused[0], "own-amd64", "own-arm64")
    assert (desk.engine.machines, desk.registry.released) == ({}, [])


def vanished(desk: TicketDesk, approved: int = 0) -> Outcome:
    """Apply what the plan says of two busy workers whose machines are gone."""
    approval = {
        "guard": "delete",
        "pool": "builders",
        "count": approved,
        "reason": "they were deleted by hand",
        "expires": NOW.date(),
    }
    approvals = [approval] if approved else []
    desk.fleet = a_sim_fleet(queues={"debian": QUEUE}, approvals=approvals)
    world = a_debusine_world(*(ours(n, busy=True) for n in (FIRST, SECOND)), machines=())
    return desk.carry_out(world, guard(desk.fleet, reconcile(desk.fleet, world)))


def test_release_is_refused_when_delete_guard_refuses(desk: TicketDesk) -> None:
    outcome = vanished(desk)

    assert (desk.registry.released, outcome.exit_code) == ([], 4)


def test_approval_is_used_when_worker_is_released(desk: TicketDesk) -> None:
    outcome = vanished(desk, approved=1)

    assert (desk.registry.released, outcome.released) == ([FIRST], (FIRST,))
    assert list(desk.store.spent().values()) == [(f"builders/{FIRST}:",)]


def test_approval_is_refunded_when_release_failed(desk: TicketDesk) -> None:
    desk.registry = Silent()

    vanished(desk, approved=2)

    assert [machines for machines in desk.store.spent().values() if machines] == []
