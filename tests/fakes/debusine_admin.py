"""A stand-in for `debusine-admin shell` beside a database: `DSN shell`, what to run on stdin.

It runs what it is given as Debusine's shell does: with Django's connection, in one interpreter,
after some greeting.
"""

import contextlib
import io
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

GREETING = "12 objects imported automatically (use -v 2 for details).\n"


def run(dsn: str, text: str) -> None:
    """Run this with Django's connection to a database."""
    with psycopg.connect(dsn, autocommit=True) as connection, django(connection):
        sys.stdout.write(GREETING)
        exec(text, {})  # noqa: S102 - that is what a shell does


def run_here(command: Sequence[str], text: bytes) -> bytes:
    """Do what the command does, in this process, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run(command[-2], text.decode())
    return printed.getvalue().encode()


@contextmanager
def django(connection: "psycopg.Connection[tuple[Any, ...]]") -> Iterator[None]:
    """Have `django.db` be there, with this connection."""
    package, database = types.ModuleType("django"), types.ModuleType("django.db")
    transaction = types.SimpleNamespace(atomic=connection.transaction)
    vars(database).update(connection=connection, transaction=transaction)
    ours = {"django": package, "django.db": database}
    kept = {name: sys.modules[name] for name in ours if name in sys.modules}
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del sys.modules[name]
        sys.modules.update(kept)


def main() -> None:
    """Be the command."""
    _, dsn, *rest = sys.argv
    if rest != ["shell"]:
        sys.exit(f"unknown command {rest}")
    run(dsn, sys.stdin.read())


if __name__ == "__main__":
    main()
