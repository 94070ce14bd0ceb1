"""This module says what nobody knows in this run, and what a person has to look at."""

from collections.abc import Iterator, Mapping

from fleet.census import State, demand_trouble
from fleet.draft import Draft
from fleet.facts import World
from fleet.schema.model import Fleet

_ATTENTION = {
    State.MISSING: "its stack knows it, but its provider does not list it",
    State.UNRECORDED: "its provider lists it and it costs money, but no stack knows it",
    State.NEVER_REGISTERED: "it costs money, but its worker did not register in time",
}


def find_attention(drafts: Mapping[str, Draft]) -> Iterator[str]:
    """Yield what nothing here mends by itself."""
    for draft in drafts.values():
        if draft.choice.said:
            yield f"pool {draft.name}: {draft.choice.said}"
        leaving = draft.leaving
        for unit in draft.census.having(*_ATTENTION):
            if unit.name in leaving:
                continue
            yield f"{unit.name}: {_ATTENTION[unit.state]}; `fleet explain worker {unit.name}`"


def find_unknown(fleet: Fleet, world: World, drafts: Mapping[str, Draft]) -> Iterator[str]:
    """Yield what could not be read, and what that stops."""
    seen = set()
    for queue in sorted(world.queues):
        trouble = demand_trouble(fleet, world, queue)
        if trouble:
            seen.add(f"demand of queue {queue} is unknown: {trouble}")
            yield (
                f"demand of queue {queue} is unknown: {trouble} "
                "(nothing is deleted in the pools that serve it)"
            )
    for draft in drafts.values():
        for reason in (*draft.census.blind, *draft.census.frozen):
            if reason not in seen:
                seen.add(reason)
                what = "created or deleted" if reason in draft.census.blind else "deleted"
                yield f"{reason} (nothing is {what} there)"
        for unit in draft.census.units:
            if unit.machine is not None and draft.cost_of(unit) is None:
                yield f"the price of {unit.machine.type} is unknown; {unit.name} counts as 0"
