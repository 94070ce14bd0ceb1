"""Match many requests with many offers at once, with the same result as `satisfies`.

Offers are bits of an integer: matching a request costs one `&` for each tag that it requires,
however many offers there are.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import compress

from fleet.tagrules.numbers import Numbers
from fleet.tagrules.offers import Ask, Offer

_ABSENT = Decimal(-1)  # a number that a worker does not state, as in `unmet`
_DIGITS = bytes(byte == ord("1") for byte in range(256))


class Matcher:
    """Finds the offers that fit an ask."""

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
        stated = [dict(offers[key].numbers) for key in self._keys]
        for name in {name for numbers in stated for name in numbers}:
            self._numbers[name] = _Ranked([numbers.get(name, _ABSENT) for numbers in stated])
        self._by_required: dict[frozenset[str], int] = {}
        self._by_provided: dict[frozenset[str], int] = {}
        self._by_minimums: dict[Numbers, int] = {}
        self._by_bits: dict[int, tuple[str, ...]] = {}

    def fitting(self, ask: Ask) -> tuple[str, ...]:
        """Return the keys of the offers that a request with this ask fits, sorted."""
        bits = self._providing_all(ask.required)
        if bits and self._requiring:
            bits &= self._requiring_only(ask.provided)
        if bits and ask.minimums:
            bits &= self._reaching(ask.minimums)
        return self._keys_of(bits)

    def _providing_all(self, required: frozenset[str]) -> int:
        """Return the offers that provide all of this and are exclusive to nothing else."""
        known = self._by_required.get(required)
        if known is None:
            known = self._everyone
            for tag in required:
                known &= self._providing.get(tag, 0)
            for exclusive, bits in self._exclusive.items():
                if known & bits and not exclusive <= required:
                    known &= ~bits
            self._by_required[required] = known
        return known

    def _requiring_only(self, provided: frozenset[str]) -> int:
        known = self._by_provided.get(provided)
        if known is None:
            known = self._everyone
            for requires, bits in self._requiring.items():
                if not requires <= provided:
                    known &= ~bits
            self._by_provided[provided] = known
        return known

    def _reaching(self, minimums: Numbers) -> int:
        known = self._by_minimums.get(minimums)
        if known is None:
            known = self._everyone
            for name, least in minimums:
                ranked = self._numbers.get(name)
                if ranked is not None:
                    known &= ranked.at_least(least)
                elif least > _ABSENT:
                    known = 0
            self._by_minimums[minimums] = known
        return known

    def _keys_of(self, bits: int) -> tuple[str, ...]:
        known = self._by_bits.get(bits)
        if known is None:
            written = f"{bits:b}"[::-1].encode().translate(_DIGITS)
            known = tuple(compress(self._keys, written))
            self._by_bits[bits] = known
        return known


class _Ranked:
    """One numeric tag of every offer, in the order of the numbers."""

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
        """Return the offers whose number is not below this one."""
        return self._bits[bisect_left(self._levels, least)]


def match(asks: Iterable[Ask], offers: Mapping[str, Offer]) -> dict[Ask, tuple[str, ...]]:
    """Return for every different ask the keys of the offers that it fits, sorted."""
    matcher = Matcher(offers)
    return {ask: matcher.fitting(ask) for ask in dict.fromkeys(asks)}
