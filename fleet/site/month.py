"""The cost of a month and the waits of its requests: the figures of `fleet report --month`.

The sums equal those of the ledger: the rows of each grouping add up to the total. Unrecorded
figures are None, never zero.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from pydantic import Field

from fleet.explain.tallies import ORDINARY, POWERFUL, limit_paths, most_of
from fleet.model.facts import Charge
from fleet.model.history import Tally, TallyKind
from fleet.model.log import LogEntry
from fleet.model.values import Bill, Moment, Value
from fleet.planner.ledger import Period, periods
from fleet.schema.model import Fleet
from fleet.site.charges import PAID_BY_POOLS, group_charges, name_payer

_MONTH = 2
_TOP = 10
_NANO = Decimal(10) ** -9
_NOON = timedelta(hours=12)


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
    return periods(fleet, noon)[_MONTH]


def name_month(fleet: Fleet, month: Period) -> str:
    """Return the name of a month, such as 2026-11."""
    return f"{month.start.astimezone(ZoneInfo(fleet.money.time_zone)):%Y-%m}"


def days_of(fleet: Fleet, month: Period) -> Iterator[Period]:
    """Yield the days of a month."""
    start = month.start
    while start < month.end:
        day = periods(fleet, start + _NOON)[1]
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
    charges, until = recorded.charges, recorded.charged_until
    by_kind: defaultdict[TallyKind, dict[str, Tally]] = defaultdict(dict)
    for tally in recorded.tallies:
        by_kind[tally.kind][tally.name] = tally
    runs = by_kind["run"][""].count if by_kind["run"] else None
    total = _row("", charges)
    unpaid = _row("", [each for each in charges if name_payer(each, None, "") == PAID_BY_POOLS])
    # Pools pay only for idle time; a tally counts idle time that other payers pay for.
    idle = by_kind["idle"].get("", Tally(month=name_month(fleet, month), kind="idle"))
    packages = [
        CostRow(name=each.name, seconds=each.seconds, money=each.nanos * _NANO)
        for each in by_kind["package"].values()
    ]
    packages.sort(key=lambda each: (-each.money, each.name))
    since = recorded.charged_since
    return MonthReport(
        fleet=fleet.fleet,
        month=name_month(fleet, month),
        start=month.start,
        end=month.end,
        charged_since=since if since and month.start < since < month.end else None,
        charged_until=min(until, month.end) if until and until > month.start else None,
        complete=until is not None and until >= month.end,
        currency=fleet.money.currency,
        money=total.money,
        seconds=total.seconds,
        pools=_cost_rows(charges, lambda each: each.pool, known=fleet.pools),
        scopes=_cost_rows(charges, lambda each: name_payer(each, each.scope, "scope")),
        teams=_cost_rows(charges, lambda each: name_payer(each, each.team, "team")),
        owners=_cost_rows(charges, lambda each: name_payer(each, each.owner, "owner")),
        days=recorded.days,
        idle_seconds=unpaid.seconds + idle.seconds,
        idle_money=unpaid.money + idle.nanos * _NANO,
        packages=tuple(packages[:_TOP]),
        other_packages=sum((each.money for each in packages[_TOP:]), Decimal(0)),
        runs=runs,
        changes=tuple(_changes(recorded.log)),
        waits=tuple(_waits(by_kind["wait"].values())),
        unseen=sum(each.count for each in by_kind["unseen"].values()),
        bound=_counts(by_kind["bound"]),
        never_bound=_unused_names(runs, limit_paths(fleet), by_kind["bound"]),
        never_matched=_unused_names(
            runs, [rule.match for rule in fleet.powerful], by_kind["rule"]
        ),
        needless=_counts(by_kind["needless"]) if by_kind["powerful"] else None,
        **_bounds(by_kind["optimum"], by_kind["gap"]),
    )


def _row(name: str, charges: Iterable[Charge], *, gone: bool = False) -> CostRow:
    them = list(charges)
    return CostRow(
        name=name,
        seconds=sum(each.seconds[_MONTH] for each in them),
        money=sum((each.money[_MONTH] for each in them), Decimal(0)),
        gone=gone,
    )


def _cost_rows(
    charges: Sequence[Charge],
    name_of: Callable[[Charge], str],
    known: Mapping[str, object] | None = None,
) -> tuple[CostRow, ...]:
    rows = [
        _row(name, found, gone=known is not None and name not in known)
        for name, found in group_charges(charges, name_of).items()
    ]
    return tuple(sorted(rows, key=lambda each: (-each.money, -each.seconds, each.name)))


def _changes(log: Iterable[LogEntry]) -> Iterator[CountRow]:
    counted = Counter(
        f"{each.kind} {each.outcome}".strip() for each in log if each.kind != "begin"
    )
    for name, count in sorted(counted.items()):
        yield CountRow(name=name, count=count)


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


def _unused_names(
    runs: int | None, declared: Iterable[str], seen: Mapping[str, Tally]
) -> tuple[str, ...] | None:
    return None if runs is None else tuple(sorted(set(declared) - seen.keys()))


def _bounds(optimum: Mapping[str, Tally], gaps: Mapping[str, Tally]) -> dict[str, object]:
    rows = [GapRow(name=each.name, money=each.nanos * _NANO) for each in gaps.values()]
    known = {name: each.nanos * _NANO for name, each in optimum.items()}
    return {
        "planned": known.get("planned"),
        "withheld": known.get("withheld"),
        "best": known.get("bound"),
        "gaps": tuple(sorted(rows, key=lambda each: (-each.money, each.name))),
    }
