"""What is said of requests that get no machine: each limit once, with the line that decides."""

from decimal import Decimal

from fleet.model.facts import World
from fleet.model.plan import Unserved
from fleet.planner.shortfall import Shortfalls
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker,
    ago,
    an_attempt,
)
from tests.builders.budgeting import a_charge, a_ledger
from tests.builders.deciding import fleet_with
from tests.builders.sentences import tells

WAITING = (a_request(expected_seconds=3600),)
MACHINE = {"type": "ccx33", "price": "1 EUR/h"}


def unserved_in(fleet: Fleet, world: World) -> Unserved:
    (unserved,) = reconcile(fleet, world).unserved
    return unserved


def test_budget_of_two_hours_is_reported_once_with_the_tighter_one() -> None:
    fleet = fleet_with(machine=MACHINE, budget={"per_hour": "0.50 EUR"})
    spent = a_ledger(a_charge("0.40"))

    unserved = unserved_in(fleet, a_sim_world(requests=WAITING, ledger=spent))

    assert tells(unserved.because, "builders", "0.10", "0.50 EUR", "0.40", "0.00", "0.00", "1.00")
    this, following = (blocked.because for blocked in unserved.blocked)
    assert this == unserved.because
    assert tells(following, "builders", "0.50", "0.50 EUR", "next hour", "0.61")


def test_every_key_that_stops_a_request_is_named_once() -> None:
    one = fleet_with(max=0, max_starting=0)
    fleet = one.model_copy(
        update={"pools": one.pools | {"others": fleet_with(max=0).pools["builders"]}}
    )

    assert unserved_in(fleet, a_sim_world(requests=WAITING)).paths == (
        ("pools", "builders", "workers", "max"),
        ("pools", "builders", "workers", "max_starting"),
        ("pools", "others", "workers", "max"),
    )


def test_unknown_pinned_version_is_explained_by_the_pin() -> None:
    fleet = fleet_with()
    pinned = fleet.images["trixie"].model_copy(update={"version": "20261101T000000Z"})
    fleet = fleet.model_copy(update={"images": {"trixie": pinned}})

    unserved = unserved_in(fleet, a_sim_world(requests=WAITING))

    assert tells(unserved.because, "trixie", "20261101T000000Z")
    assert unserved.path == ("images", "trixie", "version")


def test_closed_option_is_reported_next_to_limit_of_open_one() -> None:
    out = an_attempt(result="out-of-stock", at=ago(minutes=1))
    fleet = fleet_with(machine={"type": ["ccx33", "ccx63"]}, max=0)

    unserved = unserved_in(fleet, a_sim_world(requests=WAITING, attempts=(out,)))

    assert [blocked.path for blocked in unserved.blocked] == [
        ("pools", "builders", "machine"),
        ("pools", "builders", "workers", "max"),
    ]


def test_pool_with_most_memory_is_nearest_when_all_are_too_small() -> None:
    pools = {
        name: a_pool(provider="desk", machine={"type": name, "cores": 8, "memory": memory})
        for name, memory in (("arm", "16GiB"), ("big", "64GiB"), ("mid", "32GiB"))
    }
    fleet = a_sim_fleet(pools=pools, tags={"memory_gib": {"kind": "number"}})
    world = a_sim_world(requests=(a_request(required=("memory_gib>=100",)),))

    because = unserved_in(fleet, world).because
    assert all(word in because for word in ("big", "memory_gib>=100", "memory_gib=64"))


def test_limit_is_recorded_with_its_figures_when_it_blocks() -> None:
    fleet = fleet_with(machine=MACHINE, budget={"per_hour": "1.10 EUR"})
    spent = a_ledger(a_charge("1.00"))

    (this,) = unserved_in(fleet, a_sim_world(requests=WAITING, ledger=spent)).blocked

    assert this.code == "limit"
    assert this.left == Decimal("0.10")
    assert this.unit == "EUR"
    assert this.needed is not None
    assert this.needed > this.left
    assert this.until == ago(minutes=-60)


def test_build_above_the_budget_is_recorded_without_an_end() -> None:
    fleet = fleet_with(machine=MACHINE, budget={"per_month": "5 EUR"})
    long, short = (
        a_request(id=name, expected_seconds=hours * 3600) for name, hours in (("9", 48), ("1", 1))
    )

    plan = reconcile(fleet, a_sim_world(requests=(long, short), ledger=a_ledger(a_charge("4.80"))))

    found = {each.requests: each.is_lasting(()) for each in plan.unserved}
    assert found == {("debian/9",): True, ("debian/1",): False}


def test_full_pool_is_recorded_as_short_of_one_machine() -> None:
    (blocked,) = unserved_in(fleet_with(max=0), a_sim_world(requests=WAITING)).blocked

    assert (blocked.left, blocked.needed) == (Decimal(0), Decimal(1))
    assert blocked.until is None


def test_shortage_of_stock_is_recorded_with_its_next_attempt() -> None:
    attempts = tuple(an_attempt(result="out-of-stock", at=ago(minutes=1)) for _ in "1")

    (blocked,) = unserved_in(
        fleet_with(), a_sim_world(requests=WAITING, attempts=attempts)
    ).blocked

    assert blocked.code == "closed"
    assert blocked.until is not None
    assert tells(blocked.because, f"{blocked.until:%Y-%m-%d %H:%M:%S}")


def lacks(fleet: Fleet, world: World, key: str) -> dict[str, Decimal]:
    """Return what each key is short of at the first place that fits a request."""
    first, *_ = Shortfalls(fleet, world, reconcile(fleet, world)).of(key)
    return {".".join(map(str, each.path)): each.amount for each in first.missing}


def test_shortfall_includes_earlier_requests() -> None:
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in range(1, 8)))

    assert lacks(fleet_with(max=3), world, "debian/7") == {"pools.builders.workers.max": 4}


def test_shortfall_includes_machines_above_maximum() -> None:
    busy = [a_worker(name=f"debian-ci-builders-{n:04}", busy=True) for n in (1, 2, 3)]
    world = a_sim_world(*busy, requests=(a_request(),))

    assert lacks(fleet_with(max=1), world, "debian/101") == {"pools.builders.workers.max": 3}


def test_shortfall_omits_requests_stopped_by_other_limits() -> None:
    tags = {"big": {"limits": {"total": 0}}}
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", max=0, provides=["big"])}, tags=tags
    )
    world = a_sim_world(
        requests=(a_request(id="1", required=("big",)), a_request(id="2", required=()))
    )

    assert lacks(fleet, world, "debian/2") == {"pools.builders.workers.max": 1}
