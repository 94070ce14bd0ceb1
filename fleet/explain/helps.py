"""Find the edits of fleet.yaml after which each request of a group starts earlier.

The edits are those that the constraints of its requests call for, each tried with a plan: first
those of the first and the last request, then of the requests between them, by halves. A request
is skipped if the edits of an earlier request already help it. All requests share the trial plans.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.edits import REQUEST
from fleet.explain.loosen import RULE, Edits, raises
from fleet.explain.unblock import Remedy, remedy_of, try_edits
from fleet.explain.values import Explanation
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
        if nth and replans.left <= 0:
            replans.is_spent = True
            break
        earlier = [each for number, each in found if number <= nth] if nth else []
        for each in _try_more(case, keys[nth], earlier, replans):
            if each.after and each.after.of not in {e.after.of for _, e in found if e.after}:
                found.append((nth, each))
    found.sort(key=lambda each: each[0])
    return Helps(tuple(each for _, each in found), is_complete=not replans.is_spent)


def _try_more(
    case: Case, key: str, earlier: Sequence[Remedy], replans: Replans
) -> Iterator[Remedy]:
    """Yield the edits that were tried for a request, if `earlier` edits can be much improved."""
    now = _find_start(case, key)
    gains = {_name_keys(each.edits): _find_gain(case, key, each) for each in earlier}
    enough = (now - case.world.time) / _MUCH if now else _ZERO
    if now and max(gains.values(), default=_ZERO) >= enough:
        return

    def find(run: Case, key: str, most: int) -> Iterator[Edits]:
        for edits in raises(run, key, most):
            gain = gains.get(_name_keys(edits), _ZERO)
            is_known = gain and (gain >= enough or not edits[1:])
            if not is_known and all(edit.rank < RULE for edit in edits):
                yield edits

    def is_enough(after: Case) -> bool:
        start = _find_start(after, key)
        return is_served(after.plan, key) or bool(now and start and now - start >= enough)

    for edits, after, _ in try_edits(case, key, replans, find, is_enough):
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


def _name_keys(edits: Edits) -> tuple[str, ...]:
    """Return the edited keys, sorted."""
    return tuple(sorted(yaml_key(edit.path) for edit in edits))


def _find_gain(case: Case, key: str, each: Remedy) -> timedelta:
    """Return the time by which edits move the start of a request; zero if it is too little."""
    now, start = _find_start(case, key), _find_start(each.after or case, key)
    return now - start if now and start and _is_gain(case, now, start) else _ZERO


def _is_gain(run: Case, now: datetime, start: datetime | None) -> bool:
    least = max(_MIN_GAIN, min(_SURE_GAIN, (now - run.world.time) / 10))
    return start is not None and now - start >= least


def _find_start(run: Case, key: str) -> datetime | None:
    return run.expected_start(key) or run.assumed_start(key)


def add_gains(case: Case, answer: Explanation, helps: Helps) -> Explanation:
    """Return an explanation with the edits after which the request starts earlier.

    Of several raises of the same keys, only the smallest is shown. Edits of guards are last.
    """
    key, now = answer.name, answer.expected or answer.assumed
    known = {(each.changes, each.asks): each for each in answer.suggestions}
    gains: dict[tuple[str, ...], timedelta] = {}
    found = []
    for each in sorted(helps.found, key=lambda each: len(each.edits)):
        paths, suggestion = _name_keys(each.edits), each.suggestion
        own = known.get((suggestion.changes, suggestion.asks))
        start = _find_start(each.after or case, key)
        if own and own.wait:
            start = own.wait.start or own.wait.until
        if now and not _is_gain(case, now, start):
            continue
        gain = now - start if now and start else _ZERO
        if not own:
            simpler = [
                known_gain
                for other, known_gain in gains.items()
                if other == paths or len(other) < len(paths)
            ]
            is_known = simpler and (not paths[1:] or gain < _MUCH * max(simpler))
            if start is None or is_known or REQUEST[0] in paths:
                continue
        gains.setdefault(paths, gain)
        is_guard = any(path.startswith("guards.") for path in paths)
        brief = describe_gain(each.phrase, start, now) + describe_price(
            len(suggestion.harms), is_last=suggestion.lifts_limit, is_guard=is_guard
        )
        order = is_guard, len(paths), paths
        found.append((order, start, (own or suggestion).altered(brief=brief)))
    found.sort(key=lambda each: each[0])
    shown = [each for each in answer.suggestions if not each.changes and not each.asks]
    for number, (_, start, suggestion) in enumerate(found):
        # The page folds an edit if an edit before it has an equally early start.
        before = (at for _, at, _ in found[:number])
        is_minor = any(start and at and at <= start for at in before)
        shown.append(suggestion.altered(is_minor=is_minor))
    steps = answer.next_steps
    if now is not None and not found:
        tried = {_name_keys(each.edits): each.phrase for each in helps.found}
        steps = (*steps, describe_no_gain([*tried.values()], is_complete=helps.is_complete))
    return answer.altered(suggestions=tuple(shown), next_steps=steps)
