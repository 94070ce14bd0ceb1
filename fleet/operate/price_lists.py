"""This module reads what providers charge, once a day: what they said is kept in the store."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from fleet.errors import FleetError, StoreFailed, StoreMissing
from fleet.facts import Unknown
from fleet.facts.prices import PriceList
from fleet.ports import PriceReader
from fleet.ports.store import Store

NEW = timedelta(hours=24)
"""How long a price list counts before its provider is asked again."""


def read_prices(
    readers: Mapping[str, PriceReader], store: Store, now: datetime
) -> dict[str, PriceList | Unknown]:
    """Return each provider's list: the kept one while it is new, or where none can be read."""
    return {name: _read(name, reader, store, now) for name, reader in sorted(readers.items())}


def ask_anew(
    name: str, reader: PriceReader, store: Store, now: datetime
) -> tuple[PriceList | None, PriceList]:
    """Return the list that was kept and the one read now, which is kept from now on.

    Raises SourceUnreachable where none can be read.
    """
    kept, told = _kept(name, reader, store), reader.read(now)
    with suppress(StoreMissing, StoreFailed):  # then the next run asks again
        store.keep_price_list(name, told)
    return kept, told


def _read(name: str, reader: PriceReader, store: Store, now: datetime) -> PriceList | Unknown:
    kept = _kept(name, reader, store)
    if kept is not None and kept.read_at <= now < kept.read_at + NEW:
        return kept
    try:
        return ask_anew(name, reader, store, now)[1]
    except FleetError as error:
        if kept is None:
            return Unknown(unknown=str(error))
        return kept.model_copy(update={"stale": str(error)})


def _kept(name: str, reader: PriceReader, store: Store) -> PriceList | None:
    """Return what was kept of a provider, where it is of the place where that is now."""
    try:
        kept = store.price_lists().get(name)
    except (StoreMissing, StoreFailed):
        return None
    return kept if kept is not None and kept.location == reader.location else None
