"""This module says why a request gets no machine, and which line of fleet.yaml decides it."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from fleet.answer import Stop
from fleet.choices import Path
from fleet.demand import Signed
from fleet.draft import Draft
from fleet.facts import World
from fleet.making import Option, why_closed
from fleet.plan import Blocked, Unserved
from fleet.schema.model import Fleet, StaticPool
from fleet.staffing import Service
from fleet.tagrules import Ask, Offer, find_mismatch, offer_of_pool, serves_queue


def find_unserved(
    fleet: Fleet,
    world: World,
    drafts: Mapping[str, Draft],
    demand: Sequence[Signed],
    service: Service,
) -> Iterator[Unserved]:
    """Yield the requests that get no machine in this run, by signature and cause."""
    images = {name: draft.choice.images for name, draft in drafts.items()}
    offers = {
        name: offer_of_pool(fleet, name, images.get(name, world.images))
        for name in sorted(fleet.pools)
    }
    # Requests that ask the same, with whatever priority, are as near to a pool.
    nearest = cache(lambda queue, ask: _nearest(fleet, offers, queue, ask))
    for signed in demand:
        for stops, keys in _by_stops(service, signed).items():
            found = tuple(_blocked(drafts, signed, stops))
            because, path = (
                (_say_once(found), found[0].blocked.path)
                if found
                else _why_held(signed) or nearest(signed.queue, signed.ask)
            )
            yield Unserved(
                signature=signed.id,
                requests=tuple(keys),
                count=len(keys),
                because=because,
                path=path,
                blocked=_distinct(found),
            )


def _by_stops(service: Service, signed: Signed) -> dict[tuple[Stop, ...], list[str]]:
    """Return the keys of the requests that get no machine, by what stops them."""
    groups: dict[tuple[Stop, ...], list[str]] = {}
    known: dict[int, list[str]] = {}  # a cause is slow to hash, and most share one
    for request in signed.requests:
        stops = service.unserved.get(request.key)
        if stops is None:
            continue
        keys = known.get(id(stops))
        if keys is None:
            keys = known[id(stops)] = groups.setdefault(stops, [])
        keys.append(request.key)
    return groups


class _Stopped(NamedTuple):
    """What keeps a pool from making one machine more; of a limit, what room it leaves."""

    blocked: Blocked
    room: Decimal | None = None

    @property
    def what(self) -> tuple[Path, str]:
        """Return what it is: a limit, whatever it leaves in which period, else the sentence."""
        return self.blocked.path, self.blocked.because if self.room is None else ""


def _blocked(
    drafts: Mapping[str, Draft], signed: Signed, stops: Sequence[Stop]
) -> Iterator[_Stopped]:
    """Yield every pool that fits and what keeps it from making one machine more."""
    rows = {stop.place: stop.rows for stop in stops}
    for pool in signed.machines_of:
        draft = drafts.get(pool)
        if draft is None:
            continue
        if draft.closed:
            because = f"pool {pool} makes no machine: {draft.closed}"
            yield _Stopped(Blocked(pool=pool, because=because, path=_path_of_closed(draft)))
            continue
        for option in draft.options:
            if option.closed:
                because = f"pool {pool} makes no {option.type}: {option.closed}"
                path = _path_of_option(draft, option)
                yield _Stopped(Blocked(pool=pool, because=because, path=path))
            for row in rows.get(option.key, ()):
                yield _Stopped(Blocked(pool=pool, because=row.because, path=row.path), row.room)


def _path_of_closed(draft: Draft) -> Path:
    """Return the line that decides that a pool makes no machine at all."""
    if draft.options and draft.closed == why_closed(draft.options):
        return _path_of_option(draft, draft.options[0])
    return ("pools", draft.name)


def _path_of_option(draft: Draft, option: Option) -> Path:
    """Return the line that decides that nothing is made in one way."""
    if draft.choice.closed and option.closed == draft.choice.closed:
        return ("guards", "boot_failures")
    return ("pools", draft.name, "machine")


def _distinct(found: Sequence[_Stopped]) -> tuple[Blocked, ...]:
    """Return what stops a request, but of one limit in two periods what leaves as much once."""
    kept: dict[tuple[object, ...], Blocked] = {}
    for each in found:
        kept.setdefault((each.blocked.pool, each.what, each.room), each.blocked)
    return tuple(kept.values())


def _say_once(found: Sequence[_Stopped]) -> str:
    """Return what stops a request; of one limit in two periods only what leaves less."""
    tightest: dict[tuple[Path, str], _Stopped] = {}
    for each in found:
        known = tightest.setdefault(each.what, each)
        if each.room is not None and known.room is not None and each.room < known.room:
            tightest[each.what] = each
    return "; ".join(dict.fromkeys(each.blocked.because for each in tightest.values()))


def _why_held(signed: Signed) -> tuple[str, Path] | None:
    """Return why the queue may not have it served at all; None where it may."""
    if not signed.held:
        return None
    first = signed.refused[0]
    return f"{first.because}, and the queue stored the tag with it", first.path


def _nearest(fleet: Fleet, offers: Mapping[str, Offer], queue: str, ask: Ask) -> tuple[str, Path]:
    """Name the pool that comes nearest, and what stands between."""
    near = []
    for name, offer in offers.items():
        if not serves_queue(fleet.pools[name], queue):
            continue
        mismatch = find_mismatch(ask, offer)
        wrong = sum(map(len, (mismatch.missing, mismatch.not_brought, mismatch.not_asked)))
        wrong += len(mismatch.too_small)
        near.append((wrong, name, mismatch))
    if not near:
        return f"no pool serves queue {queue}", ("pools",)
    wrong, name, mismatch = min(near, key=lambda entry: entry[:2])
    if not wrong:
        return (
            f"pool {name} fits, but makes machines on demand only, for requests that ask for it"
            if not isinstance(fleet.pools[name], StaticPool)
            else f"pool {name} fits, but all its workers are taken"
        ), ("pools", name)
    return f"no pool fits; nearest is {name}, which {mismatch}", ("pools", name, "provides")
