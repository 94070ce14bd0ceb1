"""Sweeping what no stack holds: told, disabled, deleted at its provider; or it stays."""

import pytest

from fleet.apply.observe import Sources
from fleet.cli.machine import sweep, sweep_machines
from fleet.guard import guard
from fleet.model.facts import Listing, Unknown, Worker, World
from fleet.model.history import Outcome
from tests.builders import NOW, a_sim_fleet, a_sim_world, a_stack, a_worker, ago
from tests.builders.deciding import FIRST, SECOND, with_machines
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine
from tests.fakes.machine_api import FakeMachineApi
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader

FLEET = a_sim_fleet()
LOST = Unknown(unknown="there is no store")


class Bench:
    """A fleet whose stacks are lost, its fakes, and what a sweep said."""

    def __init__(self, *busy: str, listens: bool = True, keeps: bool = True) -> None:
        self.machine_api = FakeMachineApi(f"sim-{FIRST}", f"sim-{SECOND}")
        self.registry = FakeRegistry(*busy)
        self.said: list[str] = []
        self.sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={},
            registries={"desk": self.registry} if listens else {},
            engine_of=lambda _: FakeEngine(),
            store=new_store(),
            machine_apis={"desk": self.machine_api} if keeps else {},
        )

    def sweep(self, *workers: Worker, **overrides: object) -> Outcome:
        """Sweep a world in which these workers' machines expired."""
        world = expired(*workers).altered(**({"stacks": LOST} | overrides))
        plan = guard(FLEET, sweep(FLEET, world))
        return sweep_machines(FLEET, world, plan, self.sources, self.said.append)


def expired(*workers: Worker) -> World:
    world = with_machines(a_sim_world(*workers), expires=ago(hours=2))
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    noted = listing.altered(notes_expiry=True, read_at=NOW)
    return world.altered(providers={"desk": noted})


def test_sweep_disables_drained_idle_worker_before_deletion() -> None:
    bench = Bench()

    outcome = bench.sweep(a_worker(draining=True))

    assert bench.registry.disabled == [FIRST]
    assert list(bench.machine_api.expiries) == [f"sim-{SECOND}"]
    assert bench.said[0] == f"builders: delete {FIRST}"
    assert [(each.pool, each.deleted) for each in outcome.stacks] == [("builders", (FIRST,))]
    assert outcome.exit_code == 0


def test_sweep_keeps_machine_of_worker_with_new_work() -> None:
    bench = Bench()

    outcome = bench.sweep(a_worker())

    assert bench.registry.drained == [FIRST]
    assert len(bench.machine_api.expiries) == 2
    assert outcome.stacks[0].drained == (FIRST,)


def test_sweep_keeps_worker_that_got_work_meanwhile() -> None:
    bench = Bench(FIRST)

    outcome = bench.sweep(a_worker(draining=True))

    assert len(bench.machine_api.expiries) == 2
    assert (outcome.stacks[0].result, outcome.stacks[0].deleted) == ("applied", ())
    assert outcome.stacks[0].error == f"{FIRST} not deleted: {FIRST} runs request 90"


def test_sweep_is_refused_when_queue_is_read_only() -> None:
    bench = Bench(listens=False)

    outcome = bench.sweep(a_worker(draining=True), a_worker(name=SECOND))

    assert len(bench.machine_api.expiries) == 2
    assert outcome.exit_code == 4
    assert tells(outcome.stacks[0].error, "queue desk", "read-only")


def test_sweep_is_refused_when_provider_cannot_delete() -> None:
    bench = Bench(keeps=False)

    outcome = bench.sweep(a_worker(draining=True))

    assert bench.registry.disabled == []
    assert outcome.exit_code == 4
    assert tells(outcome.stacks[0].error, "desk", "stack")


def test_sweep_continues_when_one_deletion_fails() -> None:
    bench = Bench()
    bench.machine_api.silent = True

    outcome = bench.sweep(a_worker(draining=True), a_worker(name=SECOND))

    assert bench.registry.drained == [SECOND]
    assert outcome.exit_code == 5
    assert tells(outcome.stacks[0].error, FIRST, "deleted", "answer")


@pytest.mark.parametrize("stacks", [{"builders": a_stack(provider="desk")}, {}])
def test_sweep_deletes_unrecorded_machine_at_its_provider(
    stacks: object,
) -> None:
    bench = Bench()

    outcome = bench.sweep(a_worker(draining=True), stacks=stacks)

    assert [(each.pool, each.deleted) for each in outcome.stacks] == [("builders", (FIRST,))]
    assert list(bench.machine_api.expiries) == [f"sim-{SECOND}"]
