"""This module has the functions of `changes` run beside a server's database: from here, or there.

From here over SQL; there by the server's admin command, whose shell is given the functions to run
on the server's own connection. So both change the same rows in the same way, and what a token is
made of never leaves this computer but for the machine: only its digest does.
"""

import hashlib
import json
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from fleet.errors import EngineAbsent, FleetError, PlanRefused, SourceUnreachable, WorkerBusy
from fleet.queues.debusine import changes
from fleet.queues.debusine.command import ask_command

if TYPE_CHECKING:
    import psycopg

_ANSWER = "fleet-answer:"


Call = tuple[Callable[..., Any], Mapping[str, Any]]
"""A function of `changes` and its arguments."""


class Channel(Protocol):
    """Has functions of `changes` run, each in one transaction."""

    def run(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Return what each returns; raises WorkerBusy, PlanRefused or SourceUnreachable."""


class SqlChannel:
    """A connection to the server's database, with a role that may write there."""

    def __init__(self, dsn: Callable[[], str]) -> None:
        self._dsn = dsn

    def run(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Run each in a transaction of its own, over one connection."""
        from fleet.queues.debusine.connection import (
            connected,
            explained,
            first_line,
            password_of,
        )

        dsn = self._dsn()
        password = password_of(dsn)
        import psycopg

        try:
            with connected(dsn, autocommit=True) as connection:
                return [_run(connection, *call) for call in calls]
        except changes.Refusal as refusal:
            raise _told(refusal.kind, str(refusal)) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise SourceUnreachable(
                f"the database refuses: {first_line(error)}; `fleet debusine grants --admin` "
                "prints what the role of `admin` needs"
            ) from None
        except psycopg.Error as error:
            raise explained(error, password) from None


def _run(
    connection: "psycopg.Connection[tuple[Any, ...]]",
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - JSON
    with connection.transaction():
        connection.execute(b"SET LOCAL statement_timeout = '30s'")
        return function(_executing(connection), **arguments)


def _executing(connection: "psycopg.Connection[tuple[Any, ...]]") -> changes.Execute:
    def execute(statement: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        # The text is a constant of `changes`; nothing but placeholders comes from elsewhere.
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else ()

    return execute


def _told(kind: str, because: str) -> FleetError:
    return WorkerBusy(because) if kind == "busy" else PlanRefused(because)


_THERE = """\
import json, types
from django.db import connection, transaction
marks, changes = types.ModuleType("marks"), types.ModuleType("changes")
exec({marks!r}, marks.__dict__)
changes.marks = marks
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
except changes.Refusal as refusal:
    refused = [refusal.kind, str(refusal)]
print({mark!r} + json.dumps([done, refused]))
"""
_IMPORT = "from fleet.queues.debusine import marks\n"
SENT = {
    "changes.py": "7b136311e915cf0cf3474815d397d8a6f6428fab7f064cae5efc462a7fefb680",
    "marks.py": "d2b1c98c93e55ba930cb9b6e853c183a455936a4887a8d3a17b5fb9e40b2adba",
}
"""The files that are sent, and the SHA-256 that each has in this version of fleet."""


def _script(name: str) -> str:
    try:
        content = files(__package__).joinpath(name).read_bytes()
    except OSError as error:
        raise EngineAbsent(_not_ours(name)) from error
    if hashlib.sha256(content).hexdigest() != SENT[name]:
        raise EngineAbsent(_not_ours(name))
    return content.decode()


def _not_ours(name: str) -> str:
    return (
        f"queues/debusine/{name} of this installation is not as this version of fleet has it, and "
        "is not sent to a server: install fleet again"
    )


Shell = Callable[[Sequence[str], bytes], bytes]
"""Runs a command that reads this, and returns what it prints."""


class CommandChannel:
    """The server's admin command, as a list of arguments: here, over ssh, in a container."""

    def __init__(self, admin: Sequence[str], shell: Shell = ask_command) -> None:
        self._command = (*admin, "shell")
        self._shell = shell

    def run(self, calls: Sequence[Call]) -> Sequence[Any]:
        """Give them to the command's shell: one line, which a shell that prompts takes too."""
        # No answer can be mistaken for what something else prints.
        mark = f"{_ANSWER}{secrets.token_hex(8)}:"
        text = _THERE.format(
            marks=_script("marks.py"),
            changes=_script("changes.py").replace(_IMPORT, ""),
            calls=json.dumps([(function.__name__, arguments) for function, arguments in calls]),
            mark=mark,
        )
        printed = self._shell(self._command, f"exec({text!r})\n".encode()).decode(errors="replace")
        _, _, answer = printed.rpartition(mark)
        done: list[Any]
        try:
            done, refused = json.loads(answer.partition("\n")[0])
        except ValueError:
            said = shlex.join(self._command)
            raise SourceUnreachable(
                f"{said} did not say what it did; is it debusine-admin?"
            ) from None
        if refused:
            raise _told(*refused)
        return done
