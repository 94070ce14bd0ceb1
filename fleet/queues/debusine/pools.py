"""List the worker pools of a Debusine server, with its admin command or over SQL.

Both return text in the format of `debusine-admin worker_pool list --yaml`. SQL adds architectures,
tags, and the scopes that may use a pool. SQL never reads db_asset, which has the names of provider
accounts but also their credentials.
"""

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.errors import SourceUnreachable
from fleet.queues.debusine.connection import ask_command, reading
from fleet.tagrules.debusine import tags_in

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

LIST = ("worker_pool", "list", "--yaml")
_MOST_POOLS = 5000
_POOLS = """\
SELECT p.name, p.enabled, p.limits, p.specifications, p.provider_account_id, p.architectures,
       p.static_metadata,
       (SELECT w.dynamic_metadata FROM db_worker w
         WHERE w.worker_pool_id = p.id AND w.dynamic_metadata ? 'provided_tags'
         ORDER BY w.connected_at DESC NULLS LAST, w.id DESC LIMIT 1),
       ARRAY(SELECT s.name FROM db_scope s
              WHERE p.instance_wide OR EXISTS (SELECT FROM db_scopeworkerpool l
                     WHERE l.scope_id = s.id AND l.worker_pool_id = p.id)
              ORDER BY s.name COLLATE "C")
  FROM db_workerpool p ORDER BY p.name COLLATE "C" LIMIT %s"""
_LAUNCHING = """\
SELECT p.name FROM db_workerpool p
 WHERE p.enabled AND (p.instance_wide OR EXISTS (
       SELECT FROM db_scopeworkerpool l WHERE l.worker_pool_id = p.id))
 ORDER BY p.name COLLATE "C"
"""


def list_by_command(admin: Sequence[str], *, limit: int, seconds: float = 60) -> bytes:
    """Return the output of the server's admin command; raises SourceUnreachable."""
    command = [*admin, *LIST]
    content = ask_command(command, seconds=seconds, limit=limit)
    if not content.strip():
        raise SourceUnreachable(f"{shlex.join(command)} printed nothing; expected a list")
    return content


def list_by_sql(dsn: str, *, limit: int) -> bytes:
    """Return the worker pools in a server's database as YAML, by reading only."""
    with reading(dsn) as connection:
        rows = connection.execute(_POOLS, (_MOST_POOLS + 1,)).fetchall()
    if len(rows) > _MOST_POOLS:
        raise SourceUnreachable(f"the database has more than {_MOST_POOLS} worker pools")
    # JSON is also YAML; each pool has one line, so that line numbers are useful.
    listing = (
        b"".join(b"- " + json.dumps(_entry(*row)).encode() + b"\n" for row in rows) or b"[]\n"
    )
    if len(listing) > limit:
        raise SourceUnreachable(f"the worker pools take more than {limit} bytes to list")
    return listing


def launching_pools(connection: "Connection") -> tuple[str, ...]:
    """Return the pools for which the server itself launches machines, sorted.

    These pools are enabled, and are open to all scopes or linked to a scope.
    """
    return tuple(name for (name,) in connection.execute(_LAUNCHING).fetchall())


def _entry(  # noqa: PLR0913, PLR0917 - the columns of one statement
    name: str,
    enabled: bool,  # noqa: FBT001 - the columns of one statement
    limits: object,
    specifications: object,
    account: int,
    architectures: object,
    written: object,
    reported: object,
    scopes: list[str],
) -> dict[str, object]:
    kind = specifications.get("provider_type") if isinstance(specifications, dict) else None
    return {
        "name": name,
        "enabled": enabled,
        "limits": limits,
        "specifications": specifications,
        "provider_account": f"{kind}-{account}",
        "architectures": architectures,
        "provided_tags": tags_in(written, "provided_tags"),
        "required_tags": tags_in(written, "required_tags"),
        "reported_tags": tags_in(reported, "provided_tags"),
        "scopes": scopes,
    }
