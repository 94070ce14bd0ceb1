"""This module says why a request gets no machine, and which line of fleet.yaml decides it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fleet.allocate import Allocation
from fleet.demand import Signed
from fleet.facts import World
from fleet.plan import Blocked, Unserved
from fleet.schema.model import Fleet, StaticPool
from fleet.tagrules import Offer, find_mismatch, offer_of_pool, serves_queue


def find_unserved(
    fleet: Fleet, world: World, demand: Sequence[Signed], allocation: Allocation
) -> Iterator[Unserved]:
    """Yield the requests that get no machine in this run, by signature and cause."""
    offers = {name: offer_of_pool(fleet, name, world.images) for name in sorted(fleet.pools)}
    for signed in demand:
        groups: defaultdict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
        for request in signed.requests:
            if request.key in allocation.unserved:
                groups[allocation.unserved[request.key]].append(request.key)
        for limits, keys in groups.items():
            blocked = tuple(_blocked(fleet, pool, limit) for pool, limit in limits)
            because, path = (
                ("; ".join(each.because for each in blocked), blocked[0].path)
                if blocked
                else _unfitting(fleet, offers, signed)
            )
            yield Unserved(
                signature=signed.id,
                requests=tuple(keys),
                count=len(keys),
                because=because,
                path=path,
                blocked=blocked,
            )


def _blocked(fleet: Fleet, name: str, limit: str) -> Blocked:
    figure = getattr(getattr(fleet.pools[name], "workers", None), limit, None)
    if figure is None:
        because = f"pool {name} makes no machine: {limit}"
        return Blocked(pool=name, because=because, path=("pools", name))
    because = f"pool {name} is at workers.{limit} ({figure})"
    return Blocked(pool=name, because=because, path=("pools", name, "workers", limit))


def _unfitting(
    fleet: Fleet, offers: Mapping[str, Offer], signed: Signed
) -> tuple[str, tuple[str | int, ...]]:
    """Name the pool that comes nearest, and what stands between."""
    if signed.held:
        first = signed.refused[0]
        return f"{first.because}, and the queue stored the tag with it", first.path
    near = []
    for name, offer in offers.items():
        if not serves_queue(fleet.pools[name], signed.queue):
            continue
        mismatch = find_mismatch(signed.ask, offer)
        wrong = sum(map(len, (mismatch.missing, mismatch.not_brought, mismatch.not_asked)))
        wrong += len(mismatch.too_small)
        near.append((wrong, name, mismatch))
    if not near:
        return f"no pool serves queue {signed.queue}", ("pools",)
    wrong, name, mismatch = min(near, key=lambda entry: entry[:2])
    if not wrong:
        return (
            f"pool {name} fits, but makes machines on demand only, for requests that ask for it"
            if not isinstance(fleet.pools[name], StaticPool)
            else f"pool {name} fits, but all its workers are taken"
        ), ("pools", name)
    return f"no pool fits; nearest is {name}, which {mismatch}", ("pools", name, "provides")
