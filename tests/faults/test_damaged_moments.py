"""A damaged value in the store is an error of one line, never a traceback."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.rigs.process import RunFleet
from tests.rigs.repeats import slow_but
from tests.rigs.trial import Trial, fleet_yaml

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\" ,}]*")
COMMANDS = [
    ("plan",),
    ("status",),
    ("apply",),
    ("state", "orphans"),
    ("log",),
    ("doctor",),
    ("ticket", "list"),
    ("report", "--month", "2026-11"),
    ("freeze", "--for", "1h", "--reason", "x"),
]


def flip_bit(moment: str) -> str:
    """Return a moment whose month has one flipped bit."""
    return moment[:6] + chr(ord(moment[6]) ^ 0x40) + moment[7:]


def lose_zone(moment: str) -> str:
    return moment[:19]


def leave_range(moment: str) -> str:
    return moment.replace(moment[:4], "0001", 1).replace("+00:00", "+23:59")


DAMAGES = {"flipped bit": flip_bit, "no zone": lose_zone, "beyond range": leave_range}


@pytest.fixture
def stored(trial: Trial, run_fleet: RunFleet) -> Path:
    """Return the store of a fleet with runs, an order, tickets and a notice."""
    trial.write(fleet_yaml(queue="{kind: tickets}", desk="boot: 1s"))
    run_fleet("ticket", "open", "worker:class:powerful", cwd=trial.folder)
    for _ in range(2):
        run_fleet("apply", cwd=trial.folder)
    run_fleet("freeze", "--for", "1h", "--reason", "x", cwd=trial.folder)
    return trial.folder / ".fleet" / "store.db"


def moments_in(store: Path) -> Iterator[tuple[str, str, str]]:
    """Yield table, column and one value of every column, and of every key, that has a moment."""
    with closing(sqlite3.connect(store)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            cursor = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - its own name
            names = [each[0] for each in cursor.description]
            rows = cursor.fetchall()
            seen: set[str] = set()
            for row in rows:
                for name, value in zip(names, row, strict=True):
                    key = f"{name} {row[0] if table == 'about' else ''}"
                    if isinstance(value, str) and MOMENT.search(value) and key not in seen:
                        seen.add(key)
                        yield table, name, value


@pytest.mark.parametrize("damage", slow_but(["flipped bit"], DAMAGES))
def test_damaged_time_in_store_gives_no_traceback(
    stored: Path, run_fleet: RunFleet, damage: str
) -> None:
    whole, folder = stored.read_bytes(), stored.parents[1]
    found = [*moments_in(stored)]
    assert len(found) > 8
    for table, column, value in found:
        stored.write_bytes(whole)
        with closing(sqlite3.connect(stored)) as connection:
            damaged = MOMENT.sub(lambda each: DAMAGES[damage](each[0]), value)
            statement = f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?'  # noqa: S608 - names of the schema
            connection.execute(statement, (damaged, value))
            connection.commit()
        for command in COMMANDS:
            try:
                done = run_fleet(*command, cwd=folder)
            except Exception as error:
                raise AssertionError((table, column, value, command)) from error
            assert "Traceback" not in done.stderr


def set_about(store: Path, key: str, value: str) -> None:
    """Write a value of the store's own facts, as a damaged disk might."""
    with closing(sqlite3.connect(store)) as connection:
        row = "INSERT OR REPLACE INTO fleet_about (key, value) VALUES (?, ?)"
        connection.execute(row, (key, value))
        connection.commit()


@pytest.mark.parametrize("damage", [*DAMAGES, "empty"])
def test_workers_are_unknown_when_the_age_of_the_store_is_damaged(
    stored: Path, run_fleet: RunFleet, damage: str
) -> None:
    folder = stored.parents[1]
    moment = "2026-11-28T20:30:19.517409+00:00"
    set_about(stored, "made", DAMAGES[damage](moment) if damage in DAMAGES else "")

    planned = run_fleet("plan", "--json", cwd=folder)
    applied = run_fleet("apply", cwd=folder)

    assert planned.returncode == 1, planned.stdout
    (unknown,) = json.loads(planned.stdout)["unknown"]
    assert "queue work" in unknown, unknown
    assert "table fleet_about" in unknown, unknown
    assert applied.returncode == 1, applied.stdout
    assert "table fleet_about" in " ".join(applied.stdout.split())


@pytest.mark.parametrize("value", ["x", "", "-"])
@pytest.mark.parametrize(
    ("key", "command"),
    [("fence", ("apply",)), ("tickets-after", ("ticket", "open", "--tag", "big"))],
)
def test_command_fails_in_one_line_when_a_stored_number_is_damaged(
    stored: Path, run_fleet: RunFleet, key: str, command: tuple[str, ...], value: str
) -> None:
    set_about(stored, key, value)

    done = run_fleet(*command, cwd=stored.parents[1])

    assert done.returncode == 1
    assert "table fleet_about" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1, done
