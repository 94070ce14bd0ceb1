"""Scale down: delete machines that are surplus, idle for too long, or of an unwanted pool.

A machine is deleted at the end of its paid time. Only registered workers count as ready, so the
old worker is kept while its replacement boots. An unneeded booting machine is deleted before it
registers.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import ClassVar

from fleet.model.facts import Demand, Unknown, World, market_of
from fleet.model.plan import Delete, Reason
from fleet.model.prices import Tariff, billed_seconds, paid_until, tariff_of_machine
from fleet.planner.lifecycle.rule import LifeLimit, LifeRule, MachineLife, is_in_sandbox, life_of
from fleet.planner.pool_plan import PoolPlan, is_going
from fleet.planner.units import NEVER, Unit, UnitState
from fleet.schema.model import DebusineQueue, Pool, Reuse, TicketQueue
from fleet.words import lives

_DEFAULT_DELETE_SECONDS = 120
"""Seconds from the start of a run until its deletions are done, if no run measured them yet."""
_MIN_DELETE_SECONDS = 60
"""Minimum seconds from the start of a run until its deletions are done: a run may start late."""
_MAX_GAPS = 2
"""The shortest of this number of latest gaps between runs counts: an outage is only one gap."""


def scale_down_order(pool_plan: PoolPlan, units: Iterable[Unit]) -> list[Unit]:
    """Sort machines in the order of their deletion.

    Machines due for replacement come first, then machines with the shortest paid time, then
    machines that the queue would use last. Debusine assigns work to the worker that has been
    connected longest, so Debusine uses the youngest machine last. For other queues, the machine
    that has been idle longest comes first. Ties are broken by name.
    """

    def rank(unit: Unit) -> tuple[bool, int, timedelta, str]:
        paid, next_end = _paid_seconds(pool_plan, unit)
        now, queue = pool_plan.world.time, pool_plan.fleet.queues.get(unit.registry or "")
        created = unit.machine.created_at if unit.machine else None
        is_young_last = isinstance(queue, DebusineQueue) and created is not None
        return (
            unit.name not in pool_plan.due,
            # Units that the next run can still delete within their paid time come last.
            paid if paid >= next_end else 0,
            now - created if is_young_last and created else (unit.since or NEVER) - now,
            unit.name,
        )

    return sorted(units, key=rank)


def youngest_first(booting: Iterable[Unit]) -> list[Unit]:
    """Sort booting machines in the order of their deletion: the youngest first."""
    by_name = sorted(booting, key=lambda unit: unit.name)
    return sorted(by_name, key=lambda unit: unit.since or NEVER, reverse=True)


def paid_for(pool_plan: PoolPlan, unit: Unit) -> str:
    """Return the reason to keep a machine within its paid time; empty to delete it now.

    A machine is deleted by the last run that can finish before the next billing increment. If this
    run cannot finish in time, the next increment counts as paid. With `retire.at: once`, a machine
    is not kept.
    """
    if pool_plan.pool is None or pool_plan.pool.retire.at == "once":
        return ""
    paid, next_end = _paid_seconds(pool_plan, unit)
    if paid < next_end:
        return ""
    return lives.explain_paid(paid, pool_plan.fleet.cadence, deleting_seconds(pool_plan.world))


def deletion_age(pool: Pool | None, tariff: Tariff, seconds: int) -> int:
    """Return the age, in seconds, at which a machine surplus at age `seconds` is deleted.

    This is the end of the billing increment; with `retire.at: once`, it is `seconds`.
    """
    age = max(1, seconds)
    return age if pool and pool.retire.at == "once" else billed_seconds(tariff, age)


def deleting_seconds(world: World) -> int:
    """Return the measured seconds from the start of a run until its deletions are done."""
    if world.delete_seconds is None:
        return _DEFAULT_DELETE_SECONDS
    return max(_MIN_DELETE_SECONDS, world.delete_seconds)


def _paid_seconds(pool_plan: PoolPlan, unit: Unit) -> tuple[int, int]:
    """Return (end of the paid time if deleted now, deletion time by the next run).

    Both are in seconds from now. Return (0, 1) if the price is unknown.
    """
    machine, now = unit.machine, pool_plan.world.time
    created = machine.created_at if machine else None
    if machine is None or created is None or pool_plan.pool is None or created > now:
        return 0, 1
    provider, market = pool_plan.inventory.provider, market_of(unit.inputs)
    tariff = tariff_of_machine(pool_plan.fleet, pool_plan.name, provider, machine.type, market)
    if tariff is None:
        return 0, 1
    # With `cadence` alone, each run of a slower timer would expect a further run in time.
    runs = () if isinstance(pool_plan.world.runs, Unknown) else pool_plan.world.runs
    latest = [each for each in (*runs, now) if each <= now][-_MAX_GAPS - 1 :]
    gaps = [int((b - a).total_seconds()) for a, b in pairwise(latest)]
    apart = max(pool_plan.fleet.cadence, min(gaps) if len(gaps) == _MAX_GAPS else 0)
    # One run per queue drains the worker; then a run deletes the drained and idle worker. Machines
    # without a registered worker, and those of a ticket queue, need no drain.
    queue = pool_plan.fleet.queues.get(unit.registry or "")
    is_drained = unit.registry is not None and not isinstance(queue, TicketQueue)
    gone = is_drained * unit.drains * apart + deleting_seconds(pool_plan.world)
    end = paid_until(tariff, created, now + timedelta(seconds=gone))
    return int((end - now).total_seconds()), gone + apart


class ReturnedMachine(LifeRule):
    """Rule that deletes machines of ended tickets, if no ticket of the sandbox follows in time.

    A sandbox is a group of tickets that may share a machine. A machine with a paid hour is kept
    for such a ticket until the last run that can delete it before the hour ends. But for each
    ticket that waits only because the pool is full, one machine is deleted, shortest paid time
    first. A ticket of the sandbox that is blocked or over a limit keeps no machine.
    """

    clock: ClassVar = "idle"
    keys: ClassVar = {Reason.TICKET_RETURNED: ("reuse",)}

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the maximum idle time of a machine that waits for a ticket of its sandbox.

        `reuse.max_age` counts from the machine's first ticket, so it also limits the idle time.
        """
        reuse = life.pool.reuse if life.pool else None
        if reuse is None or not life.in_sandbox:
            return None
        key, most = _limit_idle_time(reuse)
        return LifeLimit("idle", most, ("reuse", key))

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete machines that no request uses and that waited for a sandbox too long.

        Keep a machine for its paid time.
        """
        reuse = pool_plan.pool.reuse if pool_plan.pool else None
        if reuse is None or pool_plan.unwanted:
            return
        # Deletions of this plan free capacity too.
        short = pool_plan.blocked_by_max - sum(isinstance(a, Delete) for a in pool_plan.actions)
        busy = {*pool_plan.used, *pool_plan.kept, *pool_plan.leaving}
        idle = (u for u in pool_plan.inventory.having(UnitState.IDLE) if u.name not in busy)
        for unit in scale_down_order(pool_plan, idle):
            because = _explain_reuse_over(pool_plan, unit, reuse)
            paid = paid_for(pool_plan, unit)
            if not because:
                if pool_plan.can_scale_down and is_in_sandbox(pool_plan.fleet, unit):
                    pool_plan.keep(
                        unit, Reason.IDLE_RECENTLY, lives.explain_sandbox(*_limit_idle_time(reuse))
                    )
            elif paid and short <= 0:
                pool_plan.keep(unit, Reason.PAID_FOR, lives.join(because, paid))
            else:
                short -= 1
                pool_plan.delete(unit, Reason.TICKET_RETURNED, lives.explain_no_reuse(because))


def _explain_reuse_over(pool_plan: PoolPlan, unit: Unit, reuse: Reuse) -> str:
    """Return why a machine is no longer kept for its sandbox; empty if it is kept.

    Also empty if no ticket has used the machine.
    """
    if not _has_served_ticket(pool_plan, unit) or unit.since is None:
        return ""
    idle = int((pool_plan.world.time - unit.since).total_seconds())
    key, most = _limit_idle_time(reuse)
    return lives.explain_reuse_over(idle, key, most) if idle >= most else ""


def _limit_idle_time(reuse: Reuse) -> tuple[str, int]:
    """Return the key of `reuse` that limits the idle time, and its seconds."""
    age = reuse.max_age
    if age is not None and age < reuse.opportunity:
        return "max_age", age
    return "opportunity", reuse.opportunity


class DrainedWorker(LifeRule):
    """Rule that deletes machines whose worker is disabled, or drained and idle."""

    clock: ClassVar = "idle"

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return an idle time of 0 for a drained worker; None for other workers."""
        return LifeLimit("idle", 0, (), "drained") if life.is_drained else None

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete workers that are drained and idle, and disabled workers.

        The recorded reason of the drain counts. Without such a record, the first reason that
        applies counts.
        """
        above = _count_above_max(pool_plan, pool_plan.inventory.units)
        for unit in pool_plan.inventory.having(UnitState.DRAINING):
            due = pool_plan.due.get(unit.name)
            if _has_served_ticket(pool_plan, unit) and not pool_plan.unwanted and not due:
                is_reusable = pool_plan.pool is not None and pool_plan.pool.reuse is not None
                returned = lives.explain_returned(is_reusable)
                pool_plan.delete(unit, Reason.TICKET_RETURNED, returned)
                continue
            idle = Reason.NOT_WANTED if pool_plan.on_demand else Reason.IDLE_TOO_LONG
            otherwise = Reason.ABOVE_MAX if above > 0 else idle
            reason = pool_plan.unwanted or (due[0] if due else otherwise)
            pool_plan.delete(unit, reason, lives.DRAINED)
            above -= 1
        for unit in pool_plan.inventory.having(UnitState.DISABLED):
            pool_plan.delete(unit, Reason.DISABLED, lives.explain_disabled(unit.work_in_vain))


def _has_served_ticket(pool_plan: PoolPlan, unit: Unit) -> bool:
    """Return True if the machine of a ticket queue has served a ticket that has ended."""
    is_desk = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
    return is_desk and unit.worker is not None and bool(unit.worker.uses)


class UnwantedPool(LifeRule):
    """Rule that removes machines of pools that left fleet.yaml or have `mode: drain`."""

    clock: ClassVar = "idle"
    keys: ClassVar = {Reason.POOL_DRAINING: ("mode",), Reason.POOL_PAUSED: ("mode",)}

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return an idle time of 0 for a pool with `mode: drain`; None for other pools."""
        is_drained = life.pool is not None and life.pool.mode == "drain"
        return LifeLimit("idle", 0, ("mode",), "drain") if is_drained else None

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete booting machines and drain workers. Running work finishes."""
        reason = pool_plan.unwanted
        if reason is None:
            return
        because = lives.POOL_REMOVED if reason is Reason.POOL_REMOVED else lives.POOL_DRAINING
        for unit in pool_plan.booting:
            pool_plan.delete(unit, reason, because)
        for unit in pool_plan.inventory.having(
            UnitState.DISCONNECTED, UnitState.IDLE, UnitState.BUSY
        ):
            if unit.name not in pool_plan.leaving and not is_going(unit):
                pool_plan.drain(unit, reason, because)


class ExcessSize(LifeRule):
    """Rule that removes machines beyond the `workers.max` of their pool."""

    keys: ClassVar = {Reason.ABOVE_MAX: ("workers", "max")}

    def apply(self, pool_plan: PoolPlan) -> None:
        """Shrink a pool to its max: booting, then idle, then busy machines.

        Machines of ended tickets come first, unless a ticket of their sandbox waits.
        A busy worker finishes its work before its machine is deleted.
        """
        above = _count_above_max(pool_plan, pool_plan.staying)
        for unit, because in islice(_find_returned(pool_plan), max(0, above)):
            pool_plan.delete(unit, Reason.TICKET_RETURNED, lives.explain_no_reuse(because))
        seen = _without_doubtful(pool_plan.staying)
        above = _count_above_max(pool_plan, seen)
        if above <= 0:
            return
        because = lives.explain_excess(len(seen), len(seen) - above)
        booting = youngest_first(pool_plan.booting)[:above]
        for unit in booting:
            pool_plan.delete(unit, Reason.ABOVE_MAX, because)
        order = scale_down_order(pool_plan, seen)
        states = (UnitState.DISCONNECTED, UnitState.IDLE, UnitState.BUSY)
        ready = [unit for state in states for unit in order if unit.state is state]
        for unit in ready[: above - len(booting)]:
            pool_plan.drain(unit, Reason.ABOVE_MAX, because)


def _find_returned(pool_plan: PoolPlan) -> Iterator[tuple[Unit, str]]:
    """Yield (machine, reason) for idle machines that `reuse` and paid time no longer keep.

    Omit a machine if a ticket of its sandbox waits, because the ticket may get the machine.
    """
    reuse = pool_plan.pool.reuse if pool_plan.pool else None
    if reuse is None:
        return
    demands = [reading.demand for reading in pool_plan.world.queues.values()]
    known = [demand for demand in demands if isinstance(demand, Demand)]
    awaited = {tag for demand in known for each in demand.requests for tag in each.provided}
    idle = [unit for unit in pool_plan.staying if unit.state is UnitState.IDLE]
    for unit in scale_down_order(pool_plan, idle):
        because = _explain_reuse_over(pool_plan, unit, reuse)
        is_awaited = unit.worker and not awaited.isdisjoint(unit.worker.requires)
        if because and not is_awaited and not paid_for(pool_plan, unit):
            yield unit, because


def _count_above_max(pool_plan: PoolPlan, units: Iterable[Unit]) -> int:
    """Return the number of machines beyond `workers.max`; 0 or less if within the maximum."""
    return len(_without_doubtful(units)) - pool_plan.size.max if pool_plan.pool else 0


def _without_doubtful(units: Iterable[Unit]) -> list[Unit]:
    """Return the machines that both provider and stack report. Other machines may be errors."""
    return [u for u in units if u.state not in (UnitState.MISSING, UnitState.UNRECORDED)]


class IdleRule(LifeRule):
    """Base class of rules that limit the idle time of workers beyond `min` and `spare`."""

    clock: ClassVar = "idle"
    reason: ClassVar[Reason]

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the limit on idle time; None if the rule does not limit the machine."""
        return None if life.pool is None or _is_kept(life) else self.limit_in(life.pool, life)

    @abstractmethod
    def limit_in(self, pool: Pool, life: MachineLife) -> LifeLimit | None:
        """Return the limit on the idle time of a machine in a pool; None without a limit."""

    def explain(self, idle: int, limit: LifeLimit) -> str:
        """Return the reason to remove a worker that has been idle for `idle` seconds."""
        return lives.explain_idle(idle, ".".join(limit.key), limit.stated)

    def apply(self, pool_plan: PoolPlan) -> None:
        """Drain workers beyond min and spare that are idle for too long."""
        if pool_plan.pool is None or not pool_plan.can_scale_down:
            return
        unused = [unit for unit in pool_plan.unused if unit.state is UnitState.IDLE]
        fleet, pool, on_demand = pool_plan.fleet, pool_plan.pool, pool_plan.on_demand
        facts = {u.name: life_of(fleet, pool, u, on_demand=on_demand) for u in unused}
        idle = [unit for unit in unused if not _is_kept(facts[unit.name])]
        ready = sum(unit.state in (UnitState.IDLE, UnitState.BUSY) for unit in pool_plan.staying)
        surplus = min(len(idle) - pool_plan.size.spare, ready - pool_plan.size.min)
        for unit in scale_down_order(pool_plan, idle):
            because = self._explain_idle(pool, unit, facts[unit.name], pool_plan.world.time)
            if surplus <= 0 or not because:
                continue
            surplus -= 1
            if _keep_paid(pool_plan, unit, because):
                continue
            # A ticket queue assigns no work during a run, so its workers need no drain.
            is_ours = isinstance(pool_plan.fleet.queues.get(unit.registry or ""), TicketQueue)
            remove = pool_plan.delete if is_ours else pool_plan.drain
            remove(unit, self.reason, because)

    def _explain_idle(self, pool: Pool, unit: Unit, life: MachineLife, now: datetime) -> str:
        """Return why a worker is idle for too long; empty within the limit."""
        limit = self.limit_in(pool, life)
        if limit is None or unit.since is None:
            return ""
        idle = int((now - unit.since).total_seconds())
        return self.explain(idle, limit) if idle >= limit.most else ""


class OnDemandIdle(IdleRule):
    """Rule that removes idle machines of on-demand pools, which keep no machine without work."""

    reason: ClassVar = Reason.NOT_WANTED
    keys: ClassVar = {Reason.NOT_WANTED: ()}

    def limit_in(self, pool: Pool, life: MachineLife) -> LifeLimit | None:
        """Return an idle time of 0 for an on-demand pool; None for other pools."""
        is_kept = not life.on_demand or pool.mode == "pause"
        return None if is_kept else LifeLimit("idle", 0, ("provides",), "on demand")

    def explain(self, idle: int, limit: LifeLimit) -> str:  # noqa: ARG002 - it has no limit
        """Return the reason to remove an idle worker."""
        return lives.ON_DEMAND_IDLE


class IdleTimeout(IdleRule):
    """Rule that removes machines that are idle longer than `retire.idle_after`."""

    reason: ClassVar = Reason.IDLE_TOO_LONG
    keys: ClassVar = {
        Reason.IDLE_TOO_LONG: ("retire", "idle_after"),
        Reason.IDLE_RECENTLY: ("retire", "idle_after"),
    }

    def limit_in(self, pool: Pool, life: MachineLife) -> LifeLimit | None:  # noqa: ARG002 - for all
        """Return the maximum idle time `retire.idle_after`."""
        return LifeLimit("idle", pool.retire.idle_after, ("retire", "idle_after"))


def _is_kept(life: MachineLife) -> bool:
    """Return True if a machine is kept for the next ticket of its sandbox."""
    return ReturnedMachine().limit(life) is not None


def _keep_paid(pool_plan: PoolPlan, unit: Unit, because: str) -> bool:
    """Keep a machine within its paid time; return False if it is not paid.

    `ReturnedMachine` handles machines that a ticket has used. If one queue already drains a
    machine, the other queues drain it now.
    """
    paid = "" if unit.is_leaving else paid_for(pool_plan, unit)
    if paid and unit.name not in pool_plan.kept:
        pool_plan.keep(unit, Reason.PAID_FOR, lives.join(because, paid))
    return bool(paid)


class UnneededBoot(LifeRule):
    """Rule that deletes booting machines whose request was withdrawn or is served elsewhere."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Delete booting machines that neither requests nor `min` or `spare` need.

        Youngest first. Machines due for replacement do not count, because a booting machine may
        replace them.
        """
        if pool_plan.pool is None or not pool_plan.can_scale_down:
            return
        unused = [unit for unit in pool_plan.booting if unit.name not in pool_plan.used]
        if not unused:
            return
        fresh = [
            u
            for u in pool_plan.staying
            if u.name not in pool_plan.due and (u.is_capacity or u.state is UnitState.BUSY)
        ]
        free = [u for u in fresh if u.state is not UnitState.BUSY and u.name not in pool_plan.used]
        surplus = min(len(free) - pool_plan.size.spare, len(fresh) - pool_plan.size.min)
        for unit in youngest_first(unused)[: max(0, surplus)]:
            because = lives.REQUESTS_STOPPED if pool_plan.awaited else lives.UNNEEDED_BOOT
            if not _keep_paid(pool_plan, unit, because):
                pool_plan.delete(unit, Reason.NOT_WANTED, because)
