"""This module lists what only one of a machine's two witnesses knows."""

from collections.abc import Collection, Iterator
from typing import Literal

from pydantic import Field

from fleet.census import PoolCensus, take_census
from fleet.census.units import State
from fleet.facts import Unknown, World
from fleet.facts.values import Moment, Value
from fleet.plan import Plan, Reason
from fleet.schema.model import Fleet

_KINDS: dict[State, Literal["unrecorded", "missing"]] = {
    State.UNRECORDED: "unrecorded",
    State.MISSING: "missing",
}


class Orphan(Value):
    """A machine with the fleet's mark that no stack knows, or a stack's entry without one."""

    kind: Literal["unrecorded", "missing"] = Field(
        description="`unrecorded`: its provider lists it, no stack knows it; `missing`: its stack "
        "knows it, its provider does not list it."
    )
    name: str
    pool: str
    provider: str
    id: str | None = Field(description="The provider's own id.")
    since: Moment | None = Field(description="When it was made, where its provider tells.")
    goes: bool = Field(description="`fleet apply` lets it go by itself, no guard withholds that.")


class Orphans(Value):
    """All of them, and of what they are not known."""

    fleet: str
    orphans: tuple[Orphan, ...] = ()
    unknown: tuple[str, ...] = Field((), description="What could not be read, and why.")


def find_orphans(fleet: Fleet, world: World, plan: Plan) -> Orphans:
    """Return what one witness knows and the other does not, by pool and name."""
    held = {action.worker for action in plan.withheld}
    going = {verdict.worker for verdict in plan.workers if verdict.reason is Reason.ORPHAN} - held
    found = [
        orphan
        for census in take_census(fleet, world).values()
        for orphan in _orphans_of(census, going)
    ]
    return Orphans(fleet=fleet.fleet, orphans=tuple(found), unknown=tuple(silent(world)))


def silent(world: World) -> Iterator[str]:
    """Yield which witnesses of machines could not be read, and why."""
    for name, listing in sorted(world.providers.items()):
        if isinstance(listing, Unknown):
            yield f"machines of provider {name} are unknown: {listing.unknown}"
    if isinstance(world.stacks, Unknown):
        yield f"stacks are unknown: {world.stacks.unknown}"
        return
    for pool, stack in sorted(world.stacks.items()):
        if isinstance(stack, Unknown):
            yield f"the stack of pool {pool} is unknown: {stack.unknown}"


def _orphans_of(census: PoolCensus, going: Collection[str]) -> Iterator[Orphan]:
    for unit in census.units:
        kind = _KINDS.get(unit.state)
        if kind is not None:
            recorded = census.stack.ids.get(unit.name) if census.stack else None
            yield Orphan(
                kind=kind,
                name=unit.name,
                pool=unit.pool,
                provider=census.provider,
                id=unit.machine.id if unit.machine else recorded,
                since=unit.machine.created_at if unit.machine else None,
                goes=unit.name in going,
            )
