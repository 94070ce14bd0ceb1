"""What was spent since the ledger was last charged, by hour and payer.

Work pays the time it keeps a machine busy; the pool pays the rest of what its provider bills:
boot and idle time, and the part of a billed step that no work used. What is charged between two
moments is a difference of two amounts, so that charging often or seldom adds up to the same.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fleet.model.facts import Entry, Unknown, Work, WorkerInputs, World, market_of
from fleet.model.months import Tally
from fleet.model.plan import PeriodName
from fleet.model.prices import Life, Tariff, tariff_at, tariff_of
from fleet.planner.inventory import PoolInventory
from fleet.planner.units import State, Unit, is_busy
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_duration

_FREE = Tariff(price=Decimal(0))
_LONG = timedelta(days=1)
_PLACES = 9


class Period(NamedTuple):
    """The current hour, day or month of `money.time_zone`, and when the next one ends."""

    name: PeriodName
    start: datetime
    end: datetime
    next_end: datetime


def periods(fleet: Fleet, now: datetime) -> tuple[Period, Period, Period]:
    """Return the current hour, day and month; a day on which clocks change has 23 or 25 hours."""
    zone = ZoneInfo(fleet.money.time_zone)
    today = now.astimezone(zone).date()
    hour = hour_of(zone, now)
    after = _next_hour(zone, hour)
    days = (today, today + timedelta(days=1), today + timedelta(days=2))
    first = today.replace(day=1)
    second = _next_month(first)
    months = (first, second, _next_month(second))
    return (
        Period("hour", hour, after, _next_hour(zone, after)),
        Period("day", *(_midnight(zone, day) for day in days)),
        Period("month", *(_midnight(zone, day) for day in months)),
    )


def hour_of(zone: ZoneInfo, moment: datetime) -> datetime:
    """Return when the hour of a zone's clocks began, in UTC."""
    moment = moment.astimezone(UTC)
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    return moment - (moment + offset - datetime.min.replace(tzinfo=UTC)) % timedelta(hours=1)


def _next_hour(zone: ZoneInfo, hour: datetime) -> datetime:
    end = hour + timedelta(hours=1)
    if hour_of(zone, end - timedelta(microseconds=1)) == hour:
        return end
    # Where clocks change within it by less than an hour, the hour that follows begins earlier.
    return max(hour + timedelta(minutes=1), hour_of(zone, end))


def _midnight(zone: ZoneInfo, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _next_month(first: date) -> date:
    return (first + timedelta(days=32)).replace(day=1)


@dataclass(frozen=True)
class Holding:
    """One machine that costs money, as far as anybody saw it."""

    pool: str
    tariff: Tariff | None
    """None: its price is unknown."""
    created_at: datetime
    unit: Unit | None = None
    """None where only its stack tells of it, because its provider could not be read."""


def holdings(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[Holding, ...]:
    """Return the machines of every pool; those of a silent provider as their stack records them.

    What only a stack tells of, and what has no known age, is taken to exist since the ledger was
    charged, by the second: unknown is not zero.
    What an apply that was killed had begun to make, this one makes.
    """
    known = None if isinstance(world.ledger, Unknown) else world.ledger.charged_until
    found = []
    for name, pool in inventory.items():
        for unit in pool.units:
            if unit.machine is not None:
                tariff = _tariff(fleet, pool, unit.machine.type, unit.inputs)
                created = unit.machine.created_at
                if created is None:
                    tariff = Tariff(tariff.price) if tariff else None
                found.append(Holding(name, tariff, created or known or world.time, unit))
            elif unit.state is State.UNFINISHED and unit.inputs is not None:
                tariff = _tariff(fleet, pool, unit.inputs.type, unit.inputs)
                found.append(Holding(name, tariff, world.time, unit))
        for inputs in () if pool.listed else _recorded(world, name):
            tariff = _tariff(fleet, pool, inputs.type, inputs)
            by_second = Tariff(tariff.price) if tariff else None
            found.append(Holding(name, by_second, known or world.time))
    return tuple(found)


def _recorded(world: World, pool: str) -> tuple[WorkerInputs, ...]:
    stack = world.stack_of(pool)
    return stack.workers if stack else ()


def _tariff(
    fleet: Fleet, inventory: PoolInventory, kind: str, inputs: WorkerInputs | None
) -> Tariff | None:
    market = market_of(inputs)
    pool = fleet.pools.get(inventory.pool)
    if isinstance(pool, Pool):
        return tariff_of(fleet, pool, kind, market)
    return tariff_at(fleet, inventory.provider, kind, market)


class _Account(NamedTuple):
    """Who pays: work by its scope, team, owner and tags; nothing of these: the pool."""

    pool: str
    scope: str | None = None
    team: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()


class Charged(NamedTuple):
    """What to add to the ledger, and what of it was for which package in which month."""

    entries: tuple[Entry, ...] = ()
    packages: tuple[Tally, ...] = ()


def charge(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[Entry, ...]:
    """Return what to add to the ledger for the time since it was last charged."""
    return charge_all(fleet, world, inventory).entries


def charge_all(fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]) -> Charged:
    """Return what to add to the ledger for the time since it was last charged, and packages.

    Where it never was, nothing is charged from before this month: no budget looks further back.
    A gap is charged all the same, whatever its length.
    """
    if isinstance(world.ledger, Unknown):
        return Charged()
    zone = ZoneInfo(fleet.money.time_zone)
    since = world.ledger.charged_until or periods(fleet, world.time)[2].start
    seconds: defaultdict[tuple[datetime, _Account], int] = defaultdict(int)
    money: defaultdict[tuple[datetime, _Account], Decimal] = defaultdict(Decimal)
    packages: defaultdict[tuple[str, str], tuple[int, Decimal]] = defaultdict(
        lambda: (0, Decimal(0))
    )
    for holding in holdings(fleet, world, inventory):
        pool = _Account(holding.pool)
        for start, end, payer, package in _spans(holding, since, world.time):
            for hour, begin, stop in _hours(zone, start, end):
                first = hour.astimezone(zone).date().replace(day=1)
                month = _midnight(zone, first)
                life = Life(holding.tariff or _FREE, holding.created_at, month)
                lasted = life.seconds(begin, stop)
                seconds[hour, payer] += lasted
                accrued = life.accrued(begin, stop) if payer != pool else Decimal(0)
                money[hour, payer] += accrued
                money[hour, pool] += life.billed(begin, stop) - accrued
                if package:
                    key = (f"{first:%Y-%m}", package)
                    before = packages[key]
                    packages[key] = (before[0] + lasted, before[1] + accrued)
    entries = tuple(
        Entry(hour=hour, seconds=seconds[hour, payer], money=amount, **payer._asdict())
        for (hour, payer), amount in sorted(money.items(), key=_by_hour)
        if amount or seconds[hour, payer]
    )
    return Charged(entries, tuple(_tallied(packages)))


def _tallied(packages: Mapping[tuple[str, str], tuple[int, Decimal]]) -> Iterator[Tally]:
    for (month, package), (seconds, money) in sorted(packages.items()):
        nanos = int(money.scaleb(_PLACES))
        yield Tally(
            month=month, kind="package", name=package, count=1, seconds=seconds, nanos=nanos
        )


def _by_hour(item: tuple[tuple[datetime, _Account], Decimal]) -> tuple[datetime, list[str]]:
    (hour, payer), _ = item
    return hour, [repr(part) for part in payer]


def _spans(
    holding: Holding, since: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime, _Account, str | None]]:
    """Yield the parts of a machine's time: the time without known work, then its present work.

    Each with who pays it, and its package.
    """
    since = max(since, holding.created_at)
    # A ticket gets its machine in a run, which charges up to then: it ended later than that.
    ended = holding.unit.worker.ended if holding.unit and holding.unit.worker else None
    if ended is not None and since < ended.at <= until:
        yield since, ended.at, _payer(holding.pool, ended.work), ended.work.package
        since = ended.at
    work = work_of(holding)
    begun = until
    if work is not None:
        begun = min(max(_begun(holding, work) or since, since), until)
    if since < begun:
        yield since, begun, _Account(holding.pool), None
    if work is not None and begun < until:
        yield begun, until, _payer(holding.pool, work), work.package


def _payer(pool: str, work: Work) -> _Account:
    return _Account(pool, work.scope, work.team, work.owner, work.required)


def work_of(holding: Holding) -> Work | None:
    """Return what a machine runs; None: nothing, or unknown."""
    worker = holding.unit.worker if holding.unit else None
    return worker.work if worker is not None and is_busy(worker) else None


def _begun(holding: Holding, work: Work) -> datetime | None:
    worker = holding.unit.worker if holding.unit else None
    return work.started_at or (worker.since if worker else None)


def _hours(
    zone: ZoneInfo, since: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime, datetime]]:
    """Yield each hour of a time with the part of it that lies within."""
    while since < until:
        hour = hour_of(zone, since)
        end = min(until, max(_next_hour(zone, hour), since + timedelta(microseconds=1)))
        yield hour, since, end
        since = end


def gap_of(world: World) -> str:
    """Return what to say of a ledger that was not charged for long; empty when it was."""
    if isinstance(world.ledger, Unknown) or world.ledger.charged_until is None:
        return ""
    gap = world.time - world.ledger.charged_until
    if gap <= _LONG:
        return ""
    since = write_duration(gap)
    return (
        f"the ledger was last charged {since} ago; that time is charged now, without "
        "machines that started and ended in it"
    )
