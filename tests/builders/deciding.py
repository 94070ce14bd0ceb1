"""Questions to a plan about the pool `builders` at the simulated provider."""

from fleet.model.facts import Listing, Unknown, Worker, World
from fleet.model.plan import Plan, Reason
from fleet.planner.inventory import take_inventory
from fleet.planner.units import UnitState
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker

FIRST, SECOND = "debian-ci-builders-0001", "debian-ci-builders-0002"
THIRD = "debian-ci-builders-0003"
MON_TO_FRI, AT_NIGHT = "mon-fri 07:00-17:00 Europe/Berlin", "mon-sun 22:00-06:00"
"""NOW is a Saturday, 8:00 UTC."""


def fleet_with(**pool: object) -> Fleet:
    """Return a fleet whose pool `builders` says these keys."""
    return a_sim_fleet(pools={"builders": a_pool(provider="desk", **pool)})


def state_of(fleet: Fleet, world: World) -> UnitState:
    """Return the state of the only machine of the pool `builders`."""
    (unit,) = take_inventory(fleet, world)["builders"].units
    return unit.state


def actions_of(plan: Plan) -> list[tuple[str, str]]:
    """Return what a plan does, in its order."""
    return [(action.action, action.worker) for action in plan.actions]


def reason_of(plan: Plan, worker: str) -> Reason:
    """Return why a plan says what it says of a worker."""
    return next(verdict.reason for verdict in plan.workers if verdict.worker == worker)


def with_machines(world: World, *names: str, **said: object) -> World:
    """Return a world whose provider says this of these machines; of all where none is named."""
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    machines = tuple(
        machine.altered(**said) if machine.name in names or not names else machine
        for machine in listing.machines
    )
    changed = listing.altered(machines=machines)
    return world.altered(providers={"desk": changed})


def sentence_of(plan: Plan, worker: str) -> str:
    """Return the sentence that a plan says of a worker."""
    return next(verdict.because for verdict in plan.workers if verdict.worker == worker)


def an_unseen_world() -> World:
    """Return a world in which a request waits, and a machine is known by its stack alone."""
    world = a_sim_world(requests=(a_request(),), starting=(FIRST,))
    silent = Unknown(unknown="no answer")
    return world.altered(providers={"desk": silent})


def idle(*names: str, **said: object) -> tuple[Worker, ...]:
    """Return idle workers of these names."""
    return tuple(a_worker(name=name, **said) for name in names)


def outdated(world: World, *names: str) -> World:
    """Return a world in which these machines, or all, boot an image of yesterday."""
    return with_machines(world, *names, digest="yesterday", image="trixie-0")


def drained(plan: Plan) -> list[str]:
    """Return the workers that a plan drains."""
    return [action.worker for action in plan.actions if action.action == "drain"]
