"""Compute amount, spending, reservation and remainder of each budget, as allocation limits.

The expected end of a machine is the end of its work, plus its idle time-out, the delay until runs
delete it (`costs.py`) and the rest of the billed increment. A machine with an unknown end is
expected to run indefinitely.

A budget has two limits per hour, day or month: the current and the next period. The next period
prevents purchases that exceed the limit after midnight. In each period, existing machines and work
reserve their expected remaining cost, and each new machine or request adds its expected cost.

All amounts are provider bills, including boot and idle time. A budget with a filter (scope, team,
owner or tag) counts the machines that matching requests pay for (`ledger.py`). If a new machine
fits only matching requests, its bill counts; else each request counts as if it had a machine.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_UP, Decimal
from functools import cached_property
from typing import NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from fleet.model.decisions import NoMachineReason
from fleet.model.facts import Charge, Unknown, World
from fleet.model.plan import BudgetVerdict, PeriodName, say_when
from fleet.model.pool_limits import boot_of, size_of
from fleet.model.prices import (
    FREE,
    MACHINE_HOURS,
    Life,
    convert,
    tariff_of,
)
from fleet.model.values import Figure, UnknownFigure
from fleet.planner.costs import deletion_time, removal_seconds
from fleet.planner.demand import Constraints, LimitRow, Path, Place, RequestGroup
from fleet.planner.durations import Durations, kind_of
from fleet.planner.ledger import (
    BilledMachine,
    Owner,
    PayerAccount,
    charges_until_now,
    holdings,
    owners_of,
    periods,
    released_at,
    unused,
    work_of,
)
from fleet.planner.lifecycle.rule import MachineLife, is_in_sandbox
from fleet.planner.lifecycle.surplus import deletion_age
from fleet.planner.lifecycle.table import idle_limit
from fleet.planner.pool_plan import GOING_STATES, PoolPlan, is_going
from fleet.planner.units import NEVER, UnitState, is_busy
from fleet.schema.model import Budget, Fleet, Money, Pool, PoolBudget, TicketQueue
from fleet.words import limits as words

HOURS = "machine hours"
PERIODS: tuple[PeriodName, ...] = ("hour", "day", "month")


@dataclass(frozen=True)
class SpendingLimit:
    """A configured maximum of a budget, in the currency of fleet.yaml or in machine hours."""

    budget: str
    path: Path
    period: PeriodName
    amount: Decimal | None
    """None if the stated currency has no exchange rate."""
    unit: str
    pool: str | None = None
    """The pool of a pool budget; None for an entry of `budgets`."""
    only: Budget | None = None
    """The filter for requests; None: the limit counts all machines."""

    def counts(self, of: Charge | PayerAccount) -> bool:
        """Return True if the limit counts this charge, or this payer's charges."""
        if self.pool is not None:
            return of.pool == self.pool
        return self.only is None or _matches_filter(self.only, of, frozenset(of.tags))

    def counts_pool(self, pool: str, exclusive: frozenset[str]) -> bool:
        """Return True if the limit counts all work of a pool, with these exclusive tags."""
        if self.pool is not None:
            return pool == self.pool
        only = self.only
        return only is None or (
            (only.scope, only.team, only.owner) == (None, None, None)
            and not exclusive.isdisjoint(only.tags)
        )


def _matches_filter(only: Budget, who: object, tags: frozenset[str]) -> bool:
    wanted = ((field, getattr(only, field)) for field in ("scope", "team", "owner"))
    if any(value is not None and getattr(who, field) != value for field, value in wanted):
        return False
    return not only.tags or not tags.isdisjoint(only.tags)


def spending_limits(fleet: Fleet) -> tuple[SpendingLimit, ...]:
    """Return the limits of pools by pool name, then those of `budgets` by budget name."""
    pools, money = sorted(fleet.dynamic_pools.items()), fleet.money.currency
    stated: list[tuple[Path, str, PoolBudget | Budget]] = [
        *((("pools", n, "budget"), n, pool.budget) for n, pool in pools if pool.budget),
        *((("budgets", name), name, each) for name, each in sorted(fleet.budgets.items())),
    ]
    found = []
    for path, name, budget in stated:
        pool = None if isinstance(budget, Budget) else name
        only = budget if isinstance(budget, Budget) and budget.is_filtered else None
        for period in PERIODS:
            amount: Money | None = getattr(budget, key := f"per_{period}")
            if amount is not None:
                most = convert(fleet, amount.amount, amount.currency)
                found.append(SpendingLimit(name, (*path, key), period, most, money, pool, only))
            hours: int | None = getattr(budget, key := f"machine_hours_per_{period}", None)
            if hours is not None:
                most = Decimal(hours)
                found.append(SpendingLimit(name, (*path, key), period, most, HOURS, only=only))
    return tuple(found)


_NONE = Decimal(0)
_EXACT = Decimal("1e-9")


class BudgetWindow(NamedTuple):
    """A time span within one calendar month, with the start of that month."""

    start: datetime
    end: datetime
    month: datetime
    hours: bool
    """Bills are machine hours, not money."""


class Length(NamedTuple):
    """The properties of requests that determine how long they keep a machine."""

    shared: bool
    """Requests may share one machine in turn, within target_wait."""
    longest: int | None
    """Duration of the longest request in seconds; None: unknown."""
    is_ticket: bool = False
    """The requests are tickets: a later run of `fleet apply` assigns the machine when ready."""


_NO_OWNER = Owner(PayerAccount(""), NEVER)


@dataclass(frozen=True, eq=False)
class _Machine:
    """An existing or new machine of the books, with its expected times."""

    holding: BilledMachine
    ready: datetime
    """Time when the machine can start a request; NEVER: unknown."""
    idle: tuple[int, int]
    """Maximum seconds from the end of its work to its deletion: (other work, tickets)."""
    end: datetime
    """Deletion time of the machine without new work; NEVER if its pool keeps it permanently."""
    freed: datetime = NEVER
    """Deletion time if its pool did not keep it permanently."""
    earliest: datetime = NEVER
    """Earliest deletion time, by the last run of a paid increment; NEVER if kept permanently."""
    owner: Owner = _NO_OWNER
    is_permanent: bool = False

    @property
    def pool(self) -> str:
        """Return the name of the machine's pool."""
        return self.holding.pool

    @property
    def serves(self) -> bool:
        """Return True if the machine may serve a waiting request."""
        unit = self.holding.unit
        return unit is None or unit.is_capacity or unit.state is UnitState.BUSY


_SECOND = timedelta(seconds=1)
_FOREVER = 10**12
"""Assumed seconds of work of unknown duration: longer than every window."""


class _Bill:
    """The bill of one machine in a time window, as a function of its age when deleted."""

    def __init__(
        self,
        machine: _Machine,
        window: BudgetWindow,
        end: datetime | None = None,
        ready: datetime | None = None,
    ) -> None:
        """Bill a machine. `end` and `ready` replace its times, unless None."""
        self.tariff, self.idle = machine.holding.tariff or FREE, machine.idle
        created_at, ready = machine.holding.created_at, ready or machine.ready
        self.starts = ready
        """Time when the machine can start a request; NEVER: unknown."""
        self.ready = _FOREVER if ready == NEVER else -((created_at - ready) // _SECOND)
        """Age of the machine in seconds when it can start a request."""
        self.gap = -((ready - window.start) // _SECOND)
        """Seconds from the time of this age to the start of the window."""
        tariff = MACHINE_HOURS if window.hours else self.tariff
        self._life = life = Life(tariff, created_at, window.month)
        self._start, self.end = life.age(window.start), life.age(window.end)
        self._paid = life.billed_at(self._start)
        self._whole = life.billed_at(self.end) - self._paid
        self.age = life.age(end or machine.end)
        """Age of the machine in seconds when it is deleted without the request."""
        self.before = self.until(self.age)
        """Bill of the machine without the request."""
        self.rest = _NONE
        """Unused part of the billed increment that the payer of the request takes over."""

    def until(self, age: int) -> Decimal:
        """Return the bill of the machine if it is deleted at this age, in seconds."""
        if age >= self.end:
            return self._whole
        return self._life.billed_at(age) - self._paid if age > self._start else _NONE


_T = TypeVar("_T", Place, Charge, _Machine)


@dataclass(frozen=True)
class BudgetAccount:
    """One budget limit in one period: amount, spending, reservation and linear constraint."""

    limit: SpendingLimit
    coming: bool
    spent: Figure
    reserved: Decimal
    exceeded: bool
    row: LimitRow
    unseen: str = ""
    """Why machines that it counts are unknown, so that more than `reserved` may be; else empty."""


Unpaid = tuple[BilledMachine, str, Path]
"""A worker on which a budget cannot pay for new work, with the reason and the budget's key."""


@dataclass
class _LimitRest:
    """The amount that a limit has left in the current period, and its possible new work."""

    limit: SpendingLimit
    left: Decimal
    """The amount without the spending, and without the bills of machines without new work."""
    spent: Decimal
    needs: dict[_Machine, tuple[Decimal, Decimal]] = field(default_factory=dict)
    """Machine to the amounts of `_price_new_work` that add to the bill."""
    kept: int = 0
    """Number of these machines whose new work is paid."""

    @property
    def committed(self) -> Decimal:
        """Return the least that the existing machines cost, with new work on the kept ones."""
        return (self.limit.amount or _NONE) - self.spent - self.left

    def explain(self, need: Decimal) -> str:
        """State that the limit cannot pay for new work that costs at least `need`."""
        limit = self.limit
        use = words.BudgetUse(
            words.name_budget(bool(limit.pool), limit.budget),
            *(say_when(limit.period, coming=False), limit.unit, max(_NONE, self.left)),
            *(limit.amount or _NONE, self.spent, self.committed),
        )
        return words.explain_used_up(use, need)


class _Free(NamedTuple):
    """The amount of a limit that new machines and requests may use."""

    left: Decimal
    claimed: Decimal
    """The part of an existing machine's next work that is reserved already."""


def judge_budgets(
    accounts: Iterable[BudgetAccount],
    made: Mapping[str, int],
    kept: Mapping[str, int],
    served: Mapping[tuple[str, str], int],
) -> tuple[BudgetVerdict, ...]:
    """Return the use of each budget after the allocation.

    `made` and `kept` map a place to the machines created for requests, and for min or spare.
    `served` maps (group, place) to the number of served requests.
    """
    used = Constraints([account.row for account in accounts]).used(made, served)
    return tuple(
        BudgetVerdict(
            budget=account.limit.budget,
            path=account.limit.path,
            period=account.limit.period,
            unit=account.limit.unit,
            limit=account.limit.amount or _NONE,
            spent=account.spent,
            reserved=UnknownFigure(unknown=account.unseen) if account.unseen else account.reserved,
            planned=amount
            + sum((n * kept[p] for p, n in account.row.kept.items() if p in kept), _NONE),
            exceeded=account.exceeded,
            coming=account.coming,
        ).with_rest()
        for account, amount in zip(accounts, used, strict=True)
    )


class Books:
    """The spending, machines and expected deletion times that all budget accounts share.

    The books hold the expected deletion of existing and new machines, and their bills in a window.
    """

    def __init__(self, fleet: Fleet, world: World, pool_plans: Mapping[str, PoolPlan]) -> None:
        inventory = {name: each.inventory for name, each in pool_plans.items()}
        self._gone = {(name, worker) for name, own in pool_plans.items() for worker in own.leaving}
        """(Pool, worker) of each machine that leaves for another reason than a budget."""
        self.fleet, self._world, self._now = fleet, world, world.time
        self._unobserved_pools = tuple(
            name
            for name, pool in inventory.items()
            if not pool.listed and isinstance(world.read_stack(name), Unknown)
        )
        """The pools whose provider and stack are both unreadable."""
        self.limits = spending_limits(fleet)
        self._offers = {name: each.offer for name, each in pool_plans.items()}
        self._durations = Durations(fleet, world)
        self._removal_delay = timedelta(seconds=removal_seconds(fleet, world))
        self._run = timedelta(seconds=fleet.cadence)
        self._zone = ZoneInfo(fleet.money.time_zone)
        self._idle_times: dict[tuple[object, ...], timedelta] = {}
        """The results of `_idle_time`: most machines of a pool have equal ones."""
        found = holdings(fleet, world, inventory)
        ends = [self._deletion_time_of(each, self._removal_delay) for each in found]
        numbers_of: defaultdict[str, list[int]] = defaultdict(list)
        for number, holding in enumerate(found):
            numbers_of[holding.pool].append(number)
        # Runs keep the last machines of a pool for `min` and `spare`.
        permanent = {
            number
            for name, numbers in numbers_of.items()
            for number in sorted(numbers, key=ends.__getitem__, reverse=True)[: self._stay(name)]
        }
        owners = owners_of(fleet, world, found)
        self._machines = [
            self._observe(holding, end, owner, is_permanent=number in permanent)
            for number, (holding, end, owner) in enumerate(zip(found, ends, owners, strict=True))
        ]
        self._machines_of = _group_by_pool(self._machines)
        self._new: dict[str, _Machine] = {}
        """Place to the machine that would be created there now."""
        self.paid: dict[Path, frozenset[_Machine]] = {
            limit.path: frozenset(m for m in self._machines if limit.counts(m.owner.payer))
            for limit in self.limits
            if limit.only is not None
        }
        """Limit with a filter to the machines whose payer matches the filter."""
        self._periods = {period.name: period for period in periods(fleet, world.time)}
        self._charges = charges_until_now(fleet, world, inventory)
        self._charges_of = _group_by_pool(self._charges)

    def _observe(
        self, holding: BilledMachine, end: datetime, owner: Owner, *, is_permanent: bool
    ) -> _Machine:
        """Return an existing machine with its expected times. `end` is its deletion time.

        The last run of a paid increment deletes the machine, so each request that keeps the
        machine adds increments from then on. For an increment below two runs, the earliest
        deletion time is the expected one.
        """
        until = earliest = NEVER if is_permanent else end
        step, unit = (holding.tariff or FREE).increment, holding.unit
        if until != NEVER and unit and step >= self._removal_delay.total_seconds():
            is_drained = not isinstance(self.fleet.queues.get(unit.registry or ""), TicketQueue)
            looks = self._run if is_drained else timedelta()
            earliest = min(end, self._deletion_time_of(holding, looks))
        return _Machine(
            holding,
            self._ready_of(holding),
            self._idle_seconds(holding),
            until,
            freed=end,
            earliest=earliest,
            owner=owner,
            is_permanent=is_permanent,
        )

    def add_new(self, place: Place, *, shared: bool) -> None:
        """Add a machine that would be created now at a place.

        If requests may share the machine (`shared`), it works until `target_wait` ends, including
        its boot.
        """
        pool = self._pool(place.pool)
        tariff = tariff_of(self.fleet, pool, place.type, place.market) or FREE
        made = BilledMachine(place.pool, tariff, self._now)
        ready = idle_since = boot_of(pool).ready_at(self._now)
        if shared:
            idle_since = max(ready, self._now + timedelta(seconds=pool.target_wait or 0))
        end = self._deletion_time(made, idle_since, self._removal_delay)
        self._new[place.key] = _Machine(made, ready, self._idle_seconds(made), end)

    def bill_new(self, place: Place, window: BudgetWindow, *, kept: bool = False) -> Decimal:
        """Return the bill, in a window, of a new machine; `kept`: for `min` or `spare`."""
        return _Bill(self._new[place.key], window, NEVER if kept else None).before

    def _price_new_work(
        self, machine: _Machine, window: BudgetWindow
    ) -> tuple[Decimal, Decimal, Decimal]:
        """Return the bill of an existing machine in a window, and additions to this bill.

        The bill is the least that the machine can still cost: until it can be deleted if it gets
        no new work from now on, or until now if the end of its work is unknown. The first
        addition is the least that new work costs: the time until the machine is deleted as idle,
        at least one billed increment. The second is the rest of the window for a machine that
        the pool keeps permanently, else 0.
        """
        holding, end = machine.holding, machine.freed
        if self._is_assigned_by_queue(holding):
            free = self._free_at(holding) if work_of(holding) is not None else self._now
            end = NEVER if free == NEVER else max(self._now, free) + self._run
        bill = _Bill(machine, window, self._now + self._run if end == NEVER else end)
        step = 1 if window.hours else bill.tariff.increment
        least = bill.until(bill.age + max(step, machine.idle[0])) - bill.before
        rest = bill.until(_FOREVER) - bill.before if machine.is_permanent else _NONE
        return bill.before, least, rest

    def _is_assigned_by_queue(self, holding: BilledMachine) -> bool:
        """Return True if a queue may give new work to a machine without a run of fleet."""
        unit = holding.unit
        if unit is None or unit.state not in (UnitState.IDLE, UnitState.BUSY) or is_going(unit):
            return False
        return not isinstance(self.fleet.queues.get(unit.registry or ""), TicketQueue)

    def _owned_until(self, machine: _Machine) -> datetime:
        """Return the time when the payer of an existing machine is expected to stop paying."""
        holding, until = machine.holding, machine.owner.until
        if work_of(holding) is not None:
            until = released_at(self.fleet, self._world, holding, self._free_at(holding))
        return machine.end if until == NEVER else until

    def _list_bills(
        self, place: Place, window: BudgetWindow, own: Collection[_Machine] | None
    ) -> list["_Bill"]:
        """Return the bills of the machines that may serve a request at a place, without it.

        If `own` is None, these are whole bills. Otherwise they are the parts of one payer, without
        other work. `own` has the machines of the place that this payer already pays for. If it is
        empty, the payer also takes over the unused rest of the billed increment.
        """
        if place.makes:
            return [_Bill(self._new[place.key], window)]
        if own is None:
            serving = [m for m in self._machines_of.get(place.pool, ()) if m.serves]
            return [_Bill(m, window, m.earliest) for m in serving if m.earliest != NEVER]
        # The payer stops paying earlier if the machine gets no more work.
        bills = [_Bill(m, window, min(self._owned_until(m), m.earliest)) for m in own]
        for machine in () if own else self._serving_at(place):
            ready = self._now if machine.ready == NEVER else machine.ready
            bill = _Bill(machine, window, ready, ready)
            if ready < window.end and not window.hours:
                used, start = machine.holding, max(ready, window.start)
                bill.rest = unused(self._zone, used.tariff, used.created_at, start)
            bills.append(bill)
        return bills

    def add_work(
        self,
        place: Place,
        window: BudgetWindow,
        lengths: Iterable[Length],
        own: Collection[_Machine] | None,
    ) -> dict[Length, tuple[Decimal, ...]]:
        """Return the amounts that a request of each length adds to the bills of a place.

        There is an amount per machine. `own` is as for `_list_bills`.
        """
        pool, bills = self._pool(place.pool), self._list_bills(place, window, own)

        def add(length: Length, bill: _Bill) -> Decimal:
            wait = (pool.target_wait or 0) if length.shared and not place.makes else 0
            work = wait + (_FOREVER if length.longest is None else length.longest)
            is_assigned_later = length.is_ticket and (wait or bill.starts > self._now)
            seen = bill.ready + work + bill.idle[length.is_ticket]
            seen += self.fleet.cadence if is_assigned_later else 0
            # At the end of the window, a later deletion adds nothing.
            age = seen if seen >= bill.end else deletion_age(pool, bill.tariff, seen)
            added = bill.until(age) + (bill.rest if wait >= bill.gap else _NONE) - bill.before
            return max(added, _NONE)

        return {each: tuple([add(each, bill) for bill in bills]) for each in lengths}

    def own(self, place: Place, paid: Collection[_Machine]) -> list[_Machine]:
        """Return a place's machines in `paid`: its idle machines, or all if all are busy."""
        serving = self._serving_at(place)
        free = {machine for machine in serving if work_of(machine.holding) is None}
        return [m for m in serving if m in paid and (m in free or not free)]

    def _serving_at(self, place: Place) -> list[_Machine]:
        """Return the existing machines of a place; all of its pool if it names no workers."""
        serving = [m for m in self._machines_of.get(place.pool, ()) if m.serves]
        return [m for m in serving if not place.units or m.holding.name in place.units]

    def _stay(self, name: str) -> int:
        """Return the number of machines that a pool keeps permanently for `min` and `spare`."""
        pool = self.fleet.dynamic_pool(name)
        is_kept = pool is not None and pool.mode != "drain" and not self._offers[name].on_demand
        return size_of(pool).permanent if is_kept else 0

    def is_short(self, name: str) -> bool:
        """Return True if a pool has fewer machines than `min` and `spare` require."""
        units = [machine.holding.unit for machine in self._machines_of.get(name, ())]
        return sum(not (unit and is_going(unit)) for unit in units) < self._stay(name)

    def _deletion_time_of(self, holding: BilledMachine, looks: timedelta) -> datetime:
        """Return the deletion time of a machine. `looks` is the delay until runs delete it."""
        unit = holding.unit
        pool = self.fleet.pools.get(holding.pool)
        if unit is None or (isinstance(pool, Pool) and pool.mode == "pause"):
            return NEVER
        if unit.worker is not None and unit.may_run:
            idle_since = self._free_at(holding)
        elif unit.state in GOING_STATES:
            return self._now + looks
        elif unit.state is UnitState.IDLE or unit.returning:
            idle_since = unit.since or self._now
        elif unit.state in (UnitState.STARTING, UnitState.UNFINISHED):
            idle_since = max(self._now, self._ready_of(holding))
        else:
            return NEVER  # its work is unknown, so no run deletes it
        return self._deletion_time(holding, idle_since, looks)

    def _free_at(self, holding: BilledMachine) -> datetime:
        """Return the expected end of the work on a machine; NEVER if unknown.

        The time is not rounded to seconds. So the charge until now and the reservation always sum
        to the duration.
        """
        unit = holding.unit
        if unit is None or unit.worker is None:
            return NEVER
        kind = kind_of(self.fleet, holding.pool, unit)
        left = self._durations.left(unit.worker, self._now, kind)
        return NEVER if left is None else self._now + left

    def _deletion_time(
        self, holding: BilledMachine, idle_since: datetime, looks: timedelta
    ) -> datetime:
        """Return the deletion time of a machine that is idle from `idle_since` on."""
        if idle_since == NEVER:
            return NEVER
        unit, is_held, is_drained = holding.unit, False, False
        if unit is not None:
            is_held = is_in_sandbox(self.fleet, unit)
            is_drained = unit.worker is not None and unit.may_run and unit.worker.draining
        idle = self._idle_time(holding, is_held=is_held, is_drained=is_drained)
        seen = max(self._now, idle_since + idle) + looks
        pool = self.fleet.dynamic_pool(holding.pool)
        return deletion_time(pool, holding.tariff, holding.created_at, seen)

    def _ready_of(self, holding: BilledMachine) -> datetime:
        """Return the time when an existing machine can take more work; NEVER if unknown."""
        pool, unit = self.fleet.pools.get(holding.pool), holding.unit
        if unit is None or unit.state is UnitState.IDLE or not isinstance(pool, Pool):
            return self._now
        if unit.worker is not None and is_busy(unit.worker):
            return self._free_at(holding)
        return max(self._now, boot_of(pool).ready_at(holding.created_at))

    def _idle_seconds(self, holding: BilledMachine) -> tuple[int, int]:
        """Return the seconds until a machine is deleted after work, and after a ticket."""
        outside, inside = (
            (self._idle_time(holding, is_held=is_held) + self._removal_delay) // _SECOND
            for is_held in (False, True)
        )
        return outside, max(outside, inside)

    def _idle_time(
        self, holding: BilledMachine, *, is_held: bool, is_drained: bool = False
    ) -> timedelta:
        """Return the maximum time that a machine may be idle."""
        key = holding.pool, holding.tariff, is_held, is_drained
        if key not in self._idle_times:
            pool = self.fleet.dynamic_pool(holding.pool)
            life = MachineLife(
                self.fleet,
                pool,
                on_demand=pool is not None and bool(self._offers[holding.pool].on_demand),
                in_sandbox=is_held,
                is_drained=is_drained,
                tariff=holding.tariff,
            )
            self._idle_times[key] = timedelta(seconds=idle_limit(life).most)
        return self._idle_times[key]

    def _pool(self, name: str) -> Pool:
        pool = self.fleet.pools[name]
        if not isinstance(pool, Pool):
            raise TypeError(name)
        return pool

    def find_counting_budgets(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Map (pool, machine) to the `budgets` with a filter that matches the machine's payer.

        The map omits machines that no filtered budget counts.
        """
        budgets = {n: each for n, each in sorted(self.fleet.budgets.items()) if each.is_filtered}
        counted_by: dict[tuple[str, str], tuple[str, ...]] = {}
        for machine in self._machines if budgets else ():
            payer = machine.owner.payer
            tags = frozenset(payer.tags)
            names = [name for name, each in budgets.items() if _matches_filter(each, payer, tags)]
            if names:
                counted_by[machine.pool, machine.holding.name] = tuple(names)
        return counted_by

    def window(self, limit: SpendingLimit, *, coming: bool) -> BudgetWindow:
        """Return the rest of the current period, or the next period, of a limit."""
        period, month = self._periods[limit.period], self._periods["month"]
        start, end = (period.end, period.next_end) if coming else (self._world.time, period.end)
        first = month.end if start >= month.end else month.start
        return BudgetWindow(start, end, first, limit.unit == HOURS)

    def explain_unknown(self, limit: SpendingLimit) -> str:
        """Return why the remainder of a budget is unknown; empty if it is known."""
        if isinstance(self._world.ledger, Unknown):
            return words.explain_unknown_spending(self._world.ledger.unknown)
        if limit.amount is None:
            return words.NO_RATE
        return self.explain_unseen(limit)

    def explain_unseen(self, limit: SpendingLimit) -> str:
        """Return why machines that a budget counts are unknown; empty if all are known."""
        unseen = [pool for pool in self._unobserved_pools if limit.pool in (None, pool)]
        return words.explain_unseen_pool(unseen[0]) if unseen else ""

    def spent(self, limit: SpendingLimit) -> Decimal:
        """Return the spending in the current period until now, in the unit of the limit."""
        nth = PERIODS.index(limit.period)
        charges: Iterable[Charge] = self._charges
        if limit.pool is not None:
            charges = self._charges_of.get(limit.pool, ())
        counted = [each for each in charges if limit.counts(each)]
        if limit.unit == HOURS:
            return Decimal(sum(each.seconds[nth] for each in counted)) / 3600
        return sum((each.money[nth] for each in counted), _NONE)

    @cached_property
    def unpaid(self) -> tuple[Unpaid, ...]:
        """Return the workers on which some budget cannot pay for new work.

        These are workers that stay and to which a queue assigns work itself. A budget whose
        spending is unknown does not count, nor does a budget with a filter if other requests fit
        the machine. Machines for `min` and `spare` come first, then those with the cheapest new
        work. Only workers that every limit can pay for use an amount.
        """
        found, limiting = (
            [],
            defaultdict[_Machine, list[tuple[_LimitRest, Decimal, Decimal]]](list),
        )
        for rest in self.rests.values():
            for machine, (least, whole) in rest.needs.items():
                limiting[machine].append((rest, least, whole))

        def rank(machine: _Machine) -> tuple[bool, Decimal, bool, str]:
            holding, needs = machine.holding, limiting[machine]
            is_busy = work_of(holding) is not None
            return not needs[0][2], max(need for _, need, _ in needs), is_busy, holding.name

        for machine in sorted(limiting, key=rank):
            short = [each for each in limiting[machine] if each[1] > each[0].left]
            for rest, need, _ in short[:1]:
                found.append((machine.holding, rest.explain(need), rest.limit.path))
            for rest, need, whole in () if short else limiting[machine]:
                rest.left -= min(rest.left, max(need, whole))
                rest.kept += 1
        return tuple(found)

    @cached_property
    def rests(self) -> dict[Path, "_LimitRest"]:
        """Map each limit with known spending to its rest in the current period."""
        found = {}
        for limit in (each for each in self.limits if not self.explain_unknown(each)):
            window, spent = self.window(limit, coming=False), self.spent(limit)
            rest = _LimitRest(limit, (limit.amount or _NONE) - spent, spent)
            for machine in self._list_machines(limit):
                holding = machine.holding
                is_counted = limit.only is None or machine in self.paid[limit.path]
                is_stopped = (
                    (holding.pool, holding.name) not in self._gone
                    and self._is_assigned_by_queue(holding)
                    and limit.counts_pool(holding.pool, self._offers[holding.pool].exclusive)
                )
                if is_counted or is_stopped:
                    bill, least, whole = self._price_new_work(machine, window)
                    rest.left -= bill if is_counted else _NONE
                    if is_stopped and least:
                        rest.needs[machine] = least, whole
            found[limit.path] = rest
        return found

    def _list_machines(self, limit: SpendingLimit) -> Collection[_Machine]:
        """Return the machines in the pool of a limit, else all machines."""
        if limit.pool is not None:
            return self._machines_of.get(limit.pool, ())
        return self._machines

    def sum_reserved(self, limit: SpendingLimit, window: BudgetWindow) -> Decimal:
        """Return the expected cost of existing machines in a window, in the limit's unit.

        A limit with a filter counts only the part that its payers pay.
        """
        total = Decimal(0)
        for machine in self._list_machines(limit):
            if limit.only is None or machine.holding.unit is None:
                total += _Bill(machine, window).before
            elif machine in self.paid[limit.path]:
                total += _Bill(machine, window, self._owned_until(machine)).before
        return total


def open_accounts(
    books: Books | None, groups: Iterable[RequestGroup], places: Iterable[Place]
) -> tuple[BudgetAccount, ...]:
    """Open the accounts of every budget for its current and next period, in fleet.yaml order."""
    if books is None:
        return ()
    accounts, both = _Accounts(books, groups, places), (False, True)
    return tuple(accounts.open(each, coming=coming) for each in books.limits for coming in both)


class _Accounts:
    """The accounts of all budgets for the waiting requests and the places of one allocation."""

    def __init__(
        self, books: Books, groups: Iterable[RequestGroup], places: Iterable[Place]
    ) -> None:
        self._books, self._groups = books, tuple(groups)
        self._sizes = {group.id: len(group.requests) for group in self._groups}
        pools = books.fleet.pools
        self._places = {
            place.key: place for place in places if isinstance(pools.get(place.pool), Pool)
        }
        self._places_of = _group_by_pool(self._places.values())
        limited = {limit.pool for limit in books.limits}
        watched = [key for key, place in self._places.items() if limited & {place.pool, None}]
        self._lengths = {"": _group_by_length(books.fleet, self._groups, watched)}
        """Budget to the groups that it counts, by length; limits without a filter have key ""."""
        for key in watched:
            if self._places[key].makes:
                shared = any(length.shared for length in self._lengths[""][key])
                books.add_new(self._places[key], shared=shared)
        self._short = {name for name in self._places_of if books.is_short(name)}

    def open(self, limit: SpendingLimit, *, coming: bool) -> BudgetAccount:
        """Open the account of a limit for the current or, if `coming`, for the next period."""
        window = self._books.window(limit, coming=coming)
        spent = Decimal(0) if coming else self._books.spent(limit)
        amount = limit.amount or Decimal(0)
        silent = self._books.explain_unknown(limit)
        reserved = self._books.sum_reserved(limit, window)
        claimed = _NONE
        if not coming and any(path == limit.path for *_, path in self._books.unpaid):
            # New machines must not use what the kept workers need while others are drained.
            rest = self._books.rests[limit.path]
            extra = max(_NONE, rest.committed - reserved)
            claimed = (extra / max(1, rest.kept)).quantize(_EXACT, ROUND_UP)
            reserved += extra
        places: Collection[Place] = self._places.values()
        if limit.pool is not None:
            places = self._places_of.get(limit.pool, ())
        makes = {place.key: place for place in places if place.makes}
        whole = {key: place for key, place in makes.items() if self._is_alone_at(limit, place)}
        free = _Free(amount - spent - reserved, claimed)
        requests, shared = self._requests(limit, places, whole, window, free)
        reserved += shared
        left = amount - spent - reserved
        if limit.unit == HOURS:
            # Machine hours are counted in seconds. Round to seconds, because a third of an hour
            # has no finite decimal.
            left = Decimal(round(left * 3600)) / 3600
        room = Decimal(0) if silent else max(Decimal(0), left)
        when = say_when(limit.period, coming=coming)
        name = words.name_budget(bool(limit.pool), limit.budget)
        # Sentences about a known budget have its use with this plan (`why_stopped`).
        because = words.explain_unknown_budget(name, when, silent) if silent else ""
        bill_new = self._books.bill_new
        machines = {
            key: bill_new(each, window, kept=self._is_kept(limit, each))
            for key, each in whole.items()
        }
        kept = makes.items() if limit.only is None else ()
        row = LimitRow(
            path=limit.path,
            because=because,
            room=room,
            machines=_drop_zeros(machines),
            requests=requests,
            kept=_drop_zeros({key: bill_new(each, window, kept=True) for key, each in kept}),
            when=when,
            until=window.end,
            unit=limit.unit,
            limit=limit.amount,
            over=None if silent else max(Decimal(0), -left),
            code=NoMachineReason.BUDGET,
        )
        known = UnknownFigure(unknown=silent) if silent else spent
        unseen = self._books.explain_unseen(limit)
        return BudgetAccount(limit, coming, known, reserved, left < 0, row, unseen)

    def _is_kept(self, limit: SpendingLimit, place: Place) -> bool:
        """Return True if the pool will keep a new machine of this place for `min` or `spare`."""
        return limit.only is None and place.makes and place.pool in self._short

    def _is_alone_at(self, limit: SpendingLimit, place: Place) -> bool:
        """Return True if a limit counts all requests that fit new machines of a place."""
        if limit.only is None:
            return True
        every, counted = self._lengths[""][place.key], self._lengths_of(limit)[place.key]
        return bool(counted) and sum(map(len, every.values())) == sum(map(len, counted.values()))

    def _requests(
        self,
        limit: SpendingLimit,
        places: Iterable[Place],
        whole: Collection[str],
        window: BudgetWindow,
        free: _Free,
    ) -> tuple[dict[tuple[str, str], Decimal], Decimal]:
        """Map (group, place) to the cost of one request, as a coefficient of the limit.

        At the places in `whole`, the new machine has a coefficient and is not included here. Also
        return the amount to reserve for requests that share existing machines in turn. Alone, each
        request can add a billing step to any machine; together, they add one step per machine.
        """
        books, found, reserved = self._books, dict[tuple[str, str], Decimal](), _NONE
        for place in places:
            own = self._lengths_of(limit)[place.key]
            if self._is_kept(limit, place) or not own:
                continue
            is_new = place.makes
            paid = (
                None if is_new or limit.only is None else books.own(place, books.paid[limit.path])
            )
            alone = books.bill_new(place, window) if is_new and place.key not in whole else _NONE
            known = _NONE if is_new else free.claimed
            added = books.add_work(place, window, own, paid)
            takes = {
                length: max(_NONE, alone + max(amounts, default=_NONE) - known)
                for length, amounts in added.items()
            }
            shared = [length for length in own if length.shared and not is_new]
            each_once = zip(*(added[each] for each in shared), strict=True)
            together = max(_NONE, sum(map(max, each_once), _NONE) - known)
            counts = {n: sum(self._sizes[group] for group, _ in own[n]) for n in shared}
            apart = sum((takes[length] * count for length, count in counts.items()), _NONE)
            if together < apart and together <= free.left - reserved:
                reserved += together
                # The reservation pays for these requests.
                takes |= dict.fromkeys(shared, _NONE)
            for length, amount in takes.items():
                if amount:
                    found.update(dict.fromkeys(own[length], amount))
        return found, reserved

    def _lengths_of(self, limit: SpendingLimit) -> "_ByLength":
        """Return the groups that a limit counts: place to length to (group, place) pairs."""
        only, name = limit.only, "" if limit.only is None else limit.budget
        if only is not None and name not in self._lengths:
            counted = [g for g in self._groups if _matches_filter(only, g.payer, g.tags)]
            self._lengths[name] = _group_by_length(self._books.fleet, counted, self._places, only)
        return self._lengths[name]


_ByLength = dict[str, dict[Length, list[tuple[str, str]]]]
"""Place to length to the (group, place) pairs of that length."""


def _group_by_length(
    fleet: Fleet,
    groups: Iterable[RequestGroup],
    places: Iterable[str],
    only: Budget | None = None,
) -> _ByLength:
    """Group requests by place and length, without places where they waive the tags of `only`."""
    found: dict[str, defaultdict[tuple[bool, int | None, bool], list[tuple[str, str]]]]
    found = {key: defaultdict(list) for key in places}
    for group in groups:
        desk = isinstance(fleet.queues.get(group.id.partition("/")[0]), TicketQueue)
        some, payer = only if group.payer.without else None, group.payer
        for key, fit in group.fits.items():
            tags = group.tags - payer.lacks(key) if some else group.tags
            if key in found and (some is None or _matches_filter(some, payer, tags)):
                found[key][fit.share < 1, fit.longest, desk].append((group.id, key))
    return {
        key: {Length(*length): pairs for length, pairs in own.items()}
        for key, own in found.items()
    }


def _drop_zeros(amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {key: amount for key, amount in amounts.items() if amount}


def _group_by_pool(things: Iterable[_T]) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for thing in things:
        found.setdefault(thing.pool, []).append(thing)
    return found
