"""Edit a fleet.yaml in memory, and plan again, also for a later time.

An edit has a path and a new value; some figures can be raised in steps. This module does not
depend on the purpose of an edit.
"""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from math import ceil, floor
from typing import Any, get_args

from pydantic.fields import FieldInfo

from fleet.explain.turns import LimitTurn, find_stopped, find_turns
from fleet.guard import guard
from fleet.model.facts import (
    Demand,
    Request,
    World,
)
from fleet.model.plan import Plan, Signature, Unserved
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import convert
from fleet.planner.durations import USUAL
from fleet.planner.fitting import FitDecider
from fleet.planner.forecast import Forecast, forecast, next_pause
from fleet.planner.shortfall import Shortfalls
from fleet.planner.step import apply_plan
from fleet.reconcile import reconcile_unsealed
from fleet.schema.findings import YAML_WORDS, Path
from fleet.schema.model import Approval, ConfigSection, Fleet, Money
from fleet.schema.units import PERCENT_PATTERNS, written

MOST_COUNT = 100_000
MOST_PERCENT = 9_999
MOST_CENTS = 100_000_000
_CENT = Decimal("0.01")


REMOVED = object()
"""The new value in an edit that removes a key."""


@dataclass(frozen=True)
class Edit:
    """The path of a key of fleet.yaml, and its new value."""

    path: Path
    new: object
    count: int = 1
    """Number of edits that a user would count: two tags in one list are two edits."""
    rank: int = 0
    """Sort key among sets of equally many edits. The lowest is first."""
    text: str = ""
    """The edit as a phrase; empty if path and values are enough."""
    least: object = None
    """Initial value of a figure that can be raised in steps; None for other values."""
    steps: int = 0
    """Number of steps by which the figure was raised."""

    def turned(self, steps: int) -> "Edit":
        """Return this edit with its figure raised by `steps` from the initial value."""
        return replace(self, new=_raise_limit(self.least, steps), steps=steps)


def _raise_limit(least: object, steps: int) -> object:
    match least:
        case Money(amount=amount, currency=currency):
            return Money(amount=amount + steps * _CENT, currency=currency)
        case Approval() as approval:
            return approval.model_copy(update={"count": approval.count + steps})
        case date():
            return least + timedelta(days=steps)
        case int():
            return least + steps
    raise TypeError(least)


def is_figure(fleet: Fleet, path: Path) -> bool:
    """Return whether the value at a path is a number or an amount of money."""
    value = value_at(fleet, path)
    return not isinstance(value, bool) and isinstance(value, int | Money)


def raise_figure(fleet: Fleet, path: Path, amount: Decimal) -> Edit | None:
    """Return the edit that raises a figure by at least an amount; None if impossible.

    An amount of money is in the currency of fleet.yaml (`money.currency`).
    """
    old = value_at(fleet, path)
    if not is_figure(fleet, path):
        return None
    if isinstance(old, Money):
        rate = convert(fleet, Decimal(1), old.currency)
        if not rate:
            return None
        cents = (old.amount + amount / rate) / _CENT
        steps = ceil(cents) - floor(old.amount / _CENT)
        most = MOST_CENTS
    else:
        steps = ceil(amount)
        most = MOST_PERCENT if _pattern_at(fleet, path) in PERCENT_PATTERNS else MOST_COUNT
        most -= old
    steps = max(1, steps)
    return Edit(path, old, least=old).turned(steps) if steps <= most else None


def apply_edits(fleet: Fleet, edits: Iterable[Edit]) -> Fleet:
    """Return a copy of the fleet with these edits."""
    for edit in edits:
        fleet = _replace_at(fleet, edit.path, edit.new)
    return fleet


def _replace_at(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401 - any part of fleet.yaml
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, ConfigSection):
        name = str(step)
        if new is REMOVED and not rest:
            kept = {key: getattr(value, key) for key in value.model_fields_set - {name}}
            return type(value).model_construct(**kept)
        return value.model_copy(update={name: _replace_at(getattr(value, name), rest, new)})
    if isinstance(value, dict) or (value is None and isinstance(step, str)):
        value = value or {}
        if new is REMOVED and not rest:
            return {key: each for key, each in value.items() if key != step}
        return {**value, step: _replace_at(value.get(step), rest, new)}
    place = int(step)
    inner = value[place] if place < len(value) else None
    return [*value[:place], _replace_at(inner, rest, new), *value[place + 1 :]]


def value_at(fleet: Fleet, path: Path) -> Any:  # noqa: ANN401 - any part of fleet.yaml
    """Return the value at a path of fleet.yaml; None if absent."""
    value: Any = fleet
    for step in path:
        if isinstance(value, ConfigSection):
            value = getattr(value, str(step), None)
        elif isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def figures_at(fleet: Fleet, path: Path) -> list[Path]:
    """Return the path itself if its value is a figure, or the paths of figures directly below."""
    value = value_at(fleet, path)
    if isinstance(value, ConfigSection):
        below = [(*path, name) for name in type(value).model_fields]
        return [each for each in below if is_figure(fleet, each)]
    return [path] if is_figure(fleet, path) else []


def _pattern_at(fleet: Fleet, path: Path) -> str:
    """Return the regular expression for a value at a path, such as a percentage; else ""."""
    section = value_at(fleet, path[:-1])
    if isinstance(section, ConfigSection):
        return _pattern_of(type(section).model_fields[str(path[-1])])
    above = value_at(fleet, path[:-2])
    if isinstance(section, dict) and isinstance(above, ConfigSection):
        _, of_value = get_args(type(above).model_fields[str(path[-2])].annotation)
        return next(_patterns([of_value]), "")
    return ""


def _pattern_of(field: FieldInfo) -> str:
    return next(_patterns([*field.metadata, field.annotation]), "")


def _patterns(parts: Iterable[object]) -> Any:  # noqa: ANN401 - an iterator of text
    for part in parts:
        pattern = getattr(part, "pattern", None)
        if isinstance(pattern, str):
            yield pattern
        yield from _patterns([*get_args(part), *getattr(part, "__metadata__", ())])


def write_value(fleet: Fleet, path: Path, value: object) -> str:
    """Format a value in one line, in the notation of fleet.yaml for this path."""
    return "" if value is None or value is REMOVED else _write(value, _pattern_at(fleet, path))


def _write(value: object, pattern: str = "") -> str:
    if isinstance(value, ConfigSection):
        fields = type(value).model_fields
        parts = (
            f"{name}: {_write(getattr(value, name), _pattern_of(fields[name]))}"
            for name in fields
            if name in value.model_fields_set
        )
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_write(each, pattern) for each in value)}]"
    if isinstance(value, int | Money) and not isinstance(value, bool) and pattern:
        return written(value, pattern)
    if isinstance(value, str):
        return value if value.replace("-", "").isalpha() else json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_yaml(fleet: Fleet, edit: Edit) -> str:
    """Return an edit as YAML, from the top level or for an entry of a list; empty if removed."""
    if edit.new is REMOVED:
        return ""
    text = write_value(fleet, edit.path, edit.new)
    last = len(edit.path) - 1
    for number, step in reversed([*enumerate(edit.path)]):
        if isinstance(step, int):
            if number < last:
                return text
            text = f"[{text}]"
            continue
        text = f"{_key(step)}: {text}"
        if number and isinstance(edit.path[number - 1], str):
            text = f"{{{text}}}"
    return text


def _key(step: str) -> str:
    is_plain = step.replace("-", "").replace("_", "").isalnum() and step[0].isalpha()
    return step if is_plain and step.lower() not in YAML_WORDS else json.dumps(step)


REQUEST = ("request",)
"""The path of an edit that adds tags to the request itself, not to fleet.yaml."""

MOST_PLANS = 10
"""Maximum number of trial plans for one request, over all suggestions and combinations."""
MOST_SHOWN = 4
_WORK = 300
"""Maximum work of all plans for one request: 1 plan with 140 requests in a limited fleet of 10 or
more pools. `fleet explain request` then takes 1.2 to 2 times as long as `fleet plan`."""
_REQUESTS_EACH = 8
"""Number of waiting requests that take as long to plan as one blocked (requests, pool) pair."""


def is_served(plan: Plan, key: str) -> bool:
    """Return whether a plan assigns an existing or new worker to a request."""
    return any(key in s.by_worker or key in s.by_create for s in plan.signatures)


def served_by(signature: Signature) -> tuple[str, ...]:
    """Return the requests of a group that have an existing or new worker."""
    return (*signature.by_worker, *signature.by_create)


def edited(fleet: Fleet, world: World, key: str, edits: Iterable[Edit]) -> tuple[Fleet, World]:
    """Return the fleet and world after edits. Edits of REQUEST add tags to the request `key`."""
    every = tuple(edits)
    for edit in every:
        if edit.path == REQUEST and isinstance(edit.new, tuple):
            world = _require_tags(world, key, edit.new)
    return apply_edits(fleet, (e for e in every if e.path != REQUEST)), world


def _require_tags(world: World, key: str, tags: tuple[str, ...]) -> World:
    """Return a copy of the world in which the user of a request also requires these tags."""
    queue, _, name = key.partition("/")
    demand = dict(world.demands()).get(queue)
    if demand is None:
        return world
    own = name if any(r.id == name for r in demand.requests) else name.rpartition("#")[0]
    requests = tuple(
        request.altered(
            required=tuple(sorted({*request.required, *tags})),
            asked={**request.asked, **dict.fromkeys(tags, "user")},
        )
        if request.id == own
        else request
        for request in demand.requests
    )
    reading = world.queues[queue].altered(demand=demand.altered(requests=requests))
    return world.altered(queues={**world.queues, queue: reading})


@dataclass(frozen=True)
class PlannedRun:
    """A run of `fleet apply`, with its world and plan. Runs count from 0, the explained run."""

    fleet: Fleet
    world: World
    plan: Plan
    number: int = 0
    of: Hashable = ()
    """Cache key that distinguishes runs with different fleet.yaml."""

    @cached_property
    def requests(self) -> dict[str, tuple[Request, Demand]]:
        """Map `queue/id` to each waiting request and the demand of its queue."""
        return {
            f"{queue}/{request.id}": (request, demand)
            for queue, demand in self.world.demands()
            for request in demand.requests
        }

    @cached_property
    def unserved(self) -> dict[str, Unserved]:
        """Map each unserved request to its entry in the plan."""
        return {key: each for each in self.plan.unserved for key in each.requests}

    @cached_property
    def decider(self) -> FitDecider:
        """Return the object that decides whether a pool fits a request."""
        return FitDecider(self.fleet, self.world)

    @cached_property
    def shortfalls(self) -> Shortfalls:
        """Return the object that calculates by how much limits must rise."""
        return Shortfalls(self.fleet, self.world, self.plan)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """Map each waiting request to its group of requests that fleet.yaml treats equally."""
        return {key: each for each in self.plan.signatures for key in each.requests}

    def find(self, key: str) -> tuple[Request, Demand] | None:
        """Return the request with this key and its demand. For `queue/id#n`, return the group."""
        return self.requests.get(key) or self.requests.get(key.rpartition("#")[0])

    @cached_property
    def forecast(self) -> Forecast:
        """Return the expected start of each request if no later run changes anything."""
        return forecast(self.fleet, self.world, self.plan)

    @cached_property
    def assumed(self) -> Forecast:
        """Return the forecast that uses the usual duration if a duration is unknown."""
        return forecast(self.fleet, self.world, self.plan, assumed=USUAL)

    @cached_property
    def turns(self) -> dict[str, LimitTurn]:
        """Return the turn of each request that limits on tags or queues stop."""
        is_any = bool(find_stopped(self.plan))
        return find_turns(self.plan, self.shortfalls.uses, self.forecast) if is_any else {}

    @cached_property
    def assumed_turns(self) -> dict[str, LimitTurn]:
        """Return the turns that use the usual duration if a duration is unknown."""
        is_any = bool(self.turns)
        uses = self.shortfalls.uses if is_any else ()
        return find_turns(self.plan, uses, self.assumed, USUAL) if is_any else {}

    def expected_start(self, key: str) -> datetime | None:
        """Return the start of a request if no later run changes anything; None if unknown."""
        return self.forecast.start_of(key) or self._turn_start(self.turns, key)

    def assumed_start(self, key: str) -> datetime | None:
        """Return a start by assumed durations; None unless only durations are unknown."""
        known = self.assumed.start_of(key) if key in self.forecast.untimed else None
        return known or self._turn_start(self.assumed_turns, key)

    def _turn_start(self, turns: Mapping[str, LimitTurn], key: str) -> datetime | None:
        turn = turns.get(key)
        if turn is None or not turn.is_alone or turn.first is None or turn.first.end is None:
            return None
        return self.world.time + timedelta(seconds=turn.first.end)


def count_plans(plan: Plan) -> int:
    """Return the maximum number of trial plans for the explanation of one request."""
    pairs = sum(len(unserved.blocked) for unserved in plan.unserved)
    waiting = sum(signature.count for signature in plan.signatures)
    return max(1, min(MOST_PLANS, _WORK // (1 + pairs + waiting // _REQUESTS_EACH)))


class Replans:
    """Planner of edited fleets and later worlds, with a limit on the number of trial plans.

    A plan with a cache key (`of`) is made once and shared by all requests.
    """

    def __init__(self, most: int = MOST_PLANS) -> None:
        self.left = most
        """Number of trial plans that may still be made."""
        self.most_shown = MOST_SHOWN
        self._known: dict[Hashable, Plan] = {}
        self._runs: dict[Hashable, PlannedRun] = {}
        self.is_spent = False
        """True if a search stopped because no trial plan was left."""

    @contextmanager
    def share(self, most: int, *, most_shown: int = MOST_SHOWN) -> Iterator["Replans"]:
        """Yield a planner with a part of the remaining trial plans and the same cache."""
        shared = copy(self)
        given = shared.left = max(0, min(self.left, most))
        shared.most_shown, shared.is_spent = most_shown, False
        yield shared
        self.left -= given - shared.left

    def plan(self, fleet: Fleet, world: World, *, of: Hashable = None) -> Plan | None:
        """Return the plan for a fleet and world, possibly cached; None at the limit of plans."""
        if of is not None and of in self._known:
            return self._known[of]
        if self.left <= 0:
            self.is_spent = True
            return None
        self.left -= 1
        plan = guard(fleet, reconcile_unsealed(with_price_lists(fleet, world), world))
        if of is not None:
            self._known[of] = plan
        return plan

    def run_after(self, run: PlannedRun) -> PlannedRun | None:
        """Return the next run, after this run's machines have booted; None if no plan is left."""
        name = (run.number + 1, run.of)
        if name not in self._runs:
            if self.left <= 0:
                self.is_spent = True
                return None
            # Queues have not yet assigned the requests of the new workers.
            then = run.world.time + next_pause(run.fleet)
            world = apply_plan(run.fleet, run.world, run.plan, then)
            plan = self.plan(run.fleet, world)
            if plan is None:
                return None
            self._runs[name] = PlannedRun(run.fleet, world, plan, *name)
        return self._runs[name]
