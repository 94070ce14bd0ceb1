"""This module says which worker each request is counted for, and which machines are made for whom.

Each place's requests are spread over its workers in the order of service: who comes next goes to
the worker that is expected to be free first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from fleet.allocate import Allocation
from fleet.answer import Stop
from fleet.census import State
from fleet.choices import Place, Rank
from fleet.demand import Ordered, Supply
from fleet.draft import Draft, Why
from fleet.durations import USUAL
from fleet.facts import WorkerInputs
from fleet.making import new_inputs, renamed
from fleet.plan import Cause, Reason


@dataclass
class Service:
    """Who is served by what."""

    by_worker: dict[str, str] = field(default_factory=dict)
    """Request to the existing worker that it is counted for."""
    unserved: Mapping[str, tuple[Stop, ...]] = field(default_factory=dict)
    turns: int = 0
    """How many machines are made for requests."""


def staff(
    drafts: Mapping[str, Draft],
    supplies: Mapping[str, Supply],
    places: Mapping[str, Place],
    allocation: Allocation,
) -> Service:
    """Count existing workers for requests, and add the machines that are made for the others."""
    service = Service(unserved=allocation.unserved)
    owner = {
        unit.name: draft
        for draft in drafts.values()
        for unit in (*draft.census.units, *draft.census.unseen)
    }
    busy = {unit.name for draft in drafts.values() for unit in draft.census.having(State.BUSY)}
    crews: list[tuple[tuple[Rank, Ordered], Place, list[str]]] = []
    for key, served in sorted(allocation.served.items()):
        requests = [request for _, request in served]
        if not requests:
            continue
        place = places[key]
        if place.makes:
            crews += (
                (served[crew[0]], place, [requests[nth].key for nth in crew])
                for crew in _spread(requests, allocation.machines.get(key, 0))
                if crew
            )
            continue
        # Who is free comes before who still works.
        units = sorted(supplies[key].units, key=lambda name: (name in busy, name))
        for unit, crew in zip(units, _spread(requests, len(units)), strict=True):
            for nth in crew:
                service.by_worker[requests[nth].key] = unit
            if crew and unit in owner:
                owner[unit].used[unit] = requests[crew[0]].key
                owner[unit].served += len(crew)
    crews.sort(key=lambda crew: (crew[0], crew[1].key))
    made: dict[str, WorkerInputs] = {}
    for turn, (_, place, keys) in enumerate(crews, start=1):
        draft = drafts[place.pool]
        worker = next(draft.names)
        if place.key not in made:
            option = next(option for option in draft.options if option.key == place.key)
            made[place.key] = new_inputs(draft.fleet, option, worker)
        _make(draft, renamed(made[place.key], worker), keys, turn)
    service.turns = len(crews)
    _note_awaited(drafts, places, allocation)
    return service


def _note_awaited(
    drafts: Mapping[str, Draft], places: Mapping[str, Place], allocation: Allocation
) -> None:
    """Note the pools that requests wait for because of a limit."""
    # Those who are stopped by the same share one tuple.
    for stops in {id(stops): stops for stops in allocation.unserved.values()}.values():
        for stop in stops:
            if stop.rows:
                drafts[places[stop.place].pool].awaited = True


def _spread(requests: Sequence[Ordered], workers: int) -> list[list[int]]:
    """Return the numbers of the requests of each worker: each goes to who is free first."""
    crews: list[list[int]] = [[] for _ in range(workers)]
    if len(requests) <= workers:
        for nth in range(len(requests)):
            crews[nth].append(nth)
        return crews
    free = [(0, worker) for worker in range(workers)]
    heapify(free)
    for nth, request in enumerate(requests if workers else ()):
        load, worker = free[0]
        crews[worker].append(nth)
        seconds = USUAL if request.seconds is None else request.seconds
        heapreplace(free, (load + max(1, seconds), worker))
    return crews


def _make(draft: Draft, inputs: WorkerInputs, keys: Sequence[str], turn: int) -> None:
    others = f" and {len(keys) - 1} more wait" if keys[1:] else " waits"
    because = f"request {keys[0]}{others} and no free worker fits {'them' if keys[1:] else 'it'}"
    why = Why(Reason.REQUESTS_WAIT, Cause.DEMAND, because, tuple(keys), turn)
    draft.create(inputs, why)
    draft.served += len(keys)
