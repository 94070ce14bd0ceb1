"""Change the state of a machine, its worker or its stack, as new values of observed facts.

Predictions, simulations and the simulated cloud use these functions, which skip validation. This
module imports only the facts, because the plugin of the simulated cloud has to start fast.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from fleet.model.facts import (
    Machine,
    MachineState,
    Request,
    Stack,
    Work,
    Worker,
    WorkerInputs,
    WorkerState,
)
from fleet.tagrules.names import package_of

SHARED = Request.model_fields.keys() & Work.model_fields.keys()
"""Fields that running work copies from its request."""


def create_machine(
    inputs: WorkerInputs, pool: str, machine_id: str, at: datetime, *, address: str | None = None
) -> Machine:
    """Return a newly created, still booting machine."""
    return Machine.model_construct(
        name=inputs.name,
        id=machine_id,
        pool=pool,
        type=inputs.type,
        state=MachineState.STARTING,
        created_at=at,
        image=inputs.image,
        digest=inputs.labels.get("digest"),
        address=address,
    )


def boot(machine: Machine) -> Machine:
    """Return the machine after its boot, with a reachable port."""
    return machine.altered(state=MachineState.RUNNING, misses=0, was_ready=True)


def register(machine: Machine, at: datetime) -> Worker:
    """Return the idle worker that a machine registers at this time."""
    return Worker.model_construct(
        name=machine.name,
        machine=machine.name,
        pool=machine.pool,
        state=WorkerState.IDLE,
        uses=0,
        since=at,
        last_seen=at,
        connected_since=at,
    )


def work_on(
    request: Request, required: Iterable[str], since: datetime, *, names: Sequence[str] = ()
) -> Work:
    """Return the running work of a request. `required` are the tags that the work needs."""
    shared = {key: getattr(request, key) for key in SHARED}
    shared |= {"required": tuple(required), "package": package_of(request) or None}
    return Work.model_construct(started_at=since, names=tuple(names), **shared)


def start_work(worker: Worker, running: str, work: Work | None, at: datetime) -> Worker:
    """Return the worker after it started a request."""
    return worker.altered(
        state=WorkerState.BUSY, running=running, work=work, since=at, last_seen=at
    )


def end_work(worker: Worker, at: datetime) -> Worker:
    """Return the worker after its work ended. A disabled worker stays disabled."""
    is_on = worker.state is WorkerState.BUSY
    return worker.altered(
        state=WorkerState.IDLE if is_on else worker.state,
        running=None,
        work=None,
        since=at,
        last_seen=at if is_on else worker.last_seen,
        uses=None if worker.uses is None else worker.uses + 1,
    )


def set_draining(worker: Worker, at: datetime, *, draining: bool) -> Worker:
    """Return the worker with draining switched on or off. An idle worker is idle since `at`."""
    if worker.draining == draining:
        return worker
    return worker.altered(draining=draining, since=worker.since if worker.running else at)


def change_stack(
    stack: Stack, created: Iterable[tuple[WorkerInputs, str]] = (), gone: Iterable[str] = ()
) -> Stack:
    """Return the stack with new machines and their ids, and without deleted machines."""
    made = {inputs.name: (inputs, machine_id) for inputs, machine_id in created}
    removed = {*gone, *made}
    kept = tuple(each for each in stack.workers if each.name not in removed)
    ids = {name: machine_id for name, machine_id in stack.ids.items() if name not in removed}
    return stack.altered(
        serial=stack.serial + 1,
        workers=(*kept, *(inputs for inputs, _ in made.values())),
        ids=ids | {name: machine_id for name, (_, machine_id) in made.items()},
    )
