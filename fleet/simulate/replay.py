"""Replay recorded demand through the functions that `fleet plan` calls.

A run of fleet is simulated at each `cadence`. A run is skipped if no fact can have changed since
the last run without actions (`_find_rest_end`), because its plan would be the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from operator import add, attrgetter, mul
from typing import Any, NamedTuple

from fleet.guard import guard
from fleet.model.digests import config_digest
from fleet.model.facts import Charge, Ledger, Unknown, World
from fleet.model.plan import Create, Plan, Reason, WorkerVerdict
from fleet.model.price_lists import with_price_lists
from fleet.planner.failures import FAILURE_MEMORY
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.ledger import as_charge, charge_all, payers_of, periods
from fleet.planner.lifecycle.rule import MachineLife, life_of
from fleet.planner.lifecycle.table import idle_limit, limits_of
from fleet.reconcile import reconcile_unsealed
from fleet.schema.model import Fleet
from fleet.simulate.farm import Farm
from fleet.simulate.figures import Pairs, Side, Simulation, Waited, list_limits
from fleet.simulate.recorded_demand import Event, KnownHistory, Lost, PastRequest


@dataclass(frozen=True)
class SimulationInputs:
    """The inputs of one side of a simulation."""

    fleet: Fleet
    seed: int = 0
    skips: bool = True
    """Whether to skip runs without actions, to save time; the result is the same."""


class Read(NamedTuple):
    """Totals of the input: moments, time of the last moment, and requests between two moments."""

    worlds: int
    end: datetime
    unseen: int


Told = World | Event | Read | Unknown


def read_events(worlds: Iterable[World]) -> Iterator[Told]:
    """Yield the first recorded state, then the later events, then the totals of the input.

    If no simulation can start, yield only the reason. `worlds` are in order of time.
    """
    past, skipped, worlds = KnownHistory(), 0, iter(worlds)
    for first in worlds:
        if _is_readable(first):
            yield first
            yield from past.events(chain((first,), worlds))
            yield Read(skipped + past.worlds, past.latest or first.time, past.unseen)
            return
        skipped += 1
    some = "no recorded moment has all its queues, providers and stacks"
    yield Unknown(unknown=some if skipped else "nothing was recorded in this time")


Decide = Callable[[Fleet, World, Mapping[str, PoolInventory]], Plan]
"""Function that returns the plan of each simulated run."""


def decide(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
    """Return the plan like `fleet plan`, without the parts for saved or displayed plans."""
    told = with_price_lists(fleet, world)
    return guard(fleet, reconcile_unsealed(told, world, inventories, explained=False))


def simulate(
    task: SimulationInputs,
    told: Iterator[Told],
    before: SimulationInputs | None = None,
    *,
    against: str = "",
    changed: Iterable[str] = (),
) -> Simulation | Unknown:
    """Return the results of recorded demand (`read_events`), optionally compared with `before`.

    Both sides get each event before either side gets the next event. So the history is read once,
    and only unpaired waits are stored.
    """
    first = next(told)
    if isinstance(first, Unknown):
        return first
    if not isinstance(first, World):
        raise TypeError(first)
    pairs = Pairs()
    sides = [Replay(task, first, partial(pairs.add, 1) if before else lambda _, __: None)]
    sides += [Replay(before, first, partial(pairs.add, 0))] if before else []
    requests = withdrawn = lost = lost_of = 0
    read = Read(0, first.time, 0)
    for event in told:
        if isinstance(event, PastRequest):
            requests += 1
            withdrawn += event.withdrawn is not None
        elif isinstance(event, Lost):
            lost, lost_of = lost + event.lost, lost_of + event.seconds
        if isinstance(event, Read):
            read = event
        elif isinstance(event, Event):
            for side in sides:
                side.feed(event)
    after, *others = [side.finish(read.end) for side in sides]
    found = Simulation(
        fleet=task.fleet.fleet,
        start=first.time,
        end=read.end,
        cadence=task.fleet.cadence,
        currency=task.fleet.money.currency,
        seed=task.seed,
        requests=requests,
        withdrawn=withdrawn,
        unseen=read.unseen,
        lost=lost,
        lost_of=lost_of,
        worlds=read.worlds,
        after=after,
    )
    found = found.altered(unknown=tuple(list_limits(found)))
    if not others:
        return found
    return found.altered(
        against=against,
        changed=tuple(changed),
        before=others[0],
        worse=pairs.worst(),
        worse_count=pairs.worse,
        better_count=pairs.better,
    )


def _is_readable(world: World) -> bool:
    """Return whether a recording has all queues, providers and stacks."""
    if isinstance(world.stacks, Unknown):
        return False
    parts: list[object] = [*world.stacks.values(), *world.providers.values()]
    parts += [reading.demand for reading in world.queues.values()]
    parts += [reading.workers for reading in world.queues.values() if reading.workers is not None]
    return not any(isinstance(part, Unknown) for part in parts)


class Replay:
    """The replay of a history under one fleet.yaml."""

    def __init__(
        self, task: SimulationInputs, first: World, waited: Waited, decide: Decide = decide
    ) -> None:
        self._fleet = fleet = task.fleet
        self._decide = decide
        self._skips = task.skips
        self._next = self._rests_until = first.time
        self._farm = Farm(fleet, first, task.seed, waited)
        self._ledger = _Ledger(fleet, first)

    def feed(self, event: Event) -> None:
        """Advance to the time of an event, and apply the event."""
        self._run_until(event.at)
        self._farm.advance(event.at)
        self._farm.take(event)

    def finish(self, end: datetime) -> Side:
        """Advance to the end and return the results."""
        self._run_until(end, with_last=True)
        self._farm.advance(end)
        self._farm.end_all()
        return self._farm.totals.side(config_digest(self._fleet), end)

    def _run_until(self, at: datetime, *, with_last: bool = False) -> None:
        """Simulate a run at each cadence before a time; with `with_last`, also at that time."""
        farm = self._farm
        while self._next < at or (with_last and self._next == at):
            if not farm.totals.runs:
                farm.end_unexplained()
            farm.advance(self._next)
            if farm.changed or farm.now >= self._rests_until or not self._skips:
                self._run()
            else:
                farm.note_run()
            self._next += timedelta(seconds=self._fleet.cadence)

    def _run(self) -> None:
        farm = self._farm
        world = farm.observe(self._ledger.read(farm.now))
        inventories = take_inventory(self._fleet, world)
        self._ledger.charge(world, inventories)
        plan = self._decide(self._fleet, world, inventories)
        self._ledger.order(world, inventories, plan)
        farm.totals.add_run(world, plan, farm.boxes.values(), farm.waits)
        farm.carry_out(plan)
        is_quiet = plan.is_quiet and not farm.waits
        self._rests_until = (
            _find_rest_end(self._fleet, world, inventories, plan) if is_quiet else farm.now
        )


_NEVER = datetime.max.replace(tzinfo=UTC)


def _find_rest_end(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory], plan: Plan
) -> datetime:
    """Return the time until which a quiet fleet makes no change if no input changes."""
    now = world.time
    has_machines = any(inventory.units for inventory in inventories.values())
    has_failed = any(
        each.result not in ("starting", "registered") and now - each.at < FAILURE_MEMORY
        for each in world.attempts
    )
    # Spending grows, and drains workers once it uses up a budget.
    may_change = has_failed or (plan.budgets and has_machines)
    may_change = may_change or any(verdict.outdated for verdict in plan.workers)
    if may_change or plan.withheld or plan.waiting_versions or plan.orders or plan.unknown:
        return now
    lives = {
        unit.name: life_of(fleet, fleet.dynamic_pool(name), unit)
        for name, inventory in inventories.items()
        for unit in inventory.units
    }
    ends = [_end_of_reason(each, lives.get(each.worker), now) for each in plan.workers]
    ends += [limit.until(life) for life in lives.values() for limit in limits_of(life, "age")]
    return min((end for end in ends if end is not None), default=_NEVER)


def _end_of_reason(
    verdict: WorkerVerdict, life: MachineLife | None, now: datetime
) -> datetime | None:
    """Return when the reason to keep a worker ends; None if only a change can end it."""
    reason, since = verdict.reason, verdict.since
    if reason in (Reason.BUSY, Reason.STATIC):
        return None
    if life is None or since is None:
        return now
    if reason in (Reason.IDLE_RECENTLY, Reason.KEPT_FOR_MIN, Reason.KEPT_SPARE):
        end = idle_limit(life).until(life._replace(idle_since=since)) or now
        # If a worker is kept despite a long idle time, the reason is the size of its pool.
        return end if end > now or reason is Reason.IDLE_RECENTLY else None
    if reason is Reason.STARTING:
        ends = (limit.until(life._replace(boots_since=since)) for limit in limits_of(life, "boot"))
        return min((end for end in ends if end), default=now)
    return now


_get_payer = attrgetter("pool", "scope", "team", "owner", "tags")


def _change_charge(
    change: Callable[[Any, Any], Any],
    each: Charge,
    seconds: Iterable[int],
    money: Iterable[object],
) -> Charge:
    """Return a charge whose amounts per period are changed by the given amounts."""
    changed = map(change, each.seconds, seconds), map(change, each.money, money)
    return each.altered(seconds=tuple(changed[0]), money=tuple(changed[1]))


class _Ledger:
    """The spending per payer in the current periods; empty if no budget exists."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        has_own = any(pool.budget for pool in fleet.dynamic_pools.values())
        self._is_kept = bool(fleet.budgets) or has_own
        self._fleet = fleet
        self._until = world.time
        self._periods = periods(fleet, world.time)
        ledger = world.ledger if isinstance(world.ledger, Ledger) else Ledger()
        self._payers = {each.machine: each for each in ledger.payers}
        self._charges = {_get_payer(each): each for each in ledger.charges}

    def read(self, now: datetime) -> Ledger:
        """Return the spending in the current periods."""
        if not self._is_kept:
            return Ledger.model_construct(charged_until=now, charges=(), payers=())
        before, self._periods = self._periods, periods(self._fleet, now)
        lasts = [old.start == new.start for old, new in zip(before, self._periods, strict=True)]
        if not all(lasts):
            charges = self._charges.items()
            self._charges = {p: _change_charge(mul, each, lasts, lasts) for p, each in charges}
        used = (c for c in self._charges.values() if any(c.seconds) or any(c.money))
        return Ledger.model_construct(
            charged_until=self._until, charges=tuple(used), payers=tuple(self._payers.values())
        )

    def charge(self, world: World, inventories: Mapping[str, PoolInventory]) -> None:
        """Add the cost of all machines since the last call."""
        if self._is_kept:
            charged = charge_all(self._fleet, world, inventories)
            self._payers = {each.machine: each for each in charged.payers}
            starts = [period.start for period in self._periods]
            for new in (as_charge(entry, starts) for entry in charged.entries):
                known = self._charges.get(_get_payer(new))
                both = known and _change_charge(add, known, new.seconds, new.money)
                self._charges[_get_payer(new)] = both or new
        self._until = world.time

    def order(self, world: World, inventories: Mapping[str, PoolInventory], plan: Plan) -> None:
        """Record the payers of the machines that a plan creates."""
        if self._is_kept:
            creates = (each for each in plan.actions if isinstance(each, Create))
            found = payers_of(self._fleet, world, inventories, creates)
            self._payers |= {each.machine: each for each in found}
