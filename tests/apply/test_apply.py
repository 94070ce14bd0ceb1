"""What the sequence of apply does with each pool, over written fakes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.apply.observe import Sequential, Sources
from fleet.apply.run import apply_plan
from fleet.errors import SourceUnreachable
from fleet.model.facts import Stack, Unknown, World
from fleet.model.history import Outcome
from fleet.model.plan import ApprovalVerdict
from fleet.ports import EngineTask, StackRef, StackStep
from fleet.schema.model import Fleet
from fleet.state.store import Store
from tests.builders import (
    NOW,
    a_create,
    a_delete,
    a_drain,
    a_guard_result,
    a_listing,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_sim_fleet,
    a_stack,
    a_world,
    some_inputs,
)
from tests.builders.sentences import tells
from tests.fakes.engine import FakeEngine
from tests.fakes.queue import FakeProvider
from tests.fakes.registry import FakeRegistry
from tests.fakes.source_reader import FakeSourceReader

FIRST, SECOND = "debian-ci-builders-0001", "debian-ci-builders-0002"
REF = StackRef(project="sim", name="debian-ci-builders", provider="desk", pool="builders")


@dataclass
class Bench:
    """One fleet, its fakes, and what apply said."""

    store: Store
    engine: FakeEngine = field(default_factory=FakeEngine)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    fleet: Fleet = field(default_factory=a_sim_fleet)
    said: list[str] = field(default_factory=list)

    def holding(self, *names: str) -> "Bench":
        self.engine.up(REF, [some_inputs(name=name) for name in names], lambda _: None)
        return self

    def world(self, **overrides: object) -> World:
        stack = self.engine.stacks.get(REF.name)
        defaults = {
            "providers": {"desk": a_listing(workers=())},
            "stacks": {"builders": stack} if stack else {},
        }
        return a_world(**(defaults | overrides))

    def apply(self, *actions: object, **overrides: object) -> Outcome:
        plan = a_plan(
            actions=actions,
            pools=overrides.pop("pools", (a_pool_verdict(provider="desk"),)),
            guards=overrides.pop("guards", ()),
            approvals=overrides.pop("approvals", ()),
        )
        edges: dict[str, Any] = {
            name: overrides.pop(name) for name in ("is_ending", "executor") if name in overrides
        }
        sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={"desk": FakeProvider(NOW)},
            registries={"desk": self.registry},
            engine_of=lambda _: self.engine,
            store=self.store,
            **edges,
        )
        world = self.world(**overrides)
        return apply_plan(self.fleet, world, plan, sources, self.said.append)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian-ci")
    store.init()
    return Bench(store)


def test_creation_is_executed_and_recorded(bench: Bench) -> None:
    outcome = bench.apply(a_create(worker=FIRST))

    assert outcome.stacks[0].created == (FIRST,)
    assert list(bench.engine.machines) == [FIRST]
    assert [(r.name, r.engine) for r in bench.store.stacks()] == [(REF.name, "embedded")]


def test_kept_workers_have_their_recorded_inputs(bench: Bench) -> None:
    bench.holding(FIRST)

    bench.apply(a_create(worker=SECOND, inputs=some_inputs(name=SECOND, image="newer")))

    assert bench.engine.machines[FIRST] == some_inputs(name=FIRST)


def test_drain_changes_no_machine(bench: Bench) -> None:
    bench.holding(FIRST)

    outcome = bench.apply(a_drain(worker=FIRST, registry="desk"))

    assert outcome.stacks[0].drained == (FIRST,)
    assert (bench.registry.drained, list(bench.engine.machines)) == ([FIRST], [FIRST])


def test_worker_is_disabled_before_its_machine_is_deleted(bench: Bench) -> None:
    bench.holding(FIRST)

    outcome = bench.apply(a_delete(worker=FIRST, registry="desk"))

    assert outcome.stacks[0].deleted == (FIRST,)
    assert (bench.registry.disabled, list(bench.engine.machines)) == ([FIRST], [])


def test_worker_that_got_work_after_the_plan_is_kept(bench: Bench) -> None:
    bench.holding(FIRST, SECOND)
    bench.registry.running = {FIRST: "90"}
    deletes = [a_delete(worker=name, registry="desk") for name in (FIRST, SECOND)]

    outcome = bench.apply(*deletes)

    assert outcome.stacks[0].deleted == (SECOND,)
    assert list(bench.engine.machines) == [FIRST]
    assert "runs request 90" in outcome.stacks[0].error


class ReplacingEngine(FakeEngine):
    """An engine that is about to do more than the plan says."""

    def preview(self, ref: StackRef, workers: object) -> tuple[StackStep, ...]:  # noqa: ARG002
        return (
            StackStep(worker=FIRST, operation="replace"),
            StackStep(worker=SECOND, operation="create"),
        )


def test_pool_is_refused_when_engine_plans_an_unplanned_replace(bench: Bench) -> None:
    bench.engine = ReplacingEngine()

    outcome = bench.apply(a_create(worker=SECOND), a_drain(worker=FIRST, registry="desk"))

    assert outcome.exit_code == 4
    assert tells(outcome.stacks[0].error, "replace", FIRST)
    assert (bench.engine.machines, bench.registry.drained) == ({}, [])


def test_pool_is_refused_when_engine_omits_a_planned_create(bench: Bench) -> None:
    bench.holding(FIRST)

    outcome = bench.apply(a_create(worker=FIRST))

    assert tells(outcome.stacks[0].error, "create", FIRST)


def test_failed_creation_is_reported_and_keeps_other_machines(bench: Bench) -> None:
    bench.engine.fails = {SECOND}

    outcome = bench.apply(a_create(worker=FIRST), a_create(worker=SECOND))

    assert (outcome.stacks[0].result, outcome.stacks[0].created) == ("failed", (FIRST,))
    assert outcome.exit_code == 5


def test_exit_code_is_1_when_all_changes_failed(bench: Bench) -> None:
    bench.engine.fails = {FIRST}

    assert bench.apply(a_create(worker=FIRST)).exit_code == 1


def test_refusing_guard_makes_the_outcome_refused(bench: Bench) -> None:
    outcome = bench.apply(guards=(a_guard_result(),))

    assert outcome.exit_code == 4


@pytest.mark.parametrize(
    "dark",
    [
        {"stacks": Unknown(unknown="there is no store")},
        {"stacks": {"builders": Unknown(unknown="there is no stack")}},
        {"providers": {"desk": Unknown(unknown="no answer")}},
    ],
)
def test_pool_is_refused_when_its_source_is_unknown(bench: Bench, dark: dict[str, object]) -> None:
    outcome = bench.apply(a_create(worker=FIRST), **dark)

    assert outcome.stacks[0].result == "refused"
    assert bench.engine.machines == {}


def test_empty_stack_of_removed_pool_is_forgotten(bench: Bench) -> None:
    bench.holding(FIRST)
    bench.fleet = a_sim_fleet(pools={"other": a_pool(provider="desk")})

    bench.apply(a_delete(worker=FIRST, registry="desk"))

    assert bench.store.stacks() == ()


def test_serial_of_a_changed_stack_is_recorded(bench: Bench) -> None:
    bench.apply(a_create(worker=FIRST))

    stack = bench.engine.stacks[REF.name]
    assert bench.store.stacks()[0].serial == stack.serial > a_stack().serial
    assert isinstance(stack, Stack)


def test_removed_pool_keeps_stack_record_when_a_deletion_fails(bench: Bench) -> None:
    bench.holding(FIRST)
    bench.fleet = a_sim_fleet(pools={"other": a_pool(provider="desk")})
    bench.engine.begins_to_delete = {FIRST}

    outcome = bench.apply(a_delete(worker=FIRST, registry="desk"))

    assert outcome.stacks[0].result == "failed"
    assert [record.name for record in bench.store.stacks()] == [REF.name]


def test_removed_pool_loses_stack_record_when_already_empty(bench: Bench) -> None:
    bench.holding(FIRST)
    bench.apply()
    bench.engine.up(REF, [], lambda _: None)
    bench.fleet = a_sim_fleet(pools={"other": a_pool(provider="desk")})

    bench.apply(pools=())

    assert bench.store.stacks() == ()


def test_pool_is_refused_when_queue_cannot_drain_its_worker(
    bench: Bench,
) -> None:
    bench.holding(FIRST)

    outcome = bench.apply(a_create(worker=SECOND), a_drain(worker=FIRST, registry="trial"))

    assert outcome.stacks[0].result == "refused"
    assert "queue trial" in outcome.stacks[0].error
    assert list(bench.engine.machines) == [FIRST]


def test_empty_stack_of_existing_pool_stays_recorded(bench: Bench) -> None:
    bench.holding(FIRST)

    bench.apply(a_delete(worker=FIRST, registry="desk"))

    assert [record.name for record in bench.store.stacks()] == [REF.name]


# approvals are spent for what is done, for each machine once


def passing(*workers: str) -> tuple[ApprovalVerdict, ...]:
    """Return the approval `a`, which lets these workers pass."""
    approval = ApprovalVerdict(
        digest="a",
        path=("approvals", 0),
        guard="delete",
        pool="builders",
        count=5,
        passes=workers,
        reason="move to ccx63",
        expires=NOW.date(),
    )
    return (approval,)


def spent(bench: Bench) -> int:
    """Return for how many machines the approval `a` is spent."""
    return len(bench.store.spent().get("a", ()))


def test_approval_is_used_only_for_its_worker(bench: Bench) -> None:
    bench.holding(FIRST, SECOND)
    drains = [a_drain(worker=name, registry="desk") for name in (FIRST, SECOND)]

    bench.apply(*drains, approvals=passing(FIRST))

    assert spent(bench) == 1


def test_approval_of_repeated_change_is_used_once(bench: Bench) -> None:
    bench.holding(FIRST)

    for _ in range(2):
        bench.apply(a_drain(worker=FIRST, registry="desk"), approvals=passing(FIRST))

    assert spent(bench) == 1


def test_approval_is_used_again_for_new_machine_of_equal_name(bench: Bench) -> None:
    for _ in range(2):
        bench.apply(a_create(worker=FIRST), approvals=passing(FIRST))
        bench.apply(a_delete(worker=FIRST, registry="desk"))

    assert spent(bench) == 2


def test_approval_is_used_before_the_first_change(bench: Bench) -> None:
    class Dies(FakeRegistry):
        def drain(self, worker: str) -> None:
            raise KeyboardInterrupt(worker)

    bench.holding(FIRST)
    bench.registry = Dies()

    with pytest.raises(KeyboardInterrupt):
        bench.apply(a_drain(worker=FIRST, registry="desk"), approvals=passing(FIRST))

    assert spent(bench) == 1


def test_approval_is_refunded_when_engine_preview_is_refused(bench: Bench) -> None:
    bench.engine = ReplacingEngine()
    actions = (a_create(worker=SECOND), a_drain(worker=FIRST, registry="desk"))

    bench.apply(*actions, approvals=passing(FIRST, SECOND))

    assert spent(bench) == 0


def test_approvals_after_a_failed_drain_are_refunded(bench: Bench) -> None:
    class Deaf(FakeRegistry):
        def drain(self, worker: str) -> None:
            raise SourceUnreachable(f"no answer about {worker}")

    bench.holding(FIRST, SECOND)
    bench.registry = Deaf()
    drains = [a_drain(worker=name, registry="desk") for name in (FIRST, SECOND)]

    bench.apply(*drains, approvals=passing(FIRST, SECOND))

    assert spent(bench) == 1


def test_approval_is_refunded_when_worker_got_work(bench: Bench) -> None:
    bench.holding(FIRST, SECOND)
    bench.registry.running = {FIRST: "90"}
    deletes = [a_delete(worker=name, registry="desk") for name in (FIRST, SECOND)]

    bench.apply(*deletes, approvals=passing(FIRST, SECOND))

    assert spent(bench) == 1


# several pools

POOLS = (a_pool_verdict(provider="desk"), a_pool_verdict(pool="other", provider="desk"))
OTHER = a_create(pool="other", worker="debian-ci-other-0001")


class _Backwards(Sequential):
    """Begins with the last."""

    def run(self, tasks: Sequence[EngineTask]) -> None:
        """Carry out tasks."""
        super().run(tuple(reversed(tasks)))


def test_outcomes_are_in_plan_order_when_pools_run_in_reverse(bench: Bench) -> None:
    outcome = bench.apply(
        a_create(worker=FIRST),
        OTHER,
        pools=POOLS,
        executor=_Backwards(),
    )

    assert [stack.pool for stack in outcome.stacks] == ["builders", "other"]
    assert bench.said == ["other: create debian-ci-other-0001", f"builders: create {FIRST}"]


def test_outcome_names_unstarted_pools_when_apply_is_stopped(bench: Bench) -> None:
    outcome = bench.apply(
        a_create(worker=FIRST), OTHER, pools=POOLS, is_ending=lambda: bool(bench.said)
    )

    assert ([stack.pool for stack in outcome.stacks], outcome.left) == (["builders"], ("other",))
    assert list(bench.engine.machines) == [FIRST]
