"""Suggest edits of fleet.yaml, or waits, after which a waiting request is served.

Each set of edits that removes a constraint (`moves`) is checked by a plan of the edited
fleet.yaml. If the request still waits, the edits that this plan calls for are added.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.edits import (
    REQUEST,
    Edits,
    describe_edits,
    is_figure,
    lower_figure,
    size_of_edits,
    value_at,
    write_value,
    write_yaml,
)
from fleet.explain.loosen import is_refused, moves
from fleet.explain.values import AwaitedEvent, KeyChange, Suggestion
from fleet.explain.waits import describe_wait, find_waits, is_throttled, wait_for_runs
from fleet.explain.what_if import Replans, is_served, served_by
from fleet.planner.fitting import asked_by
from fleet.schema.units import Money
from fleet.words import answers

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
    if is_served(run.plan, key) or key not in run.signatures:
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
        return is_served(after.plan, key) or (
            is_later and wait_for_runs(after, key, replans) is not None
        )

    tried = try_edits(run, key, replans, moves, is_enough)
    enough = [*islice((each for each in tried if is_enough(each[1])), most)]
    least = min((len(edits) for edits, _ in enough), default=0)
    found = []
    for each in (each for each in enough if len(each[0]) == least):
        edits, after = _lower_figures(run, key, each, replans, is_enough)
        wait = None if is_served(after.plan, key) else wait_for_runs(after, key, replans)
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
        for more in find(after, key, replans.left + 1):
            each = _join_edits(run, edits, more)
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


def _join_edits(run: Case, edits: Edits, more: Edits) -> Edits:
    """Return the union of edits and more edits, which raise the figures further.

    Empty if both set the same key and its value is not a figure.
    """
    found = {edit.path: edit for edit in edits}
    if any(edit.path in found and not is_figure(run.fleet, edit.path) for edit in more):
        return ()
    return tuple((found | {edit.path: edit for edit in more}).values())


def remedy_of(
    run: Case, key: str, edits: Edits, after: Case, wait: AwaitedEvent | None = None
) -> Remedy:
    """Return edits as a suggestion, with their side effects in the run after them."""
    fleet = run.fleet
    before = (name for signature in run.plan.signatures for name in served_by(signature))
    harms = tuple(name for name in before if name not in after.served)
    # A larger pool that the request does not fit helps, because other requests move there.
    asked = asked_by(fleet, run.signatures[key])
    sizes = [str(edit.path[1]) for edit in edits if edit.path[::2] == ("pools", "workers")]
    freed = [name for name in dict.fromkeys(sizes) if not run.decider.fits(asked, name)]
    lifts_limit = any(not _PURPOSEFUL.isdisjoint(edit.path) for edit in edits)
    sentence = describe_edits(fleet, edits)
    sentence += f", then {describe_wait(fleet, wait)}" if wait else ""
    sentence += answers.FREED(pools=freed) if freed else ""
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
