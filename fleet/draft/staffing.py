"""This module says which worker each request is counted for, and which machines are made for whom.

Each place's requests are spread over its workers in the order of service: who comes next goes to
the worker that is expected to be free first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapreplace

from fleet.allocate import Allocation
from fleet.allocate.answer import Stop
from fleet.census.units import State
from fleet.demand import Ordered, Supply
from fleet.demand.choices import Place, Rank
from fleet.demand.durations import USUAL
from fleet.draft import Draft, Why
from fleet.facts import WorkerInputs
from fleet.making import Option, new_inputs, renamed
from fleet.plan import Cause, Reason
from fleet.plan.money import BudgetVerdict

_Crew = list[tuple[Rank, Ordered]]
"""The requests of one worker, in the order of service."""


@dataclass
class Service:
    """Who is served by what."""

    by_worker: dict[str, str] = field(default_factory=dict)
    """Request to the existing worker that it is counted for."""
    unserved: Mapping[str, tuple[Stop, ...]] = field(default_factory=dict)
    turns: int = 0
    """How many machines are made for requests."""
    budgets: tuple[BudgetVerdict, ...] = ()
    """How far budgets are used up by it."""


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
    crews: list[tuple[str, _Crew]] = []
    for key, served in sorted(allocation.served.items()):
        if places[key].makes:
            own = _spread(served, allocation.machines.get(key, 0), places[key])
            crews += ((key, crew) for crew in own if crew)
            continue
        # Who is free comes before who still works.
        units = sorted(supplies[key].units, key=lambda name: (name in busy, name))
        for unit, crew in zip(units, _spread(served, len(units), places[key]), strict=True):
            service.by_worker |= {request.key: unit for _, request in crew}
            if crew and unit in owner:
                owner[unit].used[unit] = crew[0][1].key
                owner[unit].served += len(crew)
    crews.sort(key=lambda each: each[1][0])
    options: dict[str, Option] = {}
    made: dict[tuple[str, str], WorkerInputs] = {}
    for turn, (key, crew) in enumerate(crews, start=1):
        draft = drafts[places[key].pool]
        worker = next(draft.names)
        if key not in options:
            options[key] = next(option for option in draft.options if option.key == key)
        way = draft.next_way(options[key])
        alike = (key, way.image)
        if alike not in made:
            made[alike] = new_inputs(draft.fleet, way, worker)
        draft.create(renamed(made[alike], worker), _why(places[key], crew, turn))
        draft.served += len(crew)
    service.turns = len(crews)
    _note_awaited(drafts, places, allocation)
    return service


def _note_awaited(
    drafts: Mapping[str, Draft], places: Mapping[str, Place], allocation: Allocation
) -> None:
    """Note the pools that requests wait for because of a limit."""
    stopped = allocation.unserved.values()
    # Those who are stopped by the same share one tuple.
    for stops in dict(zip(map(id, stopped), stopped, strict=True)).values():
        for stop in stops:
            if stop.rows:
                drafts[places[stop.place].pool].awaited = True


def _spread(served: Sequence[tuple[Rank, Ordered]], workers: int, place: Place) -> list[_Crew]:
    """Return the requests of each worker: each goes to who is free first."""
    crews: list[_Crew] = [[] for _ in range(workers)]
    if len(served) <= workers:
        for crew, each in zip(crews, served, strict=False):
            crew.append(each)
        return crews
    free = [(0, worker) for worker in range(workers)]
    for each in served if workers else ():
        load, worker = free[0]
        crews[worker].append(each)
        heapreplace(free, (load + max(1, _seconds(each[1], place)), worker))
    return crews


def _why(place: Place, crew: _Crew, turn: int) -> Why:
    """Return why a machine is made for these requests, and what it is billed until it goes."""
    keys = tuple(request.key for _, request in crew)
    others = f" and {len(keys) - 1} more wait" if keys[1:] else " waits"
    because = f"request {keys[0]}{others} and no free worker fits {'them' if keys[1:] else 'it'}"
    until_idle = place.billed(sum(_seconds(request, place) for _, request in crew))
    assumed = sum(request.seconds is None for _, request in crew)
    return Why(Reason.REQUESTS_WAIT, Cause.DEMAND, because, keys, turn, until_idle, assumed)


def _seconds(request: Ordered, place: Place) -> int:
    seconds = request.seconds_on(*place.kinds)
    return USUAL if seconds is None else seconds
