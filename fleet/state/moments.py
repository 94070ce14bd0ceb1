"""Store the complete observation of each run, in chains of compressed observations.

The first observation of a chain is compressed alone, each later one with its predecessor as zstd's
dictionary, which saves 95 % of the space. A chain is always read from its start.
"""

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from fleet.errors import StoreFailed
from fleet.model.history import RunObservation
from fleet.model.values import in_utc
from fleet.state.database import MOMENTS, reading_rows
from fleet.state.zstd import zstd

_LEVEL = 9
_MIN_DICTIONARY_BYTES = 8
"""Minimum length of a zstd dictionary in bytes."""
_MAX_CHAIN_LENGTH = 64
"""Maximum observations in a chain. Longer chains save little and take long to unpack."""
_MAX_CHAIN_SPAN = timedelta(days=1)
"""Maximum time span of a chain, because a chain expires as a whole."""
_first, _at = MOMENTS.c.first, MOMENTS.c.at


def write_moment(connection: sa.Connection, observed: RunObservation) -> None:
    """Store an observation, and remove each chain whose last observation has expired.

    If an observation of the same time is stored, the stored observation is kept.
    """
    at = observed.at.isoformat()
    if observed.keep and not connection.execute(sa.select(_at).where(_at == at)).first():
        packed, first = _pack_after(connection, observed, at)
        row = {"at": at, "first": first, "world": base64.b85encode(packed).decode()}
        connection.execute(sa.insert(MOMENTS), [row])
    chains = sa.select(_first).group_by(_first)
    expired = chains.having(sa.func.max(_at) <= (observed.at - observed.keep).isoformat())
    connection.execute(sa.delete(MOMENTS).where(_first.in_(expired)))


def list_chains(connection: sa.Connection, since: datetime, until: datetime) -> tuple[str, ...]:
    """Return the chains with an observation in this period, by start times, oldest first."""
    query = sa.select(_first).where(_at >= since.isoformat(), _at <= until.isoformat())
    return tuple(connection.execute(query.distinct().order_by(_first)).scalars())


def unpack_first(connection: sa.Connection, first: str) -> bytes:
    """Return the first observation of a chain as JSON; empty if another run removed the chain."""
    row = connection.execute(sa.select(MOMENTS).where(_at == first)).mappings().first()
    return _unpack(row, b"") if row else b""


def unpack_chain(connection: sa.Connection, first: str) -> dict[datetime, bytes]:
    """Map the times of a chain to its observations as JSON, oldest first."""
    query = sa.select(MOMENTS).where(_first == first).order_by(_at)
    found, world = {}, b""
    for row in connection.execute(query).mappings():
        world = _unpack(row, world)
        with reading_rows(MOMENTS):
            found[in_utc(datetime.fromisoformat(row["at"]))] = world
    return found


def _pack_after(connection: sa.Connection, observed: RunObservation, at: str) -> tuple[bytes, str]:
    """Compress an observation; return it with its chain's start time (`at` for a new chain)."""
    world = observed.world.encode()
    last = connection.execute(sa.select(_at, _first).order_by(_at.desc()).limit(1)).first()
    begun = (observed.at - _MAX_CHAIN_SPAN).isoformat()
    if last and last.at < at and last.first > begun:
        chain = unpack_chain(connection, last.first)
        if len(chain) < _MAX_CHAIN_LENGTH:
            return _pack(world, [*chain.values()][-1]), last.first
    return _pack(world, b""), at


def _pack(world: bytes, before: bytes) -> bytes:
    parameter = zstd.CompressionParameter
    window = max(20, min(27, (len(world) + len(before)).bit_length()))
    options: dict[int, int] = {parameter.compression_level: _LEVEL, parameter.window_log: window}
    return zstd.compress(world, options=options, zstd_dict=_dictionary(before))


def _unpack(row: Mapping[Any, Any], before: bytes) -> bytes:
    try:
        packed = base64.b85decode(row["world"])
        return zstd.decompress(packed, _dictionary(before))
    except (ValueError, zstd.ZstdError) as error:
        raise StoreFailed(
            f"table {MOMENTS.name} of the store has an unreadable world, of {row['at']}: {error}; "
            f"restore a backup, or delete the rows whose `first` is {row['first']}"
        ) from error


def _dictionary(before: bytes) -> zstd.ZstdDict | tuple[zstd.ZstdDict, int] | None:
    return (
        zstd.ZstdDict(before, is_raw=True).as_undigested_dict
        if len(before) >= _MIN_DICTIONARY_BYTES
        else None
    )
