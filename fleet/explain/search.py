"""Search the waits and the edits of fleet.yaml after which a waiting request is served.

A request waits for runs that create machines, for a worker to end its work, or for a time at
which a constraint ends. Each wait, and each set of edits that removes a constraint (`moves`), is
checked by a plan of the later world or the edited fleet.yaml. If the request still waits after
edits, the edits that this plan calls for are added. The number of trial plans is limited.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.edits import (
    REQUEST,
    Edits,
    apply_edits,
    describe_edits,
    is_figure,
    lower_figure,
    size_of_edits,
    value_at,
    write_value,
    write_yaml,
)
from fleet.explain.loosen import hasten, is_refused, moves
from fleet.explain.values import AwaitedEvent, Explanation, KeyChange, Suggestion
from fleet.guard import guard
from fleet.model.decisions import ENDED_BY_RUNS
from fleet.model.facts import World
from fleet.model.plan import Create, Plan, Release
from fleet.model.price_lists import with_price_lists
from fleet.planner.fitting import asked_by
from fleet.planner.forecast import next_pause
from fleet.planner.step import apply_plan, step
from fleet.reconcile import reconcile_unsealed
from fleet.schema.findings import yaml_key
from fleet.schema.model import Fleet
from fleet.schema.units import Money, write_duration, write_time
from fleet.words import answers
from fleet.words.waiting import describe_gain, describe_no_gain, describe_price

MOST_PLANS = 10
"""Maximum number of trial plans for one request, over all suggestions and combinations."""
_WORK = 200
"""Maximum work of all plans for one request: 1 plan with 140 requests in a limited fleet of 10
pools. `fleet explain request` then takes at most 1.5 times as long as `fleet plan`."""
_REQUESTS_EACH = 8
"""Number of waiting requests that take as long to plan as one blocked (requests, pool) pair."""


def edited(fleet: Fleet, world: World, key: str, edits: Edits) -> tuple[Fleet, World]:
    """Return the fleet and world after edits. Edits of REQUEST add tags to the request `key`."""
    queue, _, name = key.partition("/")
    tags = [tag for e in edits if e.path == REQUEST and isinstance(e.new, tuple) for tag in e.new]
    if tags and (demand := dict(world.demands()).get(queue)):
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
        world = world.altered(queues={**world.queues, queue: reading})
    return apply_edits(fleet, (e for e in edits if e.path != REQUEST)), world


def count_plans(plan: Plan) -> int:
    """Return the maximum number of trial plans for the explanation of one request."""
    pairs = sum(len(unserved.blocked) for unserved in plan.unserved)
    waiting = sum(signature.count for signature in plan.signatures)
    return max(1, min(MOST_PLANS, _WORK // (1 + pairs + waiting // _REQUESTS_EACH)))


class Replans:
    """Planner of edited fleets and later worlds, with a limit on the number of trial plans.

    All requests share the plans.
    """

    def __init__(self, most: int = MOST_PLANS) -> None:
        self.total = most
        """Number of trial plans that may still be made for all requests."""
        self.left = most
        """Number of trial plans that may still be made for this request."""
        self.is_spent = False
        """True if a search for this request stopped because no trial plan was left."""
        self._runs: dict[Hashable, Case] = {}

    def begin(self, most: int) -> None:
        """Begin the search for the next request, which may make at most this many plans."""
        self.left, self.is_spent = min(self.total, most), False

    def run(
        self, of: Hashable, change: Callable[[], tuple[Fleet, World]], number: int = 0
    ) -> Case | None:
        """Return a run by its cache key, planned once; None if no trial plan is left."""
        if (number, of) not in self._runs:
            if self.left <= 0:
                self.is_spent = True
                return None
            self.left -= 1
            self.total -= 1
            fleet, world = change()
            plan = guard(fleet, reconcile_unsealed(with_price_lists(fleet, world), world))
            self._runs[number, of] = Case(fleet, world, plan, number, of)
        return self._runs[number, of]

    def run_edited(self, case: Case, key: str, edits: Edits) -> Case | None:
        """Return the run after edits; None if no trial plan is left."""
        is_own = any(edit.path == REQUEST for edit in edits)
        of = key if is_own else "", frozenset((edit.path, repr(edit.new)) for edit in edits)
        return self.run(of, lambda: edited(case.fleet, case.world, key, edits))

    def run_after(self, run: Case) -> Case | None:
        """Return the next run, after this run's machines have booted; None if no plan is left."""
        then = run.world.time + next_pause(run.fleet)
        # Queues have not yet assigned the requests of the new workers.
        return self.run(
            run.of,
            lambda: (run.fleet, apply_plan(run.fleet, run.world, run.plan, then)),
            run.number + 1,
        )


MAX_MOMENTS = 3
"""Maximum number of expiry times of constraints for which a plan is tried."""
MOST_RUNS = 12


def find_waits(run: Case, key: str, replans: Replans) -> Iterator[AwaitedEvent]:
    """Yield waits after which a plan serves the request: for runs, or else for work or time."""
    if wait := wait_for_runs(run, key, replans):
        yield wait
        return
    if replans.left <= 0:
        replans.is_spent = True
        return
    work = _find_work(run, key)
    after = work and _start_after(run, key, work, replans)
    # An attempt after a shortage may fail again, so prefer a known end of work.
    moments = sorted({*_moments(run, key, attempts=after is None)})[:MAX_MOMENTS]
    times = (_start_after(run, key, AwaitedEvent(until=each), replans) for each in moments)
    known = [wait for wait in (after, next(filter(None, times), None)) if wait]
    yield from sorted(known, key=lambda w: (w.until is None, w.until or run.world.time))


def find_first_wait(run: Case, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for runs or for a time after which a request starts earlier than else."""
    if key not in run.unserved:
        return None
    if wait := wait_for_runs(run, key, replans):
        return wait
    start = run.expected_start(key)
    moments = {*_moments(run, key, attempts=start is None)}
    sooner = sorted(each for each in moments if start is None or each < start)[:MAX_MOMENTS]
    times = (_start_after(run, key, AwaitedEvent(until=each), replans) for each in sooner)
    return next(filter(None, times), None)


def wait_for_runs(run: Case, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for the first later run that serves a request; None without such a run."""
    then = _serve_later(run, key, replans)
    if then is None:
        return None
    start, end = then.forecast.start_of(key), then.forecast.end_of(key)
    return AwaitedEvent(runs=then.number, until=then.world.time, start=start, end=end)


def _serve_later(run: Case, key: str, replans: Replans) -> Case | None:
    """Return this or the first later run that serves a request if all machines boot, or None."""
    case: Case | None = run
    released: tuple[Release, ...] = ()
    while case and key not in case.served:
        plan = case.plan
        # The expected world still lists the workers that a run has released.
        is_released = plan.releases not in ((), released)
        changes = case is run or plan.actions or plan.resumes or is_released
        released = plan.releases
        is_hopeful = changes and case.number < MOST_RUNS and _is_eased_by_runs(case, key)
        case = replans.run_after(case) if is_hopeful else None
    return case


def is_throttled(run: Case, key: str) -> bool:
    """Return whether only a throttle withholds the request's machine until a later run."""
    return key in run.unserved and run.unserved[key].path[:2] == ("guards", "throttle")


def _is_eased_by_runs(run: Case, key: str) -> bool:
    """Return whether one of the next runs possibly serves a request without any edit.

    Until then, machines boot or are deleted, or their creation is retried.
    """
    plan, following = run.plan, run.world.time + next_pause(run.fleet)
    unserved = run.unserved.get(key)
    blocked, decisions = (unserved.blocked, unserved.decisions) if unserved else ((), ())
    return (
        any(not isinstance(action, Create) for action in plan.actions)
        or bool(plan.releases or plan.resumes)
        or is_throttled(run, key)
        or any(each.code in ENDED_BY_RUNS for each in decisions)
        or any(each.until and each.until <= following for each in blocked)
    )


def _find_work(run: Case, key: str) -> AwaitedEvent | None:
    """Return the wait for the busy worker that serves a request first; None without such a wait.

    In place of work that ends, a limit on tags or queues admits a request.
    """
    for found, turns in ((run.forecast, run.turns), (run.assumed, run.assumed_turns)):
        turn = turns.get(key)
        if key in found.starts:
            worker, seconds = found.workers[key], found.starts[key]
        elif turn and turn.first and turn.first.end is not None:
            worker, seconds = turn.first.worker, turn.first.end
        else:
            continue
        moment = run.world.time + timedelta(seconds=seconds)
        if found is run.forecast:
            return AwaitedEvent(workers=(worker,), until=moment)
        verdict = run.verdicts.get(worker)
        # With an assumed duration, a machine that does not exist yet is too uncertain.
        is_there = verdict is not None and verdict.state in ("busy", "idle")
        return AwaitedEvent(workers=(worker,), assumed=moment) if is_there else None
    return None


def _moments(run: Case, key: str, *, attempts: bool) -> Iterator[datetime]:
    """Yield the times when a constraint ends or `otherwise` lets the request waive a tag."""
    blocked = run.unserved[key].blocked if key in run.unserved else ()
    yield from (b.until for b in blocked if b.until and (attempts or b.code != "closed"))
    if attempts and run.world.attempts:
        # A stopped image version with more tags may boot again.
        yield from (each.until for each in run.choices.values() if each.until)
    found, signature = run.find(key), run.signatures.get(key)
    since = found[0].pending_since if found else None
    if since is None or signature is None:
        return
    for *_, seconds in run.drops.delays(signature.required):
        if (moment := since + timedelta(seconds=seconds)) > run.world.time:
            yield moment


def _start_after(run: Case, key: str, wait: AwaitedEvent, replans: Replans) -> AwaitedEvent | None:
    """Return a wait, with the start of the request if later; None if no run then serves it.

    A ticket's machine may first have to be deleted, and another created.
    """
    found = run.assumed if wait.assumed else run.forecast
    moment = wait.assumed or wait.until or run.world.time

    def pass_time() -> tuple[Fleet, World]:
        return run.fleet, step(run.fleet, run.world, run.plan, moment, found)

    then = replans.run((run.of, "wait", wait), pass_time)
    served = _serve_later(then, key, replans) if then else None
    if served is None:
        return None
    if wait.assumed:
        return wait  # with an assumed duration, the start is unknown
    start, end = served.forecast.start_of(key), served.forecast.end_of(key)
    is_later = not wait.workers or start != wait.until
    return wait.altered(start=start if is_later else wait.start, end=end)


def describe_wait(fleet: Fleet, wait: AwaitedEvent) -> str:
    """Return a wait as a phrase, such as "wait for the next run, about 12:00 UTC"."""
    when = write_time(wait.until) if wait.until else ""
    if wait.runs:
        runs = "the next run" if wait.runs == 1 else f"{wait.runs} runs"
        return f"wait for {runs}, about {when}: fleet apply every {write_duration(fleet.cadence)}"
    begins = f", then it starts about {write_time(wait.start)}" if wait.start else ""
    if not wait.workers:
        return f"wait until {when}{begins}"
    known = f", expected {when}" if when else ", duration unknown"
    known += f"; assumed: {write_time(wait.assumed)}" if wait.assumed else ""
    return f"wait until a worker is free ({', '.join(wait.workers)}){known}{begins}"


MOST_EDITS = 4
MOST_SHOWN = 4
FEW_PLANS = 2
"""If at most this many trial plans are left, edits are tried before waits."""
_PURPOSEFUL = frozenset({"limits", "budget", "budgets"})
"""Keys of fleet.yaml that limit users, teams and cost on purpose."""


class Remedy(NamedTuple):
    """A suggestion to the user, the edits of fleet.yaml in it, and the run after them."""

    suggestion: Suggestion
    edits: Edits = ()
    after: Case | None = None


def find_remedies(
    run: Case, key: str, replans: Replans, most: int = MOST_SHOWN
) -> tuple[Remedy, ...]:
    """Return the suggestions for a waiting request: waits first, then edits, smallest first.

    If waits help, or `most` sets of edits were found, no further set is searched.
    """
    if key in run.served or key not in run.signatures:
        return ()
    if replans.left <= 0:
        # Each suggestion needs a plan.
        replans.is_spent = True
        return ()
    # The forecast has the expected start without another plan.
    is_few = replans.left <= FEW_PLANS and not is_throttled(run, key)
    found = _find_edits(run, key, replans, most) if is_few else []
    waits = [*find_waits(run, key, replans)]
    if not is_few and sum(bool(wait.until) for wait in waits) < most:
        found = _find_edits(run, key, replans, most)
    described = [Suggestion(sentence=describe_wait(run.fleet, each), wait=each) for each in waits]
    return (*map(Remedy, described), *found)


def _find_edits(run: Case, key: str, replans: Replans, most: int) -> list[Remedy]:
    """Return the smallest sets of edits that serve a request, at most `most`.

    A set also serves the request if then only a throttle withholds its machine for some runs.
    """
    is_patient = not is_throttled(run, key)

    def is_enough(after: Case) -> bool:
        is_later = is_patient and is_throttled(after, key)
        return key in after.served or (is_later and wait_for_runs(after, key, replans) is not None)

    tried = try_edits(run, key, replans, moves, is_enough)
    enough = [*islice((each for each in tried if is_enough(each[1])), most)]
    least = min((len(edits) for edits, _ in enough), default=0)
    found = []
    for each in (each for each in enough if len(each[0]) == least):
        edits, after = _lower_figures(run, key, each, replans, is_enough)
        wait = None if key in after.served else wait_for_runs(after, key, replans)
        found.append(remedy_of(run, key, edits, after, wait))
    return sorted(
        without_greater(found),
        key=lambda each: (each.suggestion.lifts_limit, len(each.suggestion.harms)),
    )


def without_greater(remedies: Sequence[Remedy]) -> list[Remedy]:
    """Return the remedies without those that raise the keys of another one further."""
    return [each for each in remedies if not any(_is_less(other, each) for other in remedies)]


def _is_less(one: Remedy, other: Remedy) -> bool:
    """Return whether a remedy raises the same keys as another, but less, and does no more harm."""
    less, more = (
        {e.path: e.new.amount if isinstance(e.new, Money) else e.new for e in each.edits}
        for each in (one, other)
    )
    if less == more or less.keys() != more.keys():
        return False
    pairs = [(less[path], figure) for path, figure in more.items()]
    return (
        all(
            isinstance(a, int | Decimal) and isinstance(b, int | Decimal) and a <= b
            for a, b in pairs
        )
        and len(one.suggestion.harms) <= len(other.suggestion.harms)
        and (one.suggestion.wait is None or other.suggestion.wait is not None)
    )


def _lower_figures(
    run: Case,
    key: str,
    tried: tuple[Edits, Case],
    replans: Replans,
    is_enough: Callable[[Case], bool],
) -> tuple[Edits, Case]:
    """Return the edits with the lowest figures that are enough, and the run after them.

    A shortfall is calculated without a solver, so it is sometimes a step too high.
    """
    edits, after = tried
    for number in range(len(edits)):
        while replans.left > 0 and (less := lower_figure(run.fleet, edits[number])):
            fewer = (*edits[:number], less, *edits[number + 1 :])
            then = replans.run_edited(run, key, fewer)
            if then is None or not is_enough(then):
                break
            edits, after = fewer, then
    return edits, after


def try_edits(
    run: Case,
    key: str,
    replans: Replans,
    find: Callable[[Case, str, int], Iterable[Edits]],
    is_enough: Callable[[Case], bool],
) -> Iterator[tuple[Edits, Case]]:
    """Yield each set of edits that was tried and the run after it, from the smallest on.

    `find` yields the edits for the constraints in a plan. If a set is not enough, the edits for
    the constraints in the plan after it are added.
    """
    known: set[frozenset[str]] = set()
    heap: list[tuple[bool, tuple[int, int], int, Edits]] = []
    is_few = replans.left <= FEW_PLANS

    def add(edits: Edits, after: Case) -> None:
        old = {edit.path: edit for edit in edits}
        for more in find(after, key, replans.left + 1):
            # More edits raise figures further. Other values cannot be set twice.
            if any(edit.path in old and not is_figure(run.fleet, edit.path) for edit in more):
                continue
            each = tuple((old | {edit.path: edit for edit in more}).values())
            name = frozenset(map(repr, each))
            if each and name not in known:
                known.add(name)
                # With few trial plans, edits that only permit are tried first.
                is_last = is_few and any(edit.rank for edit in each)
                heappush(heap, (is_last, size_of_edits(run.fleet, each), len(known), each))

    add((), run)
    most = MOST_EDITS
    while heap:
        _, (size, _), _, edits = heappop(heap)
        if size > most:
            return
        if is_refused(run.fleet, edits):
            continue
        after = replans.run_edited(run, key, edits)
        if after is None:
            return
        yield edits, after
        if is_enough(after):
            most = size
        else:
            add(edits, after)


def remedy_of(
    run: Case, key: str, edits: Edits, after: Case, wait: AwaitedEvent | None = None
) -> Remedy:
    """Return edits as a suggestion, with their side effects in the run after them."""
    fleet = run.fleet
    harms = tuple(name for name in run.served if name not in after.served)
    # A larger pool that the request does not fit helps, because other requests move there.
    asked = asked_by(fleet, run.signatures[key])
    sizes = [str(edit.path[1]) for edit in edits if edit.path[::2] == ("pools", "workers")]
    freed = [name for name in dict.fromkeys(sizes) if not run.decider.fits(asked, name)]
    lifts_limit = any(not _PURPOSEFUL.isdisjoint(edit.path) for edit in edits)
    sentence = describe_edits(fleet, edits)
    sentence += f", then {describe_wait(fleet, wait)}" if wait else ""
    sentence += answers.explain_freed(freed) if freed else ""
    sentence += answers.name_harmed(harms) if harms else ""
    changes = (
        KeyChange(
            path=edit.path,
            old=write_value(fleet, edit.path, value_at(fleet, edit.path)),
            new=write_value(fleet, edit.path, edit.new),
            yaml=write_yaml(fleet, edit),
        )
        for edit in edits
        if edit.path != REQUEST
    )
    tags = [e.new for e in edits if e.path == REQUEST and isinstance(e.new, tuple)]
    suggestion = Suggestion(
        sentence=sentence + (answers.LAST_CHOICE if lifts_limit else ""),
        changes=tuple(changes),
        asks=sum(tags, ()),
        wait=wait,
        harms=harms,
        lifts_limit=lifts_limit,
    )
    return Remedy(suggestion, edits, after)


_MIN_GAIN = timedelta(minutes=1)
"""Minimum time by which an edit must move the start of a request."""
_SURE_GAIN = timedelta(minutes=5)
"""Gain that is always enough; a smaller gain must be a tenth of the wait."""
_ZERO = timedelta()
_MUCH = 4
"""Edits of several keys must gain this many times the gain of edits of fewer keys."""


class Helps(NamedTuple):
    """Edits of fleet.yaml that may help a group of requests."""

    found: tuple[Remedy, ...] = ()
    """Edits of earlier requests are first: their figures are smaller."""
    is_complete: bool = True
    """True if no search stopped because no trial plan was left."""


def find_helps(
    case: Case, keys: Sequence[str], remedies: Sequence[Remedy], replans: Replans
) -> Helps:
    """Return edits for the requests of a group. `remedies` serve its first request."""
    found = [(0, each) for each in remedies if each.after]
    for nth in _halve(len(keys)):
        key, now = keys[nth], case.likely_start(keys[nth])
        much = (now - case.world.time) / _MUCH if now else timedelta.max

        def gain(after: Case | None, key: str = key, now: datetime | None = now) -> timedelta:
            return _find_gain(case, now, after.likely_start(key) if after else None)

        def is_enough(after: Case, key: str = key, much: timedelta = much) -> bool:
            return gain(after) >= much or key in after.served

        if nth and max((gain(e.after) for n, e in found if n <= nth), default=_ZERO) >= much:
            continue
        if nth and replans.left <= 0:
            replans.is_spent = True
            break
        # Edits are tried until some serve the request or gain much.
        known = {each.after.of for _, each in found if each.after}
        tried = try_edits(case, key, replans, hasten, is_enough)
        more = [remedy_of(case, key, edits, after) for edits, after in tried]
        found += [(nth, each) for each in more if each.after and each.after.of not in known]
    found.sort(key=lambda each: each[0])
    return Helps(tuple(each for _, each in found), is_complete=not replans.is_spent)


def _halve(count: int) -> Iterator[int]:
    """Yield the numbers below `count`: the first, the last, then the middle of each part."""
    yield from dict.fromkeys((0, count - 1))
    parts = [(0, count - 1)]
    for low, high in parts:
        middle = (low + high) // 2
        if low < middle:
            yield middle
            parts += [(low, middle), (middle, high)]


def _find_gain(case: Case, now: datetime | None, start: datetime | None) -> timedelta:
    """Return the time by which edits move a start; zero if it is too little."""
    if now is None or start is None:
        return _ZERO
    least = max(_MIN_GAIN, min(_SURE_GAIN, (now - case.world.time) / 10))
    return now - start if now - start >= least else _ZERO


def add_gains(case: Case, answer: Explanation, helps: Helps, replans: Replans) -> Explanation:
    """Return an explanation with the edits after which the request starts earlier.

    Of several raises of the same keys, only the smallest is shown. Edits of guards are last.
    """
    key, now = answer.name, answer.expected or answer.assumed
    gains: dict[frozenset[str], timedelta] = {}
    found = []
    for each in sorted(helps.found, key=lambda each: len(each.edits)):
        paths = frozenset(yaml_key(edit.path) for edit in each.edits)
        after = each.after
        start = after.likely_start(key) if after else None
        if after and key in after.unserved and (wait := wait_for_runs(after, key, replans)):
            # Only a later run serves it.
            start = min(filter(None, (start, wait.start or wait.until)), default=None)
        gain = _find_gain(case, now, start)
        others = [gains[o] for o in gains if o == paths or len(o) < len(paths)]
        is_better = not others or (len(paths) > 1 and gain >= _MUCH * max(others))
        is_own = each.suggestion in answer.suggestions
        if (now and not gain) or not (is_own or (start and is_better and REQUEST[0] not in paths)):
            continue
        gains.setdefault(paths, gain)
        is_guard = any(path.startswith("guards.") for path in paths)
        harms, is_last = len(each.suggestion.harms), each.suggestion.lifts_limit
        brief = describe_gain(describe_edits(case.fleet, each.edits), start, now)
        brief += describe_price(harms, is_last=is_last, is_guard=is_guard)
        order = is_guard, len(paths), sorted(paths)
        found.append((order, start, each.suggestion.altered(brief=brief)))
    found.sort(key=lambda each: each[0])
    shown = [each for each in answer.suggestions if not each.changes and not each.asks]
    for number, (_, start, suggestion) in enumerate(found):
        # The page folds an edit if an edit before it has an equally early start.
        before = (at for _, at, _ in found[:number])
        is_minor = any(start and at and at <= start for at in before)
        shown.append(suggestion.altered(is_minor=is_minor))
    steps = answer.next_steps
    if now is not None and not found:
        tried = dict.fromkeys(describe_edits(case.fleet, each.edits) for each in helps.found)
        is_complete = helps.is_complete and not replans.is_spent
        steps = (*steps, describe_no_gain("; ".join(tried), is_complete))
    return answer.altered(suggestions=tuple(shown), next_steps=steps)
