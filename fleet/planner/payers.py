"""Find the payer of each machine that a plan creates: the payer of its first request."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from fleet.model.facts import MachinePayer, Request, World
from fleet.model.plan import Create
from fleet.planner.demand import judge_of, required_of
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import PoolInventory
from fleet.planner.teams import teams_of
from fleet.schema.model import Fleet
from fleet.tagrules.derive import QueueContext, context_of
from fleet.tagrules.offers import offer_of_pool
from fleet.tagrules.vocabulary import tag_name


def payers_of(
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    creates: Iterable[Create],
) -> Iterator[MachinePayer]:
    """Yield the payer of each new machine; without a request, the pool is the payer."""
    creates = [*creates]
    if not creates:
        return
    images = images_by_pool(fleet, world, inventories)
    judge, teams = judge_of(fleet, world), teams_of(fleet, world)
    requests = _requests(
        fleet, world, {creation.serves[0] for creation in creates if creation.serves}
    )
    for create in creates:
        payer = MachinePayer(machine=create.worker, pool=create.pool, since=world.time)
        if create.serves and create.serves[0] in requests:
            request, context = requests[create.serves[0]]
            provides = offer_of_pool(fleet, create.pool, images[create.pool]).provides
            required = required_of(judge.ask_of(request, context).ask)
            payer = payer.altered(
                scope=request.scope,
                team=teams.of(request),
                owner=request.owner,
                # A required tag that the pool does not provide is waived (`otherwise`).
                tags=tuple(t for t in required if t in provides or tag_name(t) != t),
                package=request.package,
            )
        yield payer


_Found = tuple[Request, QueueContext]


def _requests(fleet: Fleet, world: World, keys: Collection[str]) -> dict[str, _Found]:
    """Map each request key of a plan to its request. Keys of a group's members end in `#1` etc."""
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        wanted[key].append(key)
        wanted[key.rpartition("#")[0]].append(key)
    return {
        key: (request, context_of(fleet, queue, demand))
        for queue, demand in world.demands()
        for request in demand.requests
        for key in wanted.get(f"{queue}/{request.id}", ())
    }
