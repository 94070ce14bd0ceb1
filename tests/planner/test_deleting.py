"""What is let go of, in which order, and what stays because it is paid for, in sentences."""

from collections.abc import Callable

import pytest

from fleet.model.facts import Unknown, Worker
from fleet.model.plan import Delete, Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)
from tests.builders.deciding import (
    FIRST,
    SECOND,
    actions_of,
    drained,
    fleet_with,
    reason_of,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket_fleet

THIRD = "debian-ci-builders-0003"


BY_THE_SECOND = {"desk": {"kind": "sim", "billing": {"increment": "1s"}}}


where_nothing_more_is_paid = pytest.mark.parametrize(
    "fleet_of",
    [
        pytest.param(lambda: on_demand(retire={"at": "once"}), id="retire.at is once"),
        pytest.param(lambda: on_demand(providers=BY_THE_SECOND), id="billed by the second"),
    ],
)


def hourly(**overrides: object) -> Fleet:
    """Return a fleet whose machines are billed by the hour."""
    billing = {"increment": "1h"}
    defaults: dict[str, object] = {"providers": {"desk": {"kind": "sim", "billing": billing}}}
    return a_sim_fleet(**(defaults | overrides))


def idle(name: str = FIRST, minutes: float = 20) -> Worker:
    return a_worker(name=name, since=ago(minutes=minutes))


# paid time


@pytest.mark.parametrize(
    ("minutes", "goes"),
    [(20, False), (37, False), (38, False), (39, True), (48, True), (49, False)],
)
def test_idle_machine_is_kept_until_last_run_of_paid_hour(minutes: float, *, goes: bool) -> None:
    # With a run every 10 minutes one drains it, the next deletes it, which takes up to 2 minutes:
    # all before the hour ends. What cannot be gone by then has the next hour too.
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=minutes))

    plan = reconcile(hourly(cadence="10m"), world)

    assert drained(plan) == ([FIRST] if goes else [])


def test_paid_machine_shows_end_of_paid_time() -> None:
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=25))

    plan = reconcile(hourly(), world)

    assert reason_of(plan, FIRST) is Reason.PAID_FOR
    assert tells(
        sentence_of(plan, FIRST), "20m", "retire.idle_after", "15m", "35m", "cadence", "10m", "2m"
    )


@pytest.mark.parametrize(
    ("took", "minutes", "goes"),
    [(300, 35, False), (300, 36, True), (10, 39, False), (10, 40, True)],
)
def test_last_run_of_paid_hour_allows_time_for_deletion(
    took: int, minutes: float, *, goes: bool
) -> None:
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=minutes))

    plan = reconcile(hourly(), world.altered(delete_seconds=took))

    assert drained(plan) == ([FIRST] if goes else [])


def test_idle_machine_is_drained_when_runs_are_rare() -> None:
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=25))

    assert drained(reconcile(hourly(cadence="1h"), world)) == [FIRST]


def test_idle_machine_is_kept_until_end_of_second_paid_hour() -> None:
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=70))

    assert reconcile(hourly(), world).is_quiet


def test_idle_machine_billed_per_second_is_drained_after_idle_time() -> None:
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=25))

    assert drained(reconcile(a_sim_fleet(), world)) == [FIRST]


def test_recently_idle_machine_is_not_reported_as_paid() -> None:
    world = with_machines(a_sim_world(idle(minutes=3)), created_at=ago(minutes=25))

    assert reason_of(reconcile(hourly(), world), FIRST) is Reason.IDLE_RECENTLY


def test_unneeded_on_demand_machine_is_kept_for_paid_hour() -> None:
    world = with_machines(a_sim_world(idle(minutes=0)), created_at=ago(minutes=25))

    plan = reconcile(on_demand(), world)

    assert drained(plan) == []
    assert reason_of(plan, FIRST) is Reason.PAID_FOR


@where_nothing_more_is_paid
def test_unneeded_on_demand_machine_is_deleted(fleet_of: Callable[[], Fleet]) -> None:
    world = with_machines(a_sim_world(idle(minutes=0)), created_at=ago(minutes=25))

    assert drained(reconcile(fleet_of(), world)) == [FIRST]


def test_retire_once_ignores_paid_time() -> None:
    pool = a_pool(provider="desk", retire={"at": "once"})
    world = with_machines(a_sim_world(idle()), created_at=ago(minutes=25))

    assert drained(reconcile(hourly(pools={"builders": pool}), world)) == [FIRST]


# least regret first


def one_too_many(fleet: Fleet, *workers: Worker, **machine: object) -> list[str]:
    """Return who goes when one of several idle workers may; FIRST's machine is as said."""
    world = with_machines(a_sim_world(*workers), FIRST, **machine)
    return drained(reconcile(fleet, world))


def test_outdated_surplus_is_drained_first() -> None:
    fleet = fleet_with(spare=1, replace={"at_a_time": "0%"})

    gone = one_too_many(fleet, idle(FIRST, 20), idle(SECOND, 50), digest="yesterday")

    assert gone == [FIRST]


def test_shortest_paid_surplus_is_drained_first() -> None:
    pools = {"builders": a_pool(provider="desk", spare=1)}
    fleet = hourly(cadence="5m", pools=pools)
    world = with_machines(a_sim_world(idle(FIRST, 50), idle(SECOND)), created_at=ago(minutes=50))
    world = with_machines(world, FIRST, created_at=ago(minutes=70))

    assert drained(reconcile(fleet, world)) == [SECOND]


def test_longest_idle_is_drained_when_order_of_use_is_unknown() -> None:
    assert one_too_many(fleet_with(spare=1), idle(FIRST, 20), idle(SECOND, 50)) == [SECOND]


def test_youngest_machine_is_drained_first_at_debusine() -> None:
    names = {FIRST: ago(hours=5), SECOND: ago(hours=2)}
    world = a_sim_world(
        queues={"debian": a_reading(workers=(idle(FIRST, 50), idle(SECOND, 20)))},
        providers={
            "desk": a_listing(
                *(a_machine(name=n, id=f"sim-{n}", created_at=at) for n, at in names.items())
            )
        },
        stacks={
            "builders": a_stack(
                provider="desk",
                workers=tuple(some_inputs(name=name) for name in names),
                ids={name: f"sim-{name}" for name in names},
            )
        },
    )

    assert drained(reconcile(fleet_with(spare=1), world)) == [SECOND]


def test_first_machine_by_name_is_drained_when_all_are_equal() -> None:
    assert one_too_many(fleet_with(spare=1), idle(SECOND), idle(FIRST)) == [FIRST]


# min and spare


def test_only_used_machine_is_kept_for_its_sandbox() -> None:
    had = idle(FIRST).altered(uses=1, requires=("sandbox:chroots",))
    had_none = idle(SECOND).altered(uses=0)

    plan = reconcile(fleet_with(reuse={"opportunity": "1h"}), a_sim_world(had, had_none))

    assert drained(plan) == [SECOND]
    assert tells(sentence_of(plan, FIRST), "reuse.opportunity", "1h")


def test_reuse_keeps_no_worker_used_by_requests_without_tickets() -> None:
    plan = reconcile(
        fleet_with(reuse={"opportunity": "1h"}), a_sim_world(idle(FIRST).altered(uses=3))
    )

    assert drained(plan) == [FIRST]


@pytest.mark.parametrize("on_demand", [False, True])
@pytest.mark.parametrize(("minutes", "reasons"), [(20, []), (59, []), (61, ["ticket-returned"])])
def test_used_machine_is_kept_for_reuse_when_its_sandbox_is_unknown(
    minutes: int, reasons: list[str], *, on_demand: bool
) -> None:
    reuse = {"reuse": {"opportunity": "1h"}, "retire": {"idle_after": "5m", "at": "once"}}
    fleet = a_ticket_fleet(pool=reuse, tag={"on_demand": on_demand})
    worker = a_worker(name=FIRST, pool="powerful", since=ago(minutes=minutes), uses=1)
    desk = {"tickets": a_reading(workers=None)}

    plan = reconcile(fleet, a_sim_world(worker, queues=desk))

    assert [each.reason for each in plan.actions] == reasons


def test_min_keeps_idle_workers_indefinitely() -> None:
    plan = reconcile(fleet_with(min=2), a_sim_world(idle(FIRST, 900), idle(SECOND, 900)))

    assert plan.is_quiet


def test_only_workers_above_min_are_drained() -> None:
    workers = (idle(FIRST, 30), idle(SECOND, 20), idle(THIRD, 40))

    assert drained(reconcile(fleet_with(min=2), a_sim_world(*workers))) == [THIRD]


def test_booting_worker_does_not_replace_ready_worker_in_min() -> None:
    world = a_sim_world(idle(FIRST, 900), starting=(SECOND,))

    assert FIRST not in drained(reconcile(fleet_with(min=1), world))


def test_draining_worker_does_not_count_to_min() -> None:
    world = a_sim_world(a_worker(busy=True, draining=True))

    assert actions_of(reconcile(fleet_with(min=1), world)) == [("create", SECOND)]


def test_draining_worker_does_not_block_growth() -> None:
    world = a_sim_world(a_worker(draining=True), a_worker(name=SECOND, busy=True))

    plan = reconcile(fleet_with(max=3, spare=1), world)

    assert actions_of(plan) == [("create", THIRD), ("delete", FIRST)]


# modes and removed pools


def test_busy_worker_of_draining_pool_is_drained() -> None:
    plan = reconcile(fleet_with(mode="drain"), a_sim_world(a_worker(busy=True)))

    assert actions_of(plan) == [("drain", FIRST)]


def test_busy_worker_of_removed_pool_is_drained() -> None:
    fleet = a_sim_fleet(pools={"other": a_pool(provider="desk")})

    assert actions_of(reconcile(fleet, a_sim_world(a_worker(busy=True)))) == [("drain", FIRST)]


def test_draining_busy_worker_is_drained_once() -> None:
    world = a_sim_world(a_worker(busy=True, draining=True))

    assert reconcile(fleet_with(mode="drain"), world).is_quiet


def test_idle_workers_above_max_are_drained_before_busy_ones() -> None:
    world = a_sim_world(a_worker(busy=True), idle(SECOND), a_worker(name=THIRD, busy=True))

    assert drained(reconcile(fleet_with(max=1), world)) == [SECOND, FIRST]


def test_draining_worker_does_not_count_above_max() -> None:
    world = a_sim_world(a_worker(busy=True, draining=True), a_worker(name=SECOND, busy=True))

    assert reconcile(fleet_with(max=1), world).is_quiet


# requests withdrawn early


def on_demand(retire: dict[str, str] | None = None, **overrides: object) -> Fleet:
    """Return a fleet whose pool exists only for who asks for `powerful`."""
    defaults: dict[str, object] = {
        "tags": {"powerful": {"on_demand": True}},
        "pools": {"builders": a_pool(provider="desk", provides=["powerful"], retire=retire or {})},
    }
    return hourly(**(defaults | overrides))


def test_booting_machine_is_deleted_when_its_request_is_withdrawn() -> None:
    plan = reconcile(fleet_with(), a_sim_world(starting=(FIRST,)))

    assert [(a.action, a.reason) for a in plan.actions] == [("delete", Reason.NOT_WANTED)]


def test_token_of_deleted_booting_machine_is_revoked() -> None:
    (action,) = reconcile(fleet_with(), a_sim_world(starting=(FIRST,))).actions

    assert isinstance(action, Delete)
    assert (action.revokes, action.registry) == (True, "desk")


def test_booting_machine_is_kept_when_its_request_waits() -> None:
    world = a_sim_world(starting=(FIRST,), requests=(a_request(),))

    assert reconcile(fleet_with(), world).is_quiet


def test_booting_machine_is_reassigned_to_another_fitting_request() -> None:
    world = a_sim_world(starting=(FIRST,), requests=(a_request(id="202"),))

    plan = reconcile(on_demand(), world)

    assert reason_of(plan, FIRST) is Reason.SERVES_WAITING


def test_booting_on_demand_machine_is_kept_for_paid_hour() -> None:
    plan = reconcile(on_demand(), a_sim_world(starting=(FIRST,)))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.PAID_FOR


@where_nothing_more_is_paid
def test_booting_on_demand_machine_is_deleted_without_paid_time(
    fleet_of: Callable[[], Fleet],
) -> None:
    plan = reconcile(fleet_of(), a_sim_world(starting=(FIRST,)))

    assert actions_of(plan) == [("delete", FIRST)]


def test_unneeded_hourly_boot_is_kept_for_paid_hour() -> None:
    plan = reconcile(hourly(), a_sim_world(starting=(FIRST,)))

    assert plan.is_quiet
    assert reason_of(plan, FIRST) is Reason.PAID_FOR


@pytest.mark.parametrize("need", [{"min": 1}, {"spare": 1}])
def test_booting_machine_is_kept_for_min_or_spare(need: dict[str, int]) -> None:
    assert reconcile(fleet_with(**need), a_sim_world(starting=(FIRST,))).is_quiet


def test_youngest_booting_machine_is_deleted_first() -> None:
    world = a_sim_world(starting=(FIRST, SECOND))
    world = with_machines(world, FIRST, created_at=ago(seconds=5))

    assert actions_of(reconcile(fleet_with(spare=1), world)) == [("delete", FIRST)]


def test_replacement_is_kept_while_booting() -> None:
    world = a_sim_world(idle(FIRST), starting=(SECOND,))
    world = with_machines(world, FIRST, digest="yesterday")

    assert reconcile(fleet_with(min=1), world).is_quiet


def test_booting_machine_is_kept_when_token_is_irrevocable() -> None:
    world = a_sim_world(
        queues={"debian": a_reading()},
        providers={"desk": a_listing(a_machine(id="sim-1", created_at=ago(seconds=9)))},
        stacks={
            "builders": a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})
        },
    )

    assert reconcile(fleet_with(), world).is_quiet


def test_booting_machine_is_kept_when_demand_is_unknown() -> None:
    dark = {"debian": a_reading(demand=Unknown(unknown="no answer"), workers=None)}

    assert reconcile(fleet_with(), a_sim_world(starting=(FIRST,), queues=dark)).is_quiet


@pytest.mark.parametrize("pool", [{"mode": "drain"}, {"max": 0}])
def test_booting_machine_of_unwanted_pool_is_deleted(pool: dict[str, object]) -> None:
    plan = reconcile(fleet_with(**pool), a_sim_world(starting=(FIRST,)))

    assert actions_of(plan) == [("delete", FIRST)]


def test_booting_machine_above_max_is_deleted_before_ready_one() -> None:
    world = a_sim_world(idle(FIRST, 1), starting=(SECOND,))

    assert actions_of(reconcile(fleet_with(max=1), world)) == [("delete", SECOND)]
