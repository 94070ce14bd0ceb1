"""Find the edits of fleet.yaml after which each request of a group starts earlier.

The edits are those that the constraints of its requests call for, each tried with a plan: first
those of the first and the last request, then of the requests between them, by halves. A request
is skipped if the edits of an earlier request already help it. All requests share the trial plans.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.edits import REQUEST, Edit
from fleet.explain.unblock import RULE, EditTrial, Remedy, plan_edits, raises, remedy_of, try_edits
from fleet.explain.values import Explanation, Suggestion
from fleet.explain.what_if import PlannedRun, Replans, is_served
from fleet.schema.findings import yaml_key
from fleet.words.waiting import describe_gain, describe_no_gain, describe_price

_MIN_GAIN = timedelta(minutes=1)
"""Minimum time by which an edit must move the start of a request."""
_SURE_GAIN = timedelta(minutes=5)
"""Gain that is always enough; a smaller gain must be a tenth of the wait."""
_ZERO = timedelta()
_MUCH = 4
"""Edits of several keys must gain this many times the gain of edits of fewer keys."""


class Help(NamedTuple):
    """Edits of fleet.yaml, the run after them, and the place in the group of their request."""

    remedy: Remedy
    after: PlannedRun
    nth: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the edited keys, sorted."""
        return _paths_of(self.remedy.edits)

    @property
    def is_guard(self) -> bool:
        """Return whether a guard is edited."""
        return any(path.startswith("guards.") for path in self.paths)


class Helps(NamedTuple):
    """Edits of fleet.yaml that may help a group of requests."""

    found: tuple[Help, ...] = ()
    """Edits of earlier requests are first: their figures are smaller."""
    is_complete: bool = True
    """True if no search stopped because no trial plan was left."""


class _Gain(NamedTuple):
    """A suggestion for a request, with the start that it permits and the time gained."""

    suggestion: Suggestion
    paths: tuple[str, ...]
    start: datetime | None
    gain: timedelta


def find_helps(
    case: Case, keys: Sequence[str], remedies: Sequence[Remedy], replans: Replans
) -> Helps:
    """Return edits for the requests of a group. `remedies` serve its first request."""
    found: list[Help] = []
    for each in remedies:
        after = plan_edits(case, keys[0], each.edits, replans) if each.edits else None
        if after:
            found.append(Help(each, after))
    for nth in _halve(len(keys)):
        if nth and replans.left <= 0:
            replans.is_spent = True
            break
        earlier = [each for each in found if each.nth <= nth] if nth else []
        for trial in _try_more(case, keys[nth], earlier, replans):
            if trial.after.of not in {each.after.of for each in found}:
                remedy = remedy_of(case, keys[nth], trial.edits, trial.after)
                found.append(Help(remedy, trial.after, nth))
    found.sort(key=lambda each: each.nth)
    return Helps(tuple(found), is_complete=not replans.is_spent)


def _try_more(
    case: Case, key: str, earlier: Sequence[Help], replans: Replans
) -> Iterator[EditTrial]:
    """Yield the edits that were tried for a request, if `earlier` edits can be much improved."""
    now = _start(case, key)
    gains = {each.paths: _find_gain(case, key, each) for each in earlier}
    enough = (now - case.world.time) / _MUCH if now else _ZERO
    if now and max(gains.values(), default=_ZERO) >= enough:
        return

    def find(run: PlannedRun, key: str, most: int) -> Iterator[tuple[Edit, ...]]:
        for edits in raises(run, key, most):
            gain = gains.get(_paths_of(edits), _ZERO)
            is_known = gain and (gain >= enough or not edits[1:])
            if not is_known and all(edit.rank < RULE for edit in edits):
                yield edits

    def is_enough(after: PlannedRun) -> bool:
        start = _start(after, key)
        is_gained = now and start and now - start >= enough
        return is_served(after.plan, key) or bool(is_gained)

    yield from try_edits(case, key, replans, find, is_enough)


def _halve(count: int) -> Iterator[int]:
    """Yield the numbers below `count`: the first, the last, then the middle of each part."""
    yield from dict.fromkeys((0, count - 1))
    parts = [(0, count - 1)]
    for low, high in parts:
        middle = (low + high) // 2
        if low < middle:
            yield middle
            parts += [(low, middle), (middle, high)]


def _paths_of(edits: Iterable[Edit]) -> tuple[str, ...]:
    return tuple(sorted(yaml_key(edit.path) for edit in edits))


def _find_gain(case: Case, key: str, each: Help) -> timedelta:
    """Return the time by which edits move the start of a request; zero if it is too little."""
    now, start = _start(case, key), _start(each.after, key)
    return now - start if now and start and _is_gain(case, now, start) else _ZERO


def _is_gain(run: PlannedRun, now: datetime, start: datetime | None) -> bool:
    least = max(_MIN_GAIN, min(_SURE_GAIN, (now - run.world.time) / 10))
    return start is not None and now - start >= least


def _start(run: PlannedRun, key: str) -> datetime | None:
    return run.expected_start(key) or run.assumed_start(key)


def add_gains(case: Case, answer: Explanation, helps: Helps) -> Explanation:
    """Return an explanation with the edits after which the request starts earlier.

    Of several raises of the same keys, only the smallest is shown. Edits of guards are last.
    """
    key, now = answer.name, answer.expected or answer.assumed
    known = {(each.changes, each.asks): each for each in answer.suggestions}
    gained: dict[tuple[bool, int, str, int], _Gain] = {}
    for number, each in enumerate(sorted(helps.found, key=lambda each: len(each.paths))):
        paths, suggestion = each.paths, each.remedy.suggestion
        own = known.get((suggestion.changes, suggestion.asks))
        start = _start(each.after, key)
        if own and own.wait:
            start = own.wait.start or own.wait.until
        if now and not _is_gain(case, now, start):
            continue
        gain = now - start if now and start else _ZERO
        if not own:
            simpler = [
                shown.gain
                for shown in gained.values()
                if shown.paths == paths or len(shown.paths) < len(paths)
            ]
            is_known = simpler and (not paths[1:] or gain < _MUCH * max(simpler))
            if start is None or is_known or REQUEST[0] in paths:
                continue
        brief = describe_gain(each.remedy.describe(case.fleet), start, now)
        brief += describe_price(
            len(suggestion.harms), is_last=suggestion.lifts_limit, is_guard=each.is_guard
        )
        shown = (own or suggestion).altered(brief=brief)
        gained[each.is_guard, len(paths), str(paths), number] = _Gain(shown, paths, start, gain)
    found = [each for each in answer.suggestions if not each.changes and not each.asks]
    every = [gained[rank] for rank in sorted(gained)]
    for number, (shown, _, start, _) in enumerate(every):
        # The page folds an edit if an edit before it has an equally early start.
        before = (each.start for each in every[:number])
        is_minor = any(start and at and at <= start for at in before)
        found.append(shown.altered(is_minor=is_minor))
    steps = answer.next_steps
    if now is not None and not gained:
        tried = {each.paths: each.remedy.describe(case.fleet) for each in helps.found}
        steps = (*steps, describe_no_gain([*tried.values()], is_complete=helps.is_complete))
    return answer.altered(suggestions=tuple(found), next_steps=steps)
