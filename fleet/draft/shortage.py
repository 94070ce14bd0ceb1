"""This module says why a request gets no machine, and which line of fleet.yaml decides it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import groupby
from typing import NamedTuple

from fleet.allocate.answer import Stop
from fleet.demand import Signed
from fleet.demand.choices import Path
from fleet.draft import Draft
from fleet.draft.staffing import Service
from fleet.facts import World
from fleet.making import Option, why_closed
from fleet.plan import Blocked, Unserved
from fleet.schema.model import Fleet, Pool, StaticPool
from fleet.tagrules import Ask, Mismatch, find_mismatch, offer_of_pool, serves_queue
from fleet.tagrules.nearness import Nearness
from fleet.tagrules.sizes import BUILD_ARCH


def find_unserved(
    fleet: Fleet,
    world: World,
    drafts: Mapping[str, Draft],
    demand: Sequence[Signed],
    service: Service,
) -> Iterator[Unserved]:
    """Yield the requests that get no machine in this run, by signature and cause."""
    if not service.unserved:
        return
    own = {name: draft.offer for name, draft in drafts.items() if draft.pool is not None}
    offers = {
        name: own.get(name) or offer_of_pool(fleet, name, world.versions)
        for name in sorted(fleet.pools)
    }
    near = cache(
        lambda queue: Nearness(
            {name: offers[name] for name in offers if serves_queue(fleet.pools[name], queue)}
        )
    )
    # Requests that ask the same, with whatever priority, are as near to a pool.
    nearest = cache(lambda queue, ask: _nearest(fleet, near(queue), queue, ask))
    causes = _Causes(drafts, service.unserved.values())
    for signed in demand:
        groups: defaultdict[int, list[str]] = defaultdict(list)
        keys = [request.key for request in signed.requests]
        # Those who come one after the other are mostly stopped by the same.
        for stops, alike in groupby(keys, key=service.unserved.get):
            if stops is not None:
                groups[causes.number_of(stops)] += alike
        for number, keys in groups.items():
            because, path, blocked = causes.of(signed, number)
            if not blocked:
                because, path = _why_held(signed) or nearest(signed.queue, signed.ask)
            yield Unserved(
                signature=signed.id,
                requests=tuple(keys),
                count=len(keys),
                because=because,
                path=path,
                blocked=blocked,
            )


_Cause = tuple[str, Path, tuple[Blocked, ...]]
"""What stops a request in a sentence, the line that decides, and each pool that would fit."""


class _Causes:
    """What stops requests: said once for all that fit the same pools and are stopped alike."""

    def __init__(self, drafts: Mapping[str, Draft], stopped: Collection[tuple[Stop, ...]]) -> None:
        self._drafts = drafts
        # Those who are stopped by the same share one tuple, which is slow to hash.
        self._stops = dict(zip(map(id, stopped), stopped, strict=True))
        first: dict[tuple[Stop, ...], int] = {}
        self._numbers = {known: first.setdefault(s, known) for known, s in self._stops.items()}
        self._known: dict[tuple[tuple[str, ...], int], _Cause] = {}

    def number_of(self, stops: tuple[Stop, ...]) -> int:
        """Return a number that is the same for what stops alike."""
        return self._numbers[id(stops)]

    def of(self, signed: Signed, number: int) -> _Cause:
        """Return what stops requests of a signature; nothing where no pool fits it."""
        key = signed.machines_of, number
        if key not in self._known:
            found = tuple(_blocked(self._drafts, signed.machines_of, self._stops[number]))
            path = found[0].blocked.path if found else ()
            self._known[key] = _say_once(found), path, _distinct(found)
        return self._known[key]


class _Stopped(NamedTuple):
    """What keeps a pool from making one machine more; of a limit, what room it leaves."""

    blocked: Blocked
    room: Decimal | None = None

    @property
    def what(self) -> tuple[Path, str]:
        """Return what it is: a limit, whatever it leaves in which period, else the sentence."""
        return self.blocked.path, self.blocked.because if self.room is None else ""


def _blocked(
    drafts: Mapping[str, Draft], pools: Iterable[str], stops: Sequence[Stop]
) -> Iterator[_Stopped]:
    """Yield every pool that fits and what keeps it from making one machine more."""
    rows = {stop.place: stop.rows for stop in stops}
    for pool in pools:
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


def _nearest(fleet: Fleet, near: Nearness, queue: str, ask: Ask) -> tuple[str, Path]:
    """Name the pool that comes nearest, and what stands between."""
    if not near.offers:
        return f"no pool serves queue {queue}", ("pools",)
    wrong, name = min(near.count_mismatches(ask))
    if not wrong:
        return (
            f"pool {name} fits, but makes machines on demand only, for requests that ask for it"
            if not isinstance(fleet.pools[name], StaticPool)
            else f"pool {name} fits, but all its workers are taken"
        ), ("pools", name)
    mismatch = find_mismatch(ask, near.offers[name])
    key = _key_of(mismatch) if isinstance(fleet.pools[name], Pool) else "provides"
    return f"no pool fits; nearest is {name}, which {mismatch}", ("pools", name, key)


def _key_of(mismatch: Mismatch) -> str:
    """Return the key of a pool that decides what its workers lack, or require."""
    if any(tag.startswith(BUILD_ARCH) for tag in mismatch.missing):
        return "image"
    if mismatch.too_small:
        return "machine"
    return "provides" if mismatch.missing or not mismatch.not_brought else "requires"
