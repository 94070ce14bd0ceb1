"""This module counts what stands between a request and many offers; `find_mismatch` says what.

Tags become bits of an integer, so that an offer costs a few operations, whatever it holds.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from fleet.tagrules.numbers import Numbers, unmet
from fleet.tagrules.offers import Ask, Offer


class Nearness:
    """Offers, made ready to be asked how near each is to a request."""

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self.offers = offers
        tags = {tag for o in offers.values() for tag in (*o.provides, *o.requires, *o.exclusive)}
        self._bits = {tag: 1 << number for number, tag in enumerate(sorted(tags))}
        self._masks = [
            (key, self._mask(o.provides), self._mask(o.requires), self._mask(o.exclusive))
            for key, o in offers.items()
        ]

    def count_mismatches(self, ask: Ask) -> Iterator[tuple[int, Decimal, str]]:
        """Yield for each offer how many tags and numbers stand against it, by how much, its key.

        By how much: what numbers lack of their minimums, as shares, added up.
        """
        unheard = sum(tag not in self._bits for tag in ask.required)
        required, provided = self._mask(ask.required), self._mask(ask.provided)
        for key, provides, requires, exclusive in self._masks:
            missing = (required & ~provides).bit_count() + unheard
            unwanted = (requires & ~provided).bit_count() + (exclusive & ~required).bit_count()
            small = len(unmet(ask.minimums, self.offers[key].numbers)) if ask.minimums else 0
            lack = _lack(ask.minimums, self.offers[key].numbers) if small else Decimal(0)
            yield missing + unwanted + small, lack, key

    def _mask(self, tags: Iterable[str]) -> int:
        return sum(self._bits.get(tag, 0) for tag in tags)


def _lack(minimums: Numbers, numbers: Numbers) -> Decimal:
    """Return what numbers lack of their minimums, as shares: all of one that cannot be shared."""
    have = dict(numbers)
    short = [(least, have.get(name, 0)) for name, least in minimums if have.get(name, -1) < least]
    return sum(
        ((least - number) / least if least > 0 else Decimal(1) for least, number in short),
        Decimal(0),
    )
