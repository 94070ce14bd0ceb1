"""This module keeps the price lists that providers gave, within a transaction of the store.

They are only kept to ask seldom: a list in a form that this fleet cannot read is none.
"""

from collections.abc import Mapping

import sqlalchemy as sa
from pydantic import ValidationError

from fleet.facts.prices import PriceList
from fleet.store.tables import ABOUT

_PRICES = "prices "
"""Begins the keys of price lists; the provider follows."""


def read_price_lists(connection: sa.Connection) -> Mapping[str, PriceList]:
    """Return the price list that was kept last of each provider."""
    about = ABOUT.c
    rows = connection.execute(
        sa.select(about.key, about.value).where(about.key.startswith(_PRICES))
    ).all()
    found = {key.removeprefix(_PRICES): _read(value) for key, value in rows}
    return {provider: prices for provider, prices in found.items() if prices is not None}


def write_price_list(connection: sa.Connection, provider: str, prices: PriceList) -> None:
    """Keep a price list in place of what was kept of this provider."""
    row = {"key": f"{_PRICES}{provider}", "value": prices.model_dump_json()}
    connection.execute(sa.delete(ABOUT).where(ABOUT.c.key == row["key"]))
    connection.execute(sa.insert(ABOUT), [row])


def _read(text: str) -> PriceList | None:
    try:
        return PriceList.model_validate_json(text)
    except ValidationError:
        return None
