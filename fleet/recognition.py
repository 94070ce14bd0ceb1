"""This module tells from its digest what a machine was made from that no stack knows."""

from collections.abc import Iterable
from dataclasses import replace

from fleet.census import PoolCensus, State, Unit
from fleet.facts import Machine, MachineState, Stack, WorkerInputs
from fleet.image_choice import ImageChoice
from fleet.making import Option, new_inputs
from fleet.schema.model import Fleet


def made_from(
    fleet: Fleet, options: Iterable[Option], choice: ImageChoice, machine: Machine
) -> WorkerInputs | None:
    """Return what a machine was made from; None where fleet.yaml no longer says it."""
    images = dict.fromkeys([machine.image or "", choice.id, *choice.stopped])
    for option in options:
        for image in filter(None, images):
            inputs = new_inputs(fleet, replace(option, image=image), machine.name)
            if inputs.labels["digest"] == machine.digest:
                # A pool that was renamed since: its machines bear the old name.
                return inputs.model_copy(update={"labels": inputs.labels | {"pool": machine.pool}})
    return None


def with_begun(
    fleet: Fleet, census: PoolCensus, options: Iterable[Option], choice: ImageChoice
) -> PoolCensus:
    """Return a census in which what an apply made and could not note is an unfinished creation.

    Such a machine bears the pool's mark, and its stack, which is there, knows none of its name:
    the run that asked for it died before it had the answer. A lost stack is no such thing.
    """
    stack = census.stack
    if stack is None or census.blind:
        return census
    units = []
    for unit in census.units:
        machine = _unnoted(unit, stack)
        made = made_from(fleet, options, choice, machine) if machine else None
        units.append(replace(unit, state=State.UNFINISHED, inputs=made) if made else unit)
    return replace(census, units=tuple(units))


def _unnoted(unit: Unit, stack: Stack) -> Machine | None:
    """Return the machine of a unit that a stack knows nothing of, and that goes on."""
    known = {worker.name for worker in stack.workers} | stack.ids.keys()
    if unit.state is not State.UNRECORDED or unit.machine is None or unit.name in known:
        return None
    goes_on = unit.machine.state in (MachineState.STARTING, MachineState.RUNNING)
    return unit.machine if goes_on else None
