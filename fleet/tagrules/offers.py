"""The specification of matching: whether one worker may run one request.

A worker may run a request if `request.required <= worker.provides` and `worker.requires <=
request.provided` (Debusine's rule), each minimum is reached, and the request requires every
exclusive tag that the worker provides. All faster implementations must give the same result.

For many requests, the workers that provide a tag are bits of an integer. A request costs one `&`
per required tag, however many workers there are.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cache, reduce
from itertools import compress
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from fleet.schema.model import Fleet, Pool
from fleet.tagrules.sources import Doubt, Weighed, pool_sources, weigh, worker_sources
from fleet.tagrules.vocabulary import Numbers, Vocabulary, read_minimums, read_numbers, unmet

if TYPE_CHECKING:
    from fleet.model.facts import Worker
    from fleet.model.images import ImageVersion


class Offer(NamedTuple):
    """The tags and numbers that workers provide, and the tags that they require of requests."""

    provides: frozenset[str]
    requires: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    on_demand: frozenset[str] = frozenset()
    numbers: Numbers = ()
    """Pairs of a number's name and the worker's value, sorted by name."""


class Ask(NamedTuple):
    """The tags and minimums that a request requires of workers, and the tags that it provides."""

    required: frozenset[str]
    provided: frozenset[str] = frozenset()
    minimums: Numbers = ()
    """Pairs of a number's name and the required minimum, sorted by name."""


class Mismatch(NamedTuple):
    """The reasons why a worker may not run a request. All are empty if the worker may run it."""

    missing: tuple[str, ...] = ()
    not_brought: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    too_small: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any reason."""
        return bool(self.missing or self.not_brought or self.not_asked or self.too_small)


def satisfies(ask: Ask, offer: Offer) -> bool:
    """Return whether a worker with this offer may run a request with this ask."""
    return (
        ask.required <= offer.provides
        and offer.requires <= ask.provided
        and offer.exclusive <= ask.required
        and not unmet(ask.minimums, offer.numbers)
    )


def find_mismatch(ask: Ask, offer: Offer) -> Mismatch:
    """Return the sorted tags and numbers that prevent the worker from running the request."""
    return Mismatch(
        missing=tuple(sorted(ask.required - offer.provides)),
        not_brought=tuple(sorted(offer.requires - ask.provided)),
        not_asked=tuple(sorted(offer.exclusive - ask.required)),
        too_small=unmet(ask.minimums, offer.numbers),
    )


def find_unasked(ask: Ask, offer: Offer) -> tuple[str, ...] | None:
    """Return the additional tags to require so that a new worker may serve a request.

    None: the offer does not fit, even with further required tags.
    """
    mismatch = find_mismatch(ask, offer)
    if mismatch.missing or mismatch.not_brought or mismatch.too_small:
        return None
    unasked = mismatch.not_asked
    if offer.on_demand and not offer.on_demand & ask.required.union(unasked):
        unasked = (*unasked, min(offer.on_demand))
    return unasked


def ask_of_tags(fleet: Fleet, required: Iterable[str], provided: Iterable[str] = ()) -> Ask:
    """Return an Ask with these required tags, minimums and provided tags."""
    plain, minimums = read_minimums(required, Vocabulary(fleet).numeric)
    return Ask(required=plain, provided=frozenset(provided), minimums=minimums)


def offer_of_pool(fleet: Fleet, name: str, images: Iterable["ImageVersion"]) -> Offer:
    """Return the offer of a pool's workers, which is known before any worker has booted.

    It combines the tags that the image's test proved (before the test, `provides` of the image),
    the sizes of the machine type, and `provides` of the pool.
    """
    known = tuple(images)

    def find() -> Offer:
        pool = fleet.pools[name]
        weighed = _weigh_pool(fleet, name, known)
        return _offer(fleet, weighed, pool.requires if isinstance(pool, Pool) else ())

    return fleet.cached(("offer", name), known, find)


def _weigh_pool(fleet: Fleet, name: str, images: tuple["ImageVersion", ...]) -> Weighed:
    sources = pool_sources(fleet, name, images)
    return fleet.cached(("weighed", name), images, lambda: weigh(fleet, name, sources))


def offer_of_worker(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"], worker: "Worker"
) -> Offer:
    """Return the offer of a worker, from the tags that the worker reported."""
    provided = worker_sources(pool_sources(fleet, name, images), worker.provides)
    return _offer(fleet, weigh(fleet, name, provided), worker.requires)


def find_doubts(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"], worker: "Worker | None" = None
) -> tuple[Doubt, ...]:
    """Return the tags of a pool or a worker that have no effect, with the reasons."""
    known = tuple(images)
    if worker is None:
        return _weigh_pool(fleet, name, known).doubts
    provided = worker_sources(pool_sources(fleet, name, known), worker.provides)
    return weigh(fleet, name, provided).doubts


def offer_of_tags(fleet: Fleet, provides: Iterable[str], requires: Iterable[str] = ()) -> Offer:
    """Return the offer of a worker with these tags. The tags are not checked."""
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


_NO_SHORTFALL = Decimal(0)


class Nearness:
    """Counter of mismatches between a request and each offer. Tags are bits of an integer."""

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self.offers = offers
        tags = {tag for o in offers.values() for tag in (*o.provides, *o.requires, *o.exclusive)}
        self._bits = {tag: 1 << number for number, tag in enumerate(sorted(tags))}
        self._masks = [
            (key, self._mask(o.provides), self._mask(o.requires), self._mask(o.exclusive))
            for key, o in offers.items()
        ]

    def count_mismatches(self, ask: Ask) -> Iterator[tuple[int, Decimal, str]]:
        """Yield each offer's number of mismatches, its sum of relative shortfalls, and its key."""
        unknown = sum(tag not in self._bits for tag in ask.required)
        required, provided = self._mask(ask.required), self._mask(ask.provided)
        for key, provides, requires, exclusive in self._masks:
            missing = (required & ~provides).bit_count() + unknown
            unwanted = (requires & ~provided).bit_count() if requires else 0
            unwanted += (exclusive & ~required).bit_count() if exclusive else 0
            small = len(unmet(ask.minimums, self.offers[key].numbers)) if ask.minimums else 0
            have = dict(self.offers[key].numbers) if small else {}
            lack = sum(
                (
                    (least - have.get(name, 0)) / least if least > 0 else Decimal(1)
                    for name, least in (ask.minimums if small else ())
                    if have.get(name, -1) < least
                ),
                _NO_SHORTFALL,
            )
            yield missing + unwanted + small, lack, key

    def _mask(self, tags: Iterable[str]) -> int:
        return sum(self._bits.get(tag, 0) for tag in tags)


_ABSENT = Decimal(-1)  # the worker has no such number, as in `unmet`
_DIGITS = bytes(byte == ord("1") for byte in range(256))


class Matcher:
    """Index that finds all offers that fit a request."""

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self._keys = tuple(sorted(offers))
        self._everyone = (1 << len(self._keys)) - 1
        self._providing: defaultdict[str, int] = defaultdict(int)
        self._requiring: defaultdict[frozenset[str], int] = defaultdict(int)
        self._exclusive: defaultdict[frozenset[str], int] = defaultdict(int)
        self._numbers: dict[str, _Ranked] = {}
        for bit, key in enumerate(self._keys):
            offer = offers[key]
            for tag in offer.provides:
                self._providing[tag] |= 1 << bit
            if offer.requires:
                self._requiring[offer.requires] |= 1 << bit
            if offer.exclusive:
                self._exclusive[offer.exclusive] |= 1 << bit
        self._required = frozenset[str]().union(*self._requiring)
        stated = [dict(offers[key].numbers) for key in self._keys]
        for name in {name for numbers in stated for name in numbers}:
            self._numbers[name] = _Ranked([numbers.get(name, _ABSENT) for numbers in stated])
        self._providing_all = cache(self._find_providing)
        self._requiring_only = cache(self._find_requiring)
        self._reaching = cache(self._find_reaching)
        self._keys_of = cache(self._find_keys)

    def fitting(self, ask: Ask) -> tuple[str, ...]:
        """Return the sorted keys of the offers that fit this ask."""
        bits = self._providing_all(ask.required)
        if bits and self._requiring:
            # Offers require few tags of a request, and almost never the tag of its package.
            bits &= self._requiring_only(ask.provided & self._required)
        if bits and ask.minimums:
            bits &= self._reaching(ask.minimums)
        return self._keys_of(bits)

    def _find_providing(self, required: frozenset[str]) -> int:
        """Return a bit set of the offers with all required tags and no other exclusive tag."""
        found = self._everyone
        for tag in required:
            found &= self._providing.get(tag, 0)
        for exclusive, bits in self._exclusive.items():
            if found & bits and not exclusive <= required:
                found &= ~bits
        return found

    def _find_requiring(self, provided: frozenset[str]) -> int:
        others = [bits for requires, bits in self._requiring.items() if not requires <= provided]
        return self._everyone & ~reduce(or_, others, 0)

    def _find_reaching(self, minimums: Numbers) -> int:
        found = self._everyone
        for name, least in minimums:
            ranked = self._numbers.get(name)
            if ranked is not None:
                found &= ranked.at_least(least)
            elif least > _ABSENT:
                found = 0
        return found

    def _find_keys(self, bits: int) -> tuple[str, ...]:
        written = f"{bits:b}"[::-1].encode().translate(_DIGITS)
        return tuple(compress(self._keys, written))


class _Ranked:
    """The values of one number in all offers, sorted."""

    def __init__(self, numbers: list[Decimal]) -> None:
        together: defaultdict[Decimal, int] = defaultdict(int)
        for bit, number in enumerate(numbers):
            together[number] |= 1 << bit
        self._levels = sorted(together)
        reached = 0
        bits = []
        for level in reversed(self._levels):
            reached |= together[level]
            bits.append(reached)
        self._bits = [*reversed(bits), 0]

    def at_least(self, least: Decimal) -> int:
        """Return a bit set of the offers whose number is at least this value."""
        return self._bits[bisect_left(self._levels, least)]


def match(asks: Iterable[Ask], offers: Mapping[str, Offer]) -> dict[Ask, tuple[str, ...]]:
    """Map each different ask to the sorted keys of the offers that fit."""
    matcher = Matcher(offers)
    return {ask: matcher.fitting(ask) for ask in dict.fromkeys(asks)}
