"""Packages that would gain most from a powerful machine, and allow-list rules without builds.

Both come from recorded observations. A build counts once, with the prices and durations of the
last observation and the machines that `OptionFinder.options_for` returns. The gain of a package is
that on the machine that saves most time per additional cost.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

from pydantic import Field

from fleet.explain.options import OptionFinder, cheapest
from fleet.explain.recorded_builds import RecordedBuild, common_name, package_key, read_builds
from fleet.model.facts import PlaceFacts, Request, Unknown, World
from fleet.model.price_lists import with_price_lists
from fleet.model.values import Moment, Rate, Value
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import tasks_by_name

UNUSED_AFTER = timedelta(days=90)
"""An allow-list rule is reported if no build has matched it for this long."""
_SHOWN = 20


class Gain(Value):
    """A package without an allow-list rule, with the gain of its builds on a powerful machine."""

    name: str = Field(description="Name of its builds, with `*` for the parts that differ.")
    task: str = ""
    queue: str
    builds: int = Field(description="Recorded builds of a known duration.")
    month: float | None = Field(description="Builds per month; null: recorded less than a day.")
    pool: str = Field(description="The pool that a rule would open.")
    type: str
    seconds_here: int = Field(description="Average duration where it runs without a rule.")
    seconds_there: int
    cost_here: Rate = Field(description="Average cost of one build, with boot and idle time-out.")
    cost_there: Rate
    gain_per_money: int | None = Field(
        description="Seconds gained per unit of money; null: it costs no more there."
    )
    rule: str = Field(description="An entry of `powerful` that allows its most frequent name.")


class UnusedRule(Value):
    """A rule of the allow-list that no recorded build matched."""

    path: tuple[str | int, ...]
    place: str = ""
    match: str
    task: str = ""
    contact: str = ""


class Gains(Value):
    """The result of `fleet explain powerful`."""

    fleet: str
    currency: str
    since: Moment
    until: Moment
    moments: int
    unread: int = Field(description="Moments in which a queue could not be read.")
    builds: int = Field(description="Recorded builds with a name.")
    allowed: int = Field(description="Named builds that rules of today allow.")
    not_known: int = Field(
        description="Other builds with an unknown duration or an unknown cost at a place."
    )
    packages: tuple[Gain, ...] = Field((), description="The most gain per money first.")
    more: int = Field(0, description="Packages that gain and are not listed.")
    unused: tuple[UnusedRule, ...] = ()
    is_long_enough: bool = Field(description="The history covers 90 days.")


def find_gains(fleet: Fleet, worlds: Iterable[World]) -> Gains | Unknown:
    """Return gains and unused rules; Unknown without observations. `worlds`: oldest first."""
    recording = read_builds(worlds)
    if recording is None:
        return Unknown(unknown="nothing was recorded in this time")
    since, last, until = recording.since, recording.last, recording.last.time
    builds = [each for each in recording.named if not each.is_withdrawn]
    finder, rules = (
        OptionFinder(with_price_lists(fleet, last), last),
        AllowList(fleet, until.date()),
    )
    given = {tag for rule in fleet.powerful for tag in rule.ask}
    allowed = not_known = 0
    found: _ComparedPackages = defaultdict(lambda: defaultdict(list))
    for build in builds:
        request = _request_of(build)
        is_allowed = bool(rules.rules_for(request))
        if is_allowed or given & set(request.required):
            allowed += request.count if is_allowed else 0
            continue
        options = finder.options_for(build.queue, request)
        here, opened = cheapest(options), [each for each in options if each.asks]
        known = [each for each in opened if each.cost is not None and not each.is_late]
        if here is None or not known:
            not_known += request.count if here is None or opened else 0
            continue
        places = found[build.queue, request.task, package_key(build.names[0])]
        for there in known:
            compared = ComparedPlaces(build.names[0], request.count, here, there)
            places[there.pool, there.type].append(compared)
    gains = sorted(_find_gaining(found, recording.months), key=_rank)
    recent = (about for about, at in recording.used.items() if at >= until - UNUSED_AFTER)
    return Gains(
        fleet=fleet.fleet,
        currency=fleet.money.currency,
        since=since,
        until=until,
        moments=recording.moments,
        unread=recording.unread,
        builds=sum(each.request.count for each in builds),
        allowed=allowed,
        not_known=not_known,
        packages=tuple(gains[:_SHOWN]),
        more=len(gains[_SHOWN:]),
        unused=tuple(_find_unused_rules(fleet, tasks_by_name(recent), until.date())),
        is_long_enough=until - since >= UNUSED_AFTER,
    )


class ComparedPlaces(NamedTuple):
    """The places of equal builds without and with a new rule of the allow-list."""

    name: str
    builds: int
    here: PlaceFacts
    there: PlaceFacts


_ComparedPackages = defaultdict[
    tuple[str, str, object], defaultdict[tuple[str, str], list[ComparedPlaces]]
]
"""(Queue, task, package) to (pool, machine type) to the builds."""


def _request_of(build: RecordedBuild) -> Request:
    """Return the request of a build, with the duration of its work if the queue expects none."""
    request = build.request
    if request.expected_seconds is None and build.seconds:
        return request.altered(expected_seconds=build.seconds)
    return request


def _find_gaining(found: _ComparedPackages, months: float | None) -> Iterator[Gain]:
    """Yield each package that gains time, on the machine that saves most time per cost."""
    for (queue, task, _), places in found.items():
        gains = [_gain(queue, task, builds, months) for builds in places.values()]
        if gaining := [each for each in gains if each.seconds_here > each.seconds_there]:
            yield min(gaining, key=_rank)


def _gain(queue: str, task: str, builds: list[ComparedPlaces], months: float | None) -> Gain:
    names: Counter[str] = Counter()
    seconds, costs = [0, 0], [Decimal(0), Decimal(0)]
    for name, count, *places in builds:
        names[name] += count
        for nth, place in enumerate(places):
            seconds[nth] += count * (place.seconds or 0)
            costs[nth] += count * (place.cost or Decimal(0))
    total = names.total()
    extra = costs[1] - costs[0]
    frequent = min(names, key=lambda name: (-names[name], name))
    there = builds[0].there
    return Gain(
        name=common_name(set(names)),
        task=task,
        queue=queue,
        builds=total,
        month=None if months is None else round(total / months, 1),
        pool=there.pool,
        type=there.type,
        seconds_here=round(seconds[0] / total),
        seconds_there=round(seconds[1] / total),
        cost_here=costs[0] / total,
        cost_there=costs[1] / total,
        gain_per_money=round((seconds[0] - seconds[1]) / extra) if extra > 0 else None,
        rule=next(each.there.rule for each in builds if each.name == frequent),
    )


def _rank(gain: Gain) -> tuple[float, int, str, str, str]:
    """Return a sort key: gains without additional cost first, then most time saved per cost."""
    per_money = float("inf") if gain.gain_per_money is None else gain.gain_per_money
    gained = (gain.seconds_here - gain.seconds_there) * gain.builds
    return (-per_money, -gained, gain.name, gain.task, gain.pool)


def _find_unused_rules(
    fleet: Fleet, tasks: Mapping[str, Collection[str]], today: date
) -> Iterator[UnusedRule]:
    """Yield the valid rules that match no name in `tasks` (name to the tasks of its builds)."""
    if not tasks:
        return  # no recorded build has a name
    for index, names in AllowList(fleet, today).count_names(tasks).items():
        rule = fleet.powerful[index]
        if not names:
            yield UnusedRule(
                path=("powerful", index),
                match=rule.match,
                task=rule.task or "",
                contact=rule.contact or "",
            )
