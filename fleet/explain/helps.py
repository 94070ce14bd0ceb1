"""Find the edits of fleet.yaml after which each request of a group starts earlier.

The edits are those that the constraints of its requests call for, each tried with a plan: first
those of the first and the last request, then of the requests between them, by halves. A request
is skipped if the edits of an earlier request already help it. All requests share the trial plans.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.edits import REQUEST, describe_edits
from fleet.explain.loosen import hasten
from fleet.explain.unblock import Remedy, remedy_of, try_edits
from fleet.explain.values import Explanation
from fleet.explain.waits import wait_for_runs
from fleet.explain.what_if import Replans, is_served
from fleet.schema.findings import yaml_key
from fleet.words.waiting import describe_gain, describe_no_gain, describe_price

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
        key, now = keys[nth], _find_start(case, keys[nth])
        gains = [
            _find_gain(case, now, _find_start(each.after, key)) for n, each in found if n <= nth
        ]
        if nth and now and max(gains, default=_ZERO) >= (now - case.world.time) / _MUCH:
            continue
        if nth and replans.left <= 0:
            replans.is_spent = True
            break
        tried = {each.after.of for _, each in found if each.after}
        more = _try_to_hasten(case, key, now, replans)
        found += [(nth, each) for each in more if each.after and each.after.of not in tried]
    found.sort(key=lambda each: each[0])
    return Helps(tuple(each for _, each in found), is_complete=not replans.is_spent)


def _try_to_hasten(
    case: Case, key: str, now: datetime | None, replans: Replans
) -> Iterator[Remedy]:
    """Yield the edits that were tried for a request, until one serves it or gains much."""

    def is_enough(after: Case) -> bool:
        gain = _find_gain(case, now, _find_start(after, key))
        is_much = now is not None and gain >= (now - case.world.time) / _MUCH
        return is_much or is_served(after.plan, key)

    for edits, after in try_edits(case, key, replans, hasten, is_enough):
        yield remedy_of(case, key, edits, after)


def _halve(count: int) -> Iterator[int]:
    """Yield the numbers below `count`: the first, the last, then the middle of each part."""
    yield from dict.fromkeys((0, count - 1))
    parts = [(0, count - 1)]
    for low, high in parts:
        middle = (low + high) // 2
        if low < middle:
            yield middle
            parts += [(low, middle), (middle, high)]


def _find_start(run: Case | None, key: str) -> datetime | None:
    return (run.expected_start(key) or run.assumed_start(key)) if run else None


def _find_gain(case: Case, now: datetime | None, start: datetime | None) -> timedelta:
    """Return the time by which edits move a start; zero if it is too little."""
    if now is None or start is None:
        return _ZERO
    least = max(_MIN_GAIN, min(_SURE_GAIN, (now - case.world.time) / 10))
    return now - start if now - start >= least else _ZERO


def _find_start_by_runs(run: Case | None, key: str, replans: Replans) -> datetime | None:
    """Return the start of a request, even if only a later run serves it."""
    start = _find_start(run, key)
    wait = wait_for_runs(run, key, replans) if run and key in run.unserved else None
    later = (wait.start or wait.until) if wait else None
    return min(start, later) if start and later else start or later


def add_gains(case: Case, answer: Explanation, helps: Helps, replans: Replans) -> Explanation:
    """Return an explanation with the edits after which the request starts earlier.

    Of several raises of the same keys, only the smallest is shown. Edits of guards are last.
    """
    key, now = answer.name, answer.expected or answer.assumed
    gains: dict[frozenset[str], timedelta] = {}
    found = []
    for each in sorted(helps.found, key=lambda each: len(each.edits)):
        paths = frozenset(yaml_key(edit.path) for edit in each.edits)
        start = _find_start_by_runs(each.after, key, replans)
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
        steps = (*steps, describe_no_gain([*tried], is_complete=is_complete))
    return answer.altered(suggestions=tuple(shown), next_steps=steps)
