"""When a machine may be forgotten: both witnesses heard, and nobody who says that it lives."""

from pathlib import Path

import pytest

from fleet.apply.observe import Sources
from fleet.apply.rebuild import RemovedRecord, forget_machine
from fleet.errors import PlanRefused, SourceUnreachable
from fleet.model.facts import Unknown, World
from fleet.state.store import Store
from tests.apply.test_apply import REF
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_sim_fleet,
    a_stack,
    a_worker,
    a_world,
    some_inputs,
)
from tests.fakes.engine import FakeEngine
from tests.fakes.queue import FakeProvider
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader

ONE, TWO = "debian-ci-builders-0001", "debian-ci-builders-0002"


class SilentRegistry(FakeRegistry):
    """Answers nothing."""

    def release(self, worker: str) -> None:
        """Fail."""
        raise SourceUnreachable(f"no answer about {worker}")


@pytest.fixture
def engine() -> FakeEngine:
    """Return an engine whose stack holds two machines."""
    engine = FakeEngine()
    engine.up(REF, [some_inputs(name=name) for name in (ONE, TWO)], lambda _: None)
    return engine


def a_world_of(engine: FakeEngine, **overrides: object) -> World:
    """Return a world in which the provider lists the second machine only."""
    listing = a_listing(a_machine(name=TWO, id=f"fake-{TWO}"), workers=())
    stacks = {"builders": engine.stacks[REF.name]}
    return a_world(**({"providers": {"desk": listing}, "stacks": stacks} | overrides))


def forget(
    engine: FakeEngine, world: World, name: str = ONE, registry: FakeRegistry | None = None
) -> RemovedRecord:
    sources = Sources(
        asking=FakeSourceReader,
        queues={},
        providers={"desk": FakeProvider(NOW)},
        registries={} if registry is None else {"desk": registry},
        engine_of=lambda _: engine,
        store=Store(f"sqlite:///{Path('nowhere')}", "debian-ci"),
    )
    return forget_machine(a_sim_fleet(), world, name, sources)


def test_forget_removes_stack_record_when_provider_lacks_machine(
    engine: FakeEngine,
) -> None:
    done = forget(engine, a_world_of(engine))

    assert done == RemovedRecord("builders")
    assert sorted(engine.stacks[REF.name].ids) == [TWO]
    assert sorted(engine.machines) == [ONE, TWO]


def test_forget_is_refused_when_any_provider_lists_the_name(
    engine: FakeEngine,
) -> None:
    elsewhere = a_listing(a_machine(name=ONE, id="other", pool="else"), workers=())
    own = a_listing(a_machine(name=TWO, id=f"fake-{TWO}"), workers=())

    with pytest.raises(PlanRefused, match="attic"):
        forget(engine, a_world_of(engine, providers={"desk": own, "attic": elsewhere}))

    assert sorted(engine.stacks[REF.name].ids) == [ONE, TWO]


def test_forget_is_refused_when_worker_is_still_connected(
    engine: FakeEngine,
) -> None:
    busy = a_worker(name=ONE, machine=ONE, state="busy", running="7")
    listing = a_listing(a_machine(name=TWO, id=f"fake-{TWO}"), workers=(busy,))

    with pytest.raises(PlanRefused, match=rf"{ONE}.*7"):
        forget(engine, a_world_of(engine, providers={"desk": listing}))


def test_worker_of_forgotten_machine_is_released(
    engine: FakeEngine,
) -> None:
    away = a_worker(name=ONE, machine=ONE, busy=True, away=True)
    listing = a_listing(a_machine(name=TWO, id=f"fake-{TWO}"), workers=(away,))
    registry = FakeRegistry()

    done = forget(engine, a_world_of(engine, providers={"desk": listing}), registry=registry)

    assert done == RemovedRecord("builders", "desk")
    assert registry.released == [ONE]


def test_forget_does_not_release_a_disabled_worker(engine: FakeEngine) -> None:
    off = a_worker(name=ONE, machine=ONE, state="disabled")
    listing = a_listing(a_machine(name=TWO, id=f"fake-{TWO}"), workers=(off,))
    registry = FakeRegistry()

    done = forget(engine, a_world_of(engine, providers={"desk": listing}), registry=registry)

    assert (done, registry.released) == (RemovedRecord("builders"), [])


def test_forget_changes_nothing_when_worker_cannot_be_disabled(engine: FakeEngine) -> None:
    idle = a_worker(name=ONE, machine=ONE, state="disconnected")
    listing = a_listing(a_machine(name=TWO, id=f"fake-{TWO}"), workers=(idle,))

    with pytest.raises(SourceUnreachable, match="no answer"):
        forget(
            engine,
            a_world_of(engine, providers={"desk": listing}),
            registry=SilentRegistry(),
        )

    assert sorted(engine.stacks[REF.name].ids) == [ONE, TWO]


def test_forget_is_refused_when_apply_was_interrupted(engine: FakeEngine) -> None:
    stack = engine.stacks[REF.name]
    begun = stack.altered(ids={TWO: stack.ids[TWO]}, interrupted=True)

    with pytest.raises(PlanRefused, match=f"{ONE}.*`fleet apply`"):
        forget(engine, a_world_of(engine, stacks={"builders": begun}))


def test_forget_is_refused_with_reason_when_stacks_are_unknown(engine: FakeEngine) -> None:
    some = a_world_of(engine, stacks={"builders": Unknown(unknown="no answer"), "b": a_stack()})
    none = a_world_of(engine, stacks=Unknown(unknown="no store"))

    with pytest.raises(PlanRefused, match=r"builders.*unknown.*no answer"):
        forget(engine, some)
    with pytest.raises(PlanRefused, match=r"stacks.*unknown.*no store"):
        forget(engine, none)
