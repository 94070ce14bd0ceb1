"""This module says why a request gets no machine, and which line of fleet.yaml decides it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fleet.answer import Stop
from fleet.demand import Signed
from fleet.draft import Draft
from fleet.facts import World
from fleet.plan import Blocked, Unserved
from fleet.schema.model import Fleet, StaticPool
from fleet.staffing import Service
from fleet.tagrules import Offer, find_mismatch, offer_of_pool, serves_queue


def find_unserved(
    fleet: Fleet,
    world: World,
    drafts: Mapping[str, Draft],
    demand: Sequence[Signed],
    service: Service,
) -> Iterator[Unserved]:
    """Yield the requests that get no machine in this run, by signature and cause."""
    offers = {name: offer_of_pool(fleet, name, world.images) for name in sorted(fleet.pools)}
    for signed in demand:
        groups: defaultdict[tuple[Stop, ...], list[str]] = defaultdict(list)
        for request in signed.requests:
            stops = service.unserved.get(request.key)
            if stops is not None:
                groups[stops].append(request.key)
        for stops, keys in groups.items():
            blocked = tuple(dict.fromkeys(_blocked(drafts, signed, stops)))
            because, path = (
                ("; ".join(dict.fromkeys(each.because for each in blocked)), blocked[0].path)
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


def _blocked(
    drafts: Mapping[str, Draft], signed: Signed, stops: Sequence[Stop]
) -> Iterator[Blocked]:
    """Yield every pool that fits and what keeps it from making one machine more."""
    rows = {stop.place: stop.rows for stop in stops}
    for pool in signed.machines_of:
        draft = drafts.get(pool)
        if draft is None:
            continue
        if draft.closed:
            because = f"pool {pool} makes no machine: {draft.closed}"
            yield Blocked(pool=pool, because=because, path=("pools", pool))
            continue
        for option in draft.options:
            if option.closed:
                because = f"pool {pool} makes no {option.type}: {option.closed}"
                yield Blocked(pool=pool, because=because, path=("pools", pool, "machine"))
            for row in rows.get(option.key, ()):
                yield Blocked(pool=pool, because=row.because, path=row.path)


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
