"""Make bad input of every kind, and have the program read it.

Whatever it reads, the program ends with a documented exit code within its time, prints no
traceback, nothing that moves the cursor or turns text, and no line that a name has forged.
"""

import io
import json
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    chdir,
    closing,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fleet.program import main
from tests.faults.hostile import FORGED, HOSTILE, NUMBERS, TIMES
from tests.rigs.debusine import LIST, METRICS, STATUS
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import ROOT
from tests.rigs.replay import PENDING, TOKEN, read_exchange
from tests.rigs.trial import Trial

CODES = {0, 1, 2, 3, 4, 5}
SECONDS = 20
"""Many times what any of this takes."""
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069]")
_FIXTURES = ROOT / "tests" / "fixtures"
_JUNK: tuple[object, ...] = (None, True, False, [], {}, [[]], *NUMBERS, *TIMES, *HOSTILE)


@dataclass(frozen=True)
class Kind:
    """One kind of input: where it is written, what it was, who reads it."""

    commands: tuple[tuple[str, ...], ...]
    """Of which each input is given to one."""
    seeds: Callable[[], tuple[bytes, ...]]
    change: Callable[[Random, bytes], bytes]
    arrange: Callable[[Path], AbstractContextManager[object] | None] = lambda _: None
    """Lays down what is read with it; what it returns lasts as long as inputs are given."""
    name: str = "input"
    place: Callable[[Path, bytes], object] = lambda path, content: path.write_bytes(content)


def run(folder: Path, command: tuple[str, ...]) -> str:
    """Return what is wrong with how the program ended; empty where nothing is."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    try:
        with chdir(folder), redirect_stdout(out), redirect_stderr(err), _bounded():
            code = main(command)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = error.__traceback__
        while where and where.tb_next:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else "?"
        return f"{type(error).__name__}: {str(error)[:300]} at {place}"
    said = out.getvalue() + err.getvalue()
    if code not in CODES:
        return f"exit code {code}"
    if hidden := _HIDDEN.search(said):
        return f"printed {hidden[0]!r} raw: …{said[max(0, hidden.start() - 80) : hidden.end()]!r}"
    if "Traceback" in said:
        return f"printed a traceback: {said[-600:]}"
    forged = next((line for line in said.splitlines() if line.startswith(FORGED)), "")
    return f"printed a forged line: {said[:600]}" if forged else ""


@contextmanager
def _bounded() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def change_text(random: Random, content: bytes) -> bytes:
    """Return a text with a few lines changed, moved, doubled or gone."""
    lines = content.decode(errors="surrogateescape").split("\n")
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(lines))
        match random.randrange(7):
            case 0:
                del lines[at : at + random.choice((1, 1, 5))]
            case 1:
                lines.insert(at, lines[random.randrange(len(lines))])
            case 2:
                lines[at] = " " * random.randrange(4) + lines[at]
            case 3:
                cut = random.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + random.choice("[]{}:,*&!#|>'\"\t%@`\x1b\u202e\x85é")
            case _:
                lines[at] = _other_scalar(random, lines[at])
        lines = lines or [""]
    text = "\n".join(lines)
    return text.encode(errors="replace" if "\ud800" in text else "surrogateescape")


def _other_scalar(random: Random, line: str) -> str:
    found = list(re.finditer(r"[^\s:,\[\]{}\"'#-][^\s:,\[\]{}\"']*", line))
    if not found:
        return line + str(random.choice(_JUNK))
    at = random.choice(found)
    junk = random.choice(_JUNK)
    return line[: at.start()] + json.dumps(junk) + line[at.end() :]


def change_json(random: Random, content: bytes) -> bytes:
    """Return a document with a few values or keys changed, doubled or gone."""
    value = json.loads(content)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = list(_places(value))
        holder, key = random.choice(places)
        match random.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(holder[key])
            case 2 if isinstance(holder, dict):
                holder[random.choice((*HOSTILE, "name", "0"))] = holder.pop(key)
            case _:
                holder[key] = random.choice(_JUNK)
        if not list(_places(value)):
            break
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - JSON
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def change_bytes(random: Random, content: bytes) -> bytes:
    """Return a text that lacks a part, or has another byte somewhere."""
    if random.random() < 0.5:
        return change_text(random, content)
    at = random.randrange(len(content))
    match random.randrange(3):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + random.randbytes(random.choice((1, 4))) + content[at + 1 :]
        case _:
            return content + content[at:]


def _demo(folder: Path) -> None:
    """Lay the example down, and its world."""
    for name in ("fleet.yaml", "world.json"):
        (folder / name).write_bytes((ROOT / "examples/tutorial" / name).read_bytes())


def _trial(folder: Path) -> None:
    trial = Trial(folder)
    trial.wait_for("1", "2", big=["3"])
    trial.init()
    assert trial.do("apply")[0] in CODES
    trial.wait_for("1", "2", "4", big=["3"])


def _planned(folder: Path) -> None:
    _trial(folder)
    assert Trial(folder).do("plan", "--out", "input")[0] == 0


def _plan() -> tuple[bytes, ...]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:
        _planned(Path(name))
        return ((Path(name) / "input").read_bytes(),)


def _damage(path: Path, content: bytes) -> None:
    """Change cells of a store, as its content (a script of SQL) says."""
    store = path.parent / ".fleet" / "store.db"
    pristine = path.parent / "pristine.db"
    if not pristine.exists():
        pristine.write_bytes(store.read_bytes())
    store.write_bytes(pristine.read_bytes())
    with closing(sqlite3.connect(store)) as connection, suppress(sqlite3.Error), connection:
        connection.executescript(content.decode())
    with closing(sqlite3.connect(store)) as connection, suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def damage_store(random: Random, schema: bytes) -> bytes:
    """Return SQL that changes a few cells of a store; `schema` names its tables and columns."""
    tables: Mapping[str, list[str]] = json.loads(schema)
    said = []
    for _ in range(random.choice((1, 1, 2))):
        table = random.choice(sorted(tables))
        junk = random.choice(
            ("NULL", "''", "-1", "1e308", "x'ff'", "CAST(x'ff' AS TEXT)", "'{'", "'[1]'", "10e40")
        )
        if random.random() < 0.4:
            text = str(random.choice((*HOSTILE, *TIMES))).replace("'", "''").replace("\0", "")
            junk = f"'{text}'"
        column = random.choice(tables[table])
        said.append(f'UPDATE OR IGNORE "{table}" SET "{column}" = {junk};')  # noqa: S608 - meant
    if random.random() < 0.1:
        said.append(f'DROP TABLE "{random.choice(sorted(tables))}";')
    return "\n".join(said).encode(errors="replace")


def _schema() -> tuple[bytes, ...]:
    from fleet.state.database import METADATA

    tables = {
        table.name: [column.name for column in table.columns] for table in METADATA.sorted_tables
    }
    return (json.dumps(tables).encode(),)


class Server:
    """A Debusine that answers with the input."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.loopback = Loopback(self._answer)

    def _answer(self, received: Received) -> Answer:
        if received.path in (STATUS, METRICS):
            return Answer(200, b"{}")
        return Answer(200, (self._folder / "input").read_bytes())


def _served(folder: Path) -> Loopback:
    """Lay down a fleet that reads a server, and return that."""
    server = Server(folder).loopback
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    (folder / "fleet.yaml").write_text(
        f"fleet: x\nqueues: {{q: {{kind: debusine, url: '{server.url}', scopes: [debian],"
        " token: {file: token}}}\n"
    )
    return server


def _fixtures(*names: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: tuple((_FIXTURES / name).read_bytes() for name in names)


_COPR = b"""\
EXTRA_BUILDCHROOT_TAGS = [
    {"pattern": "@asahi/kernel/.*(x86_64|aarch64)/kernel", "tags": ["on_demand_powerful"]},
    {"pattern": "praiskup/ping/fedora-.*-x86_64/chromium", "tags": ["arch_x86_64", "big"]},
]
"""
_READ = (("status",), ("plan",), ("plan", "--json"), ("doctor",), ("state", "show"))

KINDS: Mapping[str, Kind] = {
    "fleet": Kind(
        (
            *(("validate", "-f", "input"), ("validate", "-f", "input", "--json")),
            ("plan", "-f", "input", "--world", "world.json"),
        ),
        lambda: (
            (ROOT / "fleet.yaml").read_bytes(),
            (ROOT / "examples/tutorial/fleet.yaml").read_bytes(),
            *_fixtures("whole.yaml", "starter.yaml")(),
        ),
        change_text,
        _demo,
    ),
    "world": Kind(
        (
            *(("plan", "--world", "input"), ("plan", "--world", "input", "--json")),
            *(("plan", "--world", "input", "--markdown"), ("status", "--world", "input")),
            *(("status", "--world", "input", "--json"), ("explain", "--all", "--world", "input")),
            ("explain", "request", "4", "--world", "input"),
        ),
        lambda: ((ROOT / "examples/tutorial/world.json").read_bytes(),),
        change_json,
        _demo,
    ),
    "plan": Kind((("apply", "input"),), _plan, change_json, _planned),
    "resalloc": Kind(
        (("import", "resalloc", "input"),),
        _fixtures("resalloc-6.3/pools.yaml"),
        change_bytes,
    ),
    "copr": Kind((("import", "copr", "input"),), lambda: (_COPR,), change_bytes),
    "debusine": Kind(
        (("import", "debusine", "input"),),
        _fixtures(
            "debusine-0.16.2/worker_pool-list.yaml", "debusine-0.16.2/worker_pool-list-aws.yaml"
        ),
        change_bytes,
    ),
    "database": Kind(_READ, _schema, damage_store, _trial, place=_damage),
    "server": Kind(
        (("plan",), ("status",), ("observe", "--out", "world.json")),
        lambda: (read_exchange(PENDING[0]).answer.body,),
        lambda random, content: random.choice((change_json, change_json, change_bytes))(
            random, content
        ),
        _served,
    ),
}
__all__ = ["KINDS", "LIST", "Kind", "run"]
