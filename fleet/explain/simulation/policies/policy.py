"""What a policy is, and fleet's own."""

from collections.abc import Callable, Mapping

from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.model.price_lists import with_price_lists
from fleet.planner.inventory import PoolInventory
from fleet.reconcile import decide
from fleet.schema.model import Fleet

Policy = Callable[[Fleet, World, Mapping[str, PoolInventory]], Plan]
"""Decides in each run; what it returns is carried out."""


def ours(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
    """Decide as `fleet plan` does; nobody saves the plan, so it needs no digests."""
    return guard(fleet, decide(with_price_lists(fleet, world), world, inventories))
