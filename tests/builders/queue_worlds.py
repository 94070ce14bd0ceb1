"""Build a fleet whose workers register at its Debusine queue, and its worlds."""

from fleet.guard import guard
from fleet.model.facts import Machine, MachineState, QueueReading, Worker, World
from fleet.model.plan import Create, Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_sim_fleet,
    a_stack,
    a_worker,
    a_world,
    ago,
    some_inputs,
)

FIRST, SECOND, THIRD = (f"debian-ci-builders-{number:04}" for number in (1, 2, 3))
QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "admin": ["debusine-admin"],
}


def a_debusine_fleet(**pool: object) -> Fleet:
    """Return a fleet whose workers register at its queue."""
    silent = {key: value for key, value in QUEUE.items() if key != "admin"}
    queue = QUEUE if pool.pop("admin", True) else silent
    pools = {"builders": a_pool(provider="desk", **pool)}
    return a_sim_fleet(queues={"debian": queue}, pools=pools)


def a_debusine_world(
    *workers: Worker,
    machines: tuple[str, ...] = (FIRST,),
    off: tuple[str, ...] = (),
    age: float = 3600,
    **reading: object,
) -> World:
    """Return a world whose queue knows these workers, with machines that both witnesses know.

    Those that are `off` are stopped.
    """
    named = {"demand": {"read_at": NOW, "requests": reading.pop("requests", ())}}
    return a_world(
        queues={"debian": QueueReading.model_validate(named | {"workers": workers} | reading)},
        providers={"desk": a_listing(*(_machine(n, age, is_off=n in off) for n in machines))},
        stacks={
            "builders": a_stack(
                provider="desk",
                workers=tuple(some_inputs(name=name) for name in machines),
                ids={name: f"id-{name}" for name in machines},
            )
        },
    )


def ours(name: str = FIRST, **overrides: object) -> Worker:
    """Return a worker of ours, registered at the queue."""
    return a_worker(name=name, machine=name, **overrides)


def planned(fleet: Fleet, world: World) -> Plan:
    """Return the guarded plan."""
    return guard(fleet, reconcile(fleet, world))


def created(plan: Plan) -> list[str]:
    """Return what a plan makes."""
    return [action.worker for action in plan.actions if isinstance(action, Create)]


def _machine(name: str, age: float, *, is_off: bool) -> Machine:
    state = MachineState.STOPPED if is_off else MachineState.RUNNING
    return a_machine(name=name, id=f"id-{name}", created_at=ago(seconds=age), state=state)
