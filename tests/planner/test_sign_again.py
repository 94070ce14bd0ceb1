"""A simulation signs what waits in each run again; what follows from a request is kept."""

from collections.abc import Sequence
from datetime import timedelta

from fleet.model.facts import Demand, Request, World
from fleet.planner.demand import Supply, sign_demand
from fleet.tagrules.offers import offer_of_pool
from tests.builders import NOW, a_fleet, a_reading, a_request, a_world

HOUR = timedelta(hours=1)
NONE: dict[str, dict[str, str]] = {}
FLEET = a_fleet(
    tags={
        "fast": {"otherwise": {"after": "2h", "drop": True}, "limits": {"per": {"submitter": 1}}}
    }
)
SUPPLIES = {
    name: Supply(name, frozenset({"debian"}), offer_of_pool(FLEET, name, ()))
    for name in FLEET.pools
}


def waits(nth: int, **others: object) -> Request:
    return a_request(id=str(nth), pending_since=NOW + nth * HOUR, required=("fast",), **others)


def world_with(requests: Sequence[Request], hours: int) -> World:
    """Return a world in which the very objects wait."""
    time = NOW + hours * HOUR
    demand = Demand.model_construct(read_at=time, requests=tuple(requests), environments=NONE)
    return a_world(time=time).altered(queues={"debian": a_reading().altered(demand=demand)})


def test_changed_demand_is_signed_like_first_demand() -> None:
    all_ = [waits(nth, requester=f"user{nth % 2}") for nth in range(6)]
    changed = all_[3].altered(priority=7)
    worlds = [
        world_with(all_[:2], 1),
        world_with(all_[:4], 3),
        world_with([changed, *all_[:3]], 4),
        world_with([changed, *all_[1:3], *all_[4:]], 30),
    ]

    for world in worlds:
        again = sign_demand(FLEET, world, SUPPLIES, again=True)

        assert again == sign_demand(FLEET, world, SUPPLIES)
    assert {dropped for signed in again for dropped in signed.dropped} == {"fast"}
