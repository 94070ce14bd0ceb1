"""An apply deletes orphans beside what its stacks hold; one that cannot go stops nothing else."""

import threading

import pytest

from fleet.apply.observe import Sources
from fleet.apply.pool import with_orphans
from fleet.model.history import StackOutcome
from fleet.model.plan import Reason
from tests.builders import (
    a_delete,
    a_listing,
    a_machine,
    a_plan,
    a_pool_verdict,
    a_world,
)
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine
from tests.fakes.machine_api import FakeMachineApi
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader
from tests.fakes.supports_concurrency import FakeSupportsConcurrency

FIRST, SECOND = "debian-ci-builders-0001", "debian-ci-builders-0002"
MADE = StackOutcome(pool="builders", result="applied", created=("debian-ci-builders-0003",))


class Bench:
    """Two machines that a plan lets go of, at a provider beside another one of the same names."""

    def __init__(self, *busy: str) -> None:
        self.machine_api, self.other = FakeMachineApi("one", "two"), FakeMachineApi("one", "two")
        self.registry = FakeRegistry(*busy)
        self.said: list[str] = []
        self.reason = Reason.ORPHAN
        self.releases = False
        self.queue = "tickets"
        """Where the second one is registered."""
        self.ends_after = 9
        """How many machines have gone when somebody asks to end."""

    def delete(self, outcome: StackOutcome = MADE) -> StackOutcome:
        deletes = tuple(
            a_delete(worker=name, registry=queue, reason=self.reason, releases=self.releases)
            for name, queue in ((FIRST, "tickets"), (SECOND, self.queue))
        )
        plan = a_plan(actions=deletes, pools=(a_pool_verdict(provider="desk"),))
        listing = a_listing(a_machine(name=FIRST, id="one"), a_machine(name=SECOND, id="two"))
        strange = a_listing(a_machine(name=FIRST, id="two"), a_machine(name=SECOND, id="one"))
        world = a_world(providers={"attic": strange, "desk": listing})
        sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={},
            registries={"tickets": self.registry},
            engine_of=lambda _: FakeEngine(),
            store=new_store(),
            is_ending=lambda: len(self.said) >= self.ends_after,
            machine_apis={"attic": self.other, "desk": self.machine_api},
        )
        return with_orphans(outcome, world, plan, sources, self.said.append)


def test_orphans_are_disabled_then_deleted_by_id() -> None:
    bench = Bench()

    outcome = bench.delete()

    assert bench.registry.disabled == [FIRST, SECOND]
    assert (list(bench.machine_api.expiries), len(bench.other.expiries)) == ([], 2)
    assert outcome == MADE.altered(deleted=(FIRST, SECOND))
    assert bench.said == [f"builders: delete {FIRST}", f"builders: delete {SECOND}"]


def test_orphan_is_kept_when_a_ticket_got_it_meanwhile() -> None:
    bench = Bench(FIRST)

    outcome = bench.delete()

    assert list(bench.machine_api.expiries) == ["one"]
    assert (outcome.result, outcome.deleted) == ("applied", (SECOND,))
    assert outcome.error == f"{FIRST} not deleted: {FIRST} runs request 90"


def test_stopped_orphan_is_deleted_and_its_ticket_fails() -> None:
    bench = Bench(FIRST)
    bench.releases = True

    outcome = bench.delete()

    assert (bench.registry.released, bench.registry.disabled) == ([FIRST, SECOND], [])
    assert (outcome.result, outcome.deleted) == ("applied", (FIRST, SECOND))


def test_orphan_deletion_stops_after_current_one_when_signalled() -> None:
    bench = Bench()
    bench.ends_after = 1

    outcome = bench.delete()

    assert list(bench.machine_api.expiries) == ["two"]
    assert (outcome.result, outcome.deleted) == ("applied", (FIRST,))
    assert tells(outcome.error, SECOND, "deleted", "stopped", "signal")


class ConcurrentMachineApi(FakeSupportsConcurrency, FakeMachineApi):
    """Deletes two machines only when it is asked for both at the same time."""

    def __init__(self, *machines: str) -> None:
        FakeSupportsConcurrency.__init__(self)
        FakeMachineApi.__init__(self, *machines)
        self.met = threading.Barrier(2, timeout=60)

    def delete(self, machine_id: str) -> None:
        """Wait for the other deletion, and delete."""
        self.met.wait()
        super().delete(machine_id)


def test_orphans_are_deleted_concurrently_when_provider_permits() -> None:
    bench = Bench()
    bench.machine_api = ConcurrentMachineApi("one", "two")

    outcome = bench.delete()

    assert outcome.deleted == (FIRST, SECOND)
    assert not bench.machine_api.expiries


def test_orphans_are_unchanged_when_stopped_before_first() -> None:
    bench = Bench()
    bench.ends_after = 0

    outcome = bench.delete()

    assert (bench.registry.disabled, len(bench.machine_api.expiries)) == ([], 2)
    assert tells(
        outcome.error,
        FIRST,
        "deleted",
        "stopped",
        "signal",
        SECOND,
        "deleted",
        "stopped",
        "signal",
    )


def test_orphan_deletion_fails_pool_when_provider_is_silent() -> None:
    bench = Bench()
    bench.machine_api.silent = True

    outcome = bench.delete()

    assert (outcome.result, outcome.created) == ("failed", MADE.created)
    assert tells(outcome.error, FIRST, "deleted", "answer", SECOND)


def test_orphan_deletion_reports_failure_and_refusal() -> None:
    bench = Bench()
    bench.machine_api.silent = True
    bench.queue = "deaf"

    outcome = bench.delete()

    assert outcome.result == "failed"
    assert tells(outcome.error, "queue deaf", "read-only")


@pytest.mark.parametrize("reason", [Reason.NOT_WANTED, Reason.EXPIRED])
def test_orphan_deletion_skips_machines_deleted_for_other_reasons(reason: Reason) -> None:
    bench = Bench()
    bench.reason = reason

    assert bench.delete() == MADE
    assert len(bench.machine_api.expiries) == 2
