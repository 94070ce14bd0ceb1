"""This module says what nobody knows in this run, and what a person has to look at."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fleet.census.freshness import demand_trouble
from fleet.census.registrations import DISCONNECTED_GRACE, hears_others, seconds_away
from fleet.census.units import DEAF_SAID, FAILED_SAID, STOPPED_SAID, State, Unit
from fleet.demand import Signed
from fleet.draft import Draft
from fleet.facts import Unknown, World
from fleet.plan import Warning_
from fleet.plan.money import BudgetVerdict
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_count, write_duration

_ATTENTION = {
    State.MISSING: "its stack knows it, but its provider does not list it",
    State.UNRECORDED: "its provider lists it and it costs money, but no stack knows it",
    State.DEAF: f"it costs money, but {DEAF_SAID}",
    State.STOPPED: f"it may cost money, but {STOPPED_SAID}",
    State.FAILED: f"it costs money, but {FAILED_SAID}",
    State.NEVER_REGISTERED: "it costs money, but its worker did not register in time",
}


def find_attention(world: World, drafts: Mapping[str, Draft]) -> Iterator[str]:
    """Yield what nothing here mends by itself."""
    for draft in drafts.values():
        if draft.choice.said:
            yield f"pool {draft.name}: {draft.choice.said}"
        leaving = draft.leaving
        for unit in draft.census.having(*_ATTENTION):
            if unit.name in leaving or draft.goes_by_itself(unit):
                continue
            yield f"{unit.name}: {_ATTENTION[unit.state]}; `fleet explain worker {unit.name}`"
        for unit in draft.census.units:
            if unit.machine and unit.machine.trouble:
                yield f"{unit.name}: {unit.machine.trouble}"
        for unit in draft.census.having(State.BUSY, State.DISCONNECTED):
            away = seconds_away(world, unit.worker)
            is_silent = unit.may_run or not hears_others(world, unit.registry or "")
            if away > DISCONNECTED_GRACE and is_silent and unit.name not in leaving:
                yield _said_of_away(unit, write_duration(away))


def _said_of_away(unit: Unit, away: str) -> str:
    """Say of a worker that is away for long what only a person can know."""
    name = unit.worker.name if unit.worker else unit.name
    running = unit.worker.running if unit.worker else None
    if running is None:
        return (
            f"{unit.name}: its worker is not connected and was last heard {away} ago, and its "
            f"queue hears nobody else; `fleet explain worker {unit.name}`"
        )
    return (
        f"{unit.name}: it runs request {running}, but its worker is not connected and was last "
        f"heard {away} ago; if it will not come back: debusine-admin worker disable {name}"
    )


def warn_of_durations(
    fleet: Fleet, demand: Sequence[Signed], budgets: Sequence[BudgetVerdict]
) -> Iterator[Warning_]:
    """Yield of how many requests nothing says how long they run, where something rests on that."""
    silent: Counter[str] = Counter()
    patient: Counter[str] = Counter()
    waits = {
        name
        for name, pool in fleet.pools.items()
        if isinstance(pool, Pool) and pool.target_wait is not None
    }
    for signed in demand:
        looked_at = waits.intersection(signed.machines_of)
        if budgets or looked_at:
            count = sum(request.seconds is None for request in signed.requests)
            silent[signed.queue] += count if budgets else 0
            patient.update(dict.fromkeys(looked_at, count))
    for queue, count in sorted((+silent).items()):  # without those of which all is known
        run = "runs" if count == 1 else "run"
        message = (
            f"nothing says how long {write_count(count, 'request')} of queue {queue} {run}: "
            "under a budget, each reserves a machine to the end of the period and the next; "
            "say it by task in `durations`"
        )
        yield Warning_(rule="unknown-duration", message=message)
    for name, count in sorted((+patient).items()):
        run = "it runs" if count == 1 else "they run"
        message = (
            f"target_wait of pool {name} has no effect on {write_count(count, 'request')}: "
            f"nothing says how long {run}, and each gets a machine of its own; "
            "say it by task in `durations`"
        )
        yield Warning_(rule="unknown-duration", message=message)


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
    if isinstance(world.images, Unknown) and not isinstance(world.stacks, Unknown):
        because = world.images.unknown
        yield f"versions of images are unknown: {because} (no machine is made or replaced)"
    for draft in drafts.values():
        for reason in (*draft.census.blind, *draft.census.frozen):
            if reason not in seen:
                seen.add(reason)
                what = "created or deleted" if reason in draft.census.blind else "deleted"
                yield f"{reason} (nothing is {what} there)"
        for unit in draft.census.units:
            if unit.machine is not None and draft.cost_of(unit) is None:
                yield f"the price of {unit.machine.type} is unknown; {unit.name} counts as 0"
