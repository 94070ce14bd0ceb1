"""This module vouches for a fleet's machines: a run notes at each until when."""

from fleet.census.expiry import extended, find_due
from fleet.errors import FleetError
from fleet.facts import World
from fleet.operate.observe import Sources
from fleet.ports import Tell
from fleet.schema.model import Fleet


def extend_expiries(fleet: Fleet, world: World, sources: Sources, tell: Tell) -> None:
    """Extend what this run vouches for; where that fails the fleet is still cared for."""
    until = extended(fleet, world.time)
    for provider, machines in find_due(fleet, world):
        keeper = sources.keepers.get(provider)
        if keeper is None:
            continue
        try:
            keeper.extend([machine.id for machine in machines], until)
        except FleetError as error:
            tell(f"the expiry of {len(machines)} machines of {provider} is not extended: {error}")
