"""A stand-in for `debusine-admin shell` beside a database: `DSN shell`, what to run on stdin.

It runs what it is given as Debusine's shell does: with Django's connection, in one interpreter,
after some greeting, and with JSON columns as text.
"""

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

CONNECTION = psycopg.connect(sys.argv[1], autocommit=True)


@contextmanager
def atomic() -> Iterator[None]:
    with CONNECTION.transaction():
        yield


def main() -> None:
    if sys.argv[2:] != ["shell"]:
        sys.exit(f"unknown command {sys.argv[2:]}")
    sys.stdout.write("12 objects imported automatically (use -v 2 for details).\n")
    django, database = types.ModuleType("django"), types.ModuleType("django.db")
    vars(database).update(connection=CONNECTION, transaction=types.SimpleNamespace(atomic=atomic))
    sys.modules.update({"django": django, "django.db": database})
    exec(sys.stdin.read(), {})  # noqa: S102 - that is what a shell does


main()
