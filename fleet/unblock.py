"""This module finds the smallest change that gets one waiting request served, and proves it.

Nothing is guessed: every suggestion was planned again, with the edited fleet.yaml or in the
awaited world, before it is made. Fewest edits come first, then the smallest figures.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from fleet.candidates import candidates, describe
from fleet.counterfactual import REQUEST, Replans, edited, is_served, served_by, signature_of
from fleet.edits import Edit, Path, value_at, write_value, write_yaml
from fleet.facts import Value, World
from fleet.plan import Plan
from fleet.schema.model import Fleet
from fleet.waiting import Wait, describe_wait, find_waits, first_that

MOST_EDITS = 4
SHOWN = 4
_NAMED = 3


class Change(Value):
    """One key of fleet.yaml, and what to write there."""

    path: Path
    old: str
    new: str
    yaml: str
    """What to write: from the top of the file, or within the entry of a list."""
    place: str = ""


class Suggestion(Value):
    """Something that gets a request served: edits of fleet.yaml, or something to wait for."""

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
    """Return what would get a waiting request served, the smallest first; waiting is no edit."""
    if is_served(plan, key) or signature_of(plan, key) is None:
        return ()
    waits = [
        Remedy(Suggestion(sentence=describe_wait(fleet, wait), wait=wait))
        for wait in find_waits(fleet, world, plan, key, replans)
    ]
    search = _Search(fleet, world, key, replans)
    wide = sorted(search.run(plan, most=replans.left // 2), key=_size)[: 2 * SHOWN]
    found = [(edits, search.harms(plan, edits)) for edits in map(search.minimised, wide) if edits]
    found.sort(key=lambda each: (_count(each[0]), len(each[1]), _size(each[0])))
    by_edit = [Remedy(_suggest(fleet, edits, harms), edits) for edits, harms in found[:SHOWN]]
    return (*waits, *by_edit)


@dataclass
class _Search:
    """The search for the fewest edits, each state planned again."""

    fleet: Fleet
    world: World
    key: str
    replans: Replans

    def run(self, plan: Plan, most: int) -> list[tuple[Edit, ...]]:
        """Return every set of the fewest edits that serves the request, figures wide open.

        So many states are planned again at most: figures have to be made small afterwards.
        """
        order = count()
        heap: list[tuple[int, int, int, tuple[Edit, ...], Plan]] = []
        heappush(heap, (0, 0, next(order), (), plan))
        seen: set[frozenset[tuple[Path, str]]] = set()
        found: list[tuple[Edit, ...]] = []
        while heap and most > 0:
            most -= 1
            size, _, _, edits, before = heappop(heap)
            if size > MOST_EDITS or (found and size > _count(found[0])):
                break
            after = self._plan(edits) if edits else before
            if after is None:
                break
            if is_served(after, self.key):
                found.append(edits)
                continue
            for each in self._next(edits, after):
                name = frozenset((edit.path, repr(edit.new)) for edit in each)
                if name not in seen:
                    seen.add(name)
                    rank = sum(edit.rank for edit in each)
                    heappush(heap, (_count(each), rank, next(order), each, after))
        if heap and most <= 0 and not found:
            self.replans.give_up()
        return found

    def minimised(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """Return the edits with every figure as small as it serves; none if that took too long."""
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

    def _turned_down(self, edits: tuple[Edit, ...], number: int) -> tuple[Edit, ...]:
        most = edits[number].steps

        def turned(steps: int) -> tuple[Edit, ...]:
            return (*edits[:number], edits[number].turned(steps), *edits[number + 1 :])

        return turned(first_that(lambda n: n == most or self._serves(turned(n)), most))

    def _plan(self, edits: tuple[Edit, ...]) -> Plan | None:
        return self.replans.plan(*edited(self.fleet, self.world, self.key, edits))

    def _serves(self, edits: tuple[Edit, ...]) -> bool:
        plan = self._plan(edits)
        return plan is not None and is_served(plan, self.key)

    def _next(self, edits: tuple[Edit, ...], plan: Plan) -> list[tuple[Edit, ...]]:
        fleet, world = edited(self.fleet, self.world, self.key, edits)
        taken = {edit.path for edit in edits}
        more = candidates(fleet, world, plan, self.key)
        return [(*edits, edit) for edit in more if edit.path not in taken]


def _count(edits: tuple[Edit, ...]) -> int:
    return sum(edit.count for edit in edits)


def _size(edits: tuple[Edit, ...]) -> tuple[int, int, int, str]:
    return (
        _count(edits),
        sum(edit.rank for edit in edits),
        max((edit.steps for edit in edits), default=0),
        str([edit.path for edit in edits]),
    )


def _suggest(fleet: Fleet, edits: tuple[Edit, ...], harms: tuple[str, ...]) -> Suggestion:
    asks = [tag for e in edits if e.path == REQUEST and isinstance(e.new, tuple) for tag in e.new]
    return Suggestion(
        sentence=", and ".join(describe(fleet, edit) for edit in edits) + _but(harms),
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
        harms=harms,
    )


def _but(harms: tuple[str, ...]) -> str:
    if not harms:
        return ""
    many = f"{len(harms)} requests that are" if len(harms) > 1 else "1 request that is"
    return f" (but {many} served now would wait: {', '.join(harms[:_NAMED])})"
