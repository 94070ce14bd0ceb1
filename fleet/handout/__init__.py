"""This module gives the machines of a world to the tickets that wait, as every plan would have it.

Who may ask for what, what fits and what may be dropped after a while is what the plan says; in
which order tickets get machines, `assignment` says.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from fleet.census.units import State
from fleet.demand import Signed, Supply, sign_demand
from fleet.draft import Draft
from fleet.draft.limits import limits_on
from fleet.draft.supplies import find_supplies
from fleet.facts import World
from fleet.handout.prospects import terms_of
from fleet.schema.model import Fleet, Pool
from fleet.steps.drafting import begin
from fleet.tickets import SANDBOX, Ticket, expire
from fleet.tickets.assignment import Assignment, Ready, Suitable, assign
from fleet.tickets.desk import desks_of


def hand_out(
    fleet: Fleet,
    world: World,
    queue: str,
    tickets: Iterable[Ticket],
    besides: Collection[str] = (),
) -> Assignment:
    """Return which of a queue's tickets get which machines, and why the others wait.

    What the world does not tell of, as a ticket that was opened since, waits for the next time.
    No ticket gets a machine that is `besides`.
    """
    terms = terms_of(fleet, queue)
    drafts = begin(fleet, world)
    supplies = find_supplies(fleet, world, drafts)
    signed = {
        request.key: each
        for each in sign_demand(fleet, world, supplies)
        if each.queue == queue
        for request in each.requests
    }
    current = [expire(ticket, world.time) for ticket in tickets]
    taking = [
        each
        for each in current
        if each.is_open and (each.machine or f"{queue}/{each.id}" in signed)
    ]
    free = _ready(drafts, supplies, queue, desks_of(fleet, world.queues))
    return assign(
        taking,
        (each for each in free if each.name not in besides),
        _suits(fleet, queue, supplies, signed),
        terms,
        world.time,
    )


def _ready(
    drafts: Mapping[str, Draft],
    supplies: Mapping[str, Supply],
    queue: str,
    desks: Iterable[str],
) -> Iterable[Ready]:
    """Yield the machines that are free, and known to be."""
    given_out = frozenset(desks)
    for key, supply in supplies.items():
        if queue not in supply.queues or supply.pool not in drafts:
            continue
        draft = drafts[supply.pool]
        idle = {unit.name: unit for unit in draft.census.having(State.IDLE)}
        for name in supply.units if not _is_left_alone(draft) else ():
            unit = idle.get(name)
            if unit is not None and unit.worker is not None and unit.registry in given_out:
                yield Ready(name, key, _sandbox(unit.worker.requires))


def _is_left_alone(draft: Draft) -> bool:
    return bool(draft.census.blind) or (draft.pool is not None and draft.pool.mode == "drain")


def _sandbox(requires: Iterable[str]) -> str:
    return next((t.removeprefix(SANDBOX) for t in requires if t.startswith(SANDBOX)), "")


def _suits(
    fleet: Fleet, queue: str, supplies: Mapping[str, Supply], signed: Mapping[str, Signed]
) -> Callable[[Ticket], Suitable]:
    """Return what says which machines suit a ticket; one value for all that ask alike."""
    known: dict[object, Suitable] = {}
    preferred = {
        name: pool.priorities for name, pool in fleet.pools.items() if isinstance(pool, Pool)
    }

    def suits(ticket: Ticket) -> Suitable:
        each = None if ticket.machine else signed.get(f"{queue}/{ticket.id}")
        key = (each.id, ()) if each else ("", ticket.tags)
        if key not in known:
            required = each.ask.required if each else frozenset(ticket.tags)
            known[key] = Suitable(
                kinds={
                    kind: sum(preferred.get(supplies[kind].pool, {}).get(t, 0) for t in required)
                    for kind in (each.workers_of if each else ())
                },
                limits=limits_on(fleet, queue, required),
            )
        return known[key]

    return suits
