"""This module says how long machines are expected to exist, and what that costs in a window.

A machine ends when its work is done, its idle time is over, two runs have looked (one drains,
one deletes) and the step of time that is paid for ends. What nobody can tell never ends.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from fleet.budgets.ledger import Holding
from fleet.catalogue.billing import MACHINE_HOURS, Life, Tariff, paid_until, tariff_of
from fleet.census.registrations import is_busy
from fleet.census.units import CAPACITY, State
from fleet.demand.choices import Fit, Group, Place
from fleet.demand.durations import Durations, kind_of
from fleet.facts import World
from fleet.facts.versions import ImageVersion
from fleet.schema.model import Fleet, Pool
from fleet.tagrules import offer_of_pool

FOREVER = datetime.max.replace(tzinfo=UTC)
_SERVING = CAPACITY | {State.BUSY}
_GOING = frozenset({State.DRAINING, State.DISABLED, State.STOPPED, State.UNDELETED})
_NONE = Decimal(0)
_NO_PRICE = Tariff(price=_NONE)


class Window(NamedTuple):
    """A part of time within one calendar month, and when that month began."""

    start: datetime
    end: datetime
    month: datetime

    def overlap(self, earliest: datetime, latest: datetime, seconds: int | None) -> int:
        """Return how much of this time something may take that begins between two moments."""
        if seconds is None:
            begin, end = max(earliest, self.start), self.end
        else:
            begin = min(max(self.start, earliest), latest)
            end = min(begin + timedelta(seconds=seconds), self.end)
        return max(0, (end - max(begin, self.start)) // timedelta(seconds=1))


class Lifetimes:
    """Expected ends of machines that exist or are to be made, and their cost in a window.

    Everything is asked for in money or, with `hours`, in machine hours.
    """

    def __init__(
        self,
        fleet: Fleet,
        world: World,
        holdings: tuple[Holding, ...],
        groups: Iterable[Group],
        images: Mapping[str, tuple[ImageVersion, ...]],
    ) -> None:
        self._fleet = fleet
        self._images = images
        self._now = world.time
        self._durations = Durations(fleet, world)
        self._looks = 2 * timedelta(seconds=fleet.cadence)
        self._holdings = holdings
        self._tariffs: dict[str, Tariff] = {}
        self._demanded: dict[str, bool] = {}
        self._ends = self._expected_ends()
        self._serving: dict[str, list[int]] = {}
        for number, holding in enumerate(holdings):
            if holding.unit is None or holding.unit.state in _SERVING:
                self._serving.setdefault(holding.pool, []).append(number)
        self._shared = {
            key for group in groups for key, fit in group.fits.items() if fit.share < 1
        }
        self.made = cache(self._made)
        self.kept = cache(self._kept)
        self.more = cache(self._more)
        self.work = cache(self._work)

    def existing(self, number: int, window: Window, *, hours: bool) -> Decimal:
        """Return what an existing machine is billed in a window until it can be let go."""
        holding = self._holdings[number]
        life = self._life(holding.tariff, holding.created_at, window, hours=hours)
        return _billed(life, window, self._ends[number])

    def running(self, number: int, window: Window, *, hours: bool) -> Decimal:
        """Return what the work on an existing machine costs in a window."""
        holding = self._holdings[number]
        end = _after(self._now, self._left(holding))
        life = self._life(holding.tariff, holding.created_at, window, hours=hours)
        return life.accrued(window.start, min(window.end, end)) if end > window.start else _NONE

    def _made(self, place: Place, window: Window, *, hours: bool) -> Decimal:
        """Return what a new machine is billed in a window, whatever it serves within target_wait.

        Requests that share a machine are cleared within that time, boot included.
        """
        idle = self._ready(place)
        if place.key in self._shared:
            idle = max(idle, _after(self._now, self._pool(place.pool).target_wait or 0))
        return _billed(self._new(place, window, hours=hours), window, self._let_go(place, idle))

    def _kept(self, place: Place, window: Window, *, hours: bool) -> Decimal:
        """Return what a new machine is billed in a window that is there to stay."""
        return _billed(self._new(place, window, hours=hours), window, FOREVER)

    def _more(self, place: Place, fit: Fit, window: Window, *, hours: bool) -> Decimal:
        """Return how much more a machine is billed in a window for serving one request."""
        if not place.makes:
            return self._longer(place, fit, window, hours=hours)
        life = self._new(place, window, hours=hours)
        end = self._let_go(place, _after(self._ready(place), fit.longest))
        return max(_NONE, _billed(life, window, end) - self._made(place, window, hours=hours))

    def _work(self, place: Place, fit: Fit, window: Window, *, hours: bool) -> Decimal:
        """Return what the time costs in a window that one request keeps a machine busy."""
        earliest = self._ready(place) if place.makes else self._now
        latest = self._ready(place)
        if fit.share < 1:
            latest += timedelta(seconds=self._pool(place.pool).target_wait or 0)
        seconds = window.overlap(earliest, latest, fit.longest)
        return self._tariff(place, hours=hours).price * seconds / 3600

    def _longer(self, place: Place, fit: Fit, window: Window, *, hours: bool) -> Decimal:
        """Return how much more the existing machine is billed for which that is the most."""
        most = _NONE
        for number in self._serving.get(place.pool, ()):
            holding = self._holdings[number]
            if self._ends[number] == FOREVER:
                continue
            begin = self._ready_of(holding)
            if fit.share < 1:
                begin += timedelta(seconds=self._pool(place.pool).target_wait or 0)
            served = _after(begin, fit.longest)
            patience = self._patience(place.pool)
            end = self._gone(holding.tariff, holding.created_at, served, patience)
            life = self._life(holding.tariff, holding.created_at, window, hours=hours)
            before = _billed(life, window, self._ends[number])
            most = max(most, _billed(life, window, max(end, self._ends[number])) - before)
        return most

    def _expected_ends(self) -> tuple[datetime, ...]:
        ends = [self._end_of(holding) for holding in self._holdings]
        by_pool: dict[str, list[int]] = {}
        for number, holding in enumerate(self._holdings):
            by_pool.setdefault(holding.pool, []).append(number)
        for name, numbers in by_pool.items():
            pool = self._fleet.pools.get(name)
            if isinstance(pool, Pool) and pool.mode != "drain" and not self._on_demand(name):
                stay = max(pool.workers.min, pool.workers.spare)
                # What goes last stays for min and spare.
                for number in sorted(numbers, key=lambda n: ends[n], reverse=True)[:stay]:
                    ends[number] = FOREVER
        return tuple(ends)

    def _end_of(self, holding: Holding) -> datetime:
        """Return when an existing machine is expected to be gone."""
        unit = holding.unit
        pool = self._fleet.pools.get(holding.pool)
        if unit is None or (isinstance(pool, Pool) and pool.mode == "pause"):
            return FOREVER
        idle_since, patience = self._now, self._patience(holding.pool)
        if unit.worker is not None and unit.may_run:
            idle_since = _after(self._now, self._left(holding))
            patience = timedelta() if unit.worker.draining else patience
        elif unit.state in _GOING:
            return self._now + self._looks
        elif unit.state is State.IDLE:
            idle_since = unit.since or self._now
        elif unit.state in (State.STARTING, State.UNFINISHED):
            idle_since = max(self._now, self._ready_of(holding))
        else:
            return FOREVER  # nobody knows what it does, so nobody lets it go
        return self._gone(holding.tariff, holding.created_at, idle_since, patience)

    def _left(self, holding: Holding) -> int | None:
        """Return how long the work on a machine is expected to go on; None: nothing says so."""
        unit = holding.unit
        if unit is None or unit.worker is None:
            return None
        kind = kind_of(self._fleet, holding.pool, unit)
        return self._durations.remaining(unit.worker, self._now, kind)

    def _gone(
        self,
        tariff: Tariff | None,
        created_at: datetime,
        idle_since: datetime,
        patience: timedelta,
    ) -> datetime:
        """Return when a machine is gone that has nothing to do from a moment on."""
        if idle_since == FOREVER:
            return FOREVER
        seen = max(self._now, idle_since + patience) + self._looks
        return paid_until(tariff or _NO_PRICE, created_at, seen)

    def _let_go(self, place: Place, idle_since: datetime) -> datetime:
        tariff = self._tariff(place, hours=False)
        return self._gone(tariff, self._now, idle_since, self._patience(place.pool))

    def _ready(self, place: Place) -> datetime:
        """Return when a machine that is made now can work."""
        return self._now + timedelta(seconds=self._pool(place.pool).boot.expected)

    def _ready_of(self, holding: Holding) -> datetime:
        """Return when an existing machine can take more work."""
        pool, unit = self._fleet.pools.get(holding.pool), holding.unit
        if unit is None or unit.state is State.IDLE or not isinstance(pool, Pool):
            return self._now
        if unit.worker is not None and is_busy(unit.worker):
            return _after(self._now, self._left(holding))
        return max(self._now, holding.created_at + timedelta(seconds=pool.boot.expected))

    def _patience(self, name: str) -> timedelta:
        """Return how long a machine of a pool may be idle."""
        pool = self._fleet.pools.get(name)
        if not isinstance(pool, Pool) or pool.mode == "drain" or self._on_demand(name):
            return timedelta()
        return timedelta(seconds=pool.retire.idle_after)

    def _pool(self, name: str) -> Pool:
        pool = self._fleet.pools[name]
        if not isinstance(pool, Pool):
            raise TypeError(name)
        return pool

    def _on_demand(self, name: str) -> bool:
        if name not in self._demanded:
            offer = offer_of_pool(self._fleet, name, self._images[name])
            self._demanded[name] = bool(offer.on_demand)
        return self._demanded[name]

    def _tariff(self, place: Place, *, hours: bool) -> Tariff:
        """Return what a machine costs at a place; where several exist, the dearest of them."""
        if hours:
            return MACHINE_HOURS
        if place.key not in self._tariffs:
            self._tariffs[place.key] = self._tariff_at(place)
        return self._tariffs[place.key]

    def _tariff_at(self, place: Place) -> Tariff:
        if place.makes:
            pool = self._pool(place.pool)
            return tariff_of(self._fleet, pool, place.type, place.market) or _NO_PRICE
        free = (self._holdings[number].tariff for number in self._serving.get(place.pool, ()))
        return max((each or _NO_PRICE for each in free), key=_price, default=_NO_PRICE)

    def _new(self, place: Place, window: Window, *, hours: bool) -> Life:
        return Life(self._tariff(place, hours=hours), self._now, window.month)

    def _life(
        self, tariff: Tariff | None, created_at: datetime, window: Window, *, hours: bool
    ) -> Life:
        return Life(MACHINE_HOURS if hours else tariff or _NO_PRICE, created_at, window.month)


def _price(tariff: Tariff) -> Decimal:
    return tariff.price


def _after(moment: datetime, seconds: int | None) -> datetime:
    return FOREVER if seconds is None else moment + timedelta(seconds=seconds)


def _billed(life: Life, window: Window, end: datetime) -> Decimal:
    until = min(window.end, end)
    return life.billed(window.start, until) if until > window.start else _NONE
