"""Who pays what for the time since the ledger was charged, one sentence per test."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.model.facts import Ended, Ledger, LedgerEntry, Machine, Unknown, Work, Worker, World
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import charge_all, gap_of, periods
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_sim_fleet,
    a_stack,
    a_worker,
    a_world,
    ago,
    some_inputs,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.decisions import Case, world_of
from tests.builders.sentences import tells

PRICE = Decimal("0.36")


def a_priced_fleet(**overrides: object) -> Fleet:
    """Return a fleet whose machines cost 0.36 EUR/h, so a cent is 100 seconds."""
    pool = a_pool(provider="desk", machine={"type": "ccx33", "price": "0.36 EUR/h"})
    return a_sim_fleet(**({"pools": {"builders": pool}} | overrides))


def some_work(**overrides: object) -> Work:
    """Return work of the scope debian that began ten minutes ago."""
    return Work.model_validate({"scope": "debian", "started_at": ago(minutes=10)} | overrides)


def a_charged_world(
    *workers: Worker, machines: Sequence[Machine] = (), since: datetime | None, **overrides: object
) -> World:
    """Return a world whose ledger was charged then, with a machine for each worker."""
    found = machines or [a_machine(name=w.name, id=w.name) for w in workers] or [a_machine()]
    stack = a_stack(
        provider="desk",
        workers=tuple(some_inputs(name=m.name) for m in found),
        ids={m.name: m.id for m in found},
    )
    defaults: dict[str, object] = {
        "providers": {"desk": a_listing(*found, workers=workers)},
        "stacks": {"builders": stack},
        "ledger": Ledger(charged_until=since),
    }
    return a_world(**(defaults | overrides))


def charged(fleet: Fleet, world: World) -> list[tuple[str | None, int, Decimal]]:
    """Return who is charged how many seconds and how much, hours added up."""
    entries = charge_all(fleet, world, take_inventory(fleet, world)).entries
    payers = dict.fromkeys(entry.scope for entry in entries)
    return sorted(
        ((payer, *_sum(entries, payer)) for payer in payers), key=lambda row: str(row[0])
    )


def _sum(entries: tuple[LedgerEntry, ...], payer: str | None) -> tuple[int, Decimal]:
    theirs = [entry for entry in entries if entry.scope == payer]
    return sum(e.seconds for e in theirs), sum((e.money for e in theirs), Decimal(0))


CASES = [*read_blocks(Path(__file__).parent / "ledger")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_time_is_charged_as_in_its_case(case: Block) -> None:
    assert charged_by(*case.parts) == case.result


def charged_by(pool: str, world: str, age: str) -> str:
    """Return who is charged how many seconds and how much, as text."""
    fleet = Case("", f"machine: {{type: ccx33, price: 0.36 EUR/h}}, {pool}", world, "", ()).fleet
    units = {"m": "minutes", "h": "hours"}
    since = None if age == "never" else ago(**{units[age[-1]]: int(age[:-1])})
    found = charged(fleet, world_of(world).altered(ledger=Ledger(charged_until=since)))
    said = (
        f"{scope or 'pool'} {seconds} s {money.normalize():f}" for scope, seconds, money in found
    )
    return ", ".join(said) or "nothing"


def test_payer_has_team_owner_and_tags_of_work() -> None:
    work = some_work(team="x", owner="ann", required=("big",))
    world = a_charged_world(a_worker(busy=True, work=work), since=ago(minutes=10))
    fleet = a_priced_fleet()

    (entry, *_) = charge_all(fleet, world, take_inventory(fleet, world)).entries

    assert (entry.team, entry.owner, entry.tags) == ("x", "ann", ("big",))


def test_work_of_unknown_start_pays_since_last_charge() -> None:
    worker = a_worker(busy=True, since=None, work=some_work(started_at=None))
    world = a_charged_world(worker, since=ago(minutes=10))

    assert charged(a_priced_fleet(), world) == [("debian", 600, Decimal("0.06"))]


def test_gap_of_days_is_charged_hourly_with_notice() -> None:
    world = a_charged_world(
        machines=[a_machine(created_at=ago(days=9))], since=ago(days=3, minutes=30)
    )
    fleet = a_priced_fleet()

    entries = charge_all(fleet, world, take_inventory(fleet, world)).entries

    assert sum(entry.seconds for entry in entries) == 3 * 86400 + 1800
    assert {entry.seconds for entry in entries} == {1800, 3600}
    assert tells(gap_of(world), "3d 30m")


def test_unknown_ledger_is_not_charged() -> None:
    world = a_charged_world(a_worker(), since=None, ledger=Unknown(unknown="no store"))

    assert charged(a_priced_fleet(), world) == []


# periods


def test_hour_day_and_month_are_in_time_zone_of_fleet() -> None:
    fleet = a_sim_fleet(money={"time_zone": "Asia/Kolkata"})  # five hours and a half ahead

    hour, day, month = periods(fleet, NOW)

    assert hour[1:] == tuple(datetime(2026, 11, 21, at, 30, tzinfo=UTC) for at in (7, 8, 9))
    assert day[1:] == tuple(datetime(2026, 11, d, 18, 30, tzinfo=UTC) for d in (20, 21, 22))
    assert month[1:] == (
        datetime(2026, 10, 31, 18, 30, tzinfo=UTC),
        datetime(2026, 11, 30, 18, 30, tzinfo=UTC),
        datetime(2026, 12, 31, 18, 30, tzinfo=UTC),
    )


@pytest.mark.parametrize("begin", ["2026-04-04T13:00Z", "2026-10-03T13:00Z"])
def test_hours_contain_their_moments_at_half_hour_clock_change(begin: str) -> None:
    fleet = a_sim_fleet(money={"time_zone": "Australia/Lord_Howe"})
    moments = [datetime.fromisoformat(begin) + timedelta(minutes=10 * n) for n in range(24)]

    hours = [(moment, periods(fleet, moment)[0]) for moment in moments]

    assert [at for at, hour in hours if not hour.start <= at < hour.end < hour.next_end] == []


def test_ticket_pays_idle_time_until_next_ticket_starts() -> None:
    ended = Ended(work=some_work(), at=ago(minutes=20))
    world = a_charged_world(a_worker(ended=ended), since=ago(minutes=10))

    assert charged(a_priced_fleet(), world) == [("debian", 600, Decimal("0.06"))]


@pytest.mark.parametrize("keeps", [{"min": 1}, {"spare": 1}, {"mode": "pause"}])
@pytest.mark.parametrize(
    ("sandbox", "opportunity", "minutes"),
    [("ann/one", "2h", 120), ("ann/one", "5m", 5), (" ticket 1", "2h", 15)],
)
def test_pool_pays_for_idle_time_when_it_could_have_deleted_a_machine(
    keeps: dict[str, object], sandbox: str, opportunity: str, minutes: int
) -> None:
    """After the idle time and two runs of ten minutes; the payer before worked for one hour."""
    reuse = {"opportunity": opportunity, "max_age": "8h"}
    priced = {"type": "ccx33", "price": "0.36 EUR/h"}
    pool = a_pool(provider="desk", machine=priced, reuse=reuse, **keeps)
    ended = Ended(work=some_work(), at=ago(hours=3))
    worker = a_worker(since=ago(hours=3), uses=1, requires=(f"sandbox:{sandbox}",), ended=ended)
    machine = a_machine(name=worker.name, id=worker.name, created_at=ago(hours=5))
    world = a_charged_world(worker, machines=[machine], since=ago(hours=4))

    own = (60 + minutes + 20) * 60
    assert charged(a_priced_fleet(pools={"builders": pool}), world) == [
        (None, 4 * 3600 - own, PRICE * 4 - PRICE * own / 3600),
        ("debian", own, PRICE * own / 3600),
    ]
