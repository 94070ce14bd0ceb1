"""Every try to make a machine is written down before it is made, and what became of it after."""

from pathlib import Path

import pytest

from fleet.apply.observe import Sources, observe
from fleet.apply.run import apply_plan, settle_accounts
from fleet.model.facts import Attempt, World
from fleet.model.plan import Create, Reason
from fleet.planner.inventory import take_inventory
from fleet.ports import StackRef
from fleet.state.store import Store
from tests.builders import (
    NOW,
    a_create,
    a_delete,
    a_listing,
    a_machine,
    a_plan,
    a_pool_verdict,
    a_sim_fleet,
    a_stack,
    a_world,
    an_attempt,
    some_inputs,
)
from tests.builders.deciding import FIRST, SECOND
from tests.builders.sentences import tells
from tests.fakes.engine import FakeEngine, Killed
from tests.fakes.queue import FakeProvider
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader

REF = StackRef(project="sim", name="debian-ci-builders", provider="desk", pool="builders")
NOTHING = {"providers": {"desk": a_listing(workers=())}, "stacks": {}}


class TicketDesk:
    """One fleet at the provider `desk`, over written fakes and a store."""

    def __init__(self, store: Store) -> None:
        self.engine = FakeEngine()
        self.registry = FakeRegistry()
        self.sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={"desk": FakeProvider(NOW)},
            registries={"desk": self.registry},
            engine_of=lambda _: self.engine,
            store=store,
        )

    def apply(self, *actions: object, **world: object) -> str:
        """Carry the actions out and return what failed."""
        plan = a_plan(actions=actions, pools=(a_pool_verdict(provider="desk"),))
        seen = a_world(**(NOTHING | world))
        said: list[str] = []
        fleet, tell = a_sim_fleet(), said.append
        settle_accounts(fleet, seen, take_inventory(fleet, seen), self.sources, tell)
        outcome = apply_plan(fleet, seen, plan, self.sources, tell)
        return outcome.stacks[0].error

    @property
    def tries(self) -> list[tuple[str, str]]:
        """Return what the store remembers: worker and result."""
        return [(each.worker, each.result) for each in self.sources.store.attempts(10)]


@pytest.fixture
def desk(tmp_path: Path) -> TicketDesk:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian-ci")
    store.init()
    return TicketDesk(store)


def creation(name: str, **inputs: object) -> Create:
    return a_create(worker=name, inputs=some_inputs(name=name, **inputs))


def remembered(desk: TicketDesk, *attempts: Attempt) -> dict[str, object]:
    """Write tries into the store and return the part of a world that tells them."""
    desk.sources.store.record_attempts(attempts)
    return {"attempts": attempts}


def test_created_machine_has_an_unfinished_attempt(desk: TicketDesk) -> None:
    desk.apply(creation(FIRST, type="ccx63", settings={"market": "spot"}))

    (begun,) = desk.sources.store.attempts(10)
    assert begun == Attempt(
        pool="builders",
        worker=FIRST,
        type="ccx63",
        market="spot",
        image="trixie-1",
        at=NOW,
        result="starting",
    )


@pytest.mark.parametrize(
    ("says", "result"),
    [
        ("resource_unavailable: ccx33", "out-of-stock"),
        ("resource_limit_exceeded: servers", "quota"),
        ("uniqueness_error: server name is already used", "name-taken"),
        ("server_error: something went wrong", "error"),
    ],
)
def test_attempt_stores_error_of_provider_when_creation_fails(
    desk: TicketDesk, says: str, result: str
) -> None:
    desk.engine.fails, desk.engine.says = {SECOND}, says

    desk.apply(creation(FIRST), creation(SECOND))

    assert desk.tries == [(FIRST, "starting"), (SECOND, result)]
    assert desk.sources.store.attempts(10)[1].detail == says


def test_attempt_is_stored_before_the_engine_runs(desk: TicketDesk) -> None:
    desk.engine.dies_at = FIRST

    with pytest.raises(Killed):
        desk.apply(creation(FIRST))

    assert desk.tries == [(FIRST, "starting")]


def test_interrupted_attempt_has_result_gone_without_machine(
    desk: TicketDesk,
) -> None:
    world = remembered(desk, an_attempt(result="starting"))

    desk.apply(**world)

    assert desk.tries == [(FIRST, "gone")]


def test_creation_finished_later_is_one_attempt(desk: TicketDesk) -> None:
    world = remembered(desk, an_attempt(result="starting"))
    unfinished = a_stack(provider="desk", workers=(some_inputs(),), interrupted=True)

    desk.apply(creation(FIRST), **world, stacks={"builders": unfinished})

    assert desk.tries == [(FIRST, "starting")]


def test_attempt_is_not_stored_when_no_creation_started(desk: TicketDesk) -> None:
    desk.apply()

    assert desk.tries == []


def test_observation_contains_stored_attempts(desk: TicketDesk) -> None:
    desk.sources.store.record_attempts([an_attempt()])

    assert observe(a_sim_fleet(), desk.sources, NOW).attempts == (an_attempt(),)


def test_attempts_are_empty_without_store(tmp_path: Path) -> None:
    missing = TicketDesk(Store(f"sqlite:///{tmp_path}/nowhere.db", "debian-ci"))

    assert observe(a_sim_fleet(), missing.sources, NOW).attempts == ()


def never_registered(desk: TicketDesk) -> World:
    desk.engine.up(REF, [some_inputs()], lambda _: None)
    machine = a_machine(id=f"fake-{FIRST}")
    return a_world(
        providers={"desk": a_listing(machine, workers=())},
        stacks={"builders": desk.engine.stacks[REF.name]},
    )


def test_token_is_revoked_before_unregistered_machine_is_deleted(
    desk: TicketDesk,
) -> None:
    world = never_registered(desk)
    gone = a_delete(worker=FIRST, registry="desk", revokes=True, reason=Reason.BOOT_FAILED)

    desk.apply(gone, providers=world.providers, stacks=world.stacks)

    assert (desk.registry.revoked, desk.registry.disabled) == ([FIRST], [])
    assert desk.engine.machines == {}


def test_machine_is_kept_when_its_worker_registered_late(desk: TicketDesk) -> None:
    world = never_registered(desk)
    desk.registry.running = {FIRST: "90"}
    gone = a_delete(worker=FIRST, registry="desk", revokes=True, reason=Reason.BOOT_FAILED)

    error = desk.apply(gone, providers=world.providers, stacks=world.stacks)

    assert tells(error, FIRST, "deleted", FIRST, "registered")
    assert list(desk.engine.machines) == [FIRST]


def test_attempt_is_failed_after_the_run_that_deletes_its_machine(desk: TicketDesk) -> None:
    world = never_registered(desk)
    tries = remembered(desk, an_attempt(result="starting"))
    gone = a_delete(worker=FIRST, registry="desk", revokes=True, reason=Reason.BOOT_FAILED)

    desk.apply(gone, providers=world.providers, stacks=world.stacks, **tries)

    assert desk.tries == [(FIRST, "failed")]
