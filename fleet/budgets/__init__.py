"""This module makes of every budget the rows that allocation may not pass.

A budget has two rows per period: the current hour, day or month, with what was spent in it, and
the next one, so that nothing bought now passes a limit after midnight. In each, what exists and
runs reserves what it is expected still to cost, and each machine or request takes its part.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from fleet.budgets.ledger import Period, charge, holdings, periods, work_of
from fleet.budgets.lifetimes import Lifetimes, Window
from fleet.budgets.spending_limits import HOURS, PERIODS, SpendingLimit, spending_limits
from fleet.census import PoolCensus
from fleet.census.renames import charges_of
from fleet.demand.choices import Group, Place, Row
from fleet.facts import Unknown, World
from fleet.facts.ledger import Charge, Entry
from fleet.making.image_choice import images_by_pool
from fleet.plan.money import BudgetVerdict, PeriodName, rate, say_when
from fleet.schema.model import Fleet, Pool

_K = TypeVar("_K")
_T = TypeVar("_T", Place, Charge, Entry)


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
    limits = spending_limits(fleet)
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
        self._groups = groups
        self._places = {
            place.key: place for place in places if isinstance(fleet.pools.get(place.pool), Pool)
        }
        self._places_of = _by_pool(self._places.values())
        self._world = world
        self._unseen = tuple(_unseen(world, census))
        self._holdings = holdings(fleet, world, census)
        self._numbers_of: dict[str, list[int]] = {}
        for number, holding in enumerate(self._holdings):
            self._numbers_of.setdefault(holding.pool, []).append(number)
        self._lives = Lifetimes(
            fleet, world, self._holdings, groups, images_by_pool(fleet, world, census)
        )
        self._periods = {period.name: period for period in periods(fleet, world.time)}
        self._charges = charges_of(fleet, world)
        self._charges_of = _by_pool(self._charges)
        self._uncharged = charge(fleet, world, census)
        self._uncharged_of = _by_pool(self._uncharged)
        self._groups_of: dict[str, list[Group]] = {key: [] for key in self._places}
        for group in groups:
            for key in group.fits:
                if key in self._places:
                    self._groups_of[key].append(group)

    def open(self, limit: SpendingLimit, *, coming: bool) -> Account:
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
            else f"{name} has not enough left for more: {left:.2f} of {rate(amount)} "
            f"{limit.unit} {when} ({spent:.2f} spent, {reserved:.2f} reserved)"
        )
        return Account(
            budget=limit.budget,
            period=limit.period,
            coming=coming,
            unit=limit.unit,
            limit=amount,
            spent=spent,
            reserved=reserved,
            row=replace(self._row(limit, window, because, left), when=when),
            known=not silent,
        )

    def _window(self, period: Period, *, coming: bool) -> Window:
        start, end = (period.end, period.next_end) if coming else (self._world.time, period.end)
        month = self._periods["month"]
        return Window(start, end, month.end if start >= month.end else month.start)

    def _silent(self, limit: SpendingLimit) -> str:
        """Return why nobody knows what a budget has left; empty when it is known."""
        if isinstance(self._world.ledger, Unknown):
            return f"what was spent is unknown: {self._world.ledger.unknown}"
        if limit.amount is None:
            return "its currency has no exchange rate"
        unseen = [pool for pool in self._unseen if limit.pool in (None, pool)]
        return f"nobody knows what pool {unseen[0]} holds" if unseen else ""

    def _spent(self, limit: SpendingLimit, period: Period) -> Decimal:
        """Return what was charged in the current period, and what is about to be."""
        nth = PERIODS.index(period.name)
        charges: Iterable[Charge] = self._charges
        uncharged: Iterable[Entry] = self._uncharged
        if limit.pool is not None:
            charges = self._charges_of.get(limit.pool, ())
            uncharged = self._uncharged_of.get(limit.pool, ())
        before = [(c.seconds[nth], c.money[nth]) for c in charges if limit.counts(c)]
        since = [
            (entry.seconds, entry.money)
            for entry in uncharged
            if entry.hour >= period.start and limit.counts(entry)
        ]
        if limit.unit == HOURS:
            return Decimal(sum(seconds for seconds, _ in (*before, *since))) / 3600
        return sum((money for _, money in (*before, *since)), Decimal(0))

    def _reserved(self, limit: SpendingLimit, window: Window) -> Decimal:
        """Return what machines and work that exist are expected to cost in a window."""
        hours = limit.unit == HOURS
        total = Decimal(0)
        numbers: Iterable[int] = range(len(self._holdings))
        if limit.pool is not None:
            numbers = self._numbers_of.get(limit.pool, ())
        for number in numbers:
            holding = self._holdings[number]
            if limit.only is None or holding.unit is None:
                total += self._lives.existing(number, window, hours=hours)
            elif limit.counts_work(work_of(holding)):
                total += self._lives.running(number, window, hours=hours)
        return total

    def _row(self, limit: SpendingLimit, window: Window, because: str, room: Decimal) -> Row:
        places: Iterable[Place] = ()
        if limit.pool is not None:
            places = self._places_of.get(limit.pool, ())
        elif limit.only is None:
            places = self._places.values()
        hours = limit.unit == HOURS
        makes = [place for place in places if place.makes]
        requests = (
            self._more(places, window, hours=hours)
            if limit.only is None
            else self._work(limit, window, hours=hours)
        )
        return Row(
            path=limit.path,
            because=because,
            room=room,
            machines=_some((p.key, self._lives.made(p, window, hours=hours)) for p in makes),
            requests=_some(requests),
            kept=_some((p.key, self._lives.kept(p, window, hours=hours)) for p in makes),
        )

    def _more(
        self, places: Iterable[Place], window: Window, *, hours: bool
    ) -> Iterator[tuple[tuple[str, str], Decimal]]:
        """Yield how much longer each request keeps a machine of these places."""
        for place in places:
            known: dict[tuple[float, int | None], Decimal] = {}
            for group in self._groups_of[place.key]:
                fit = group.fits[place.key]
                alike = (fit.share, fit.longest)
                if alike not in known:
                    known[alike] = self._lives.more(place, fit, window, hours=hours)
                yield (group.id, place.key), known[alike]

    def _work(
        self, limit: SpendingLimit, window: Window, *, hours: bool
    ) -> Iterator[tuple[tuple[str, str], Decimal]]:
        """Yield what the busy time costs of each request that a budget counts."""
        for group in filter(limit.counts_group, self._groups):
            for key, fit in group.fits.items():
                place = self._places.get(key)
                if place is not None:
                    yield (group.id, key), self._lives.work(place, fit, window, hours=hours)


def _some(amounts: Iterable[tuple[_K, Decimal]]) -> dict[_K, Decimal]:
    return {key: amount for key, amount in amounts if amount}


def _by_pool(things: Iterable[_T]) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for thing in things:
        found.setdefault(thing.pool, []).append(thing)
    return found


def _unseen(world: World, census: Mapping[str, PoolCensus]) -> Iterator[str]:
    """Yield the pools whose machines neither their provider nor their stack tells of."""
    for name, pool in census.items():
        if not pool.listed:
            stacks = world.stacks
            stack = stacks if isinstance(stacks, Unknown) else stacks.get(name)
            if isinstance(stack, Unknown):
                yield name
