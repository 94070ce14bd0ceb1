"""This module adds to the ledger and reads its sums, within a transaction of the store."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from fleet.errors import StoreFailed
from fleet.facts.ledger import Charge, Entry, Ledger
from fleet.facts.values import in_utc
from fleet.ports.store import Charging, Since
from fleet.store.rows import rows_of
from fleet.store.tables import ABOUT, LEDGER

_CHARGED = "charged_until"
_PLACES = 9


def add_charges(connection: sa.Connection, charging: Charging) -> bool:
    """Add entries and move `charged_until`; False, and nothing is added, when it is elsewhere.

    Moved back, what was charged for later hours is taken back too.

    A store that an older fleet made gets its table here.
    """
    if _charged_until(connection) != charging.since:
        return False
    LEDGER.create(connection, checkfirst=True)
    until = charging.until.isoformat()
    if charging.since is None:
        connection.execute(sa.insert(ABOUT), [{"key": _CHARGED, "value": until}])
    else:
        moved = connection.execute(
            sa.update(ABOUT)
            .where(ABOUT.c.key == _CHARGED, ABOUT.c.value == charging.since.isoformat())
            .values(value=until)
        )
        if not moved.rowcount:
            return False
    if charging.since is not None and charging.until < charging.since:
        connection.execute(sa.delete(LEDGER).where(LEDGER.c.hour >= until))
    for entry in charging.entries:
        _add(connection, charging.currency, entry)
    return True


def rename_in_ledger(connection: sa.Connection, old: str, new: str) -> None:
    """Charge to a pool's new name what was charged to its old one; an older store has nothing."""
    if not sa.inspect(connection).has_table(LEDGER.name):
        return
    for row in connection.execute(sa.select(LEDGER)).all():
        payer = json.loads(row.payer)
        if payer["pool"] == old:
            same = (LEDGER.c.hour == row.hour, LEDGER.c.payer == row.payer)
            connection.execute(sa.delete(LEDGER).where(*same))
            _add_row(connection, row.hour, payer | {"pool": new}, (row.seconds, row.nanos))


def read_ledger(connection: sa.Connection, since: Since, currency: str) -> Ledger:
    """Return the sums of the current hour, day and month; an older store has none yet.

    What a run whose clock was ahead has charged for later hours does not count.
    """
    if not sa.inspect(connection).has_table(LEDGER.name):
        return Ledger()
    sums = [
        sa.func.sum(sa.case((LEDGER.c.hour >= start.isoformat(), column), else_=0))
        for column in (LEDGER.c.seconds, LEDGER.c.nanos)
        for start in (since.hour, since.day, since.month)
    ]
    rows = connection.execute(
        sa.select(LEDGER.c.payer, *sums)
        .where(
            LEDGER.c.hour >= since.month.isoformat(),
            LEDGER.c.hour < (since.hour + timedelta(hours=1)).isoformat(),
        )
        .group_by(LEDGER.c.payer)
    ).all()
    with rows_of(LEDGER):
        charges = [_charge(json.loads(row[0]), row[1:], currency) for row in rows]
    return Ledger(
        charged_until=_charged_until(connection),
        charges=tuple(sorted(charges, key=lambda charge: charge.model_dump_json())),
    )


def _charged_until(connection: sa.Connection) -> datetime | None:
    query = sa.select(ABOUT.c.value).where(ABOUT.c.key == _CHARGED)
    found = connection.execute(query).scalar()
    with rows_of(ABOUT):
        return in_utc(datetime.fromisoformat(found)) if found else None


def _add(connection: sa.Connection, currency: str, entry: Entry) -> None:
    payer = {
        "currency": currency,
        **entry.model_dump(include={"pool", "scope", "team", "owner", "tags"}),
    }
    amounts = (entry.seconds, int(entry.money.scaleb(_PLACES)))
    _add_row(connection, entry.hour.isoformat(), payer, amounts)


def _add_row(
    connection: sa.Connection, hour: str, payer: Mapping[str, Any], amounts: tuple[int, int]
) -> None:
    key = {"hour": hour, "payer": json.dumps(payer, sort_keys=True)}
    added = {"seconds": amounts[0], "nanos": amounts[1]}
    found = connection.execute(
        sa.update(LEDGER)
        .where(LEDGER.c.hour == key["hour"], LEDGER.c.payer == key["payer"])
        .values({name: LEDGER.c[name] + amount for name, amount in added.items()})
    )
    if not found.rowcount:
        connection.execute(sa.insert(LEDGER), [key | added])


def _charge(payer: dict[str, Any], sums: tuple[Any, ...], currency: str) -> Charge:
    if payer.pop("currency") != currency:
        raise StoreFailed(
            f"what was spent this month is recorded in another currency than {currency}, the "
            "money.currency of fleet.yaml; set it back until the month is over"
        )
    return Charge(
        **payer,
        seconds=tuple(map(int, sums[:3])),
        money=tuple(Decimal(int(nanos)).scaleb(-_PLACES) for nanos in sums[3:]),
    )
