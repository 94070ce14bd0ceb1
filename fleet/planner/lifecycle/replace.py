"""Keep `min` and `spare` workers ready, and replace outdated machines within time windows.

Windows are in local time: the hour that is skipped in spring does not occur, and the hour that is
repeated in autumn occurs twice. If the end of a window is not after its start, the window ends on
the next day. The weekdays of a window are the days on which it starts.

A due worker that min or spare needs is replaced surge first: fleet creates a new machine, and
drains the old worker when the new worker has registered. If workers.max allows no further machine,
the old worker is drained first. Other due workers are drained immediately; a busy worker finishes
its work. No record pairs old and new machines: each run counts ready and booting machines, so a
replacement continues after an interruption.

A machine is outdated if its digest matches no current option of its pool. The digest excludes
settings that only control behaviour (limits, budgets, guards, times, mode, the name of the pool).
If a pool creates no machines, its machines are never outdated, because no replacement is possible.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import ClassVar
from zoneinfo import ZoneInfo

from fleet.model.plan import Cause, Create, Delete, Drain, Reason
from fleet.model.pool_limits import pace_of, size_of
from fleet.planner.lifecycle.rule import LifeLimit, LifeRule, MachineLife
from fleet.planner.machine_inputs import new_inputs
from fleet.planner.pool_plan import (
    PoolPlan,
    ReachedLimit,
    Why,
    cause_of,
    is_going,
)
from fleet.planner.units import Unit, UnitState
from fleet.words import lives


class WarmWorkers(LifeRule):
    """Rule that keeps workers ready without demand, as `min` and `spare` require.

    Booting machines count too, to avoid duplicates. `min` counts every kept worker. `spare` counts
    workers that are idle after all waiting requests are assigned.
    """

    keys: ClassVar = {
        Reason.BELOW_MIN: ("workers", "min"),
        Reason.KEPT_FOR_MIN: ("workers", "min"),
        Reason.BELOW_SPARE: ("workers", "spare"),
        Reason.KEPT_SPARE: ("workers", "spare"),
    }

    def apply(self, pool_plan: PoolPlan) -> None:
        """Create machines up to min and spare, except in an on-demand pool."""
        if pool_plan.pool is None or pool_plan.on_demand:
            return
        size = pool_plan.size
        if not size.permanent:
            return
        lacking = size.min - len(pool_plan.staying) - pool_plan.made
        because = lives.describe_figure("min", size.min)
        why = Why(Reason.BELOW_MIN, Cause.CONFIG, because, turn=pool_plan.turn)
        made_for_min = _create_machines(pool_plan, lacking, why)
        lacking = size.spare - len(pool_plan.unused) - made_for_min
        if pool_plan.awaited:
            # A waiting request would use the spare machine and so bypass the limit that blocks it.
            if lacking > 0:
                pool_plan.short[Reason.BELOW_SPARE] = lives.NO_SPARE_CREATED, None
            return
        because = lives.describe_figure("spare", size.spare)
        why = Why(Reason.BELOW_SPARE, Cause.DEMAND, because, turn=pool_plan.turn)
        _create_machines(pool_plan, lacking, why)


def make_one(pool_plan: PoolPlan, why: Why) -> ReachedLimit | str:
    """Create a machine by the cheapest option within all limits.

    Return an empty string if a machine was created, else the reached limit or the reason.
    """
    if pool_plan.closed:
        return pool_plan.closed.reason
    stop: ReachedLimit | str = ""
    ways = [option for option in pool_plan.options if not option.closed]
    for option in sorted(ways, key=lambda way: way.price or Decimal(0)):
        forbidden = pool_plan.headroom.take(option.key)
        if forbidden is None:
            way = pool_plan.next_way(option)
            pool_plan.create(new_inputs(pool_plan.fleet, way, next(pool_plan.names)), why)
            return ""
        stop = stop or forbidden
    return stop


def _create_machines(pool_plan: PoolPlan, number: int, why: Why) -> int:
    """Create at most `number` machines within all limits; return the number of new machines."""
    for made in range(max(0, number)):
        stop = make_one(pool_plan, why)
        if stop:
            limit, closed = (stop, "") if isinstance(stop, ReachedLimit) else (None, stop)
            pool_plan.short[why.reason] = lives.explain_lacking(number - made, closed), limit
            return made
    return max(0, number)


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_LOOK_AHEAD_DAYS = 15
"""Days to search ahead: a window that a clock change skips opens a week later."""


@dataclass(frozen=True)
class DailyWindow:
    """A daily time window on some weekdays, in a time zone."""

    days: frozenset[int]
    """Weekdays on which the window starts; Monday is 0."""
    start: int
    """Start of the window in minutes after midnight."""
    end: int
    """End in minutes after midnight of the start day; above 1440 if it is on the next day."""
    zone: str

    def is_open(self, now: datetime) -> bool:
        """Return True if a time is within the window; False if the time zone is unknown."""
        zone = _zone(self.zone)
        if zone is None:
            return False
        local = now.astimezone(zone)
        minute = local.hour * 60 + local.minute
        today = local.weekday() in self.days and self.start <= minute < self.end
        yesterday = (local.weekday() - 1) % 7 in self.days and minute + _DAY_MINUTES < self.end
        return today or yesterday

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the next start of the window in UTC; None if its time zone is unknown."""
        zone = _zone(self.zone)
        if zone is None:
            return None
        today = now.astimezone(zone).date()
        at = time(self.start // 60, self.start % 60, tzinfo=zone)
        for ahead in range(_LOOK_AHEAD_DAYS):
            day = today + timedelta(days=ahead)
            moment = datetime.combine(day, at).astimezone(UTC)
            if day.weekday() in self.days and moment > now and self.is_open(moment):
                return moment
        return None


def parse_window(text: str, zone: str) -> DailyWindow:
    """Parse a valid window such as `mon-fri 07:00-17:00 Europe/Berlin`.

    `zone` is the time zone of a window that states no zone.
    """
    days, hours, *named = text.split(" ")
    first, _, last = days.partition("-")
    begin = _DAYS.index(first)
    length = (_DAYS.index(last or first) - begin) % 7
    start, end = (int(part[:2]) * 60 + int(part[3:]) for part in hours.split("-"))
    return DailyWindow(
        days=frozenset((begin + each) % 7 for each in range(length + 1)),
        start=start,
        end=end if end > start else end + _DAY_MINUTES,
        zone=named[0] if named else zone,
    )


def why_closed(windows: Iterable[DailyWindow], now: datetime) -> str:
    """Return why all windows are closed; empty if a window is open or there are no windows."""
    windows = tuple(windows)
    if not windows or any(window.is_open(now) for window in windows):
        return ""
    openings = [(moment, w.zone) for w in windows if (moment := w.next_opening(now))]
    if not openings:
        return lives.explain_unknown_zones(sorted({window.zone for window in windows}))
    moment, zone = min(openings)
    return lives.explain_window(moment.astimezone(_zone(zone)), zone)


def _zone(name: str) -> tzinfo | None:
    """Return the time zone of this name; None if it is not installed."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


_READY = (UnitState.IDLE, UnitState.BUSY)


class Replacement(LifeRule):
    """Rule that replaces the machines that other rules marked as due."""

    keys: ClassVar = {Reason.WAITS_FOR_WINDOW: ("replace",)}

    def apply(self, pool_plan: PoolPlan) -> None:
        """Replace and drain due machines, within `replace.at_a_time` and the time windows."""
        if pool_plan.pool is None or not pool_plan.may_remove:
            return
        due = [
            u
            for u in replaceable(pool_plan)
            if u.name in pool_plan.due and u.name not in pool_plan.used
        ]
        if not due:
            return
        zone, pace = pool_plan.fleet.money.time_zone, pace_of(pool_plan.pool)
        windows = [parse_window(text, zone) for text in pace.windows]
        closed = why_closed(windows, pool_plan.world.time)
        units = pool_plan.inventory.units
        going = sum(is_going(unit) for unit in units if unit.name in pool_plan.due)
        held = sum(unit.state in (*_READY, UnitState.DRAINING) for unit in units)
        # Number of further workers whose replacement may start now.
        turns = 0 if closed else pace.turns(held) - going
        wait = closed or lives.explain_turn(pace.at_a_time)
        # Count ready and booting workers before any due worker is drained.
        staying, used = pool_plan.staying, pool_plan.used.keys()
        creations = [each for each in pool_plan.actions if isinstance(each, Create)]
        made = [each for each in creations if each.reason is not Reason.INTERRUPTED]
        idle = {unit.name for unit in staying if unit.state is UnitState.IDLE}
        coming = {unit.name for unit in staying if unit.is_capacity} - idle
        stock = _Stock(
            min=pool_plan.size.min,
            spare=pool_plan.size.spare,
            ready=sum(unit.state in _READY for unit in staying),
            ready_free=len(idle - used),
            coming=len(coming) + len(made),
            coming_free=len(coming - used) + sum(not action.serves for action in made),
            started=bool(coming or made),
        )
        for number, unit in enumerate(due):
            stays = _replace(pool_plan, stock, unit) if number < turns else wait
            if stays:
                because = lives.join(pool_plan.due[unit.name][1], stays)
                pool_plan.keep(unit, Reason.WAITS_FOR_WINDOW, because)


def replaceable(pool_plan: PoolPlan) -> list[Unit]:
    """Return the registered workers to replace: idle before busy, the oldest machine first."""
    return sorted(
        (unit for unit in pool_plan.staying if unit.state in _READY and unit.registry),
        key=lambda u: (
            u.state is UnitState.BUSY,
            u.machine.created_at.timestamp() if u.machine and u.machine.created_at else 0,
            u.name,
        ),
    )


@dataclass
class _Stock:
    """Numbers of ready and booting workers that remain after the drains so far."""

    min: int
    spare: int
    ready: int = 0
    ready_free: int = 0
    coming: int = 0
    coming_free: int = 0
    started: bool = False
    """A machine was booting before this step created one."""

    def take(self, unit: Unit) -> None:
        """Subtract a ready worker from the counts."""
        self.ready -= 1
        self.ready_free -= unit.state is UnitState.IDLE

    def is_enough(self, unit: Unit, *, with_coming: bool = False) -> bool:
        """Return True if the remaining workers satisfy `min` and `spare` without this machine."""
        left = self.ready + (self.coming if with_coming else 0)
        free = self.ready_free + (self.coming_free if with_coming else 0)
        # Draining a busy worker does not reduce the number of spare workers.
        return left >= self.min and (unit.state is UnitState.BUSY or free >= self.spare)


def _replace(pool_plan: PoolPlan, stock: _Stock, unit: Unit) -> str:
    """Drain or replace a due worker; return why it is kept, or empty if drained."""
    reason, because = pool_plan.due[unit.name]
    stock.take(unit)
    if stock.is_enough(unit):
        pool_plan.drain(unit, reason, because)
        return ""
    if stock.is_enough(unit, with_coming=True):
        return lives.REPLACEMENT_BOOTS
    why = Why(
        Reason.REPLACEMENT,
        cause_of(reason),
        lives.explain_replacement(unit.name, because),
        turn=pool_plan.turn,
    )
    if not make_one(pool_plan, why):
        stock.coming += 1
        stock.coming_free += 1
        return lives.REPLACEMENT_FIRST
    is_full = len(pool_plan.inventory.units) + pool_plan.made >= pool_plan.size.max
    if is_full and not stock.started and not _is_capacity_coming(pool_plan):
        pool_plan.drain(unit, reason, lives.explain_no_room(because))
        return ""
    return lives.NO_ROOM_YET


def _is_capacity_coming(pool_plan: PoolPlan) -> bool:
    """Return True if another machine will leave the pool, so that a due worker can stay.

    If min and spare require workers.max machines, only deletions of this run make room.
    """
    size = size_of(pool_plan.pool)
    if any(isinstance(action, Delete) for action in pool_plan.actions):
        return True
    if size.max <= size.permanent:
        return False
    return any(isinstance(action, Create | Drain) for action in pool_plan.actions) or any(
        unit.held is None for unit in pool_plan.inventory.having(UnitState.DRAINING)
    )


class OutdatedMachine(LifeRule):
    """Rule that replaces machines whose config or image differs from new machines."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Replace outdated machines, and machines for the candidate image's share."""
        for unit in pool_plan.inventory.units:
            if pool_plan.is_outdated(unit):
                pool_plan.replace_by_new(
                    unit, Reason.OUTDATED, _describe_difference(pool_plan, unit)
                )
        choice = pool_plan.choice
        if not (choice.candidate and pool_plan.digests):
            return
        # Workers that are due for other reasons already count to the candidate's share. If the
        # pool shrank and the candidate exceeds its share, no machine is replaced.
        there, at_work = pool_plan.canaries
        others = [unit for unit in replaceable(pool_plan) if not pool_plan.is_canary(unit)]
        fresh = [unit for unit in others if unit.name not in pool_plan.due]
        lacking = choice.share_of(at_work) - there - (len(others) - len(fresh))
        because = lives.explain_canary(choice.share)
        for unit in fresh[: max(0, lacking)]:
            pool_plan.replace_by_new(unit, Reason.OUTDATED, because)


def _describe_difference(pool_plan: PoolPlan, unit: Unit) -> str:
    """Describe how a machine differs from the machines that would be created now."""
    images = sorted({option.image for option in pool_plan.options})
    if unit.machine and unit.machine.image and unit.machine.image not in images:
        name_of = pool_plan.choice.name_of
        return lives.explain_other_image(name_of(unit.machine.image), map(name_of, images))
    types = list(dict.fromkeys(option.type for option in pool_plan.options))
    if unit.machine and unit.machine.type not in types:
        return lives.explain_other_type(unit.machine.type, types)
    return lives.OLDER_CONFIG


class MaximumAge(LifeRule):
    """Rule that replaces machines older than `retire.max_age`."""

    clock: ClassVar = "age"
    keys: ClassVar = {Reason.MAX_AGE: ("retire", "max_age")}

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the maximum age of a machine; None if `retire.max_age` is unset."""
        most = life.pool.retire.max_age if life.pool else None
        return None if most is None else LifeLimit("age", most, ("retire", "max_age"))

    def apply(self, pool_plan: PoolPlan) -> None:
        """Replace machines beyond their maximum age."""
        limit = self.limit(MachineLife(pool_plan.fleet, pool_plan.pool))
        for unit in pool_plan.inventory.units if limit else ():
            created = unit.machine.created_at if unit.machine else None
            age = int((pool_plan.world.time - created).total_seconds()) if created else -1
            if limit and age >= limit.most:
                pool_plan.replace_by_new(
                    unit, Reason.MAX_AGE, lives.explain_age(age, limit.stated)
                )


class MaximumUses(LifeRule):
    """Rule that replaces machines whose worker finished `retire.max_uses` requests."""

    clock: ClassVar = "uses"
    keys: ClassVar = {Reason.MAX_USES: ("retire", "max_uses")}

    def limit(self, life: MachineLife) -> LifeLimit | None:
        """Return the maximum requests that a machine serves; None if there is no maximum."""
        most = life.pool.retire.max_uses if life.pool else None
        return None if most is None else LifeLimit("uses", most, ("retire", "max_uses"), str(most))

    def apply(self, pool_plan: PoolPlan) -> None:
        """Replace machines whose worker finished enough requests."""
        limit = self.limit(MachineLife(pool_plan.fleet, pool_plan.pool))
        for unit in pool_plan.inventory.units if limit else ():
            uses = unit.worker.uses if unit.worker else None
            if limit and uses is not None and uses >= limit.most:
                pool_plan.replace_by_new(
                    unit, Reason.MAX_USES, lives.explain_uses(uses, limit.stated)
                )
