"""Try one fleet.yaml on a part of a history, for a target or a budget.

The events of a part are read once and kept, for many fleets meet them one after the other.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import Field

from fleet.explain.simulation.demand import Event, Job, Past
from fleet.explain.simulation.figures import Side
from fleet.explain.simulation.replay import Replay, Task, is_readable, powerful_tags
from fleet.explain.tallies import ORDINARY, POWERFUL
from fleet.model.facts import Unknown, World
from fleet.model.plan import Bill
from fleet.model.values import Value
from fleet.schema.model import Fleet

_DAY = 86400
_HUNDREDTH_CENT = Decimal("0.0001")


class Goal(Value):
    """What a fleet is tuned for: so many requests start within a time, or it costs so little."""

    share: int = Field(ge=1, le=100, description="Percent of the requests.")
    seconds: int | None = Field(None, description="They are to start within this; None: a budget.")
    budget: Bill | None = Field(None, description="Money per day; None: a target.")
    only: Literal["powerful", "ordinary"] | None = Field(
        None, description="Only requests of this class count; None: all do."
    )

    def rank(self, trial: "Trial") -> tuple[float | Decimal, ...]:
        """Return how far a trial is from the goal, then what is the better the less it is."""
        money = Decimal("Infinity") if trial.per_day is None else trial.per_day
        wait = float("inf") if trial.wait is None else trial.wait
        if self.budget is not None:
            over = max(Decimal(0), money - self.budget)
            return (over, trial.never, wait, trial.waited if wait else 0, money)
        missing = max(0, -(-trial.requests * self.share // 100) - trial.within)
        return (missing, trial.never, trial.waited, money) if missing else (0, 0, 0, money, wait)

    def is_met(self, trial: "Trial") -> bool:
        """Say whether a trial is at the goal."""
        return not self.rank(trial)[0]


class Trial(Value):
    """What one fleet.yaml came to in a part of the history."""

    config: str = Field(description="Digest of the configuration.")
    money: Bill | None = Field(description="None: the price of a machine is unknown.")
    per_day: Bill | None = Field(description="Money per day on average.")
    requests: int = Field(description="Those that count.")
    within: int = Field(description="Of them, those that started within the target's time.")
    never: int = Field(description="Of them, those that did not start.")
    half: int | None = Field(description="Seconds that half of the requests waited at most.")
    wait: int | None = Field(
        description="Seconds that the goal's share of them waited at most; None: fewer started."
    )
    waited: int = Field(description="Seconds that all that started waited together.")


@dataclass(frozen=True)
class History:
    """Recorded demand of which the end is held back."""

    first: World
    events: tuple[Event, ...]
    """In order of time."""
    split: datetime
    """From here on it is held back."""
    end: datetime


def read_history(worlds: Iterable[World], split: datetime) -> History | Unknown:
    """Return recorded demand; the worlds are in order of time."""
    past = Past()
    events: list[Event] = []
    first: World | None = None
    end = split
    for world in worlds:
        if first is not None or is_readable(world):
            first = first or world
            end = world.time
            past.see(world)
            events += past.ready(world.time)
    if first is None or not first.time < split < end:
        return Unknown(unknown="too few recorded moments: the last quarter of them is held back")
    return History(first, (*events, *past.rest()), split, end)


def learned(history: History, goal: Goal) -> Callable[[Fleet], Trial]:
    """Return what tries a fleet on the part that is not held back."""

    def simulated(fleet: Fleet) -> Trial:
        tally = _Tally(fleet, goal, history.first.time, history.split)
        return tally.trial(_replayed(fleet, history, tally, history.split), Decimal(0))

    return simulated


def held_back(
    history: History, goal: Goal, before: Callable[[Fleet], Trial]
) -> Callable[[Fleet], Trial]:
    """Return what tries a fleet on the part that is held back.

    The whole history is replayed, so that the part begins with what the fleet left there; of it
    only the requests and the money of that part count. `before` says what it cost until then.
    """

    def simulated(fleet: Fleet) -> Trial:
        tally = _Tally(fleet, goal, history.split, history.end)
        return tally.trial(_replayed(fleet, history, tally, history.end), before(fleet).money)

    return simulated


def _replayed(fleet: Fleet, history: History, tally: "_Tally", end: datetime) -> Side:
    replay = Replay(Task(fleet), history.first, tally.waited)
    for event in history.events:
        if event.at > end:
            break
        if isinstance(event, Job):
            tally.came(event)
        replay.feed(event)
    return replay.finish(end)


@dataclass
class _Tally:
    """Counts the waits of the requests that a goal is about.

    Every fleet is measured by the same requests: not by those that wait or run at the beginning,
    nor by those that came so late that they could not miss the target before the end.
    """

    fleet: Fleet
    goal: Goal
    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        self._powerful = powerful_tags(self.fleet)
        self._open: set[str] = set()
        self._requests = 0
        self._waits: list[int] = []
        self._last = self.end - timedelta(seconds=self.goal.seconds or 0)

    def came(self, job: Job) -> None:
        kind = POWERFUL if self._powerful & {*job.request.required} else ORDINARY
        is_new = self.start < (job.since or job.at) and self.start < job.at <= self._last
        if is_new and self.goal.only in (None, kind) and job.key not in self._open:
            self._open.add(job.key)
            self._requests += 1

    def waited(self, key: str, seconds: int | None) -> None:
        if key in self._open:
            self._open.remove(key)
            if seconds is not None:
                self._waits.append(seconds)

    def trial(self, side: Side, paid: Decimal | None) -> Trial:
        waits, limit = sorted(self._waits), self.goal.seconds
        money = None if side.money is None or paid is None else side.money - paid
        days = Decimal(int((self.end - self.start).total_seconds())) / _DAY

        def at(share: int) -> int | None:
            nth = -(-self._requests * share // 100)
            return waits[nth - 1] if 0 < nth <= len(waits) else None

        return Trial(
            config=side.config,
            money=money,
            per_day=None if money is None else (money / days).quantize(_HUNDREDTH_CENT),
            requests=self._requests,
            within=sum(limit is None or wait <= limit for wait in waits),
            never=self._requests - len(waits),
            half=at(50),
            wait=at(self.goal.share),
            waited=sum(waits),
        )
