"""Search the settings of pools that reach a goal at the least cost, by simulation alone.

From today's values the search goes along one ladder after the other, keeps what is better, and
ends when no step along a ladder, and no step along two ladders of one pool, is better: so what it
returns is never worse than today. Among equals the smallest change wins. It is bounded by a number
of simulations, and the same input gives the same result; who has less time ends it by `is_over`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import combinations, product
from typing import Literal

from pydantic import Field

from fleet.checks import check_all
from fleet.explain.simulation.knobs import Ladder, Places, fleet_at, write_place
from fleet.explain.simulation.trials import Goal, History, Trial
from fleet.model.values import Moment, Value
from fleet.schema.findings import has_errors
from fleet.schema.model import Fleet

_PATIENCE = 2
"""After so many equal steps in a row a search leaves a ladder."""
_ANY_DAY = date(2000, 1, 1)
"""Of the checks the day only makes warnings."""


class Change(Value):
    """One key of fleet.yaml with another value."""

    key: str
    before: str
    after: str
    without: Trial | None = Field(
        None,
        description="What all other changes come to without this one, in the learned part; "
        "None: fleet.yaml may not say that.",
    )


class Option(Value):
    """Settings that nothing else tried is below, both in cost and in wait."""

    trial: Trial
    changes: tuple[Change, ...] = Field(description="From today's values; empty: today.")


class Sides(Value):
    """What a part of the history comes to today and as proposed."""

    start: Moment
    end: Moment
    before: Trial
    after: Trial


class Tuning(Value):
    """What to change for a goal, and what it is worth."""

    format: Literal["fleet-tuning-1"] = "fleet-tuning-1"
    fleet: str
    currency: str
    goal: Goal
    keys: tuple[str, ...] = Field(description="What the search was allowed to change.")
    changes: tuple[Change, ...]
    learned: Sides = Field(description="The part that the search looked at.")
    held_back: Sides = Field(description="The last quarter, which the search did not see.")
    frontier: tuple[Option, ...] = Field(description="The cheapest first.")
    simulations: int = Field(description="Fleets that the search tried.")
    is_bounded: bool = Field(description="It ended at --most or --within, so there may be better.")
    patch: str = Field(description="A unified diff; empty: nothing to change.")


@dataclass(frozen=True)
class Found:
    """Where a search ended."""

    fleet: Fleet
    goal: Goal
    ladders: tuple[Ladder, ...]
    best: Places
    tried: dict[Places, Trial]
    """In the order in which they were tried, today's values first."""
    is_bounded: bool

    @property
    def today(self) -> Places:
        """Return the places of today's values."""
        return tuple(ladder.today for ladder in self.ladders)

    @property
    def proposed(self) -> Fleet:
        """Return the fleet with the best settings."""
        return fleet_at(self.fleet, self.ladders, self.best)


@dataclass
class Search:
    """A search for the best settings that at most so many simulations find."""

    fleet: Fleet
    ladders: tuple[Ladder, ...]
    goal: Goal
    simulate: Callable[[Fleet], Trial]
    most: int
    is_over: Callable[[], bool] = lambda: False
    """Asked before each simulation but the last ones, which say what each change is worth."""

    def __post_init__(self) -> None:
        self._today = tuple(ladder.today for ladder in self.ladders)
        self._tried: dict[Places, Trial] = {}
        self._refused: set[Places] = set()
        self._kept = 0
        """Simulations that are kept for saying what each change is worth."""
        self._is_bounded = False
        self._is_concluding = False

    def run(self) -> Found:
        """Return where it ends."""
        best = self._today
        self._try(best)
        before: Places | None = None
        while best != before:
            before = best
            for nth in range(len(self.ladders)):
                best = self._better(best, self._along(best, nth))
            if best == before:
                best = self._better(best, self._in_pairs(best))
        self._kept, self._is_concluding = 0, True
        for without in self._without(best):
            self._try(without)
        return Found(self.fleet, self.goal, self.ladders, best, self._tried, self._is_bounded)

    def _try(self, places: Places) -> Trial | None:
        """Return what places come to; None where they are invalid or nothing is left to try."""
        if places in self._tried:
            return self._tried[places]
        if places in self._refused:
            return None
        is_over = not self._is_concluding and self.is_over()
        if self._tried and (is_over or len(self._tried) + self._kept >= self.most):
            self._is_bounded = True
            return None
        fleet = fleet_at(self.fleet, self.ladders, places)
        if places != self._today and has_errors(check_all(fleet, _ANY_DAY)):
            self._refused.add(places)
            return None
        self._tried[places] = self.simulate(fleet)
        return self._tried[places]

    def _better(self, best: Places, others: Iterator[Places]) -> Places:
        """Return the best of these, the smallest change among equals."""
        # A step changes two more keys at most, and each change is tried without it at last.
        self._kept = len(list(self._without(best))) + 2
        for places in others:
            if self._try(places) and self._rank(places) < self._rank(best):
                best = places
        return best

    def _rank(self, places: Places) -> tuple[float | Decimal, ...]:
        return (*self._worth(places), *_distance(places, self._today))

    def _worth(self, places: Places) -> tuple[float | Decimal, ...]:
        return self.goal.rank(self._tried[places])

    def _along(self, start: Places, nth: int) -> Iterator[Places]:
        """Yield today's value, then each step down and up until it gets worse."""
        ladder = self.ladders[nth]
        yield _moved(start, (nth, ladder.today))
        for step in (-1, 1):
            place, before, equal = start[nth] + step, start, 0
            while 0 <= place < len(ladder.values) and equal < _PATIENCE:
                now = _moved(start, (nth, place))
                yield now
                if now not in self._tried or self._worth(now) > self._worth(before):
                    break
                equal = equal + 1 if self._worth(now) == self._worth(before) else 0
                place, before = place + step, now

    def _in_pairs(self, start: Places) -> Iterator[Places]:
        """Yield each step along two ladders of one pool at once."""
        for one, two in combinations(range(len(self.ladders)), 2):
            ladders = (self.ladders[one], self.ladders[two])
            if ladders[0].path[:2] != ladders[1].path[:2]:
                continue
            for steps in product((-1, 1), repeat=2):
                places = (start[one] + steps[0], start[two] + steps[1])
                ends = zip(places, ladders, strict=True)
                if all(0 <= place < len(ladder.values) for place, ladder in ends):
                    yield _moved(start, (one, places[0]), (two, places[1]))

    def _without(self, places: Places) -> Iterator[Places]:
        """Yield the places with each change taken back alone."""
        for nth, (place, today) in enumerate(zip(places, self._today, strict=True)):
            if place != today:
                yield _moved(places, (nth, today))


def _distance(places: Places, today: Places) -> tuple[int, ...]:
    """Return what is the smaller the fewer keys change, then the less they do; then by place."""
    steps = [abs(a - b) for a, b in zip(places, today, strict=True)]
    return (sum(map(bool, steps)), sum(steps), *places)


def _moved(places: Places, *steps: tuple[int, int]) -> Places:
    moved = list(places)
    for nth, place in steps:
        moved[nth] = place
    return tuple(moved)


def conclude(
    found: Found, history: History, held_back: Callable[[Fleet], Trial], patch: str
) -> Tuning:
    """Return what to change, with the figures on what was held back."""
    fleet = found.fleet
    return Tuning(
        fleet=fleet.fleet,
        currency=fleet.money.currency,
        goal=found.goal,
        keys=tuple(ladder.key for ladder in found.ladders),
        changes=tuple(_changes(found, found.best, judged=True)),
        learned=Sides(
            start=history.first.time,
            end=history.split,
            before=found.tried[found.today],
            after=found.tried[found.best],
        ),
        held_back=Sides(
            start=history.split,
            end=history.end,
            before=held_back(fleet),
            after=held_back(found.proposed),
        ),
        frontier=_frontier(found),
        simulations=len(found.tried),
        is_bounded=found.is_bounded,
        patch=patch,
    )


def _changes(found: Found, places: Places, *, judged: bool) -> Iterator[Change]:
    """Yield what differs from today; `judged`: and what the rest comes to without each."""
    for nth, (ladder, place) in enumerate(zip(found.ladders, places, strict=True)):
        if place != ladder.today:
            rest = _moved(places, (nth, ladder.today))
            yield Change(
                key=ladder.key,
                before=write_place(found.fleet, ladder, ladder.today),
                after=write_place(found.fleet, ladder, place),
                without=found.tried.get(rest) if judged else None,
            )


def _frontier(found: Found) -> tuple[Option, ...]:
    """Return those tried that no other is below, in cost and wait, the cheapest first."""
    known = [
        (trial.per_day, trial.wait, _distance(places, found.today), places)
        for places, trial in found.tried.items()
        if trial.per_day is not None and trial.wait is not None
    ]
    options: list[Option] = []
    least: int | None = None
    for _, wait, _, places in sorted(known):
        if least is None or wait < least:
            least = wait
            changes = tuple(_changes(found, places, judged=False))
            options.append(Option(trial=found.tried[places], changes=changes))
    return tuple(options)
