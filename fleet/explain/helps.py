"""Find the edits of fleet.yaml after which each request of a group starts earlier.

A search serves the first request of the group. If its edits do not help the others, their figures
grow exponentially until they do, and are lowered by bisection. For requests that no higher figure
helps, another search raises several limits together. All requests share the trial plans.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from math import ceil
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.unblock import (
    ALLOW,
    Remedy,
    find_fewest,
    find_single_edits,
    plan_edits,
    remedy_of,
)
from fleet.explain.values import Explanation, Suggestion
from fleet.explain.what_if import MOST_PLANS, REQUEST, PlannedRun, Replans
from fleet.schema.findings import yaml_key
from fleet.words.waiting import describe_gain, describe_no_gain, describe_price

_MIN_GAIN = timedelta(minutes=1)
"""Minimum time by which an edit must move the start of a request."""
_SURE_GAIN = timedelta(minutes=5)
"""Gain that is always enough; a smaller gain must be a tenth of the wait."""
_MUCH = 4
"""A combination of edits must gain this many times the gain of the other edits."""
_MAX_STEPS = 9_000
"""Maximum steps of a raise, so that a percentage keeps 4 digits."""
_Run = tuple[Remedy, PlannedRun]
"""Edits of fleet.yaml, and the run after them."""


class Helps(NamedTuple):
    """Edits of fleet.yaml that may help a group of requests, each with the run after it."""

    runs: tuple[_Run, ...]
    """Smaller figures of the same keys are first."""
    is_complete: bool
    """True if no search stopped because no trial plan was left."""
    combined: tuple[_Run, ...] = ()
    """Several edits that together have a larger gain for requests at a limit."""

    def gain(self, key: str, now: datetime) -> timedelta:
        """Return the largest gain of a request after the edits, without the combined ones."""
        starts = (_start(after, key) for _, after in self.runs)
        return now - min([now, *filter(None, starts)])


def find_helps(case: Case, key: str, remedies: Sequence[Remedy], replans: Replans) -> Helps:
    """Return the edits that serve the first request of a group, and further single edits."""
    known = {edit.path for each in remedies for edit in each.edits}
    singles = find_single_edits(case, key, replans)
    others = (each for each in singles if each.edits[0].path not in known)
    every = [each.edits for each in (*remedies, *others) if each.edits]
    runs = ((edits, plan_edits(case, key, edits, replans)) for edits in every)
    found = tuple((remedy_of(case, edits, after), after) for edits, after in runs if after)
    return Helps(found, is_complete=not replans.is_spent)


def extend_helps(
    case: Case, answers: Sequence[Explanation], helps: Helps, replans: Replans
) -> Helps:
    """Return also edits for the requests of a group that the known edits do not help."""
    climbs: list[_Climb] = []
    runs = [*helps.runs]
    for first in helps.runs:
        is_raise = all(edit.steps and edit.rank == ALLOW for edit in first[0].edits)
        if is_raise and find_slow(answers, runs):
            climbs.append(_Climb(case, first, _starts_now(answers), replans))
            runs += climbs[-1].grow()
    together: list[_Run] = []
    with replans.share(MOST_PLANS) as given:
        for key in find_slow(answers, runs)[-1:]:
            for remedy in find_fewest(case, key, given, patient=False):
                then = plan_edits(case, key, remedy.edits, given)
                together += [(remedy, then)] if then else []
    is_complete = helps.is_complete and not (given.is_spent or replans.is_spent)
    higher = chain.from_iterable(climb.lower() for climb in climbs)
    return Helps((*helps.runs, *higher, *together), is_complete)


def combine_edits(
    case: Case, answers: Sequence[Explanation], helps: Helps, replans: Replans
) -> Helps:
    """Return also several edits for the first request at a limit that the others help little."""
    weak = (
        key
        for key, now in _starts_now(answers).items()
        if key in case.turns
        and helps.runs
        and helps.gain(key, now) * _MUCH < now - case.world.time
    )
    found: list[_Run] = []
    with replans.share(MOST_PLANS, most_shown=1) as given:
        for remedy in (each for key in islice(weak, 1) for each in find_fewest(case, key, given)):
            after = plan_edits(case, "", edits := remedy.edits, given)
            if after and edits[1:] and all(edit.steps and edit.rank == ALLOW for edit in edits):
                found.append((remedy_of(case, edits, after), after))
    return helps._replace(combined=tuple(found))


def find_slow(answers: Sequence[Explanation], runs: Sequence[_Run]) -> list[str]:
    """Return the requests with a start that start earlier in no run."""
    return [
        key
        for key, now in _starts_now(answers).items()
        if not any(_helps(after, key, now) for _, after in runs)
    ]


def _starts_now(answers: Sequence[Explanation]) -> dict[str, datetime]:
    starts = ((each.name, each.expected or each.assumed) for each in answers)
    return {key: start for key, start in starts if start}


def _helps(run: PlannedRun, key: str, now: datetime) -> bool:
    return _is_gain(run, now, _start(run, key))


def _is_gain(run: PlannedRun, now: datetime, start: datetime | None) -> bool:
    least = max(_MIN_GAIN, min(_SURE_GAIN, (now - run.world.time) / 10))
    return start is not None and now - start >= least


def _start(run: PlannedRun, key: str) -> datetime | None:
    return run.expected_start(key) or run.assumed_start(key)


class _Climb:
    """Multiples of a raise, each tried with a plan, for requests with a start."""

    def __init__(
        self, case: Case, first: _Run, starts: Mapping[str, datetime], replans: Replans
    ) -> None:
        self._case, self._starts, self._replans = case, starts, replans
        self._runs = {1: first}

    def grow(self) -> Sequence[_Run]:
        """Return raises until each request starts earlier.

        Stop if a higher raise changes no start, because another limit then holds the requests.
        """
        slow, known = self._starts, dict[str, datetime | None](self._starts)
        # With half of the trial plans, the last factor is enough for a machine per request.
        growth = max(2, ceil(len(slow) ** (2 / max(2, self._replans.left))))
        steps = max(edit.steps for edit in self._runs[1][0].edits)
        factor, most = 1, min(growth * len(slow), _MAX_STEPS // steps)
        while slow and factor <= most and (after := self._attempt(factor)):
            then = {key: _start(after, key) for key in self._starts}
            if then == known:
                break
            slow = {key: now for key, now in slow.items() if not _is_gain(after, now, then[key])}
            factor, known = factor * growth, then
        return self._higher()

    def lower(self) -> Sequence[_Run]:
        """Return all raises that were tried until the smallest that helps each request."""
        for key, now in self._starts.items():
            helpful = (n for n, (_, run) in sorted(self._runs.items()) if _helps(run, key, now))
            high = next(helpful, 1)
            low = max((factor for factor in self._runs if factor < high), default=high)
            while high - low > 1 and (after := self._attempt(middle := (low + high) // 2)):
                low, high = (low, middle) if _helps(after, key, now) else (middle, high)
        return self._higher()

    def _attempt(self, factor: int) -> PlannedRun | None:
        """Return the run after a multiple of the raise; None if no trial plan is left."""
        if factor not in self._runs and self._replans.left:
            edits = tuple(e.turned(e.steps * factor) for e in self._runs[1][0].edits)
            if after := plan_edits(self._case, "", edits, self._replans):
                self._runs[factor] = remedy_of(self._case, edits, after), after
        return self._runs[factor][1] if factor in self._runs else None

    def _higher(self) -> Sequence[_Run]:
        return [self._runs[factor] for factor in sorted(self._runs) if factor > 1]


def add_gains(case: Case, answer: Explanation, helps: Helps) -> Explanation:
    """Return an explanation with the edits after which the request starts earlier.

    Of several raises of the same keys, only the smallest is shown. Edits of guards are last.
    """
    key, now = answer.name, answer.expected or answer.assumed
    known = {(each.changes, each.asks): each for each in answer.suggestions}
    gained: dict[tuple[bool, int, str, bool], tuple[Suggestion, datetime | None]] = {}
    combined = [
        (remedy, after)
        for remedy, after in helps.combined
        if now and now - (_start(after, key) or now) >= helps.gain(key, now) * _MUCH
    ]
    for remedy, after in (*helps.runs, *combined):
        own = known.get((remedy.suggestion.changes, remedy.suggestion.asks))
        start, paths = _start(after, key), sorted(yaml_key(edit.path) for edit in remedy.edits)
        is_guard = any(path.startswith("guards.") for path in paths)
        rank = is_guard, len(paths), str(paths), any(after is each for _, each in combined)
        if own and own.wait:
            start = own.wait.start or own.wait.until
        elif not own and (REQUEST[0] in paths or rank in gained):
            continue
        if (start is None and not own) or (now and not _is_gain(after, now, start)):
            continue
        each = own or remedy.suggestion
        brief = describe_gain(remedy.describe(case.fleet), start, now)
        brief += describe_price(len(each.harms), is_last=each.lifts_limit, is_guard=is_guard)
        gained[rank] = each.altered(brief=brief), start
    found = [each for each in answer.suggestions if not each.changes and not each.asks]
    every = [gained[rank] for rank in sorted(gained)]
    for number, (each, start) in enumerate(every):
        # The page folds an edit if an edit before it has an equally early start.
        is_minor = any(start and at and at <= start for _, at in every[:number])
        found.append(each.altered(is_minor=is_minor))
    steps = answer.next_steps
    if now is not None and not gained:
        tried = {frozenset(edit.path for edit in each.edits): each for each, _ in helps.runs}
        said = [each.describe(case.fleet) for each in tried.values()]
        steps = (*steps, describe_no_gain(said, is_complete=helps.is_complete))
    return answer.altered(suggestions=tuple(found), next_steps=steps)
