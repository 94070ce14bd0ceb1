"""New workers of a queue get a token each, their machine gets it, and none is left over."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.engines.projects import two_step_change
from fleet.errors import Locked, PlanRefused, SourceUnreachable, StackFailed
from fleet.model.facts import Stack, WorkerInputs
from fleet.model.user_data import read_user_data
from fleet.ports import NO_USER_DATA, Enrolment, Progress, StackChange, StackRef, StackStep, Tell
from tests.builders import NOW, a_create, a_delete, a_drain, a_pool, a_sim_fleet, some_inputs
from tests.builders.queue_desk import TicketDesk
from tests.builders.queue_worlds import FIRST, QUEUE, SECOND, THIRD
from tests.builders.sentences import tells
from tests.fakes.engine import FakeEngine, Killed
from tests.fakes.registry import FakeRegistry


class FailingRegistry(FakeRegistry):
    """A registry that knows no more workers than so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def enrol(self, enrolment: Enrolment) -> str:
        if len(self.enrolled) == self.most:
            raise SourceUnreachable("the database does not answer")
        return super().enrol(enrolment)


class FailingToGiveUp(FakeEngine):
    """An engine whose held changes are never given up in good order: its process is gone."""

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        yield two_step_change(self, ref, workers)
        raise StackFailed("the engine's process ended in the middle")


class OnAFullDisk(FakeEngine):
    """An engine that makes machines, and whose state is as it was before."""

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        super().up(ref, workers, progress, user_data)
        before = Stack(engine=self.name, provider=ref.provider, serial=1, interrupted=True)
        self.stacks[ref.name] = before
        raise StackFailed("the disk is full")


class TakenMeanwhile(FakeEngine):
    """An engine whose stack another run holds, but for the first two changes."""

    prepared = 0

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        self.prepared += 1
        if self.prepared > 2:
            raise Locked("another run holds it")
        yield two_step_change(self, ref, workers)


@pytest.fixture
def desk(tmp_path: Path) -> TicketDesk:
    return TicketDesk.at(tmp_path)


def test_new_machine_gets_token_of_its_worker(desk: TicketDesk) -> None:
    desk.make(FIRST, SECOND)

    assert {name: desk.token_of(name) for name in (FIRST, SECOND)} == desk.registry.tokens


def test_user_data_contains_url_of_server(desk: TicketDesk) -> None:
    desk.make(FIRST)

    files = read_user_data(desk.engine.given[FIRST]).files
    assert any("https://debusine.example.org/api" in file.content for file in files)


def test_workers_of_one_run_start_in_order(desk: TicketDesk) -> None:
    desk.make(FIRST, SECOND, THIRD)

    delays = [read_user_data(desk.engine.given[name]).delay for name in (FIRST, SECOND, THIRD)]
    assert delays == [0, 2, 4]


def test_token_expires_after_boot_deadline_of_its_machine(desk: TicketDesk) -> None:
    desk.make(FIRST, SECOND)

    deadline = timedelta(minutes=10)  # boot.deadline
    making = timedelta(minutes=10)
    expected = [NOW + deadline + making, NOW + deadline + making + timedelta(seconds=2)]
    assert [each.expires for each in desk.registry.enrolled] == expected


def test_user_data_contains_swap_of_pool(desk: TicketDesk) -> None:
    pools = {"builders": a_pool(provider="desk", machine={"type": "ccx33", "swap": "2GiB"})}
    desk.fleet = a_sim_fleet(queues={"debian": QUEUE}, pools=pools)

    desk.make(FIRST)

    assert read_user_data(desk.engine.given[FIRST]).swap == 2048


def test_worker_is_enrolled_with_its_fleet_pool_and_tags(desk: TicketDesk) -> None:
    tags = {"provides": ["worker:class:big"], "requires": ["task:scope:debian"]}
    pools = {"builders": a_pool(provider="desk", **tags)}
    desk.fleet = a_sim_fleet(queues={"debian": QUEUE}, pools=pools)

    desk.make(FIRST)

    (enrolment,) = desk.registry.enrolled
    assert (enrolment.fleet, enrolment.pool, enrolment.worker) == ("debian-ci", "builders", FIRST)
    assert "worker:class:big" in enrolment.provides
    assert enrolment.requires == ("task:scope:debian",)


def test_refused_machine_leaves_no_token(desk: TicketDesk) -> None:
    desk.engine.fails = {FIRST}

    outcome = desk.make(FIRST, SECOND)

    assert outcome.stacks[0].created == (SECOND,)
    assert list(desk.registry.tokens) == [SECOND]


def test_machine_of_unknown_existence_keeps_its_token(desk: TicketDesk) -> None:
    desk.engine = OnAFullDisk()

    outcome = desk.make(FIRST)

    assert outcome.stacks[0].result == "failed"
    assert list(desk.engine.machines) == list(desk.registry.tokens) == [FIRST]


def test_failed_enrolment_does_not_stop_earlier_workers(
    desk: TicketDesk,
) -> None:
    desk.registry = FailingRegistry(most=1)

    outcome = desk.make(FIRST, SECOND, THIRD)

    assert (outcome.stacks[0].result, outcome.stacks[0].created) == ("failed", (FIRST,))
    assert list(desk.registry.tokens) == [FIRST]
    assert tells(outcome.stacks[0].error, SECOND, "created", "answer")


def test_unused_token_is_revoked_when_engine_and_enrolment_fail(
    desk: TicketDesk,
) -> None:
    desk.engine = FailingToGiveUp()
    desk.registry = FailingRegistry(most=1)

    outcome = desk.make(FIRST, SECOND)

    assert (outcome.stacks[0].result, outcome.stacks[0].created) == ("failed", ())
    assert tells(outcome.stacks[0].error, "engine", "ended")
    assert [each.worker for each in desk.registry.enrolled] == [FIRST]
    assert desk.registry.tokens == {}


def test_deletions_continue_when_enrolment_fails(
    desk: TicketDesk,
) -> None:
    desk.make(FIRST)
    desk.registry = FailingRegistry(most=0)
    create = a_create(worker=SECOND, registry="debian", inputs=some_inputs(name=SECOND))

    outcome = desk.apply(create, a_delete(worker=FIRST, registry="debian"), listed=(FIRST,))

    assert (outcome.stacks[0].result, outcome.stacks[0].deleted) == ("failed", (FIRST,))
    assert desk.engine.machines == {}


def test_worker_is_disabled_after_new_workers_are_enrolled(desk: TicketDesk) -> None:
    desk.make(FIRST)
    order: list[str] = []

    class Watched(FakeRegistry):
        def enrol(self, enrolment: Enrolment) -> str:
            order.append(f"enrol {enrolment.worker}")
            return super().enrol(enrolment)

        def disable(self, worker: str) -> None:
            order.append(f"disable {worker}")
            super().disable(worker)

    desk.registry = Watched()
    create = a_create(worker=SECOND, registry="debian", inputs=some_inputs(name=SECOND))

    desk.apply(create, a_delete(worker=FIRST, registry="debian"), listed=(FIRST,))

    assert order == [f"enrol {SECOND}", f"disable {FIRST}"]


def test_disabled_workers_are_deleted_when_registry_fails_later(desk: TicketDesk) -> None:
    desk.make(FIRST, SECOND, THIRD)

    class Failing(FakeRegistry):
        def disable(self, worker: str) -> None:
            if worker != FIRST:
                raise SourceUnreachable(f"no answer about {worker}")
            super().disable(worker)

    desk.registry = Failing()
    names = (FIRST, SECOND, THIRD)
    deletes = [a_delete(worker=name, registry="debian") for name in names]

    outcome = desk.apply(*deletes, listed=names)

    assert (outcome.stacks[0].result, outcome.stacks[0].deleted) == ("failed", (FIRST,))
    assert tells(outcome.stacks[0].error, SECOND, "deleted", "answer", SECOND)


def test_reason_for_kept_worker_is_given_when_all_deletions_fail(desk: TicketDesk) -> None:
    desk.engine = TakenMeanwhile()
    desk.make(FIRST, SECOND)
    desk.registry.running = {FIRST: "90"}
    deletes = [a_delete(worker=name, registry="debian") for name in (FIRST, SECOND)]

    outcome = desk.apply(*deletes, listed=(FIRST, SECOND))

    said = f"{FIRST} not deleted: {FIRST} runs request 90; another run holds it"
    assert outcome.stacks[0].error == said


def test_other_workers_continue_when_registry_refuses_one(desk: TicketDesk) -> None:
    desk.make(FIRST, SECOND)

    class Strange(FakeRegistry):
        def enrol(self, enrolment: Enrolment) -> str:
            raise PlanRefused(f"worker {enrolment.worker} is not of fleet debian-ci")

        def disable(self, worker: str) -> None:
            if worker == FIRST:
                raise PlanRefused(f"worker {worker} is not of fleet debian-ci")
            super().disable(worker)

    desk.registry = Strange()
    create = a_create(worker=THIRD, registry="debian", inputs=some_inputs(name=THIRD))
    deletes = [a_delete(worker=name, registry="debian") for name in (FIRST, SECOND)]

    outcome = desk.apply(create, *deletes, listed=(FIRST, SECOND))

    assert (outcome.stacks[0].result, outcome.stacks[0].deleted) == ("failed", (SECOND,))
    assert outcome.stacks[0].error.count("is not of fleet debian-ci") == 2


def test_request_is_released_before_stopped_machine_is_deleted(
    desk: TicketDesk,
) -> None:
    desk.make(FIRST)
    desk.registry.running = {FIRST: "90"}

    outcome = desk.apply(a_delete(worker=FIRST, registry="debian", releases=True), listed=(FIRST,))

    assert (desk.registry.released, outcome.stacks[0].deleted) == ([FIRST], (FIRST,))


def test_busy_name_is_skipped_and_other_machines_are_created(desk: TicketDesk) -> None:
    desk.registry.running = {FIRST: "90"}

    outcome = desk.make(FIRST, SECOND)

    assert outcome.stacks[0].created == (SECOND,)
    assert f"{FIRST} not created: {FIRST} runs request 90" in outcome.stacks[0].error


def test_token_of_killed_run_is_replaced_by_next_run(
    desk: TicketDesk,
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


def test_token_is_kept_when_apply_died_after_creating_its_machine(
    desk: TicketDesk,
) -> None:
    desk.engine.dies_at = FIRST
    with pytest.raises(Killed):
        desk.make(FIRST)
    desk.engine.dies_at = None
    before = desk.registry.tokens.copy()

    desk.make(FIRST, listed=(FIRST,))

    assert desk.registry.tokens == before


def test_tokens_are_absent_from_output_outcome_and_store(desk: TicketDesk, tmp_path: Path) -> None:
    desk.engine.fails = {SECOND}

    outcome = desk.make(FIRST, SECOND)

    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    told = f"{desk.said} {outcome!r} {desk.engine.stacks!r} {written!r}"
    assert desk.registry.enrolled
    assert "token-of-" not in told


def test_registry_is_confirmed_once_at_end_of_apply(desk: TicketDesk) -> None:
    desk.make(FIRST)

    assert desk.registry.confirmed == 1


def test_console_shows_confirmation_wait_when_a_worker_was_drained(desk: TicketDesk) -> None:
    desk.make(FIRST)
    before = [said for said in desk.said if "looking again" in said]

    desk.apply(a_drain(worker=FIRST))

    assert before == []
    assert desk.said[-1].startswith("debian: ")
    assert " 12 s" in desk.said[-1]


def test_run_continues_when_registry_does_not_confirm(desk: TicketDesk) -> None:
    class Forgetful(FakeRegistry):
        def confirm(self, tell: Tell) -> None:  # noqa: ARG002 - the port's own argument
            raise SourceUnreachable("worker w-9 was not drained")

    desk.registry = Forgetful()

    outcome = desk.make(FIRST)

    assert outcome.exit_code == 0
    assert tells(desk.said[-1], "w-9", "not drained")


def test_pool_is_refused_when_its_queue_is_read_only(desk: TicketDesk) -> None:
    create = a_create(worker=FIRST, registry="elsewhere", inputs=some_inputs(name=FIRST))

    outcome = desk.apply(create)

    assert outcome.stacks[0].result == "refused"
    assert tells(outcome.stacks[0].error, "queue elsewhere", "read-only")
    assert desk.engine.machines == {}


def test_token_is_revoked_when_unregistered_worker_is_deleted(
    desk: TicketDesk,
) -> None:
    desk.make(FIRST)

    desk.apply(a_delete(worker=FIRST, registry="debian", revokes=True), listed=(FIRST,))

    assert desk.registry.revoked == [FIRST]
    assert desk.registry.tokens == {}
