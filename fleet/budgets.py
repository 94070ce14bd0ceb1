"""This module makes of every budget the rows that allocation may not pass.

A budget has two rows per period: the current hour, day or month, with what was spent in it, and
the next one, so that nothing bought now passes a limit after midnight. In each, what exists and
runs reserves what it is expected still to cost, and each machine or request takes its part.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from fleet.catalogue import convert
from fleet.census import PoolCensus
from fleet.choices import Group, Path, Place, Row
from fleet.facts import Charge, Entry, Ledger, Unknown, Work, World
from fleet.ledger import Period, charge, holdings, periods, work_of
from fleet.lifetimes import Lifetimes, Window
from fleet.plan import BudgetVerdict, PeriodName, say_when
from fleet.schema.limits import Budget
from fleet.schema.model import Fleet, Money, Pool

HOURS = "machine hours"
_PERIODS: tuple[PeriodName, ...] = ("hour", "day", "month")


@dataclass(frozen=True)
class _Limit:
    """One figure of one budget."""

    budget: str
    path: Path
    period: PeriodName
    amount: Decimal | None
    """None where its currency has no exchange rate."""
    unit: str
    pool: str | None = None
    """The pool whose budget it is; None: it is one of `budgets`."""
    only: Budget | None = None
    """Whose work it counts; None: all machine time, boot and idle included."""

    def counts(self, of: Charge | Entry) -> bool:
        """Say whether what was charged counts here."""
        if self.pool is not None:
            return of.pool == self.pool
        return self.only is None or _is_of(self.only, of, frozenset(of.tags))

    def counts_work(self, work: Work | None) -> bool:
        """Say whether running work counts here, where only work does."""
        if work is None or self.only is None:
            return False
        return _is_of(self.only, work, frozenset(work.required))

    def counts_group(self, group: Group) -> bool:
        """Say whether waiting requests count here, where only work does."""
        return self.only is not None and _is_of(self.only, group.payer, group.tags)


def _is_of(only: Budget, who: object, tags: frozenset[str]) -> bool:
    wanted = ((field, getattr(only, field)) for field in ("scope", "team", "owner"))
    if any(value is not None and getattr(who, field) != value for field, value in wanted):
        return False
    return not only.tags or not tags.isdisjoint(only.tags)


@dataclass(frozen=True)
class Account:
    """One limit in one period: what it allows, what is gone, and the row for what is chosen."""

    budget: str
    period: PeriodName
    coming: bool
    unit: str
    limit: Decimal
    spent: Decimal
    reserved: Decimal
    row: Row
    known: bool = True


def open_accounts(
    fleet: Fleet,
    world: World,
    census: Mapping[str, PoolCensus],
    groups: Iterable[Group],
    places: Iterable[Place],
) -> tuple[Account, ...]:
    """Return every budget in its current and its next period, in the order of fleet.yaml."""
    limits = [*_pool_limits(fleet), *_limits(fleet)]
    if not limits:
        return ()
    books = _Books(fleet, world, census, tuple(groups), tuple(places))
    return tuple(books.open(limit, coming=coming) for limit in limits for coming in (False, True))


def judge_budgets(
    accounts: Iterable[Account],
    made: Mapping[str, int],
    kept: Mapping[str, int],
    served: Mapping[tuple[str, str], int],
) -> tuple[BudgetVerdict, ...]:
    """Return how far each budget is used up.

    `made` and `kept` say how many machines are made at each place for requests and to stay,
    `served` how many requests of each group at each place.
    """
    return tuple(
        BudgetVerdict(
            budget=account.budget,
            path=account.row.path,
            period=account.period,
            unit=account.unit,
            limit=account.limit,
            spent=account.spent,
            reserved=account.reserved,
            planned=_taken(account.row, made, kept, served),
            exceeded=account.spent + account.reserved > account.limit,
            coming=account.coming,
            known=account.known,
        )
        for account in accounts
    )


def _taken(
    row: Row,
    made: Mapping[str, int],
    kept: Mapping[str, int],
    served: Mapping[tuple[str, str], int],
) -> Decimal:
    machines = sum(row.machines.get(place, 0) * count for place, count in made.items())
    staying = sum(row.kept.get(place, 0) * count for place, count in kept.items())
    requests = sum(row.requests.get(where, 0) * count for where, count in served.items())
    return Decimal(machines + staying + requests)


def _pool_limits(fleet: Fleet) -> Iterator[_Limit]:
    for name, pool in fleet.pools.items():
        if isinstance(pool, Pool) and pool.budget is not None:
            for period in _PERIODS:
                amount: Money | None = getattr(pool.budget, f"per_{period}")
                if amount is not None:
                    path = ("pools", name, "budget", f"per_{period}")
                    converted = convert(fleet, amount.amount, amount.currency)
                    yield _Limit(name, path, period, converted, fleet.money.currency, pool=name)


def _limits(fleet: Fleet) -> Iterator[_Limit]:
    for name, budget in fleet.budgets.items():
        only = budget if _filters(budget) else None
        for period in _PERIODS:
            amount: Money | None = getattr(budget, f"per_{period}")
            if amount is not None:
                path = ("budgets", name, f"per_{period}")
                converted = convert(fleet, amount.amount, amount.currency)
                yield _Limit(name, path, period, converted, fleet.money.currency, only=only)
            hours: int | None = getattr(budget, f"machine_hours_per_{period}")
            if hours is not None:
                path = ("budgets", name, f"machine_hours_per_{period}")
                yield _Limit(name, path, period, Decimal(hours), HOURS, only=only)


def _filters(budget: Budget) -> bool:
    return bool(budget.scope or budget.team or budget.owner or budget.tags)


class _Books:
    """What every account looks at: spending, machines, their expected ends."""

    def __init__(
        self,
        fleet: Fleet,
        world: World,
        census: Mapping[str, PoolCensus],
        groups: tuple[Group, ...],
        places: tuple[Place, ...],
    ) -> None:
        self._places = {
            place.key: place for place in places if isinstance(fleet.pools.get(place.pool), Pool)
        }
        self._world = world
        self._unseen = tuple(_unseen(world, census))
        self._holdings = holdings(fleet, world, census)
        self._lives = Lifetimes(fleet, world, self._holdings, groups)
        self._periods = {period.name: period for period in periods(fleet, world.time)}
        self._uncharged = charge(fleet, world, census)
        self._groups_of: dict[str, list[Group]] = {key: [] for key in self._places}
        for group in groups:
            for key in group.fits:
                if key in self._places:
                    self._groups_of[key].append(group)

    def open(self, limit: _Limit, *, coming: bool) -> Account:
        """Return one limit's account of the current or the next period."""
        period = self._periods[limit.period]
        window = self._window(period, coming=coming)
        spent = Decimal(0) if coming else self._spent(limit, period)
        reserved = self._reserved(limit, window)
        amount = limit.amount or Decimal(0)
        silent = self._silent(limit)
        left = Decimal(0) if silent else max(Decimal(0), amount - spent - reserved)
        when = say_when(limit.period, coming=coming)
        name = f"the budget of pool {limit.budget}" if limit.pool else f"budget {limit.budget}"
        because = (
            f"what {name} has left {when} is not known: {silent}"
            if silent
            else f"{name} has {left:.2f} of {amount:f} {limit.unit} left {when} "
            f"({spent:.2f} spent, {reserved:.2f} reserved)"
        )
        return Account(
            budget=limit.budget,
            period=limit.period,
            coming=coming,
            unit=limit.unit,
            limit=amount,
            spent=spent,
            reserved=reserved,
            row=self._row(limit, window, because, left),
            known=not silent,
        )

    def _window(self, period: Period, *, coming: bool) -> Window:
        start, end = (period.end, period.next_end) if coming else (self._world.time, period.end)
        month = self._periods["month"]
        return Window(start, end, month.end if start >= month.end else month.start)

    def _silent(self, limit: _Limit) -> str:
        """Return why nobody knows what a budget has left; empty when it is known."""
        if isinstance(self._world.ledger, Unknown):
            return f"what was spent is unknown: {self._world.ledger.unknown}"
        if limit.amount is None:
            return "its currency has no exchange rate"
        unseen = [pool for pool in self._unseen if limit.pool in (None, pool)]
        return f"nobody knows what pool {unseen[0]} holds" if unseen else ""

    def _spent(self, limit: _Limit, period: Period) -> Decimal:
        """Return what was charged in the current period, and what is about to be."""
        nth = _PERIODS.index(period.name)
        ledger = self._world.ledger
        charges = ledger.charges if isinstance(ledger, Ledger) else ()
        before = [(c.seconds[nth], c.money[nth]) for c in charges if limit.counts(c)]
        since = [
            (entry.seconds, entry.money)
            for entry in self._uncharged
            if entry.hour >= period.start and limit.counts(entry)
        ]
        if limit.unit == HOURS:
            return Decimal(sum(seconds for seconds, _ in (*before, *since))) / 3600
        return sum((money for _, money in (*before, *since)), Decimal(0))

    def _reserved(self, limit: _Limit, window: Window) -> Decimal:
        """Return what machines and work that exist are expected to cost in a window."""
        hours = limit.unit == HOURS
        total = Decimal(0)
        for number, holding in enumerate(self._holdings):
            if limit.pool not in (None, holding.pool):
                continue
            if limit.only is None or holding.unit is None:
                total += self._lives.existing(number, window, hours=hours)
            elif limit.counts_work(work_of(holding)):
                total += self._lives.running(number, window, hours=hours)
        return total

    def _row(self, limit: _Limit, window: Window, because: str, room: Decimal) -> Row:
        hours = limit.unit == HOURS
        machines: dict[str, Decimal] = {}
        kept: dict[str, Decimal] = {}
        requests: dict[tuple[str, str], Decimal] = {}
        for key, place in self._places.items():
            if limit.pool not in (None, place.pool):
                continue
            if limit.only is None and place.makes:
                machines[key] = self._lives.made(place, window, hours=hours)
                kept[key] = self._lives.kept(place, window, hours=hours)
            for group in self._groups_of[key]:
                fit = group.fits[key]
                if limit.only is None:
                    requests[group.id, key] = self._lives.more(place, fit, window, hours=hours)
                elif limit.counts_group(group):
                    requests[group.id, key] = self._lives.work(place, fit, window, hours=hours)
        return Row(
            path=limit.path,
            because=because,
            room=room,
            machines={key: amount for key, amount in machines.items() if amount},
            requests={key: amount for key, amount in requests.items() if amount},
            kept={key: amount for key, amount in kept.items() if amount},
        )


def _unseen(world: World, census: Mapping[str, PoolCensus]) -> Iterator[str]:
    """Yield the pools whose machines neither their provider nor their stack tells of."""
    for name, pool in census.items():
        if not pool.listed:
            stacks = world.stacks
            stack = stacks if isinstance(stacks, Unknown) else stacks.get(name)
            if isinstance(stack, Unknown):
                yield name
