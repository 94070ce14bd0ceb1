"""Every step that changes something stands in the journal before it is done."""

import pytest

from fleet.apply.observe import Sources
from fleet.apply.record import journalled
from fleet.errors import StoreFailed
from fleet.model.facts import SharedResource
from fleet.ports import Enrolment, StackRef
from fleet.state.store import Store
from tests.builders import NOW, some_inputs
from tests.builders.sentences import tells
from tests.fakes.engine import FakeEngine
from tests.fakes.registry import FakeRegistry
from tests.fakes.shared_stack_engine import FakeSharedStackEngine
from tests.fakes.source_reader import FakeSourceReader

REF = StackRef(project="sim", name="debian-ci-builders", provider="desk", pool="builders")
BASE = StackRef(project="hcloud", name="debian-ci.desk", provider="desk", pool="")
KEY = SharedResource(kind="ssh_key", name="key-ana", inputs={})
ENROLMENT = Enrolment(worker="w", fleet="debian-ci", pool="builders", expires=NOW)


class Enrolling:
    """Makes workers known, and says so in the same list as the journal."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def enrol(self, enrolment: Enrolment) -> str:
        self._said.append(f"enrolled {enrolment.worker}")
        return "token"


def sources(
    registry: FakeRegistry,
    engine: FakeEngine,
    said: list[str],
    base: FakeSharedStackEngine | None = None,
) -> Sources:
    return Sources(
        asking=FakeSourceReader,
        queues={},
        providers={},
        registries={"desk": registry},
        enrollers={"desk": Enrolling(said)},
        engine_of=lambda _: engine,
        bases={"desk": base or FakeSharedStackEngine()},
        store=Store("sqlite:///nowhere.db", "debian-ci"),
    )


def test_each_step_is_in_journal_before_its_execution() -> None:
    said: list[str] = []
    edges = journalled(sources(FakeRegistry(), FakeEngine(), said), said.append)
    registry, engine = edges.registries["desk"], edges.engine_of("desk")
    worker = some_inputs(name="w")

    registry.drain("a")
    registry.disable("a")
    registry.revoke("b")
    registry.release("c")
    registry.confirm(print)
    assert edges.enrollers["desk"].enrol(ENROLMENT) == "token"
    engine.preview(REF, [worker])
    engine.up(REF, [worker], lambda step: said.append(f"{step.operation}d"))
    with engine.prepare(REF, []) as change:
        change.make(lambda step: said.append(f"{step.operation}d"), {})
    engine.up(REF, [worker], lambda _: None)
    engine.forget(REF, "w")

    steps: list[tuple[str, ...]] = [
        ("desk", "drain", "a"),
        ("desk", "disable", "a"),
        ("desk", "revoke", "b"),
        ("desk", "release", "c"),
        ("desk", "enrol", "w"),
        ("enrolled", "w"),
        (REF.name, "create", "w"),
        ("created",),
        (REF.name, "delete", "w"),
        ("deleted",),
        (REF.name, "create", "w"),
        (REF.name, "forget", "w"),
    ]
    assert all(tells(line, *step) for line, step in zip(said, steps, strict=True))


def test_no_change_is_executed_when_journal_is_unwritable() -> None:
    def full(_: str) -> None:
        raise StoreFailed("the disk is full")

    registry, engine, base = FakeRegistry(), FakeEngine(), FakeSharedStackEngine()
    edges = journalled(sources(registry, engine, [], base), full)

    with pytest.raises(StoreFailed):
        edges.registries["desk"].drain("a")
    with pytest.raises(StoreFailed):
        edges.engine_of("desk").up(REF, [some_inputs()], lambda _: None)
    with pytest.raises(StoreFailed):
        edges.bases["desk"].up(BASE, [KEY], lambda _: None)

    assert (registry.drained, engine.machines, base.runs) == ([], {}, 0)
