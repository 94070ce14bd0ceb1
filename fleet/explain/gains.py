"""Packages that would gain most from a powerful machine, and allow-list rules without builds.

Both come from recorded observations. A build counts once, with the prices and durations of the
last observation and the machines that `OptionFinder.options_for` returns. The gain of a package is
that on the machine that saves most time per additional cost.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal

from pydantic import Field

from fleet.explain.options import OptionFinder, cheapest, request_of
from fleet.explain.reach import MONTH, common_name, package_key
from fleet.explain.recorded_demand import KnownHistory, PastRequest, listed_workers
from fleet.model.facts import PlaceFacts, Request, Unknown, World
from fleet.model.price_lists import with_price_lists
from fleet.model.values import Moment, Rate, Value
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import names_of, tasks_by_name

UNUSED_AFTER = timedelta(days=90)
"""An allow-list rule is reported if no build has matched it for this long."""
_MIN_SPAN = timedelta(days=1)
"""Minimum length of a history whose figures can be scaled to a month."""
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

    @property
    def gained(self) -> int:
        """Return the average number of seconds that a build would save."""
        return self.seconds_here - self.seconds_there

    @property
    def extra(self) -> Decimal:
        """Return the average additional cost of a build."""
        return self.cost_there - self.cost_here


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
    seen = _MomentCounter()
    jobs = [
        job for job in KnownHistory().events(seen.watch(worlds)) if isinstance(job, PastRequest)
    ]
    if seen.first is None or seen.last is None:
        return Unknown(unknown="nothing was recorded in this time")
    builds = [each for job in jobs if job.withdrawn is None for each in seen.named(job)]
    search = _GainSearch(
        with_price_lists(fleet, seen.last), seen.last, seen.last.time - seen.first
    )
    for queue, request in builds:
        search.add(queue, request)
    found = sorted(search.gains(), key=_rank)
    until = seen.last.time
    return Gains(
        fleet=fleet.fleet,
        currency=fleet.money.currency,
        since=seen.first,
        until=until,
        moments=seen.moments,
        unread=seen.unread,
        builds=len(builds),
        allowed=search.allowed,
        not_known=search.not_known,
        packages=tuple(found[:_SHOWN]),
        more=len(found[_SHOWN:]),
        unused=tuple(_find_unused_rules(fleet, seen.tasks(until - UNUSED_AFTER), until.date())),
        is_long_enough=until - seen.first >= UNUSED_AFTER,
    )


@dataclass
class _MomentCounter:
    """Counter of the recorded observations, and collector of the build names in them."""

    first: Moment | None = None
    last: World | None = None
    moments: int = 0
    unread: int = 0
    _latest: dict[tuple[str, str], Moment] = field(default_factory=dict)
    """(Name, task) of a build to the time of the last observation that contains the build."""
    _running: dict[str, Request] = field(default_factory=dict)

    def watch(self, worlds: Iterable[World]) -> Iterator[World]:
        """Yield the observations unchanged. Count them and collect the names of their builds."""
        for world in worlds:
            self.first = self.first or world.time
            self.last = world
            self.moments += 1
            self.unread += any(isinstance(q.demand, Unknown) for q in world.queues.values())
            self._see(world)
            yield world

    def named(self, job: PastRequest) -> Iterator[tuple[str, Request]]:
        """Yield the queue and request of a recorded build, or nothing if the build has no name."""
        request = job.request
        if not names_of(request):
            request = self._running.get(job.key, request)
        if request.expected_seconds is None and job.seconds:
            request = request.altered(expected_seconds=job.seconds)
        if names_of(request):
            yield job.queue, request

    def tasks(self, since: Moment) -> dict[str, frozenset[str]]:
        """Map each build name seen since this time to the tasks of its builds."""
        return tasks_by_name(about for about, at in self._latest.items() if at >= since)

    def _see(self, world: World) -> None:
        for _, demand in world.demands():
            for request in demand.requests:
                for name in names_of(request):
                    self._latest[name, request.task] = world.time
        for queue, worker in listed_workers(world):
            running = request_of(worker)
            if running is None or worker.work is None:
                continue
            self._running[f"{queue}/{running.id}" if queue else running.id] = running
            for name in worker.work.names:
                self._latest[name, running.task] = world.time


@dataclass
class _BuildSums:
    """Sums of durations and costs over the builds of a package, on one powerful machine type."""

    builds: int = 0
    seconds_here: int = 0
    seconds_there: int = 0
    cost_here: Decimal = Decimal(0)
    cost_there: Decimal = Decimal(0)
    names: Counter[str] = field(default_factory=Counter)
    rules: dict[str, str] = field(default_factory=dict)


_PackageKey = tuple[str, str, object]
"""Queue, task, and the parts of a build name that identify the package."""


class _GainSearch:
    """Collector of the durations and costs of builds on ordinary and on powerful machines."""

    def __init__(self, fleet: Fleet, world: World, span: timedelta) -> None:
        self._fleet = fleet
        self._span = span
        self._given = {tag for rule in fleet.powerful for tag in rule.ask}
        self._rules = AllowList(fleet, world.time.date())
        self._finder = OptionFinder(fleet, world)
        self._found: defaultdict[_PackageKey, defaultdict[tuple[str, str], _BuildSums]] = (
            defaultdict(lambda: defaultdict(_BuildSums))
        )
        self.allowed = 0
        self.not_known = 0

    def add(self, queue: str, request: Request) -> None:
        """Add a build to the sums, unless an allow-list rule already matches the build."""
        if self._rules.rules_for(request) or self._given & set(request.required):
            self.allowed += 1
            return
        options = self._finder.options_for(queue, request)
        here, opened = cheapest(options), [each for each in options if each.asks]
        known = [each for each in opened if each.cost is not None and not each.is_late]
        if here is None or not known:
            self.not_known += here is None or bool(opened)
            return
        name = names_of(request)[0]
        about = (queue, request.task, package_key(name))
        for there in known:
            self._add(self._found[about][there.pool, there.type], request, here, there)

    def _add(
        self, sums: _BuildSums, request: Request, here: PlaceFacts, there: PlaceFacts
    ) -> None:
        name = names_of(request)[0]
        sums.builds += 1
        sums.seconds_here += here.seconds or 0
        sums.seconds_there += there.seconds or 0
        sums.cost_here += here.cost or Decimal(0)
        sums.cost_there += there.cost or Decimal(0)
        sums.names[name] += 1
        sums.rules[name] = there.rule

    def gains(self) -> Iterator[Gain]:
        """Yield each package that gains time, on the machine that saves most time per cost."""
        for (queue, task, _), places in self._found.items():
            found = [self._gain(queue, task, *each) for each in places.items()]
            gaining = [each for each in found if each.gained > 0]
            if gaining:
                yield min(gaining, key=_rank)

    def _gain(self, queue: str, task: str, place: tuple[str, str], sums: _BuildSums) -> Gain:
        gained = sums.seconds_here - sums.seconds_there
        extra = sums.cost_there - sums.cost_here
        pool, kind = place
        frequent = min(sums.names, key=lambda name: (-sums.names[name], name))
        known_month = self._span >= _MIN_SPAN
        return Gain(
            name=common_name(set(sums.names)),
            task=task,
            queue=queue,
            builds=sums.builds,
            month=round(sums.builds * (MONTH / self._span), 1) if known_month else None,
            pool=pool,
            type=kind,
            seconds_here=round(sums.seconds_here / sums.builds),
            seconds_there=round(sums.seconds_there / sums.builds),
            cost_here=sums.cost_here / sums.builds,
            cost_there=sums.cost_there / sums.builds,
            gain_per_money=round(gained / extra) if extra > 0 else None,
            rule=sums.rules[frequent],
        )


def _rank(gain: Gain) -> tuple[float, int, str, str, str]:
    """Return a sort key: gains without additional cost first, then most time saved per cost."""
    per_money = float("inf") if gain.gain_per_money is None else gain.gain_per_money
    return (-per_money, -gain.gained * gain.builds, gain.name, gain.task, gain.pool)


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
