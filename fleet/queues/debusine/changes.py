"""Change workers' rows in Debusine's database, each function in one transaction.

fleet may send this file to the server and run it there, so it imports only the standard library.
Each change locks the worker's row before it reads the worker's requests. Debusine's scheduler
takes the same lock, so the change sees every assigned request and no request is assigned until the
transaction ends. A row without the fleet's mark is refused: a name proves no owner.

In Debusine 0.16, a worker that registers with an activation token gets a new token, and each token
needs an owner when a transaction ends. So fleet deletes the old tokens of a reused row. It never
deletes a row: the worker's history refers to it.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

# Keys that fleet writes into a worker's static metadata. They are not secret: logged-in users of
# the server can read them. A row is ours only if the value of FLEET is the name of this fleet.

FLEET = "fleet:fleet"
"""Name of the worker's fleet, compared whole."""
POOL = "fleet:pool"
"""Name of the worker's pool when it was enrolled."""
MACHINE = "fleet:machine"
"""Name of the machine that the worker runs on."""
BEFORE_DRAIN = "fleet:before-drain"
"""The keys that a drain overwrote, with their values; present while fleet drains a worker."""

TASKS_ALLOWLIST = "tasks_allowlist"
"""Debusine's own list of the tasks that a worker takes; fleet drains by emptying it."""

PROVIDED_TAGS = "provided_tags"
REQUIRED_TAGS = "required_tags"
"""Debusine's own keys for the tags that an administrator gives a worker: those of its pool."""

Execute = Callable[[str, Mapping[str, Any]], Sequence[tuple[Any, ...]]]
"""Runs one statement and returns its rows."""

COLUMNS = """\
SELECT t.name, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
  FROM unnest(%(tables)s::text[]) AS t(name)
       JOIN pg_attribute a ON a.attrelid = to_regclass(t.name)
 WHERE a.attnum > 0 AND NOT a.attisdropped"""
_LOOK = """\
SELECT w.id, w.worker_type, w.worker_pool_id IS NOT NULL, w.static_metadata::text,
       w.connected_at IS NOT NULL, w.token_id, coalesce(t.enabled, false), w.activation_token_id,
       coalesce(a.enabled AND coalesce(a.expire_at > now(), true), false)
  FROM db_worker w LEFT JOIN db_token t ON t.id = w.token_id
                   LEFT JOIN db_token a ON a.id = w.activation_token_id
 WHERE w.name = %(name)s FOR UPDATE OF w"""
_HELD = """\
SELECT id FROM db_workrequest
 WHERE worker_id = %(id)s AND status IN ('pending', 'running') ORDER BY id"""
_AWAIT = """\
INSERT INTO db_token (token_type, hash, comment, created_at, expire_at, enabled,
                      external_username, explicit_grants_only)
VALUES ('worker-activation', %(hash)s, %(comment)s, now(), %(expires)s::timestamptz, true, '',
        false)
RETURNING id"""
_NEW = """\
INSERT INTO db_worker (name, registered_at, activation_token_id, static_metadata,
                       dynamic_metadata, worker_type, concurrency)
VALUES (%(name)s, now(), %(token)s, %(static)s::jsonb, '{}', 'external', 1)"""
_ENROL_AGAIN = """\
UPDATE db_worker
   SET registered_at = now(), activation_token_id = %(token)s, token_id = NULL,
       static_metadata = %(static)s::jsonb, dynamic_metadata = '{}',
       dynamic_metadata_updated_at = NULL, connected_at = NULL
 WHERE id = %(id)s"""
_DISABLE_TOKENS = (
    "UPDATE db_token SET enabled = false WHERE id IN (%(token)s, %(activation)s) AND enabled"
)
_TELL = "UPDATE db_worker SET static_metadata = %(static)s::jsonb WHERE id = %(id)s"
_GIVE_BACK = """\
UPDATE db_workrequest SET status = 'pending', worker_id = NULL, started_at = NULL
 WHERE worker_id = %(id)s AND status IN ('pending', 'running')"""


class ChangeRefused(Exception):
    """A refused change: it would lose work, or change a row that is not ours."""

    def __init__(self, kind: str, because: str) -> None:
        super().__init__(because)
        self.kind = kind


def digest_of(columns: Sequence[tuple[object, ...]]) -> str:
    """Return a short name for a set of columns: their tables, names, types and NOT NULL."""
    lines = sorted(" ".join(map(str, column)) for column in columns)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def check_version(execute: Execute, tables: Sequence[str], known: Collection[str]) -> None:
    """Refuse a database whose tables have no known digest."""
    found = digest_of(execute(COLUMNS, {"tables": list(tables)}))
    if found not in known:
        raise ChangeRefused(
            "strange",
            f"the database is of an unsupported Debusine: its tables are {found}; fleet does not "
            "write it",
        )


def look(execute: Execute, name: str) -> dict[str, Any] | None:
    """Lock a worker's row and return it with its requests; None if no row has this name."""
    rows = execute(_LOOK, {"name": name})
    if not rows:
        return None
    keys = ("id", "type", "in_pool", "static", "connected", "token", "enabled", "activation")
    seen = dict(zip((*keys, "awaited"), rows[0], strict=True))
    held = execute(_HELD, seen)
    return {**seen, "static": json.loads(seen["static"]), "held": [number for (number,) in held]}


def enrol(  # noqa: PLR0913, PLR0917 - what a row is made of
    execute: Execute, name: str, fleet: str, static: Mapping[str, Any], digest: str, expires: str
) -> None:
    """Add a row, or reuse one, that waits for a worker with the token of this digest."""
    seen = look(execute, name)
    if seen is not None:
        _check_free(seen, name, fleet)
    (token,) = execute(
        _AWAIT, {"hash": digest, "comment": f"fleet {fleet}: {name}"[:100], "expires": expires}
    )[0]
    if seen is None:
        execute(_NEW, {"name": name, "token": token, "static": json.dumps(static)})
        return
    kept = {key: value for key, value in undrained(seen["static"]).items() if key not in _TAGS}
    if kept.get(TASKS_ALLOWLIST) == []:
        # An administrator drained the deleted machine of this row; the new machine shall work.
        del kept[TASKS_ALLOWLIST]
    again = json.dumps(kept | dict(static))
    execute(_ENROL_AGAIN, {"id": seen["id"], "token": token, "static": again})
    for old in (seen["token"], seen["activation"]):
        if old is not None:
            execute("DELETE FROM db_token WHERE id = %(token)s", {"token": old})


def drain(execute: Execute, name: str, fleet: str) -> None:
    """Drain a worker: Debusine assigns it no further request."""
    seen = _lock_own_worker(execute, name, fleet)
    execute(_TELL, {"id": seen["id"], "static": json.dumps(drained(seen["static"]))})


def resume(execute: Execute, name: str, fleet: str) -> None:
    """End the drain of a worker."""
    seen = _lock_own_worker(execute, name, fleet)
    execute(_TELL, {"id": seen["id"], "static": json.dumps(undrained(seen["static"]))})


def disable(execute: Execute, name: str, fleet: str) -> None:
    """Disable the tokens of a worker; refuse a worker with requests."""
    seen = _lock_own_worker(execute, name, fleet)
    if seen["held"]:
        raise ChangeRefused(
            "busy", f"worker {name} has request {seen['held'][0]}; it was not disabled"
        )
    execute(_DISABLE_TOKENS, seen)


def revoke(execute: Execute, name: str, fleet: str) -> None:
    """Disable the activation token of a worker that never registered, if it has a row."""
    if look(execute, name) is None:
        return
    seen = _lock_own_worker(execute, name, fleet)
    if seen["enabled"]:
        raise ChangeRefused("busy", f"worker {name} has registered after all; it was not revoked")
    execute(_DISABLE_TOKENS, seen)


def release(execute: Execute, name: str, fleet: str) -> None:
    """Disable the tokens of a worker and return its requests to the queue.

    Refuse a worker that is connected with an enabled token: its machine still exists.
    """
    seen = _lock_own_worker(execute, name, fleet)
    if seen["connected"] and seen["enabled"]:
        raise ChangeRefused(
            "busy", f"worker {name} is connected: its machine is at work somewhere"
        )
    execute(_DISABLE_TOKENS, seen)
    execute(_GIVE_BACK, seen)


_TAGS = (PROVIDED_TAGS, REQUIRED_TAGS)


def drained(static: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's static metadata with a drain that no request can fulfil."""
    if BEFORE_DRAIN in static:
        return {**static, TASKS_ALLOWLIST: []}
    before = {key: static[key] for key in (TASKS_ALLOWLIST,) if key in static}
    return {**static, TASKS_ALLOWLIST: [], BEFORE_DRAIN: before}


def undrained(static: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's static metadata as it was before `drained`."""
    if BEFORE_DRAIN not in static:
        return dict(static)
    ours = (TASKS_ALLOWLIST, BEFORE_DRAIN)
    kept = {key: value for key, value in static.items() if key not in ours}
    return {**kept, **static[BEFORE_DRAIN]}


def _lock_own_worker(execute: Execute, name: str, fleet: str) -> dict[str, Any]:
    """Lock and return a worker's row; refuse a row without the fleet's mark."""
    seen = look(execute, name)
    if seen is None:
        raise ChangeRefused("strange", f"no worker is called {name}")
    if seen["static"].get(FLEET) != fleet:
        raise ChangeRefused(
            "strange", f"worker {name} is not of fleet {fleet}: it was left as it is"
        )
    return seen


def _check_free(seen: Mapping[str, Any], name: str, fleet: str) -> None:
    """Refuse a row of another owner, and a worker that may have work."""
    is_ours = seen["static"].get(FLEET) == fleet
    # A killed run may leave a row that never registered and has no mark.
    is_nobodys = seen["token"] is None and FLEET not in seen["static"]
    if seen["in_pool"] or seen["type"] != "external" or not (is_ours or is_nobodys):
        raise ChangeRefused(
            "strange", f"worker {name} is not of fleet {fleet}; give the pool another name"
        )
    if seen["held"]:
        raise ChangeRefused("busy", f"worker {name} has request {seen['held'][0]}")
    if seen["connected"] and seen["enabled"]:
        raise ChangeRefused(
            "busy", f"worker {name} is connected: a machine of that name is at work"
        )
