"""This module finds the smallest change that gets one waiting request served, and proves it.

Nothing is guessed: every suggestion was planned again, with the edited fleet.yaml or in the
awaited world, before it is made. Fewest edits come first, then the smallest figures.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from fleet.explain.candidates import candidates, describe
from fleet.explain.counterfactual import (
    REQUEST,
    Replans,
    Run,
    edited,
    is_served,
    served_by,
    signature_of,
)
from fleet.explain.edits import Edit, Path, value_at, write_value, write_yaml
from fleet.explain.waiting import (
    Wait,
    describe_wait,
    find_waits,
    first_that,
    is_throttled,
    wait_for_runs,
)
from fleet.facts import World
from fleet.facts.values import Value
from fleet.plan import Plan
from fleet.schema.model import Fleet

MOST_EDITS = 4
_NAMED = 3
_Name = frozenset[tuple[Path, str]]


class Change(Value):
    """One key of fleet.yaml, and what to write there."""

    path: Path
    old: str
    new: str
    yaml: str
    """What to write: from the top of the file, or within the entry of a list."""
    place: str = ""


class Suggestion(Value):
    """Something that gets a request served: edits of fleet.yaml, what to wait for, or both."""

    sentence: str
    changes: tuple[Change, ...] = ()
    asks: tuple[str, ...] = ()
    """Tags that the request would have to ask for too."""
    wait: Wait | None = None
    harms: tuple[str, ...] = ()
    """Requests that are served now and would wait then."""


@dataclass(frozen=True)
class Remedy:
    """A suggestion, and the edits that it is made of."""

    suggestion: Suggestion
    edits: tuple[Edit, ...] = ()


def find_remedies(
    fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans
) -> tuple[Remedy, ...]:
    """Return what would get a waiting request served, the smallest first; waiting is no edit.

    Of edits only those that are fewest are told, at most `replans.tells`.
    """
    if is_served(plan, key) or signature_of(plan, key) is None:
        return ()
    with replans.share(replans.left // 2) as given:
        waits = [
            Remedy(Suggestion(sentence=describe_wait(fleet, wait), wait=wait))
            for wait in find_waits(fleet, world, plan, key, given)
        ]
    if len([w for w in waits if w.suggestion.wait and w.suggestion.wait.until]) >= replans.tells:
        return tuple(waits)
    found = _fewest(_Search(fleet, world, key, replans, patient=not is_throttled(plan, key)), plan)
    # Where what is throttled would take too many runs, the throttle has to be raised too.
    found = found or _fewest(_Search(fleet, world, key, replans), plan)
    replans.is_spent |= given.is_spent
    return (*waits, *found)


def _fewest(search: "_Search", plan: Plan) -> list[Remedy]:
    """Return the fewest edits that get a request served, the smallest figures first."""
    wide = sorted(search.run(plan, most=search.replans.left // 2), key=_size)
    small = map(search.minimised, wide[: 2 * search.replans.tells])
    every = {_name(edits): edits for edits in small if edits}.values()
    fewest = min(map(_few, every), default=(0, 0))
    found = [(edits, search.harms(plan, edits)) for edits in every if _few(edits) == fewest]
    found.sort(key=lambda each: (len(each[1]), _size(each[0])))
    remedies = []
    for edits, harms in found:
        works, wait = search.awaited(edits)
        if works:
            remedies.append(Remedy(_suggest(search.fleet, edits, harms, wait), edits))
    return remedies[: search.replans.tells]


@dataclass
class _Search:
    """The search for the fewest edits, each state planned again."""

    fleet: Fleet
    world: World
    key: str
    replans: Replans
    patient: bool = False
    """A machine that is only throttled, and so comes with a later run, is enough."""

    def run(self, plan: Plan, most: int) -> list[tuple[Edit, ...]]:
        """Return every set of the fewest edits that serves the request, figures wide open.

        So many states are planned again at most: figures have to be made small afterwards.
        """
        order = count()
        heap: list[tuple[int, int, int, tuple[Edit, ...], Plan]] = []
        heappush(heap, (0, 0, next(order), (), plan))
        seen: set[_Name] = set()
        found: list[tuple[Edit, ...]] = []
        while heap and most > 0:
            most -= 1
            size, _, _, edits, before = heappop(heap)
            if size > MOST_EDITS or (found and size > _count(found[0])):
                break
            after = self._plan(edits) if edits else before
            if after is None:
                break
            if self._is_reached(after):
                found.append(edits)
                continue
            for each in self._next(edits, after):
                name = _name(each)
                if name not in seen:
                    seen.add(name)
                    rank = sum(edit.rank for edit in each)
                    heappush(heap, (_count(each), rank, next(order), each, after))
        if heap and most <= 0 and not found:
            self.replans.is_spent = True
        return found

    def minimised(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """Return the edits with every figure as small as it serves; none if that took too long.

        One that only led to another, and that this one needs no more, is left out; some are
        needed beside a figure that is wide open, and not beside a small one.
        """
        before: tuple[Edit, ...] = ()
        while edits != before:
            before = edits
            for edit in before:
                fewer = tuple(each for each in edits if each.path != edit.path)
                if fewer and self._serves(fewer):
                    edits = fewer
            for number, edit in enumerate(edits):
                if edit.knob is not None:
                    edits = self._turned_down(edits, number)
        return () if self.replans.is_spent else edits

    def harms(self, plan: Plan, edits: tuple[Edit, ...]) -> tuple[str, ...]:
        """Return the requests that a plan serves, and would not serve after these edits."""
        after = self._plan(edits)
        keys = (key for signature in plan.signatures for key in served_by(signature))
        still = {key for s in after.signatures for key in served_by(s)} if after else set()
        return tuple(key for key in keys if after is not None and key not in still)

    def awaited(self, edits: tuple[Edit, ...]) -> tuple[bool, Wait | None]:
        """Say whether edits get the request served, and after how many runs if not in this one."""
        plan = self._plan(edits)
        if plan is None or is_served(plan, self.key):
            return plan is not None, None
        run = Run(*edited(self.fleet, self.world, self.key, edits), plan, of=self._of(edits))
        wait = wait_for_runs(run, self.key, self.replans)
        return wait is not None, wait

    def _turned_down(self, edits: tuple[Edit, ...], number: int) -> tuple[Edit, ...]:
        most = edits[number].steps

        def turned(steps: int) -> tuple[Edit, ...]:
            return (*edits[:number], edits[number].turned(steps), *edits[number + 1 :])

        return turned(first_that(lambda n: n == most or self._serves(turned(n)), most))

    def _plan(self, edits: tuple[Edit, ...]) -> Plan | None:
        after = edited(self.fleet, self.world, self.key, edits)
        return self.replans.plan(*after, of=self._of(edits))

    def _of(self, edits: tuple[Edit, ...]) -> tuple[str, _Name]:
        """Return what tells a counterfactual from others: an edit may be of the request itself."""
        return self.key if any(edit.path == REQUEST for edit in edits) else "", _name(edits)

    def _serves(self, edits: tuple[Edit, ...]) -> bool:
        plan = self._plan(edits)
        return plan is not None and self._is_reached(plan)

    def _is_reached(self, plan: Plan) -> bool:
        return is_served(plan, self.key) or (self.patient and is_throttled(plan, self.key))

    def _next(self, edits: tuple[Edit, ...], plan: Plan) -> list[tuple[Edit, ...]]:
        fleet, world = edited(self.fleet, self.world, self.key, edits)
        taken = {edit.path for edit in edits}
        more = candidates(fleet, world, plan, self.key)
        return [(*edits, edit) for edit in more if edit.path not in taken]


def _name(edits: tuple[Edit, ...]) -> _Name:
    """Return what tells edits from others, in whatever order they were found."""
    return frozenset((edit.path, repr(edit.new)) for edit in edits)


def _few(edits: tuple[Edit, ...]) -> tuple[int, int]:
    """Return how many edits a person would call it, and in how many places."""
    return _count(edits), len(edits)


def _count(edits: tuple[Edit, ...]) -> int:
    return sum(edit.count for edit in edits)


def _size(edits: tuple[Edit, ...]) -> tuple[int, int, int, str]:
    return (
        _count(edits),
        sum(edit.rank for edit in edits),
        max((edit.steps for edit in edits), default=0),
        str([edit.path for edit in edits]),
    )


def _suggest(
    fleet: Fleet, edits: tuple[Edit, ...], harms: tuple[str, ...], wait: Wait | None
) -> Suggestion:
    asks = [tag for e in edits if e.path == REQUEST and isinstance(e.new, tuple) for tag in e.new]
    return Suggestion(
        sentence=", and ".join(describe(fleet, edit) for edit in edits)
        + (f", then {describe_wait(fleet, wait)}" if wait else "")
        + _but(harms),
        changes=tuple(
            Change(
                path=edit.path,
                old=write_value(fleet, edit.path, value_at(fleet, edit.path)),
                new=write_value(fleet, edit.path, edit.new),
                yaml=write_yaml(fleet, edit),
            )
            for edit in edits
            if edit.path != REQUEST
        ),
        asks=tuple(asks),
        wait=wait,
        harms=harms,
    )


def _but(harms: tuple[str, ...]) -> str:
    if not harms:
        return ""
    many = f"{len(harms)} requests that are" if len(harms) > 1 else "1 request that is"
    return f" (but {many} served now would wait: {', '.join(harms[:_NAMED])})"
