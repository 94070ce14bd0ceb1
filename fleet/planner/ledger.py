"""Spending since the last charge of the ledger, by hour and payer.

A machine has one payer at a time: the request that it was created for, then the latest started
work, until other work starts. The payer is charged for the whole bill, including boot and idle
time. When other work starts, its payer takes over the unused rest of the billed increment. The
sums do not depend on how often the ledger is charged.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fleet.model.facts import (
    Charge,
    Ledger,
    LedgerEntry,
    MachinePayer,
    Unknown,
    Work,
    WorkerInputs,
    World,
    market_of,
)
from fleet.model.months import Tally, TallyKind
from fleet.model.plan import PeriodName
from fleet.model.pool_limits import boot_of, size_of
from fleet.model.prices import FREE, Life, Tariff, billed_seconds, tariff_of_machine
from fleet.planner.costs import deletion_time, idle_seconds
from fleet.planner.inventory import PoolInventory, charges_of, takers_of
from fleet.planner.lifecycle.rule import MachineLife, is_in_sandbox
from fleet.planner.teams import teams_of
from fleet.planner.units import NEVER, Unit, UnitState, is_busy
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_duration

_MAX_GAP = timedelta(days=1)
_DECIMALS = 9


class Period(NamedTuple):
    """The current hour, day or month of `money.time_zone`, and the end of the next one."""

    name: PeriodName
    start: datetime
    end: datetime
    next_end: datetime


def periods(fleet: Fleet, now: datetime) -> tuple[Period, Period, Period]:
    """Return the current hour, day and month; a day with a clock change has 23 or 25 hours."""
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
        Period("day", *(_start_of_day(zone, day) for day in days)),
        Period("month", *(_start_of_day(zone, day) for day in months)),
    )


def hour_of(zone: ZoneInfo, moment: datetime) -> datetime:
    """Return the start of the local hour in UTC."""
    moment = moment.astimezone(UTC)
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    return moment - (moment + offset - datetime.min.replace(tzinfo=UTC)) % timedelta(hours=1)


def _next_hour(zone: ZoneInfo, hour: datetime) -> datetime:
    end = hour + timedelta(hours=1)
    if hour_of(zone, end - timedelta(microseconds=1)) == hour:
        return end
    # If the clock changes within it by less than an hour, the next hour starts earlier.
    return max(hour + timedelta(minutes=1), hour_of(zone, end))


def _start_of_day(zone: ZoneInfo, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _next_month(first: date) -> date:
    return (first + timedelta(days=32)).replace(day=1)


@dataclass(frozen=True)
class BilledMachine:
    """One observed machine with a cost."""

    pool: str
    tariff: Tariff | None
    """None if its price is unknown."""
    created_at: datetime
    unit: Unit | None = None
    """None if its provider is unreadable and only its stack records it."""
    name: str = ""


def holdings(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[BilledMachine, ...]:
    """Return the machines of every pool; those of an unreadable provider from their stack.

    A machine that only a stack records, without a known age, counts from the last charge, by the
    second: unknown is not zero. Creations of an interrupted apply are finished by this one.
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
                found.append(
                    BilledMachine(name, tariff, created or known or world.time, unit, unit.name)
                )
            elif unit.state is UnitState.UNFINISHED and unit.inputs is not None:
                tariff = _tariff(fleet, pool, unit.inputs.type, unit.inputs)
                found.append(BilledMachine(name, tariff, world.time, unit, unit.name))
        for inputs in () if pool.listed else _recorded_inputs(world, name):
            tariff = _tariff(fleet, pool, inputs.type, inputs)
            by_second = Tariff(tariff.price) if tariff else None
            found.append(BilledMachine(name, by_second, known or world.time, name=inputs.name))
    return tuple(found)


def _recorded_inputs(world: World, pool: str) -> tuple[WorkerInputs, ...]:
    stack = world.stack_of(pool)
    return stack.workers if stack else ()


def _tariff(
    fleet: Fleet, inventory: PoolInventory, kind: str, inputs: WorkerInputs | None
) -> Tariff | None:
    market = market_of(inputs)
    return tariff_of_machine(fleet, inventory.pool, inventory.provider, kind, market)


class PayerAccount(NamedTuple):
    """The payer: the scope, team, owner and tags of work; without these the pool."""

    pool: str
    scope: str | None = None
    team: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()


class Charged(NamedTuple):
    """New ledger entries, monthly tallies, and the current payers."""

    entries: tuple[LedgerEntry, ...] = ()
    tallies: tuple[Tally, ...] = ()
    payers: tuple[MachinePayer, ...] = ()


class _Turn(NamedTuple):
    """A span of a machine's time with one payer and package."""

    start: datetime
    end: datetime
    payer: PayerAccount
    package: str | None = None
    worked: datetime | None = None
    """When work of this payer last ran, or the machine was created.

    None: work runs in this span.
    """

    @property
    def who(self) -> tuple[PayerAccount, str | None]:
        """Return the payer and the package."""
        return self.payer, self.package


class Owner(NamedTuple):
    """The payer of a machine from now on."""

    payer: PayerAccount
    until: datetime
    """When its pool pays, if no other work follows; NEVER: the payer pays until the deletion."""


def charge(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[LedgerEntry, ...]:
    """Return the new ledger entries for the time since the last charge."""
    return charge_all(fleet, world, inventory).entries


def charge_all(fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]) -> Charged:
    """Return the charges for the time since the last charge, and the current payer of machines.

    If it was never charged, charges start with this month: no budget needs older ones. A gap is
    charged in full, whatever its length.
    """
    ledger = world.ledger
    if isinstance(ledger, Unknown):
        return Charged()
    if ledger.charged_until is not None and world.time < ledger.charged_until:
        return Charged(payers=ledger.payers)
    sums, payers = _LedgerSums(ZoneInfo(fleet.money.time_zone)), dict[str, MachinePayer]()
    reader = _TurnReader(fleet, world)
    for holding in holdings(fleet, world, inventory):
        before = reader.known(holding)
        for turn in reader.turns(holding):
            if before is not None and before.who != turn.who:
                sums.hand_over(holding, before, turn)
            sums.add(holding, turn)
            before = turn
        if before is not None:
            payers[holding.name] = _as_payer(holding.name, before)
    for name, each in reader.payers.items():
        # A recently created machine, or one of an unreadable provider, is not deleted.
        own = inventory.get(each.pool)
        if (own is not None and not own.listed) or world.time - each.since < _MAX_GAP:
            payers.setdefault(name, each)
    return Charged(sums.entries(), sums.tallies(), tuple(payers[name] for name in sorted(payers)))


def charges_until_now(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[Charge, ...]:
    """Return the charges of this hour, day and month, with the time since the last charge.

    Pools have their current names. Empty if the ledger is unknown.
    """
    starts = [period.start for period in periods(fleet, world.time)]
    since = charge(fleet, world, inventory)
    return (*charges_of(fleet, world), *(as_charge(entry, starts) for entry in since))


def as_charge(entry: LedgerEntry, starts: Sequence[datetime]) -> Charge:
    """Return an entry as a charge of the hour, day and month that started then."""
    hour, day, month = (entry.hour >= start for start in starts)
    seconds, money = entry.seconds, entry.money
    return Charge.model_construct(
        pool=entry.pool,
        scope=entry.scope,
        team=entry.team,
        owner=entry.owner,
        tags=entry.tags,
        seconds=(seconds * hour, seconds * day, seconds * month),
        money=(money * hour, money * day, money * month),
    )


def owners_of(fleet: Fleet, world: World, found: Iterable[BilledMachine]) -> tuple[Owner, ...]:
    """Return the payer of each machine from now on."""
    reader = _TurnReader(fleet, world)
    return tuple(reader.owner(holding) for holding in found)


def released_at(
    fleet: Fleet, world: World, holding: BilledMachine, idle_since: datetime
) -> datetime:
    """Return when its pool pays for a machine that is idle since `idle_since`; NEVER: not at all.

    A pool that keeps machines (`workers.min`, `workers.spare`, `mode: pause`) pays for them once
    they could have been deleted.
    """
    pool = fleet.pools.get(holding.pool)
    if not isinstance(pool, Pool) or not _keeps_machines(pool) or idle_since == NEVER:
        return NEVER
    created = holding.created_at
    idle_since = max(idle_since, boot_of(pool).ready_at(created))
    in_sandbox = is_in_sandbox(fleet, holding.unit)
    life = MachineLife(fleet, pool, in_sandbox=in_sandbox, tariff=holding.tariff)
    seen = idle_since + timedelta(seconds=idle_seconds(world, life))
    return deletion_time(pool, holding.tariff, created, seen)


def _keeps_machines(pool: Pool) -> bool:
    is_kept = pool.mode != "drain" and size_of(pool).permanent > 0
    return pool.mode == "pause" or is_kept


def unused(
    zone: ZoneInfo, tariff: Tariff | None, created_at: datetime, moment: datetime
) -> Decimal:
    """Return the cost of the time that is billed but unused at a moment."""
    tariff = tariff or FREE
    age = (moment - created_at) // timedelta(seconds=1)
    left = billed_seconds(tariff, age) - age
    if left <= 0:
        return Decimal(0)
    first = billed_seconds(tariff, 1)
    begun = 0 if age <= first else (age - 1) // tariff.increment * tariff.increment
    start = created_at + timedelta(seconds=begun)
    life = Life(tariff, created_at, _month_of(zone, start))
    step = life.billed(start, start + timedelta(seconds=1))
    return (step * left / (left + age - begun)).quantize(step)


def cost_of_span(
    fleet: Fleet,
    tariff: Tariff,
    created_at: datetime,
    span: tuple[datetime, datetime],
    *,
    work: bool = False,
) -> Decimal:
    """Return the bill of a machine between two moments; `work`: the cost of work on it.

    A provider caps its bill per month.
    """
    (start, until), cost = span, Decimal(0)
    while start < until:
        month = periods(fleet, start)[2]
        end = min(until, month.end)
        life = Life(tariff, created_at, month.start)
        cost += life.accrued(start, end) if work else life.billed(start, end)
        start = end
    return cost


class _TurnReader:
    """Finds the payers of machines since the last charge of the ledger."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._fleet, self._world, self._until = fleet, world, world.time
        self._teams = teams_of(fleet, world)
        ledger = world.ledger if isinstance(world.ledger, Ledger) else Ledger()
        self._since = ledger.charged_until or periods(fleet, world.time)[2].start
        takers = takers_of(fleet, world) if ledger.payers else {}
        self.payers = {
            payer.machine: payer.altered(pool=takers[payer.pool])
            if payer.pool in takers
            else payer
            for payer in ledger.payers
        }

    def known(self, holding: BilledMachine) -> _Turn | None:
        """Return the payer of a machine at the last charge; None if unrecorded."""
        known = self.payers.get(holding.name)
        if known is None or known.pool != holding.pool:
            return None
        payer = PayerAccount(known.pool, known.scope, known.team, known.owner, known.tags)
        return _Turn(self._since, self._since, payer, known.package, known.since)

    def turns(self, holding: BilledMachine) -> Iterator[_Turn]:
        """Yield the spans of a machine's time since then: finished work, idle time, running work.

        The last span is the present one; it is empty if it starts now.
        """
        begin, until = min(max(self._since, holding.created_at), self._until), self._until
        worker, work = holding.unit.worker if holding.unit else None, work_of(holding)
        ended = worker.ended if worker else None
        before = self.known(holding)
        # A run assigns a ticket its machine and charges up to then: the ticket ended later.
        if ended is not None and begin < ended.at <= until:
            before = self._work_turn(holding, ended.work, begin, ended.at)
            yield before
            begin, before = ended.at, before._replace(worked=ended.at)
        elif ended is not None and before is None and ended.at <= begin:
            before = self._work_turn(holding, ended.work, begin, begin)._replace(worked=ended.at)
        start = until
        if work is not None:
            start = min(max(_started_at(holding, work) or begin, begin), until)
        if begin < start or work is None:
            yield from self._idle_turns(holding, before, begin, start)
        if work is not None:
            yield self._work_turn(holding, work, start, until)

    def owner(self, holding: BilledMachine) -> Owner:
        """Return the payer of a machine from now on."""
        *_, last = self.turns(holding)
        idle_since = NEVER if last.worked is None else self._idle_since(holding, last.worked)
        return Owner(last.payer, released_at(self._fleet, self._world, holding, idle_since))

    def _idle_turns(
        self, holding: BilledMachine, before: _Turn | None, begin: datetime, end: datetime
    ) -> Iterator[_Turn]:
        """Yield the idle spans: of the previous payer, then of a pool that keeps machines."""
        pool = _Turn(begin, end, PayerAccount(holding.pool), worked=begin)
        if before is None or before.payer == pool.payer:
            yield pool
            return
        idle_since = self._idle_since(holding, before.worked or begin)
        released = max(begin, released_at(self._fleet, self._world, holding, idle_since))
        if released > begin or begin == end:
            yield before._replace(start=begin, end=min(released, end), worked=idle_since)
        if released < end:
            yield pool._replace(start=released, worked=released)

    def _idle_since(self, holding: BilledMachine, worked: datetime) -> datetime:
        """Return when a machine became idle: unobserved work may have ended after the recorded."""
        unit = holding.unit
        since = unit.since if unit is not None and unit.state is UnitState.IDLE else None
        return worked if since is None or since > self._until else max(worked, since)

    def _work_turn(
        self, holding: BilledMachine, work: Work, start: datetime, end: datetime
    ) -> _Turn:
        team = self._teams.of(work)
        payer = PayerAccount(holding.pool, work.scope, team, work.owner, work.required)
        return _Turn(start, end, payer, work.package)


def _as_payer(machine: str, turn: _Turn) -> MachinePayer:
    return MachinePayer(
        machine=machine,
        package=turn.package,
        since=turn.worked or turn.end,
        **turn.payer._asdict(),
    )


class _LedgerSums:
    """Seconds and money by payer and hour, and of packages and idle time by month."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._charged: defaultdict[tuple[datetime, PayerAccount], _Sum] = defaultdict(_Sum)
        self._tallied: defaultdict[tuple[str, TallyKind, str], _Sum] = defaultdict(_Sum)

    def add(self, holding: BilledMachine, turn: _Turn) -> None:
        """Charge a turn for the bill of its machine."""
        for hour, begin, stop in _split_by_hour(self._zone, turn.start, turn.end):
            life = Life(holding.tariff or FREE, holding.created_at, _month_of(self._zone, hour))
            seconds, money = life.seconds(begin, stop), life.billed(begin, stop)
            used = 0 if turn.worked else seconds
            worth = Decimal(0) if turn.worked else life.accrued(begin, stop)
            self._charge(hour, turn, seconds, money, idle=_Sum(seconds - used, money - worth))

    def hand_over(self, holding: BilledMachine, before: _Turn, turn: _Turn) -> None:
        """Charge a turn for the rest of the increment that the previous payer was billed for."""
        hour = hour_of(self._zone, turn.start)
        amount = unused(self._zone, holding.tariff, holding.created_at, turn.start)
        if amount:
            self._charge(hour, before, 0, -amount, idle=_Sum(0, -amount))
            self._charge(hour, turn, 0, amount, idle=_Sum(0, amount))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the new ledger entries."""
        return tuple(
            LedgerEntry(hour=hour, seconds=each.seconds, money=each.money, **payer._asdict())
            for (hour, payer), each in sorted(self._charged.items(), key=_hour_key)
            if each
        )

    def tallies(self) -> tuple[Tally, ...]:
        """Return the tallies of packages, and of the charged idle time."""
        return tuple(
            Tally(
                month=month,
                kind=kind,
                name=name,
                count=1,
                seconds=each.seconds,
                nanos=int(each.money.scaleb(_DECIMALS)),
            )
            for (month, kind, name), each in sorted(self._tallied.items())
            if each
        )

    def _charge(
        self, hour: datetime, turn: _Turn, seconds: int, money: Decimal, *, idle: "_Sum"
    ) -> None:
        self._charged[hour, turn.payer] += _Sum(seconds, money)
        month = f"{hour.astimezone(self._zone):%Y-%m}"
        if turn.package:
            self._tallied[month, "package", turn.package] += _Sum(seconds, money)
        if any(turn.payer[1:]):
            self._tallied[month, "idle", ""] += idle


@dataclass(frozen=True)
class _Sum:
    seconds: int = 0
    money: Decimal = Decimal(0)

    def __add__(self, other: "_Sum") -> "_Sum":
        return _Sum(self.seconds + other.seconds, self.money + other.money)

    def __bool__(self) -> bool:
        return bool(self.seconds or self.money)


def _hour_key(item: tuple[tuple[datetime, PayerAccount], object]) -> tuple[datetime, list[str]]:
    (hour, payer), _ = item
    return hour, [repr(part) for part in payer]


def _month_of(zone: ZoneInfo, moment: datetime) -> datetime:
    """Return the start of the month of a moment."""
    return _start_of_day(zone, moment.astimezone(zone).date().replace(day=1))


def work_of(holding: BilledMachine) -> Work | None:
    """Return the work of a machine; None if it is idle or its work is unknown."""
    worker = holding.unit.worker if holding.unit else None
    return worker.work if worker is not None and is_busy(worker) else None


def _started_at(holding: BilledMachine, work: Work) -> datetime | None:
    worker = holding.unit.worker if holding.unit else None
    return work.started_at or (worker.since if worker else None)


def _split_by_hour(
    zone: ZoneInfo, since: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime, datetime]]:
    """Yield each hour of a time span with the start and end of its overlap."""
    while since < until:
        hour = hour_of(zone, since)
        end = min(until, max(_next_hour(zone, hour), since + timedelta(microseconds=1)))
        yield hour, since, end
        since = end


def gap_of(world: World) -> str:
    """Return the warning about a ledger that was not charged for long; empty if it was."""
    if isinstance(world.ledger, Unknown) or world.ledger.charged_until is None:
        return ""
    gap = world.time - world.ledger.charged_until
    if gap <= _MAX_GAP:
        return ""
    since = write_duration(gap)
    return (
        f"the ledger was last charged {since} ago; that time is charged now, without "
        "machines that started and ended in it"
    )
