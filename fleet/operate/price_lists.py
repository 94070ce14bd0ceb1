"""This module reads what providers charge, once a day: what they said is kept in the store."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from fleet.errors import StoreFailed, StoreMissing
from fleet.facts import Unknown
from fleet.facts.prices import PriceList
from fleet.ports import Asking, PriceReader
from fleet.ports.store import Store

NEW = timedelta(hours=24)
"""How long a price list counts before its provider is asked again."""


def read_prices(
    readers: Mapping[str, PriceReader], store: Store, now: datetime, asking: Asking
) -> dict[str, PriceList | Unknown]:
    """Return each provider's list: the kept one while it is new, or where none can be read."""
    kept = {name: _kept(name, reader, store) for name, reader in sorted(readers.items())}
    asked = {
        name: partial(readers[name].read, now)
        for name, old in kept.items()
        if old is None or not old.read_at <= now < old.read_at + NEW
    }
    told = asking("the prices of provider", asked)
    for name, new in told.items():
        if isinstance(new, PriceList):
            _keep(name, new, store)
    return {name: _newest(told.get(name), old) for name, old in kept.items()}


def ask_anew(
    name: str, reader: PriceReader, store: Store, now: datetime
) -> tuple[PriceList | None, PriceList]:
    """Return the list that was kept and the one read now, which is kept from now on.

    Raises SourceUnreachable where none can be read.
    """
    kept, told = _kept(name, reader, store), reader.read(now)
    _keep(name, told, store)
    return kept, told


def _newest(told: PriceList | Unknown | None, kept: PriceList | None) -> PriceList | Unknown:
    if isinstance(told, Unknown) and kept is not None:
        return kept.model_copy(update={"stale": told.unknown})
    return told or kept or Unknown(unknown="nobody told prices")


def _keep(name: str, told: PriceList, store: Store) -> None:
    with suppress(StoreMissing, StoreFailed):  # then the next run asks again
        store.keep_price_list(name, told)


def _kept(name: str, reader: PriceReader, store: Store) -> PriceList | None:
    """Return what was kept of a provider, where it is of the place where that is now."""
    try:
        kept = store.price_lists().get(name)
    except (StoreMissing, StoreFailed):
        return None
    return kept if kept is not None and kept.location == reader.location else None
