"""The cost of a month by payer: the figures of the Money page and of `fleet report --month`.

The rows of each grouping add up to the total, which is that of the ledger. The sums of the month
so far include the time since the last charge of the ledger, as budgets do. Unrecorded figures are
None, never zero.

The projection adds the average cost per hour of the last seven days for each remaining hour of the
month. If these days are unknown, it uses the average of this month.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from pydantic import Field

from fleet.explain.tallies import ORDINARY, POWERFUL, limit_paths, most_of
from fleet.model.facts import Charge, Ledger, Unknown, World
from fleet.model.history import Tally, TallyKind
from fleet.model.log import LogEntry
from fleet.model.values import Bill, Moment, Value
from fleet.planner.budgets import HOURS, PERIODS, SpendingLimit, spending_limits
from fleet.planner.inventory import charges_of, take_inventory
from fleet.planner.ledger import Period, as_charge, charge_all, charges_until_now, periods
from fleet.schema.model import Fleet

WEEK = timedelta(days=7)
_MIN_BASIS = timedelta(hours=6)
"""Minimum time on which a projection is based."""
_DAY_INDEX = 1
_MONTH_INDEX = 2
_HOUR = timedelta(hours=1)
_NOON = timedelta(hours=12)
_TOP = 10
_NANO = Decimal(10) ** -9
PAID_BY_POOLS = "paid by pools"


def _name_payer(charge: Charge, noun: str) -> str:
    """Return the payer of a kind; a phrase for work without such a payer, or for idle time."""
    name: str | None = getattr(charge, noun)
    if name is None:
        article = "an" if noun.startswith(("a", "e", "i", "o", "u")) else "a"
        return f"work without {article} {noun}" if _is_work(charge) else PAID_BY_POOLS
    return name


def _is_work(charge: Charge) -> bool:
    return bool(charge.scope or charge.team or charge.owner or charge.tags)


def _group(charges: Iterable[Charge], noun: str) -> defaultdict[str, list[Charge]]:
    """Map the name of each payer of a kind to its charges."""
    found: defaultdict[str, list[Charge]] = defaultdict(list)
    for each in charges:
        found[_name_payer(each, noun)].append(each)
    return found


def _sum(charges: Iterable[Charge], period: int = _MONTH_INDEX) -> Decimal:
    return sum((charge.money[period] for charge in charges), Decimal(0))


def _sum_seconds(charges: Iterable[Charge], period: int = _MONTH_INDEX) -> int:
    return sum(charge.seconds[period] for charge in charges)


@dataclass(frozen=True)
class RecentCharges:
    """Charges of the last days; index 1 (day) of `money` and `seconds` has the whole amount."""

    since: datetime
    """Seven days before `until`, or the time of the first charge if that is later."""
    until: datetime
    charges: tuple[Charge, ...]


@dataclass(frozen=True)
class Cost:
    """The cost of one payer, in the currency of the fleet."""

    name: str
    seconds: int
    """Machine time in this month, in seconds."""
    today: Decimal
    month: Decimal
    week: Decimal | None
    """Cost of the last seven days; None if unknown."""
    projected: Decimal | None
    """Projected cost at the end of the month; None if no projection is possible."""


@dataclass(frozen=True)
class MonthCost:
    """The cost of the month so far, and its projection."""

    start: datetime
    end: datetime
    """Start of the next month."""
    until: datetime
    """The time until which the cost is known."""
    week_since: datetime | None
    """Start of the recent charges; None if these are unknown."""
    total: Cost
    pools: tuple[Cost, ...]
    scopes: tuple[Cost, ...]
    teams: tuple[Cost, ...]
    projected: dict[tuple[str | int, ...], Decimal]
    """Path of each monthly budget in fleet.yaml to its projected amount at the month's end."""


def money_of(
    fleet: Fleet, world: World, recent: RecentCharges | None = None
) -> MonthCost | Unknown:
    """Return the cost of this month; Unknown if the ledger is unreadable or was never charged."""
    ledger = world.ledger
    if isinstance(ledger, Unknown):
        return ledger
    if ledger.charged_until is None:
        return Unknown(unknown="nothing was charged yet; `fleet apply` does it")
    month = periods(fleet, world.time)[_MONTH_INDEX]
    inventory = take_inventory(fleet, world)
    charges = charges_until_now(fleet, world, inventory)
    until = max(ledger.charged_until, world.time)
    last: tuple[Charge, ...] | None = None
    if recent is not None:
        # Index 1 (day) of each of these charges has the whole amount.
        kept = Ledger(charged_until=recent.until, charges=recent.charges)
        before = charges_of(fleet, world.altered(ledger=kept))
        # The hour of an entry may have started before a new fleet's first run.
        since = charge_all(fleet, world, inventory).entries
        last = (*before, *(as_charge(entry, [entry.hour] * len(PERIODS)) for entry in since))
    basis = min(until, month.end) - month.start if recent is None else until - recent.since
    hours_left = Decimal((month.end - min(until, month.end)) / _HOUR)

    def project(total: Decimal, lately: Decimal | None) -> Decimal | None:
        known = total if recent is None else lately
        if known is None or basis < _MIN_BASIS:
            return None
        return total + known / Decimal(basis / _HOUR) * hours_left

    def cost(name: str, own: Sequence[Charge], lately: Sequence[Charge] | None) -> Cost:
        total, week = _sum(own), None if lately is None else _sum(lately, _DAY_INDEX)
        today, seconds = _sum(own, _DAY_INDEX), _sum_seconds(own)
        return Cost(name, seconds, today, total, week, project(total, week))

    def by(noun: str) -> tuple[Cost, ...]:
        own, lately = _group(charges, noun), _group(last or (), noun)
        names = {*own, *lately}
        costs = [cost(each, own[each], None if last is None else lately[each]) for each in names]
        return tuple(sorted(costs, key=lambda each: (-each.month, -(each.week or 0), each.name)))

    def used(limit: SpendingLimit, of: Iterable[Charge], period: int) -> Decimal:
        counted = [charge for charge in of if limit.counts(charge)]
        if limit.unit == HOURS:
            return Decimal(_sum_seconds(counted, period)) / 3600
        return _sum(counted, period)

    budgets = {
        limit.path: project(
            used(limit, charges, _MONTH_INDEX),
            None if last is None else used(limit, last, _DAY_INDEX),
        )
        for limit in spending_limits(fleet)
        if limit.period == "month"
    }
    return MonthCost(
        start=month.start,
        end=month.end,
        until=until,
        week_since=recent.since if recent else None,
        total=cost("", charges, last),
        pools=by("pool"),
        scopes=by("scope"),
        teams=by("team"),
        projected={path: found for path, found in budgets.items() if found is not None},
    )


class CostRow(Value):
    """The cost of one payer or one source package."""

    name: str
    seconds: int = Field(description="Machine time.")
    money: Bill
    gone: bool = Field(False, description="A pool that fleet.yaml no longer has.")


class WaitRow(Value):
    """Waiting times of the requests of one class, each accurate to 10 %."""

    name: str
    count: int = Field(description="Requests whose wait is known.")
    half: int | None = Field(None, description="Seconds of p50; None: unknown.")
    most: int | None = Field(None, description="Seconds of p95; None: unknown.")


class CountRow(Value):
    """An event and the number of its occurrences."""

    name: str
    count: int


class GapRow(Value):
    """The part of the planned cost above its lower bound that has one cause."""

    name: str
    money: Bill


class MonthReport(Value):
    """The report of one month of a fleet."""

    format: str = "fleet-month-1"
    fleet: str
    month: str
    start: Moment
    end: Moment
    charged_since: Moment | None = Field(
        None, description="Time of the first charge, if within the month."
    )
    charged_until: Moment | None = Field(
        description="Last charge of the ledger, at most the end of the month; None: never."
    )
    complete: bool = Field(description="Whether the ledger was charged up to the month's end.")
    currency: str
    money: Bill = Field(description="Cost of the month in the ledger.")
    seconds: int
    pools: tuple[CostRow, ...] = ()
    scopes: tuple[CostRow, ...] = ()
    teams: tuple[CostRow, ...] = ()
    owners: tuple[CostRow, ...] = ()
    days: tuple[Bill | None, ...] = Field(
        (), description="Cost of each day; None: unknown, or not yet charged."
    )
    idle_seconds: int = Field(
        description="Part of `seconds` that is boot and idle time, by pools and other payers."
    )
    idle_money: Bill
    packages: tuple[CostRow, ...] = Field((), description="The ten most expensive packages.")
    other_packages: Bill = Field(description="Cost of all other packages.")
    runs: int | None = Field(description="Number of counted runs; None: no run was counted.")
    changes: tuple[CountRow, ...] = Field((), description="Entries of the log, by kind.")
    waits: tuple[WaitRow, ...] = ()
    unseen: int = Field(
        0, description="Requests that ended or were withdrawn between two runs: wait unknown."
    )
    bound: tuple[CountRow, ...] = Field((), description="Limits, with the runs that reached them.")
    never_bound: tuple[str, ...] | None = Field(
        None, description="Limits that were never reached; None: unknown."
    )
    never_matched: tuple[str, ...] | None = Field(
        None, description="Patterns of `powerful` that never matched; None: unknown."
    )
    needless: tuple[CountRow, ...] | None = Field(
        None,
        description="Packages whose peak memory was below a quarter of their powerful machine, "
        "with the number of such runs; None: no queue recorded peaks.",
    )
    planned: Bill | None = Field(
        None, description="Planned cost of new machines until idle; None: not recorded."
    )
    withheld: Bill | None = Field(
        None, description="Planned cost in runs with withheld machines: no bound."
    )
    best: Bill | None = Field(None, description="Lower bound of the cost with any machines.")
    gaps: tuple[GapRow, ...] = Field((), description="Causes of the difference.")

    @property
    def idle_share(self) -> float | None:
        """Return boot and idle time as percentage of machine time; None without machine time."""
        return 100 * self.idle_seconds / self.seconds if self.seconds else None

    @property
    def is_empty(self) -> bool:
        """Return whether the store has no record of the month."""
        return not (self.charged_until or self.runs or self.changes)


def month_at(fleet: Fleet, first: date) -> Period:
    """Return the month that contains a day, in the fleet's time zone."""
    noon = datetime(first.year, first.month, 15, 12, tzinfo=ZoneInfo(fleet.money.time_zone))
    return periods(fleet, noon)[_MONTH_INDEX]


def name_month(fleet: Fleet, month: Period) -> str:
    """Return the name of a month, such as 2026-11."""
    return f"{month.start.astimezone(ZoneInfo(fleet.money.time_zone)):%Y-%m}"


def days_of(fleet: Fleet, month: Period) -> Iterator[Period]:
    """Yield the days of a month."""
    start = month.start
    while start < month.end:
        day = periods(fleet, start + _NOON)[_DAY_INDEX]
        yield day
        start = day.end


class MonthRecords(Value):
    """The records of one month in a store."""

    charges: tuple[Charge, ...] = Field(description="The last entry of each is that of the month.")
    days: tuple[Bill | None, ...] = ()
    charged_since: Moment | None = None
    charged_until: Moment | None = None
    tallies: tuple[Tally, ...] = ()
    log: tuple[LogEntry, ...] = Field((), description="Of the month.")


def month_report(fleet: Fleet, month: Period, recorded: MonthRecords) -> MonthReport:
    """Return the report of a month."""
    charges, until, since = recorded.charges, recorded.charged_until, recorded.charged_since
    found: defaultdict[TallyKind, dict[str, Tally]] = defaultdict(dict)
    for tally in recorded.tallies:
        found[tally.kind][tally.name] = tally
    runs = found["run"][""].count if found["run"] else None
    unpaid = [each for each in charges if not _is_work(each)]
    # Pools pay only for idle time; a tally counts idle time that other payers pay for.
    idle = found["idle"].get("", Tally(month=name_month(fleet, month), kind="idle"))
    packages = [
        CostRow(name=each.name, seconds=each.seconds, money=each.nanos * _NANO)
        for each in found["package"].values()
    ]
    packages.sort(key=lambda each: (-each.money, each.name))
    changes = Counter(
        f"{each.kind} {each.outcome}".strip() for each in recorded.log if each.kind != "begin"
    )
    bounds = {name: each.nanos * _NANO for name, each in found["optimum"].items()}
    gaps = [GapRow(name=each.name, money=each.nanos * _NANO) for each in found["gap"].values()]

    def costs(noun: str) -> tuple[CostRow, ...]:
        rows = [
            CostRow(
                name=name,
                seconds=_sum_seconds(own),
                money=_sum(own),
                gone=noun == "pool" and name not in fleet.pools,
            )
            for name, own in _group(charges, noun).items()
        ]
        return tuple(sorted(rows, key=lambda each: (-each.money, -each.seconds, each.name)))

    def unused(declared: Iterable[str], kind: TallyKind) -> tuple[str, ...] | None:
        return None if runs is None else tuple(sorted(set(declared) - found[kind].keys()))

    return MonthReport(
        fleet=fleet.fleet,
        month=name_month(fleet, month),
        start=month.start,
        end=month.end,
        charged_since=since if since and month.start < since < month.end else None,
        charged_until=min(until, month.end) if until and until > month.start else None,
        complete=until is not None and until >= month.end,
        currency=fleet.money.currency,
        money=_sum(charges),
        seconds=_sum_seconds(charges),
        pools=costs("pool"),
        scopes=costs("scope"),
        teams=costs("team"),
        owners=costs("owner"),
        days=recorded.days,
        idle_seconds=_sum_seconds(unpaid) + idle.seconds,
        idle_money=_sum(unpaid) + idle.nanos * _NANO,
        packages=tuple(packages[:_TOP]),
        other_packages=sum((each.money for each in packages[_TOP:]), Decimal(0)),
        runs=runs,
        changes=tuple(CountRow(name=name, count=n) for name, n in sorted(changes.items())),
        waits=tuple(_waits(found["wait"].values())),
        unseen=sum(each.count for each in found["unseen"].values()),
        bound=_counts(found["bound"]),
        never_bound=unused(limit_paths(fleet), "bound"),
        never_matched=unused([rule.match for rule in fleet.powerful], "rule"),
        needless=_counts(found["needless"]) if found["powerful"] else None,
        planned=bounds.get("planned"),
        withheld=bounds.get("withheld"),
        best=bounds.get("bound"),
        gaps=tuple(sorted(gaps, key=lambda each: (-each.money, each.name))),
    )


def _waits(tallies: Iterable[Tally]) -> Iterator[WaitRow]:
    buckets: dict[str, Counter[int]] = {POWERFUL: Counter(), ORDINARY: Counter()}
    for tally in tallies:
        name, _, bucket = tally.name.partition(" ")
        buckets[name][int(bucket)] += tally.count
    for name, found in buckets.items():
        total = found.total()
        yield WaitRow(
            name=name, count=total, half=_percentile(found, 50), most=_percentile(found, 95)
        )


def _percentile(buckets: Counter[int], percent: int) -> int | None:
    """Return a percentile of the known waits in seconds; None if no wait is known."""
    left = -(-buckets.total() * percent // 100)
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return most_of(bucket)
    return None


def _counts(tallies: Mapping[str, Tally]) -> tuple[CountRow, ...]:
    rows = [CountRow(name=each.name, count=each.count) for each in tallies.values()]
    return tuple(sorted(rows, key=lambda each: (-each.count, each.name)))
