"""Read and write the orders of operators in the store's database."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from fleet.errors import StoreFailed
from fleet.model.orders import Order
from fleet.state.database import ORDERS, RUNS, rows_of, set_format

_ORDER: TypeAdapter[Order] = TypeAdapter(Order)
_KEPT = timedelta(days=31)


def read_orders(connection: sa.Connection, now: datetime) -> tuple[Order, ...]:
    """Return the orders in force, by key; a store that an older fleet made has none."""
    if not sa.inspect(connection).has_table(ORDERS.name):
        return ()
    query = sa.select(ORDERS.c.order).where(_is_in_force(now)).order_by(ORDERS.c.key)
    try:
        return tuple(map(_ORDER.validate_json, connection.execute(query).scalars()))
    except ValidationError as error:
        raise StoreFailed(
            "the store has an order (a freeze, a hold or an approval) in a form that this fleet "
            "cannot read; another release of fleet wrote it"
        ) from error


def read_console(connection: sa.Connection, key: str) -> str:
    """Return the end of the console that was kept with a hold; empty: none was."""
    if not sa.inspect(connection).has_table(ORDERS.name):
        return ""
    query = sa.select(ORDERS.c.console).where(ORDERS.c.key == key)
    return str(connection.execute(query).scalar() or "")


def write_order(connection: sa.Connection, order: Order, console: str) -> None:
    """Write an order down in place of the one of its key, and drop those that are long over."""
    ORDERS.create(connection, checkfirst=True)
    set_format(connection)
    gone = [ORDERS.c.key == order.key, *_long_over(connection, order.at)]
    connection.execute(sa.delete(ORDERS).where(sa.or_(*gone)))
    row = {"key": order.key, "until": order.until.isoformat(), "console": console}
    connection.execute(sa.insert(ORDERS), [row | {"order": order.model_dump_json()}])


def drop_orders(connection: sa.Connection, keys: Collection[str]) -> frozenset[str]:
    """Drop orders; return which of them there were."""
    if not sa.inspect(connection).has_table(ORDERS.name):
        return frozenset()
    ours = ORDERS.c.key.in_(keys)
    found = frozenset(connection.execute(sa.select(ORDERS.c.key).where(ours)).scalars())
    connection.execute(sa.delete(ORDERS).where(ours))
    return found


def _long_over(connection: sa.Connection, now: datetime) -> Iterator[sa.ColumnElement[bool]]:
    """Yield which orders nobody's clock can take for one in force.

    The clock of who orders may be ahead by any time, that of the last run by `_KEPT` at most.
    """
    started = connection.execute(sa.select(sa.func.max(RUNS.c.started))).scalar()
    if started is not None:
        with rows_of(RUNS):
            latest = min(now, datetime.fromisoformat(started))
        yield sa.not_(_is_in_force(latest - _KEPT))


def _is_in_force(now: datetime) -> sa.ColumnElement[bool]:
    return ORDERS.c.until > now.isoformat()
