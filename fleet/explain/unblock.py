"""Suggest edits of fleet.yaml, or waits, after which a waiting request is served.

Each set of edits that removes a constraint (`moves`) is checked by a plan of the edited
fleet.yaml. If the request still waits, the edits that this plan calls for are added. At most
`MOST_PLANS` plans are made.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.edits import (
    REQUEST,
    Edit,
    lower_figure,
    size_of_edits,
    value_at,
    write_value,
    write_yaml,
)
from fleet.explain.loosen import APPROVE, EXPIRY, MOST_EDITS, Edits, is_refused, moves
from fleet.explain.values import AwaitedEvent, KeyChange, Suggestion
from fleet.explain.waits import describe_wait, find_waits, is_throttled, wait_for_runs
from fleet.explain.what_if import Replans, edited, is_served, served_by
from fleet.planner.fitting import asked_by
from fleet.schema.findings import Path, yaml_key
from fleet.schema.model import Fleet, Money
from fleet.words import answers

FEW_PLANS = 2
"""If at most this many trial plans are left, edits are tried before waits."""
_NAMED = 3
_PURPOSEFUL = frozenset({"limits", "budget", "budgets"})
"""Keys of fleet.yaml that limit users, teams and cost on purpose."""


@dataclass(frozen=True)
class Remedy:
    """A suggestion to the user, the edits of fleet.yaml in it, and the run after them."""

    suggestion: Suggestion
    edits: Edits = ()
    after: Case | None = None
    phrase: str = ""
    """The edits as a phrase, without their side effects."""


class EditTrial(NamedTuple):
    """A set of edits that was tried, with the run after it."""

    edits: Edits
    after: Case
    is_enough: bool


def find_remedies(run: Case, key: str, replans: Replans) -> tuple[Remedy, ...]:
    """Return the suggestions for a waiting request: waits first, then edits, smallest first."""
    if is_served(run.plan, key) or key not in run.signatures:
        return ()
    if replans.left <= 0:
        # Each suggestion needs a plan.
        replans.is_spent = True
        return ()
    # The forecast has the expected start without another plan.
    is_few = replans.left <= FEW_PLANS and not is_throttled(run, key)
    found = _find_edits(run, key, replans) if is_few else []
    waits = [*find_waits(run, key, replans)]
    if not is_few and sum(bool(wait.until) for wait in waits) < replans.most_shown:
        found = _find_edits(run, key, replans)
    described = [Suggestion(sentence=describe_wait(run.fleet, each), wait=each) for each in waits]
    return (*map(Remedy, described), *found)


def _find_edits(run: Case, key: str, replans: Replans) -> list[Remedy]:
    """Return the smallest sets of edits that serve a request, at most `replans.most_shown`.

    A set also serves the request if then only a throttle withholds its machine for some runs.
    """
    is_patient = not is_throttled(run, key)

    def is_enough(after: Case) -> bool:
        is_later = is_patient and is_throttled(after, key)
        return is_served(after.plan, key) or (
            is_later and wait_for_runs(after, key, replans) is not None
        )

    tried = try_edits(run, key, replans, moves, is_enough)
    found = [*islice((each for each in tried if each.is_enough), replans.most_shown)]
    least = min((len(each.edits) for each in found), default=0)
    remedies = []
    for each in (each for each in found if len(each.edits) == least):
        trial = each
        # A shortfall is calculated without a solver, so it is sometimes a step too high.
        for number in range(least):
            while replans.left > 0 and (less := lower_figure(run.fleet, trial.edits[number])):
                fewer = (*trial.edits[:number], less, *trial.edits[number + 1 :])
                then = plan_edits(run, key, fewer, replans)
                if then is None or not is_enough(then):
                    break
                trial = EditTrial(fewer, then, is_enough=True)
        is_now = is_served(trial.after.plan, key)
        wait = None if is_now else wait_for_runs(trial.after, key, replans)
        remedies.append(remedy_of(run, key, trial.edits, trial.after, wait))
    return sorted(
        remedies, key=lambda each: (each.suggestion.lifts_limit, len(each.suggestion.harms))
    )


def try_edits(
    run: Case,
    key: str,
    replans: Replans,
    find: Callable[[Case, str, int], Iterable[Edits]],
    is_enough: Callable[[Case], bool],
) -> Iterator[EditTrial]:
    """Yield the sets of edits that were tried, from the smallest on, until some are enough.

    `find` yields the edits for the constraints in a plan. If a set is not enough, the edits for
    the constraints in the plan after it are added.
    """
    known: set[frozenset[tuple[Path, str]]] = set()
    heap: list[tuple[bool, tuple[int, int], int, Edits]] = []
    is_few = replans.left <= FEW_PLANS

    def add(edits: Edits, after: Case) -> None:
        for more in find(after, key, replans.left + 1):
            each = _join_edits(edits, more)
            if each and (name := _name_edits(each)) not in known:
                known.add(name)
                # With few trial plans, edits that only permit are tried first.
                is_last = is_few and any(edit.rank for edit in each)
                heappush(heap, (is_last, size_of_edits(each), len(known), each))

    add((), run)
    most = MOST_EDITS
    while heap:
        _, size, _, edits = heappop(heap)
        if size[0] > most:
            return
        if is_refused(run.fleet, edits):
            continue
        after = plan_edits(run, key, edits, replans)
        if after is None:
            return
        trial = EditTrial(edits, after, is_enough(after))
        yield trial
        if trial.is_enough:
            most = size[0]
        else:
            add(edits, after)


def plan_edits(run: Case, key: str, edits: Edits, replans: Replans) -> Case | None:
    """Return the run after edits, possibly cached; None at the limit of plans."""
    of = key if any(edit.path == REQUEST for edit in edits) else "", _name_edits(edits)
    return replans.run(of, lambda: edited(run.fleet, run.world, key, edits))


def _join_edits(edits: Edits, more: Edits) -> Edits:
    """Return the union of edits and more edits, which raise the figures further.

    Empty if both set the same key and its value is not a figure.
    """
    found = {edit.path: edit for edit in edits}
    if any(edit.path in found and not _is_raise(edit) for edit in more):
        return ()
    return tuple((found | {edit.path: edit for edit in more}).values())


def _is_raise(edit: Edit) -> bool:
    return isinstance(edit.new, int | Money) and not isinstance(edit.new, bool)


def _name_edits(edits: Edits) -> frozenset[tuple[Path, str]]:
    """Return a hashable key of a set of edits, independent of the order of the edits."""
    return frozenset((edit.path, repr(edit.new)) for edit in edits)


def remedy_of(
    run: Case, key: str, edits: Edits, after: Case, wait: AwaitedEvent | None = None
) -> Remedy:
    """Return edits as a suggestion, with their side effects in the run after them."""
    fleet = run.fleet
    still = {name for signature in after.plan.signatures for name in served_by(signature)}
    before = (name for signature in run.plan.signatures for name in served_by(signature))
    harms = tuple(name for name in before if name not in still)
    phrase = ", and ".join(describe(fleet, edit) for edit in edits)
    # A larger pool that the request does not fit helps, because other requests move there.
    asked = asked_by(fleet, run.signatures[key])
    sizes = [str(edit.path[1]) for edit in edits if edit.path[::2] == ("pools", "workers")]
    freed = [name for name in dict.fromkeys(sizes) if not run.decider.fits(asked, name)]
    lifts_limit = any(not _PURPOSEFUL.isdisjoint(edit.path) for edit in edits)
    sentence = phrase + (f", then {describe_wait(fleet, wait)}" if wait else "")
    sentence += answers.explain_freed(freed) if freed else ""
    if harms:
        many = f"{len(harms)} requests that are" if len(harms) > 1 else "1 request that is"
        sentence += f" (but {many} served now would wait: {', '.join(harms[:_NAMED])})"
    suggestion = Suggestion(
        sentence=sentence + (answers.LAST_CHOICE if lifts_limit else ""),
        changes=tuple(
            KeyChange(
                path=edit.path,
                old=write_value(fleet, edit.path, value_at(fleet, edit.path)),
                new=write_value(fleet, edit.path, edit.new),
                yaml=write_yaml(fleet, edit),
            )
            for edit in edits
            if edit.path != REQUEST
        ),
        asks=tuple(
            tag
            for edit in edits
            if edit.path == REQUEST and isinstance(edit.new, tuple)
            for tag in edit.new
        ),
        wait=wait,
        harms=harms,
        lifts_limit=lifts_limit,
    )
    return Remedy(suggestion, edits, after, phrase)


def describe(fleet: Fleet, edit: Edit) -> str:
    """Return an edit as a phrase with the old and new value."""
    if edit.text:
        return edit.text
    old = write_value(fleet, edit.path, value_at(fleet, edit.path))
    new = write_value(fleet, edit.path, edit.new)
    if edit.rank == EXPIRY:
        return f"move {yaml_key(edit.path)} from {old} to {new} or later"
    if edit.rank == APPROVE:
        return f"add an approval: {new}"
    verb = "raise" if _is_raise(edit) else "set"
    return f"{verb} {yaml_key(edit.path)} from {old} to {new}"
