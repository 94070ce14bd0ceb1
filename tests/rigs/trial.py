"""Run a trial fleet: two pools on simulated machines, a queue in a file.

`Trial.do` runs a command inside the test's process and returns all that it said; the fixture
`run_fleet` keeps output and errors apart, and has an environment of its own.
"""

import io
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, closing, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fleet.clouds.sim.machines import SimCloud, SimMachine, load
from fleet.model.facts import Listing
from fleet.model.images import Version
from fleet.model.log import LogEntry
from fleet.program import main
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.fakes.engine import FixedClock

BUILDERS = (
    "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}, retire: {idle_after: 10m}}"
)
BIG = "{provider: desk, machine: ccx63, image: trixie, provides: [big], workers: {max: 4}}"
WARM = BUILDERS.replace("max: 4", "max: 4, min: 0, spare: 0")
WORLD_QUEUE = "{kind: world, path: world.json}"
ONE, TWO = "trial-builders-0001", "trial-builders-0002"
"""The first machines of pool builders."""
WHY = ("--for", "2h", "--reason", "disk full")
"""The terms of an order."""


def fleet_yaml(
    *,
    pools: Mapping[str, str] | None = None,
    desk: str = "boot: 1s",
    queue: str = WORLD_QUEUE,
    more: str = "",
) -> str:
    """Return the fleet.yaml of a trial; each part may be another."""
    chosen = {"big": BIG, "builders": BUILDERS} if pools is None else pools
    lines = [f"  {name}: {text}" for name, text in chosen.items()]
    written = "\n".join(["pools:", *lines] if lines else ["pools: {}"])
    return f"""\
fleet: trial
providers:
  desk: {{kind: sim, {desk}}}
queues:
  work: {queue}
images:
  trixie: {{suite: trixie, architecture: amd64}}
{written}
{more}"""


@cache
def _empty_store() -> bytes:
    """Return what `fleet state init` makes, which takes as long as most tests that need it."""
    with TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        assert trial.do("state", "init")[0] == 0
        return (trial.folder / ".fleet/store.db").read_bytes()


@cache
def _files_after(begin: "Callable[[Trial], object]") -> tuple[dict[str, bytes], datetime]:
    with TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        trial.init()
        begin(trial)
        return trial.files(), datetime.now(UTC)


class _Output(io.StringIO):
    """Standard output of a command, which is also written where its errors are."""

    def __init__(self, said: io.StringIO) -> None:
        super().__init__()
        self._said = said

    def write(self, text: str, /) -> int:
        self._said.write(text)
        return super().write(text)


class Trial:
    """A folder with a fleet.yaml, what waits for it, and its simulated machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed = ""
        """What the last command wrote to standard output."""
        self.cloud = SimCloud(folder / ".fleet/sim-desk.json", FixedClock(datetime.now(UTC)))
        if not (folder / "fleet.yaml").exists():
            self.write(fleet_yaml())
            self.wait_for()

    def begun(self, begin: "Callable[[Trial], object]") -> "Trial":
        """Return it as `begin` leaves a new one; the commands of that are run once a process."""
        files, at = _files_after(begin)
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.age(seconds=(at - datetime.now(UTC)).total_seconds())
        return self

    def write(self, text: str) -> None:
        """Write fleet.yaml."""
        (self.folder / "fleet.yaml").write_text(text, encoding="utf-8")

    def wait_for(self, *requests: str, big: Sequence[str] = ()) -> None:
        """Have these requests wait in the queue, and nothing else; `big` only fits that pool."""
        waiting: list[dict[str, object]] = [{"id": name} for name in requests]
        self.queue(*waiting, *({"id": name, "required": ["big"]} for name in big))

    def queue(self, *requests: Mapping[str, object], **more: object) -> None:
        """Have these requests wait, each with an id at least; the queue reports `more`, too."""
        moment = "2026-11-21T08:00:00Z"
        demand = {"demand": {"read_at": moment, "requests": requests, **more}}
        world = {"fleet": "trial", "time": moment, "queues": {"work": demand}}
        (self.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")

    def do(self, *args: str) -> tuple[int, str]:
        """Run a command in this process; return its exit code and all that it said."""
        said = io.StringIO()
        printed = _Output(said)
        with chdir(self.folder), redirect_stdout(printed), redirect_stderr(said):
            try:
                code = main(args)
            except SystemExit as wrong:  # wrong usage
                code = int(str(wrong.code))
        self.printed = printed.getvalue()
        return code, said.getvalue()

    def told(self, *args: str, code: int = 0) -> str:
        """Return what a command says that ends with this code."""
        ended, said = self.do(*args)
        assert ended == code, said
        return said

    def json(self, *args: str, code: int = 0) -> Any:  # noqa: ANN401 - whatever it prints
        """Return what a command prints with `--json`; it ends with this code."""
        said = self.told(*args, "--json", code=code)
        begin = re.search(r"^[{\[]", said, re.MULTILINE)
        assert begin is not None, said
        return json.JSONDecoder().raw_decode(said, begin.start())[0]

    def init(self) -> None:
        """Create the store; an empty one of this fleet at the usual place is always the same."""
        store = self.folder / ".fleet/store.db"
        text = (self.folder / "fleet.yaml").read_text(encoding="utf-8")
        if store.exists() or "\nstate:" in text or not text.startswith("fleet: trial\n"):
            assert self.do("state", "init")[0] == 0
            return
        store.parent.mkdir(exist_ok=True)
        store.write_bytes(_empty_store())

    def apply(self) -> str:
        """Apply, which must succeed, and return what it said."""
        code, said = self.do("apply")
        assert code == 0, said
        return said

    def outcome(self) -> dict[str, Any]:
        """Apply and return the outcome by pool, whatever became of it."""
        _, said = self.do("apply", "--json")
        outcome = json.loads(said[said.index("{") :])
        return {stack["pool"]: stack for stack in outcome["stacks"]}

    def settles(self) -> bool:
        """Apply, which must succeed, and say whether it had nothing to change."""
        said = self.told("apply", "--json")
        outcome = json.loads(said[said.index("{") :])
        return {stack["result"] for stack in outcome["stacks"]} <= {"unchanged"}

    def change(self, old: str, new: str) -> None:
        """Replace a part of fleet.yaml, wherever it is."""
        text = (self.folder / "fleet.yaml").read_text(encoding="utf-8")
        assert old in text
        self.write(text.replace(old, new))

    def sql(self, statement: str, *values: object) -> int:
        """Change rows of the store, as no command does; return how many."""
        with closing(sqlite3.connect(self.folder / ".fleet/store.db")) as connection, connection:
            return connection.execute(statement, values).rowcount

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Return rows of the store."""
        with closing(sqlite3.connect(self.folder / ".fleet/store.db")) as connection:
            return connection.execute(query).fetchall()

    def plan(self) -> dict[str, Any]:
        """Plan and return the plan."""
        _, said = self.do("plan", "--json")
        plan: dict[str, Any] = json.loads(said[said.index("{") :])
        return plan

    def machines(self) -> list[str]:
        """Return the names of the machines that exist, sorted."""
        listing = self.cloud.list("trial")
        assert isinstance(listing, Listing), listing
        return [machine.name for machine in listing.machines]

    def made(self) -> list[SimMachine]:
        """Return the machines that exist, by name."""
        machines = load(self.cloud.path).machines.values()
        return sorted(machines, key=lambda machine: machine.inputs.name)

    def world(self) -> dict[str, Any]:
        """Observe and return the world."""
        _, said = self.do("observe")
        world: dict[str, Any] = json.loads(said[said.index("{") :])
        return world

    def recorded(self) -> list[str]:
        """Return the names of the machines that the stacks hold, sorted."""
        stacks = self.world()["stacks"]
        return sorted(name for stack in stacks.values() for name in stack["ids"])

    def age(self, **duration: float) -> None:
        """Have all in the cloud, every try and the store's begin happened that much earlier."""
        self._age_attempts(timedelta(**duration))
        if not self.cloud.path.exists():
            return
        contents = json.loads(self.cloud.path.read_text())
        for machine in contents["machines"].values():
            for key in ("created_at", "boots_at", "since", "drained_at"):
                if machine[key]:
                    moment = datetime.fromisoformat(machine[key]) - timedelta(**duration)
                    machine[key] = moment.isoformat()
        self.cloud.path.write_text(json.dumps(contents))

    def attempts(self) -> list[tuple[str, str]]:
        """Return the tries that the store remembers, the oldest first: worker and result."""
        tries = self.store().attempts(100)
        return [(each.worker, each.result) for each in tries]

    def _age_attempts(self, by: timedelta) -> None:
        tries = self.store().attempts(100)
        with closing(sqlite3.connect(self.folder / ".fleet/store.db")) as connection, connection:
            connection.execute("delete from fleet_attempts")
            for (made,) in connection.execute("select value from fleet_about where key = 'made'"):
                earlier = (datetime.fromisoformat(made) - by).isoformat()
                connection.execute(
                    "update fleet_about set value = ? where key = 'made'", (earlier,)
                )
        self.store().record_attempts([each.altered(at=each.at - by) for each in tries])

    def end_orders(self) -> None:
        """Have the time of every order be over."""
        for order in self.store().orders(datetime.now(UTC)):
            over = order.at - timedelta(days=1)
            entry = LogEntry(at=over, kind="test")
            self.store().place_order(order.altered(until=over), entry)

    def store(self) -> Store:
        """Return what the fleet remembers."""
        return Store(sqlite_url(self.folder / ".fleet/store.db"), "trial")

    def remember(self, *versions: Version) -> None:
        """Have the store remember these image versions."""
        for version in versions:
            self.store().save_image_version(version, was=None)

    def versions(self) -> dict[str, str]:
        """Return the state of each version that the store remembers."""
        return {each.version: each.state for each in self.store().image_versions()}

    def locked(self) -> AbstractContextManager[str | None]:
        """Hold the fleet's lock, as somebody else would."""
        return self.store().lock("somebody else", datetime.now(UTC))

    def files(self) -> dict[str, bytes]:
        """Return every file in the folder with what it holds."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}
