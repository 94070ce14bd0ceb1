"""What a machine that no stack knows was created from, found by its digest."""

from collections.abc import Iterable
from dataclasses import replace

from fleet.model.facts import Attempt, Machine, MachineState, WorkerInputs
from fleet.planner.images import ImageChoice
from fleet.planner.inventory import PoolInventory
from fleet.planner.machine_inputs import Option, new_inputs
from fleet.planner.units import State
from fleet.schema.model import Fleet

_UNANSWERED = frozenset({"starting", "gone", "error"})
"""Results of tries that may have made a machine, although nobody knows it."""
_GOING_ON = (MachineState.STARTING, MachineState.RUNNING)


def made_from(
    fleet: Fleet, options: Iterable[Option], choice: ImageChoice, machine: Machine
) -> WorkerInputs | None:
    """Return what a machine was made from; None where fleet.yaml no longer says it."""
    images = dict.fromkeys([machine.image or "", *choice.ids])
    for option in options:
        for image in filter(None, images):
            inputs = new_inputs(fleet, replace(option, image=image), machine.name)
            if inputs.labels["digest"] == machine.digest:
                # A pool that was renamed since: its machines bear the old name.
                return inputs.model_copy(update={"labels": inputs.labels | {"pool": machine.pool}})
    return None


def with_begun(
    fleet: Fleet,
    inventory: PoolInventory,
    options: Iterable[Option],
    choice: ImageChoice,
    tries: Iterable[Attempt],
) -> PoolInventory:
    """Return a inventory in which what an apply made and could not note is an unfinished creation.

    Such a machine bears the pool's mark, and its stack, which is there, knows none of its name:
    the run that noted a try to make it died before it had the answer. Labels alone prove nothing,
    for anybody can copy them; and a lost stack is no such thing.
    """
    stack = inventory.stack
    unrecorded = inventory.having(State.UNRECORDED)
    if stack is None or inventory.blind or not unrecorded:
        return inventory
    known = {worker.name for worker in stack.workers} | stack.ids.keys()
    latest: dict[str, Attempt] = {}
    for attempt in tries:  # the latest comes first
        latest.setdefault(attempt.worker, attempt)
    begun_here = {name for name, attempt in latest.items() if attempt.result in _UNANSWERED}
    begun = {}
    for unit in unrecorded:
        machine = unit.machine
        if machine is None or unit.name in known or machine.state not in _GOING_ON:
            continue
        if unit.name not in begun_here:
            continue
        if made := made_from(fleet, options, choice, machine):
            begun[unit.name] = replace(unit, state=State.UNFINISHED, inputs=made)
    return replace(inventory, units=tuple(begun.get(unit.name, unit) for unit in inventory.units))
