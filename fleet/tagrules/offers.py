"""The specification of matching: one request against one worker.

A worker may run a request when `request.required <= worker.provides` and
`worker.requires <= request.provided` (Debusine's rule), every minimum is reached, and every
exclusive tag the worker provides is asked for. Every faster form has to agree with this one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from fleet.schema.model import (
    Fleet,
    Pool,
)
from fleet.tagrules.numbers import Numbers, read_minimums, read_numbers, unmet
from fleet.tagrules.sources import Doubt, Weighed, pool_sources, weigh, worker_sources
from fleet.tagrules.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fleet.model.facts import Worker
    from fleet.model.images import ImageVersion


@dataclass(frozen=True)
class Offer:
    """What the workers of one pool provide and require."""

    provides: frozenset[str]
    requires: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    on_demand: frozenset[str] = frozenset()
    numbers: Numbers = ()
    """The worker's value of each numeric tag, sorted by name."""


@dataclass(frozen=True)
class Ask:
    """What a request requires of a worker, and what it provides."""

    required: frozenset[str]
    provided: frozenset[str] = frozenset()
    minimums: Numbers = ()
    """The minimum of each numeric tag, sorted by name."""


@dataclass(frozen=True)
class Mismatch:
    """Why a worker may not run a request; empty when it may."""

    missing: tuple[str, ...] = ()
    not_brought: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    too_small: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Say whether there is any mismatch."""
        return bool(self.missing or self.not_brought or self.not_asked or self.too_small)

    def __str__(self) -> str:
        """Return every reason in one sentence."""
        parts = []
        if self.missing:
            parts.append(f"does not provide {', '.join(self.missing)}")
        if self.not_brought:
            parts.append(f"requires {', '.join(self.not_brought)} of the request")
        if self.not_asked:
            parts.append(f"is exclusive to requests that ask for {', '.join(self.not_asked)}")
        parts += [f"does not have {minimum}" for minimum in self.too_small]
        return "; ".join(parts)


def satisfies(ask: Ask, offer: Offer) -> bool:
    """Say whether a worker with this offer may run a request that asks this."""
    return (
        ask.required <= offer.provides
        and offer.requires <= ask.provided
        and offer.exclusive <= ask.required
        and not unmet(ask.minimums, offer.numbers)
    )


def find_mismatch(ask: Ask, offer: Offer) -> Mismatch:
    """Return every tag and number that keeps a request from a worker, sorted."""
    return Mismatch(
        missing=tuple(sorted(ask.required - offer.provides)),
        not_brought=tuple(sorted(offer.requires - ask.provided)),
        not_asked=tuple(sorted(offer.exclusive - ask.required)),
        too_small=unmet(ask.minimums, offer.numbers),
    )


def ask_of_tags(fleet: Fleet, required: Iterable[str], provided: Iterable[str] = ()) -> Ask:
    """Return the ask of a request that requires these tags, minimums among them."""
    plain, minimums = read_minimums(required, Vocabulary(fleet).numeric)
    return Ask(required=plain, provided=frozenset(provided), minimums=minimums)


def offer_of_pool(fleet: Fleet, name: str, images: Iterable["ImageVersion"]) -> Offer:
    """Return what a pool's workers offer, even if none has ever booted.

    It combines the image's boot test (before it, the image's `provides`), the machine's figures
    in the catalogue, and the pool's `provides`.
    """
    pool = fleet.pools[name]
    weighed = weigh(fleet, name, pool_sources(fleet, name, images))
    return _offer(fleet, weighed, pool.requires if isinstance(pool, Pool) else ())


def offer_of_worker(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"], worker: "Worker"
) -> Offer:
    """Return what a pool's worker offers that has reported its tags."""
    provided = worker_sources(pool_sources(fleet, name, images), worker.provides)
    return _offer(fleet, weigh(fleet, name, provided), worker.requires)


def find_doubts(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"], worker: "Worker | None" = None
) -> tuple[Doubt, ...]:
    """Return the tags of a pool, or of a worker in it, that do not count, and why."""
    provided = pool_sources(fleet, name, images)
    if worker is not None:
        provided = worker_sources(provided, worker.provides)
    return weigh(fleet, name, provided).doubts


def offer_of_tags(fleet: Fleet, provides: Iterable[str], requires: Iterable[str] = ()) -> Offer:
    """Return the offer of a worker with these tags, unchecked."""
    tags, numbers = read_numbers(provides, Vocabulary(fleet).numeric)
    return _offer(fleet, Weighed(tags, numbers, ()), requires)


def _offer(fleet: Fleet, weighed: Weighed, requires: Iterable[str]) -> Offer:
    vocabulary = Vocabulary(fleet)
    return Offer(
        provides=weighed.tags,
        requires=frozenset(requires),
        exclusive=frozenset(filter(vocabulary.is_exclusive, weighed.tags)),
        on_demand=frozenset(filter(vocabulary.is_on_demand, weighed.tags)),
        numbers=weighed.numbers,
    )


class Nearness:
    """Counts how far each offer is from matching a request, with tags as bits of an integer."""

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self.offers = offers
        tags = {tag for o in offers.values() for tag in (*o.provides, *o.requires, *o.exclusive)}
        self._bits = {tag: 1 << number for number, tag in enumerate(sorted(tags))}
        self._masks = [
            (key, self._mask(o.provides), self._mask(o.requires), self._mask(o.exclusive))
            for key, o in offers.items()
        ]

    def count_mismatches(self, ask: Ask) -> Iterator[tuple[int, Decimal, str]]:
        """Yield for each offer its number of mismatches, the shares its numbers lack, its key."""
        unknown = sum(tag not in self._bits for tag in ask.required)
        required, provided = self._mask(ask.required), self._mask(ask.provided)
        for key, provides, requires, exclusive in self._masks:
            missing = (required & ~provides).bit_count() + unknown
            unwanted = (requires & ~provided).bit_count() + (exclusive & ~required).bit_count()
            small = len(unmet(ask.minimums, self.offers[key].numbers)) if ask.minimums else 0
            lack = _lack(ask.minimums, self.offers[key].numbers) if small else Decimal(0)
            yield missing + unwanted + small, lack, key

    def _mask(self, tags: Iterable[str]) -> int:
        return sum(self._bits.get(tag, 0) for tag in tags)


def _lack(minimums: Numbers, numbers: Numbers) -> Decimal:
    """Return the sum of the shares of minimums that numbers lack."""
    have = dict(numbers)
    short = [(least, have.get(name, 0)) for name, least in minimums if have.get(name, -1) < least]
    return sum(
        ((least - number) / least if least > 0 else Decimal(1) for least, number in short),
        Decimal(0),
    )
