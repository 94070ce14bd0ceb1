"""Register, drain and disable the workers of a Debusine server.

The functions of `changes` run over SQL from here, or in the shell of the server's admin command,
so that both change the same rows in the same way. Only the machine gets a token; the server gets
the digest of the token.

Each change is read back immediately, and again one scheduler interval later. The server saves
whole rows as it read them, and a running pass of its scheduler still assigns work from old data. A
reverted change is repeated. A request that was assigned to a worker just disabled is requeued.
"""

import hashlib
import json
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fleet.checks.pools import LONGEST
from fleet.errors import EngineAbsent, FleetError, PlanRefused, SourceUnreachable, WorkerBusy
from fleet.ports import Enrolment, Tell
from fleet.queues.debusine import changes
from fleet.queues.debusine.connection import (
    KNOWN,
    TABLES,
    ask_command,
    connected,
    explained,
    first_line,
    password_of,
)

if TYPE_CHECKING:
    import psycopg


_ANSWER = "fleet-answer:"


Call = tuple[Callable[..., Any], Mapping[str, Any]]
"""A function of `changes` and its arguments."""


class Channel(Protocol):
    """Way to run functions of the module `changes` at Debusine, each in a separate transaction."""

    def run(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Run the calls and return results; raises WorkerBusy, PlanRefused, SourceUnreachable."""


class SqlChannel:
    """A channel that connects to the server's database, with a role that may write."""

    def __init__(self, dsn: Callable[[], str]) -> None:
        self._dsn = dsn

    def run(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Run each call in a separate transaction, all over one connection."""
        dsn = self._dsn()
        password = password_of(dsn)
        import psycopg

        try:
            with connected(dsn, autocommit=True) as connection:
                return [_run(connection, *call) for call in calls]
        except changes.ChangeRefused as refusal:
            raise _error_of(refusal.kind, str(refusal)) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise SourceUnreachable(
                f"the database refuses: {first_line(error)}; `fleet debusine grants --admin` "
                "prints what the role of `admin` needs",
                fix="fleet debusine grants --admin",
            ) from None
        except psycopg.Error as error:
            raise explained(error, password) from None


def _run(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - JSON
    def execute(statement: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        # The text is a constant of `changes`; only values of placeholders vary.
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else ()

    with connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = '30s'")
        return function(execute, **arguments)


def _error_of(kind: str, because: str) -> FleetError:
    return WorkerBusy(because) if kind == "busy" else PlanRefused(because)


_THERE = """\
import json, types
from django.db import connection, transaction
changes = types.ModuleType("changes")
exec({changes!r}, changes.__dict__)

def execute(statement, values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else ()

done, refused = [], None
try:
    for function, arguments in json.loads({calls!r}):
        with transaction.atomic():
            done.append(getattr(changes, function)(execute, **arguments))
except changes.ChangeRefused as refusal:
    refused = [refusal.kind, str(refusal)]
print({mark!r} + json.dumps([done, refused]))
"""
SENT = "c7e960e74868e7eb15088ffa56ab28bb7172464e396e91cd15ad4d2bc0b4772c"
"""SHA-256 of `changes.py` in this version. A file with other content is never sent."""


def _script() -> str:
    try:
        content = files(__package__).joinpath("changes.py").read_bytes()
    except OSError:
        content = b""
    if hashlib.sha256(content).hexdigest() != SENT:
        raise EngineAbsent(
            "queues/debusine/changes.py of this installation is not the one of this version of "
            "fleet, so it is not sent to a server; install fleet again"
        )
    return content.decode()


Shell = Callable[[Sequence[str], bytes], bytes]
"""Function that runs a command with an input and returns the output."""


class CommandChannel:
    """A channel that runs the server's admin command, possibly over ssh or in a container."""

    def __init__(self, admin: Sequence[str], shell: Shell = ask_command) -> None:
        self._command = (*admin, "shell")
        self._shell = shell

    def run(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Send all calls to the shell in one line, which interactive shells accept too."""
        # The mark is random, so that no other output can be mistaken for the answer.
        mark = f"{_ANSWER}{secrets.token_hex(8)}:"
        text = _THERE.format(
            changes=_script(),
            calls=json.dumps([(function.__name__, arguments) for function, arguments in calls]),
            mark=mark,
        )
        printed = self._shell(self._command, f"exec({text!r})\n".encode()).decode(errors="replace")
        _, _, answer = printed.rpartition(mark)
        done: list[Any]
        try:
            done, refused = json.loads(answer.partition("\n")[0])
        except ValueError:
            raise SourceUnreachable(
                f"{shlex.join(self._command)} printed no result; is it debusine-admin?"
            ) from None
        if refused:
            raise _error_of(*refused)
        return done


INTERVAL = 15
"""Seconds between two passes of Debusine's scheduler."""
_MAX_ATTEMPTS = 3

_NO_ROW: Mapping[str, Any] = {"static": {}, "enabled": False, "awaited": False, "held": ()}
_Written = Literal["drained", "given back", "off", "perhaps off"]
_REPEATED_CHANGES: Mapping[_Written, Callable[..., Any]] = {
    "drained": changes.drain,
    "given back": changes.resume,
    # A disabled worker cannot have fetched requests assigned later, so they are requeued.
    "off": changes.release,
    "perhaps off": changes.release,
}


class DebusineRegistry:
    """The workers of one Debusine server. Implements Registry and Enroller."""

    def __init__(
        self,
        queue: str,
        fleet: str,
        channel: Channel,
        *,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._fleet = fleet
        self._channel = channel
        self._wait = wait
        self._clock = clock
        self._written: dict[str, _Written] = {}
        self._last = 0.0
        # One check is sufficient, since a server is stopped for a migration.
        known = {"tables": list(TABLES), "known": list(KNOWN)}
        self._check: tuple[Call, ...] = ((changes.check_version, known),)

    def enrol(self, enrolment: Enrolment) -> str:
        """Prepare the server for a new worker, and return the token for the worker."""
        name = enrolment.worker
        if len(name) > LONGEST:
            raise SourceUnreachable(
                f"queue {self._queue}: {name} has {len(name)} characters; a worker's name may "
                f"have {LONGEST} (rule name-too-long)"
            )
        token = secrets.token_hex(32)
        # Tags that its pool lacks are left out.
        tags = {
            changes.PROVIDED_TAGS: enrolment.provides,
            changes.REQUIRED_TAGS: enrolment.requires,
        }
        static = {
            changes.FLEET: enrolment.fleet,
            changes.POOL: enrolment.pool,
            changes.MACHINE: enrolment.worker,
        } | {key: list(own) for key, own in tags.items() if own}
        seen = self._run(
            changes.enrol,
            name,
            fleet=enrolment.fleet,
            static=static,
            digest=hashlib.sha256(token.encode()).hexdigest(),
            expires=enrolment.expires.isoformat(),
        )
        self._written.pop(name, None)
        if not seen["awaited"] or not static.items() <= seen["static"].items():
            raise self._reverted_error(name, "enrolled")
        return token

    def drain(self, worker: str) -> None:
        """Drain a worker: empty its list of accepted tasks, so that it gets no new work."""
        self._write(worker, "drained", changes.drain)

    def resume(self, worker: str) -> None:
        """End the drain of a worker: restore its list of accepted tasks."""
        self._write(worker, "given back", changes.resume)

    def disable(self, worker: str) -> None:
        """Disable an idle worker; raises WorkerBusy if it has a request."""
        self._write(worker, "off", changes.disable)

    def revoke(self, worker: str) -> None:
        """Revoke the token of a worker; raises WorkerBusy if the worker has registered."""
        self._write(worker, "off", changes.revoke)

    def release(self, worker: str) -> None:
        """Disable a worker whose machine no longer exists, and requeue its requests."""
        self._write(worker, "off", changes.release)

    def confirm(self, tell: Tell) -> None:
        """Wait for one scheduler interval, read changes back, and repeat reverted changes."""
        if not self._written:
            return
        seconds = max(0.0, self._last + INTERVAL - self._clock())
        if seconds >= 1:
            tell(f"verifying worker changes in {seconds:.0f} s")
        self._wait(seconds)
        written, self._written = self._written, {}
        for worker, what in written.items():
            if not _shows_change(self._run(changes.look, worker), what):
                self._write(
                    worker, "off" if what == "perhaps off" else what, _REPEATED_CHANGES[what]
                )
        self._written = {}

    def _write(self, worker: str, what: _Written, change: Callable[..., Any]) -> None:
        """Make a change and read it back. Try up to three times; raises SourceUnreachable."""
        before = self._written.get(worker)
        for _ in range(_MAX_ATTEMPTS):
            # The reply may be lost after the change, so the change is read back even then.
            self._note(worker, "perhaps off" if what == "off" else None)
            try:
                seen = self._run(change, worker, fleet=self._fleet)
            except (WorkerBusy, PlanRefused):
                self._note(worker, before)
                raise
            self._note(worker, what)
            if _shows_change(seen, what):
                return
            # A pass of the scheduler may assign a request that the worker can no longer fetch.
            change = changes.release if change is changes.disable else change
        raise self._reverted_error(worker, what)

    def _note(self, worker: str, what: _Written | None) -> None:
        """Record a change to read back one scheduler interval from now. None records no change."""
        self._last = self._clock()
        self._written.pop(worker, None)
        if what:
            self._written[worker] = what

    def _reverted_error(self, worker: str, what: str) -> SourceUnreachable:
        return SourceUnreachable(
            f"queue {self._queue}: worker {worker} was {what}, but its row differs when read "
            "back; does something else change it?"
        )

    def _run(self, change: Callable[..., Any], worker: str, **others: object) -> Mapping[str, Any]:
        """Make a change in one call, and return the worker's row after the change."""
        call, look = {"name": worker, **others}, {"name": worker}
        *_, seen = self._channel.run([*self._check, (change, call), (changes.look, look)])
        self._check = ()
        return seen or _NO_ROW


def _shows_change(seen: Mapping[str, Any], what: _Written) -> bool:
    """Return whether a worker's row shows that this change is in effect."""
    match what:
        case "drained":
            return bool(seen["static"].get(changes.TASKS_ALLOWLIST) == [])
        case "given back":
            return changes.BEFORE_DRAIN not in seen["static"]
        case "perhaps off" if seen["enabled"] or seen["awaited"]:
            return True  # the change was not made
        case "off" | "perhaps off":
            return not (seen["enabled"] or seen["awaited"] or seen["held"])
