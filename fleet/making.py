"""This module says what a new machine is made from, what it is called, and when none is made."""

from collections.abc import Collection, Iterator
from itertools import count

from fleet.catalogue import find_type, price_per_hour
from fleet.census import PoolCensus
from fleet.facts import Listing, Unknown, WorkerInputs, World
from fleet.plan import digest
from fleet.schema.model import ExistingImage, Fleet, HcloudProvider, Pool, SimProvider
from fleet.tagrules import newest_version, static_names

SUPPORTED_PROVIDERS = (HcloudProvider, SimProvider)


def wont_make(fleet: Fleet, world: World, census: PoolCensus) -> str:
    """Return why a pool makes no machine at all in this run; empty when it may."""
    return next(_obstacles(fleet, world, census), "")


def _obstacles(fleet: Fleet, world: World, census: PoolCensus) -> Iterator[str]:
    pool = fleet.pools.get(census.pool)
    if not isinstance(pool, Pool):
        yield "it is no longer in fleet.yaml"
        return
    if census.blind:
        yield "what it has is unknown in this run"
    if pool.mode in ("drain", "pause"):
        yield f"it has mode: {pool.mode}"
    provider = fleet.providers[pool.provider]
    if not isinstance(provider, SUPPORTED_PROVIDERS):
        yield f"providers of kind {provider.kind} cannot make machines yet"
    if find_type(fleet, pool) is None:
        yield "its machine type is not in the catalogue"
    if price_per_hour(fleet, pool) is None:
        yield f"its price is not known in {fleet.money.currency}"
    if image_id(fleet, world, pool) is None:
        yield f"image {pool.image} has no published version at provider {pool.provider}"


def image_id(fleet: Fleet, world: World, pool: Pool) -> str | None:
    """Return the provider's own id of the image a pool's next machine boots; None: there is none.

    The simulated provider boots any image by its name.
    """
    image = fleet.images[pool.image]
    if isinstance(image, ExistingImage):
        return image.existing.get(pool.provider)
    newest = newest_version(world.images, pool.image, pool.provider)
    if newest is not None:
        return newest.ids[pool.provider]
    return pool.image if isinstance(fleet.providers[pool.provider], SimProvider) else None


def new_inputs(fleet: Fleet, world: World, pool_name: str, worker: str) -> WorkerInputs:
    """Return what a pool's next machine is made from; only for a pool that may make one."""
    pool = fleet.pools[pool_name]
    if not isinstance(pool, Pool):
        raise TypeError(pool_name)
    known = find_type(fleet, pool)
    provider = fleet.providers[pool.provider]
    settings = {"location": provider.location} if isinstance(provider, HcloudProvider) else {}
    made_from = {
        "type": known.name if known else "",
        "image": image_id(fleet, world, pool) or "",
        "architecture": fleet.images[pool.image].architecture,
        "settings": settings,
    }
    return WorkerInputs(
        name=worker,
        type=str(made_from["type"]),
        image=str(made_from["image"]),
        architecture=str(made_from["architecture"]),
        labels={
            "fleet": fleet.fleet,
            "pool": pool_name,
            "worker": worker,
            "digest": digest(made_from)[:16],
        },
        settings=settings,
    )


def worker_names(fleet: Fleet, pool: str, taken: Collection[str]) -> Iterator[str]:
    """Yield `<fleet>-<pool>-<n>`, smallest n first, without the names that are taken."""
    candidates = (f"{fleet.fleet}-{pool}-{number}" for number in count(1))
    return (name for name in candidates if name not in taken)


def taken_names(fleet: Fleet, world: World) -> frozenset[str]:
    """Return every name of a machine or worker that fleet.yaml or any witness knows."""
    names = set(static_names(fleet))
    for listing in world.providers.values():
        if isinstance(listing, Listing):
            names |= {machine.name for machine in listing.machines}
            names |= {worker.name for worker in listing.workers or ()}
    for reading in world.queues.values():
        if isinstance(reading.workers, tuple):
            names |= {worker.name for worker in reading.workers}
    if not isinstance(world.stacks, Unknown):
        for stack in world.stacks.values():
            if not isinstance(stack, Unknown):
                names |= {worker.name for worker in stack.workers} | set(stack.ids)
    return frozenset(names)
