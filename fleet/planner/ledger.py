"""Calculate the spending since the last charge of the ledger, by hour and payer.

A machine has one payer at a time: first the request that it was created for, then the request that
last started work on it. The payer is charged for the whole bill, including boot and idle time.
When other work starts, its payer also pays for the unused part of the billed increment. The sums
do not depend on how often a run charges the ledger.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    Request,
    Unknown,
    Work,
    WorkerInputs,
    World,
    market_of,
)
from fleet.model.history import Tally, TallyKind
from fleet.model.plan import Create, PeriodName
from fleet.model.pool_limits import boot_of, size_of
from fleet.model.prices import FREE, Life, Tariff, billed_seconds, tariff_of_machine
from fleet.planner.costs import deletion_time, idle_seconds
from fleet.planner.demand import judge_of, required_of, teams_of
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import PoolInventory, charges_of, under_current_pools
from fleet.planner.lifecycle.rule import MachineLife, is_in_sandbox
from fleet.planner.units import NEVER, Unit, UnitState, is_busy
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration
from fleet.tagrules.derive import QueueContext, context_of
from fleet.tagrules.offers import offer_of_pool
from fleet.tagrules.vocabulary import tag_name

_MAX_GAP = timedelta(days=1)
_DECIMALS = 9


class Period(NamedTuple):
    """An hour, day or month in `money.time_zone`, with the end of the next such period."""

    name: PeriodName
    start: datetime
    end: datetime
    next_end: datetime


def periods(fleet: Fleet, now: datetime) -> tuple[Period, Period, Period]:
    """Return the current hour, day and month. A day with a clock change has 23 or 25 hours."""
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
    """Return the start, in UTC, of the local hour that contains a moment."""
    moment = moment.astimezone(UTC)
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    return moment - (moment + offset - datetime.min.replace(tzinfo=UTC)) % timedelta(hours=1)


def _next_hour(zone: ZoneInfo, hour: datetime) -> datetime:
    end = hour + timedelta(hours=1)
    if hour_of(zone, end - timedelta(microseconds=1)) == hour:
        return end
    # If the clock changes within this hour by less than an hour, the next hour starts earlier.
    return max(hour + timedelta(minutes=1), hour_of(zone, end))


def _start_of_day(zone: ZoneInfo, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _next_month(first: date) -> date:
    return (first + timedelta(days=32)).replace(day=1)


@dataclass(frozen=True)
class BilledMachine:
    """An observed machine that its provider bills."""

    pool: str
    tariff: Tariff | None
    """None if the price of the machine is unknown."""
    created_at: datetime
    unit: Unit | None = None
    """None if the provider is unreadable and only the stack records the machine."""
    name: str = ""


def holdings(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[BilledMachine, ...]:
    """Return the billed machines of every pool.

    If a provider is unreadable, use the machines recorded in the stack. A machine of unknown age
    is billed by the second since the last charge. A machine whose creation is unfinished counts as
    created now.
    """
    known = None if isinstance(world.ledger, Unknown) else world.ledger.charged_until
    found = []
    for name, pool in inventory.items():
        for unit in pool.units:
            is_unfinished = unit.state is UnitState.UNFINISHED
            made = unit.machine or (unit.inputs if is_unfinished else None)
            if made is None:
                continue
            tariff = _tariff(fleet, pool, made.type, unit.inputs)
            created = unit.machine.created_at if unit.machine else world.time
            if created is None:
                tariff = Tariff(tariff.price) if tariff else None
            created = created or known or world.time
            found.append(BilledMachine(name, tariff, created, unit, unit.name))
        stack = None if pool.listed else world.stack_of(name)
        for inputs in stack.workers if stack else ():
            tariff = _tariff(fleet, pool, inputs.type, inputs)
            by_second = Tariff(tariff.price) if tariff else None
            found.append(BilledMachine(name, by_second, known or world.time, name=inputs.name))
    return tuple(found)


def _tariff(
    fleet: Fleet, inventory: PoolInventory, kind: str, inputs: WorkerInputs | None
) -> Tariff | None:
    return tariff_of_machine(fleet, inventory.pool, inventory.provider, kind, market_of(inputs))


class PayerAccount(NamedTuple):
    """The payer of a machine: scope, team, owner and tags of its work; without work, its pool."""

    pool: str
    scope: str | None = None
    team: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()


class Charged(NamedTuple):
    """New ledger entries, monthly sums, and the current payer of each machine."""

    entries: tuple[LedgerEntry, ...] = ()
    tallies: tuple[Tally, ...] = ()
    payers: tuple[MachinePayer, ...] = ()


class _Turn(NamedTuple):
    """A time span in which a machine was billed to one payer for one source package."""

    start: datetime
    end: datetime
    payer: PayerAccount
    package: str | None = None
    worked: datetime | None = None
    """End of this payer's last work on the machine, or the creation of the machine.

    None if work runs during this span.
    """

    @property
    def who(self) -> tuple[PayerAccount, str | None]:
        """Return the payer and the source package of this time span."""
        return self.payer, self.package


class Owner(NamedTuple):
    """The current payer of a machine, and the time when the payer stops paying."""

    payer: PayerAccount
    until: datetime
    """Time when the pool becomes the payer unless other work starts; NEVER if the payer stays."""


def charge_all(fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]) -> Charged:
    """Return ledger entries since the last charge, and the current payer of each machine.

    The first charge starts with this month, because no budget covers earlier time. A gap between
    charges is charged in full, however long it is.
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
            payers[holding.name] = MachinePayer(
                machine=holding.name,
                package=before.package,
                since=before.worked or before.end,
                **before.payer._asdict(),
            )
    for name, each in reader.payers.items():
        # Keep the payer of a new machine that is not yet listed, or of an unreadable provider.
        own = inventory.get(each.pool)
        if (own is not None and not own.listed) or world.time - each.since < _MAX_GAP:
            payers.setdefault(name, each)
    return Charged(sums.entries(), sums.tallies(), tuple(payers[name] for name in sorted(payers)))


def charges_until_now(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]
) -> tuple[Charge, ...]:
    """Return the charges of this hour, day and month, with the time since the last charge.

    Pools have their current names. The result is empty if the ledger is unknown.
    """
    starts = [period.start for period in periods(fleet, world.time)]
    since = charge_all(fleet, world, inventory).entries
    return (*charges_of(fleet, world), *(as_charge(entry, starts) for entry in since))


def as_charge(entry: LedgerEntry, starts: Sequence[datetime]) -> Charge:
    """Convert an entry to a charge. `starts` has the start of the current hour, day and month."""
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
    """Return the current payer of each machine, in the order of the machines."""
    reader = _TurnReader(fleet, world)
    return tuple(reader.owner(holding) for holding in found)


def released_at(
    fleet: Fleet, world: World, holding: BilledMachine, idle_since: datetime
) -> datetime:
    """Return when the pool starts to pay for an idle machine; NEVER if the pool does not pay.

    A pool that keeps machines (`workers.min`, `workers.spare`, `mode: pause`) starts to pay when
    the idle machine could have been deleted.
    """
    pool = fleet.dynamic_pool(holding.pool)
    if pool is None or idle_since == NEVER:
        return NEVER
    if pool.mode != "pause" and (pool.mode == "drain" or not size_of(pool).permanent):
        return NEVER
    created = holding.created_at
    idle_since = max(idle_since, boot_of(pool).ready_at(created))
    in_sandbox = is_in_sandbox(fleet, holding.unit)
    life = MachineLife(fleet, pool, in_sandbox=in_sandbox, tariff=holding.tariff)
    seen = idle_since + timedelta(seconds=idle_seconds(world, life))
    return deletion_time(pool, holding.tariff, created, seen)


def unused(
    zone: ZoneInfo, tariff: Tariff | None, created_at: datetime, moment: datetime
) -> Decimal:
    """Return the cost of the time that is billed but not yet used at a moment."""
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
    """Return the bill of a machine for a time span; with `work`, the cost of the used time.

    The provider's monthly maximum applies to each month.
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
    """Finder of the payers of each machine since the last charge of the ledger."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._fleet, self._world, self._until = fleet, world, world.time
        self._teams = teams_of(fleet, world)
        ledger = world.ledger if isinstance(world.ledger, Ledger) else Ledger()
        self._since = ledger.charged_until or periods(fleet, world.time)[2].start
        payers = under_current_pools(fleet, world, ledger.payers)
        self.payers = {payer.machine: payer for payer in payers}

    def known(self, holding: BilledMachine) -> _Turn | None:
        """Return an empty span with the payer at the last charge; None if no payer is recorded."""
        known = self.payers.get(holding.name)
        if known is None or known.pool != holding.pool:
            return None
        payer = PayerAccount(known.pool, known.scope, known.team, known.owner, known.tags)
        return _Turn(self._since, self._since, payer, known.package, known.since)

    def turns(self, holding: BilledMachine) -> Iterator[_Turn]:
        """Yield a machine's spans since the last charge: finished work, idle time, running work.

        The last span ends now, and is empty if it also starts now.
        """
        begin, until = min(max(self._since, holding.created_at), self._until), self._until
        worker, work = holding.unit.worker if holding.unit else None, work_of(holding)
        ended = worker.ended if worker else None
        before = self.known(holding)
        # A ticket's machine is charged when it is assigned, so the ticket ended after that charge.
        if ended is not None and begin < ended.at <= until:
            before = self._work_turn(holding, ended.work, begin, ended.at)
            yield before
            begin, before = ended.at, before._replace(worked=ended.at)
        elif ended is not None and before is None and ended.at <= begin:
            before = self._work_turn(holding, ended.work, begin, begin)._replace(worked=ended.at)
        start = until
        if work is not None:
            started = work.started_at or (worker.since if worker else None)
            start = min(max(started or begin, begin), until)
        if begin < start or work is None:
            yield from self._idle_turns(holding, before, begin, start)
        if work is not None:
            yield self._work_turn(holding, work, start, until)

    def owner(self, holding: BilledMachine) -> Owner:
        """Return the current payer of a machine, and the end of that payment."""
        *_, last = self.turns(holding)
        idle_since = NEVER if last.worked is None else self._idle_since(holding, last.worked)
        return Owner(last.payer, released_at(self._fleet, self._world, holding, idle_since))

    def _idle_turns(
        self, holding: BilledMachine, before: _Turn | None, begin: datetime, end: datetime
    ) -> Iterator[_Turn]:
        """Yield the idle spans: first of the previous payer, then of the pool if it pays."""
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
        """Return when a machine became idle. Unobserved work may have ended after `worked`."""
        unit = holding.unit
        since = unit.since if unit is not None and unit.state is UnitState.IDLE else None
        return worked if since is None or since > self._until else max(worked, since)

    def _work_turn(
        self, holding: BilledMachine, work: Work, start: datetime, end: datetime
    ) -> _Turn:
        team = self._teams.of(work)
        payer = PayerAccount(holding.pool, work.scope, team, work.owner, work.required)
        return _Turn(start, end, payer, work.package)


class _LedgerSums:
    """Sums of machine time and money, by payer and hour, and by package and month."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._charged: defaultdict[tuple[datetime, PayerAccount], _Sum] = defaultdict(_Sum)
        self._tallied: defaultdict[tuple[str, TallyKind, str], _Sum] = defaultdict(_Sum)

    def add(self, holding: BilledMachine, turn: _Turn) -> None:
        """Add the bill of a machine's span to the sums of its payer."""
        begin = turn.start
        while begin < turn.end:
            hour = hour_of(self._zone, begin)
            ends = max(_next_hour(self._zone, hour), begin + timedelta(microseconds=1))
            stop = min(turn.end, ends)
            life = Life(holding.tariff or FREE, holding.created_at, _month_of(self._zone, hour))
            seconds, money = life.seconds(begin, stop), life.billed(begin, stop)
            used = 0 if turn.worked else seconds
            worth = Decimal(0) if turn.worked else life.accrued(begin, stop)
            self._charge(hour, turn, seconds, money, idle=_Sum(seconds - used, money - worth))
            begin = stop

    def hand_over(self, holding: BilledMachine, before: _Turn, turn: _Turn) -> None:
        """Move the cost of the unused billed time from one payer to the next payer."""
        hour = hour_of(self._zone, turn.start)
        amount = unused(self._zone, holding.tariff, holding.created_at, turn.start)
        if amount:
            self._charge(hour, before, 0, -amount, idle=_Sum(0, -amount))
            self._charge(hour, turn, 0, amount, idle=_Sum(0, amount))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the new ledger entries."""
        return tuple(
            LedgerEntry(hour=hour, seconds=each.seconds, money=each.money, **payer._asdict())
            for (hour, payer), each in sorted(
                self._charged.items(), key=lambda item: (item[0][0], [*map(repr, item[0][1])])
            )
            if each
        )

    def tallies(self) -> tuple[Tally, ...]:
        """Return the monthly sums of each source package, and of the charged idle time."""
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


def _month_of(zone: ZoneInfo, moment: datetime) -> datetime:
    """Return the start of the month that contains a moment."""
    return _start_of_day(zone, moment.astimezone(zone).date().replace(day=1))


def work_of(holding: BilledMachine) -> Work | None:
    """Return the current work of a machine; None if it is idle or its work is unknown."""
    worker = holding.unit.worker if holding.unit else None
    return worker.work if worker is not None and is_busy(worker) else None


def gap_of(world: World) -> str:
    """Return a warning if the last charge is over a day old; otherwise an empty string."""
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


def payers_of(
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    creates: Iterable[Create],
) -> Iterator[MachinePayer]:
    """Yield the payer of each new machine; without a request, the pool is the payer."""
    creates = [*creates]
    if not creates:
        return
    images = images_by_pool(fleet, world, inventories)
    judge, teams = judge_of(fleet, world), teams_of(fleet, world)
    requests = _requests(
        fleet, world, {creation.serves[0] for creation in creates if creation.serves}
    )
    for create in creates:
        payer = MachinePayer(machine=create.worker, pool=create.pool, since=world.time)
        if create.serves and create.serves[0] in requests:
            request, context = requests[create.serves[0]]
            provides = offer_of_pool(fleet, create.pool, images[create.pool]).provides
            required = required_of(judge.ask_of(request, context).ask)
            payer = payer.altered(
                scope=request.scope,
                team=teams.of(request),
                owner=request.owner,
                # A required tag that the pool does not provide is waived (`otherwise`).
                tags=tuple(t for t in required if t in provides or tag_name(t) != t),
                package=request.package,
            )
        yield payer


_Found = tuple[Request, QueueContext]


def _requests(fleet: Fleet, world: World, keys: Collection[str]) -> dict[str, _Found]:
    """Map each request key of a plan to its request. Keys of a group's members end in `#1` etc."""
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        wanted[key].append(key)
        wanted[key.rpartition("#")[0]].append(key)
    return {
        key: (request, context_of(fleet, queue, demand))
        for queue, demand in world.demands()
        for request in demand.requests
        for key in wanted.get(f"{queue}/{request.id}", ())
    }
