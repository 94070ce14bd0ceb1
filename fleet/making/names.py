"""This module says what new machines are called.

A name ends in a number of a fixed width, so that none is the beginning of another: there are
scripts that delete whatever begins with a machine's name. No name is used again while anything
remembers it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

from fleet.facts import Listing, Unknown, Worker, WorkerState, World
from fleet.schema.machine_names import beginning_of
from fleet.schema.model import Fleet
from fleet.tagrules import static_names

_DIGITS = 4
_MOST = 10**_DIGITS - 1
_MADE = ("registered", "failed", "gone")
"""What became of a try that surely made a machine. Of one that only began, as in a run that was
killed, the name is taken again: a provider that made it after all makes no second one of it."""


@dataclass(frozen=True)
class Names:
    """The names of machines and workers that anybody knows."""

    present: frozenset[str]
    """Of what may still be there."""
    past: frozenset[str] = frozenset()
    """Of what is over, and remembered."""

    @cached_property
    def every(self) -> frozenset[str]:
        """Return the names of all of them."""
        return self.present | self.past

    @cached_property
    def in_order(self) -> list[str]:
        """Return those, sorted: one search finds what begins with a name."""
        return sorted(self.every)


def worker_names(fleet: Fleet, pool: str, known: Names) -> Iterator[str]:
    """Yield names like `<fleet>-<pool>-0001`, smallest number first, that nobody remembers.

    Where those of four digits are used up, it yields names of what is over, then longer ones.
    """
    begins = beginning_of(fleet, pool)
    # A pool may be called like a machine of another one.
    pools = [beginning_of(fleet, each) for each in fleet.pools]

    def numbered(first: int, last: int | None) -> Iterator[str]:
        numbers = count(first) if last is None else range(first, last + 1)
        return (f"{begins}{number:0{_DIGITS}}" for number in numbers)

    def is_free(name: str) -> bool:
        after = bisect_left(known.in_order, name)
        others = (*known.in_order[after : after + 1], *pools)
        is_beginning = any(each.startswith(name) for each in others)
        ends = range(len(begins) + 1, len(name) + 1)
        return not (is_beginning or any(name[:end] in known.every for end in ends))

    new = filter(is_free, numbered(1, _MOST))
    old = (name for name in numbered(1, _MOST) if name in known.past and name not in known.present)
    longer = (name for name in numbered(_MOST + 1, None) if name not in known.every)
    return chain(new, old, longer)


def known_names(fleet: Fleet, world: World) -> Names:
    """Return every name of a machine or worker that fleet.yaml or any witness knows."""
    present = set(static_names(fleet))
    past = {attempt.worker for attempt in world.attempts if attempt.result in _MADE}
    for listing in world.providers.values():
        if isinstance(listing, Listing):
            present |= {machine.name for machine in listing.machines}
            present |= {worker.name for worker in listing.workers or ()}
    for reading in world.queues.values():
        if isinstance(reading.workers, tuple):
            over = {worker.name for worker in reading.workers if _is_over(worker)}
            present |= {worker.name for worker in reading.workers} - over
            past |= over
    if not isinstance(world.stacks, Unknown):
        for stack in world.stacks.values():
            if not isinstance(stack, Unknown):
                present |= {worker.name for worker in stack.workers} | set(stack.ids)
    return Names(frozenset(present), frozenset(past))


def _is_over(worker: Worker) -> bool:
    """Say whether a worker of ours can do nothing any more, and has nothing left to do."""
    is_off = worker.state is WorkerState.DISABLED and worker.running is None
    return is_off and worker.machine is not None
