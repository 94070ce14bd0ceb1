"""New workers of a queue get a token each, their machine gets it, and none is left over."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.errors import SourceUnreachable
from fleet.operate.apply import apply_plan
from fleet.operate.observe import Sources
from fleet.plan import Outcome
from fleet.ports import Enrolment
from fleet.schema.model import Fleet
from fleet.store.database import DatabaseStore
from fleet.user_data import read_user_data
from tests.builders import (
    NOW,
    a_create,
    a_delete,
    a_listing,
    a_machine,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_sim_fleet,
    a_world,
    some_inputs,
)
from tests.fakes_engine import FakeEngine, Killed
from tests.fakes_queue import FakeProvider
from tests.fakes_registry import FakeRegistry

FIRST, SECOND, THIRD = (f"debian-ci-builders-{number}" for number in (1, 2, 3))
QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "admin": ["debusine-admin"],
}


class FailingRegistry(FakeRegistry):
    """A registry that knows no more workers than so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def enrol(self, enrolment: Enrolment) -> str:
        if len(self.enrolled) == self.most:
            raise SourceUnreachable("the database does not answer")
        return super().enrol(enrolment)


@dataclass
class Desk:
    """One fleet with a queue, its fakes, and what apply said."""

    store: DatabaseStore
    engine: FakeEngine = field(default_factory=FakeEngine)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    fleet: Fleet = field(default_factory=lambda: a_sim_fleet(queues={"debian": QUEUE}))
    said: list[str] = field(default_factory=list)

    def make(self, *names: str, listed: tuple[str, ...] = ()) -> Outcome:
        """Apply a plan that makes these machines, while the provider lists those."""
        creates = [
            a_create(worker=name, registry="debian", inputs=some_inputs(name=name))
            for name in names
        ]
        return self.apply(*creates, listed=listed)

    def apply(self, *actions: object, listed: tuple[str, ...] = ()) -> Outcome:
        plan = a_plan(actions=actions, pools=(a_pool_verdict(provider="desk"),))
        machines = [a_machine(name=name) for name in listed]
        stacks = dict(zip(["builders"], self.engine.stacks.values(), strict=False))
        world = a_world(providers={"desk": a_listing(*machines)}, stacks=stacks)
        sources = Sources(
            queues={},
            providers={"desk": FakeProvider(NOW)},
            registries={"debian": self.registry},
            enrollers={"debian": self.registry},
            engine_of=lambda _: self.engine,
            store=self.store,
        )
        return apply_plan(self.fleet, world, plan, sources, self.said.append)

    def token_of(self, name: str) -> str:
        """Return the token that a machine was given."""
        files = read_user_data(self.engine.given[name]).files
        return next(file.content for file in files if file.path.endswith("activation-token"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian-ci")
    store.init()
    return Desk(store)


def test_a_new_machine_is_given_its_worker_s_token(desk: Desk) -> None:
    desk.make(FIRST, SECOND)

    assert {name: desk.token_of(name) for name in (FIRST, SECOND)} == desk.registry.tokens


def test_a_worker_is_told_which_server_it_belongs_to(desk: Desk) -> None:
    desk.make(FIRST)

    files = read_user_data(desk.engine.given[FIRST]).files
    assert any("https://debusine.example.org/api" in file.content for file in files)


def test_workers_of_one_run_start_one_after_the_other(desk: Desk) -> None:
    desk.make(FIRST, SECOND, THIRD)

    delays = [read_user_data(desk.engine.given[name]).delay for name in (FIRST, SECOND, THIRD)]
    assert delays == [0, 2, 4]


def test_a_token_outlives_the_time_that_its_machine_has_to_come_up(desk: Desk) -> None:
    desk.make(FIRST, SECOND)

    deadline = timedelta(minutes=10)  # boot.deadline
    making = timedelta(minutes=10)
    expected = [NOW + deadline + making, NOW + deadline + making + timedelta(seconds=2)]
    assert [each.expires for each in desk.registry.enrolled] == expected


def test_a_worker_is_enrolled_with_its_fleet_pool_and_tags(desk: Desk) -> None:
    tags = {"provides": ["worker:class:big"], "requires": ["task:scope:debian"]}
    pools = {"builders": a_pool(provider="desk", **tags)}
    desk.fleet = a_sim_fleet(queues={"debian": QUEUE}, pools=pools)

    desk.make(FIRST)

    (enrolment,) = desk.registry.enrolled
    assert (enrolment.fleet, enrolment.pool, enrolment.worker) == ("debian-ci", "builders", FIRST)
    assert "worker:class:big" in enrolment.provides
    assert enrolment.requires == ("task:scope:debian",)


def test_a_machine_that_is_refused_leaves_no_token(desk: Desk) -> None:
    desk.engine.fails = {FIRST}

    outcome = desk.make(FIRST, SECOND)

    assert outcome.stacks[0].created == (SECOND,)
    assert list(desk.registry.tokens) == [SECOND]


def test_where_a_worker_cannot_be_enrolled_no_machine_is_made_and_no_token_left(
    desk: Desk,
) -> None:
    desk.registry = FailingRegistry(most=1)

    outcome = desk.make(FIRST, SECOND)

    assert outcome.stacks[0].result == "failed"
    assert desk.engine.machines == {}
    assert desk.registry.tokens == {}


def test_a_name_that_is_at_work_is_left_out_and_the_others_are_made(desk: Desk) -> None:
    desk.registry.running = {FIRST: "90"}

    outcome = desk.make(FIRST, SECOND)

    assert outcome.stacks[0].created == (SECOND,)
    assert f"{FIRST} is not made: {FIRST} runs request 90" in outcome.stacks[0].error


def test_a_run_that_dies_while_it_makes_a_machine_leaves_a_token_that_the_next_replaces(
    desk: Desk,
) -> None:
    desk.engine.dies_at = FIRST
    with pytest.raises(Killed):
        desk.make(FIRST)
    first = desk.token_of(FIRST)
    desk.engine.dies_at = None
    desk.engine.machines.clear()

    desk.make(FIRST)

    assert desk.token_of(FIRST) != first
    assert desk.registry.tokens == {FIRST: desk.token_of(FIRST)}


def test_a_machine_that_a_killed_run_has_made_keeps_the_token_that_it_was_given(
    desk: Desk,
) -> None:
    desk.engine.dies_at = FIRST
    with pytest.raises(Killed):
        desk.make(FIRST)
    desk.engine.dies_at = None
    before = desk.registry.tokens.copy()

    desk.make(FIRST, listed=(FIRST,))

    assert desk.registry.tokens == before


def test_no_token_is_told_stored_or_shown(desk: Desk, tmp_path: Path) -> None:
    desk.engine.fails = {SECOND}

    outcome = desk.make(FIRST, SECOND)

    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    told = f"{desk.said} {outcome!r} {desk.engine.stacks!r} {written!r}"
    assert desk.registry.enrolled
    assert "token-of-" not in told


def test_what_was_told_to_a_registry_is_looked_at_again_at_the_end(desk: Desk) -> None:
    desk.make(FIRST)

    assert desk.registry.confirmed == 1


def test_a_registry_that_does_not_confirm_does_not_end_the_run(desk: Desk) -> None:
    class Forgetful(FakeRegistry):
        def confirm(self) -> None:
            raise SourceUnreachable("worker was drained, but reading it back says otherwise")

    desk.registry = Forgetful()

    outcome = desk.make(FIRST)

    assert outcome.exit_code == 0
    assert "reading it back says otherwise" in desk.said[-1]


def test_a_queue_that_takes_no_word_is_refused_before_anything_changes(desk: Desk) -> None:
    create = a_create(worker=FIRST, registry="elsewhere", inputs=some_inputs(name=FIRST))

    outcome = desk.apply(create)

    assert outcome.stacks[0].result == "refused"
    assert "give it `admin` in fleet.yaml" in outcome.stacks[0].error
    assert desk.engine.machines == {}


def test_what_never_registered_has_its_token_revoked_before_it_is_deleted(desk: Desk) -> None:
    desk.make(FIRST)

    desk.apply(a_delete(worker=FIRST, registry="debian", revokes=True), listed=(FIRST,))

    assert desk.registry.revoked == [FIRST]
    assert desk.registry.tokens == {}
