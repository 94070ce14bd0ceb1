"""Record fleets in the format of this commit, for tests/walks/test_upgrade.py of later commits.

Run it at a release (docs/how-to/release.md). It writes tests/fixtures/upgrades/NAME/: one folder
each for a store in SQLite, a store in PostgreSQL, the real engine at a simulated Hetzner Cloud,
and the digests of machines, recipes and approvals. Without PostgreSQL, Pulumi or its plugin, it
omits their folder with a message. Later code never records a folder again.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import time_machine

from fleet.clouds.sim.machines import SimCloud
from fleet.model.images import Publication, Version, recipe_digest
from fleet.planner.shared_stacks import parts_of
from fleet.schema.load import load
from fleet.schema.model import Fleet, ImageRecipe
from fleet.state.files import LocalFiles
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from simulators.hetzner.server import SimulatedHetzner
from tests.fakes.engine import FixedClock
from tests.rigs import postgres
from tests.rigs.inside import run_inside
from tests.rigs.older_fleet import keep
from tests.rigs.process import clean_environment
from tests.rigs.warm import Warm

ROOT = Path(__file__).parent.parent
STORIES = ROOT / "tests/fixtures/upgrades/story"
BEGIN = datetime(2026, 11, 25, 4, 0, tzinfo=UTC)
"""Start of the recorded story: an hour in which no day or month ends."""
CLOUD = "hetzner.json"
"""File of the simulated Hetzner Cloud."""
PASSPHRASE = "a passphrase for tests"  # noqa: S105 - encrypts made-up state
JOB = {
    "GITLAB_USER_LOGIN": "ada",
    "CI_PIPELINE_URL": "https://gitlab.example.org/builds/-/pipelines/7",
}
"""Variables of a CI job, so that no recording contains the name of this computer."""


class Story:
    """A fleet in a folder, with a separate clock."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.now = BEGIN
        self.clock = folder.parent / "clock"
        self.environment = environment | {"WALK_CLOCK": str(self.clock)}
        self._warm: Warm | None = None

    def apply(self, code: int = 0) -> None:
        """Apply at the time of the story, which differs from the clock of PostgreSQL."""
        self.tell("apply", "--trust-clock", code=code)

    def tell(self, *arguments: str, code: int = 0) -> str:
        """Run a command at the time of the story and return its output."""
        if self._warm is None:
            with time_machine.travel(self.now, tick=True):
                ran = run_inside(*arguments, cwd=self.folder, env=self.environment)
        else:
            self.clock.write_text(str(self.now.timestamp()), encoding="utf-8")
            ran = self._warm.run(
                *arguments, cwd=self.folder, env=self.environment, program="tests.walks.later"
            )
        if ran.returncode != code:
            raise SystemExit(
                f"{self.now:%H:%M} fleet {' '.join(arguments)}: {ran.returncode}, not {code}\n"
                f"{ran.stdout}{ran.stderr}"
            )
        self.later(seconds=2)
        return ran.stdout

    def later(self, **duration: float) -> None:
        """Advance the time of the story; the commands of the fleet read it from a file."""
        self.now += timedelta(**duration)
        (self.folder / "now").write_text(f"{self.now:%FT%TZ}", encoding="utf-8")

    def run(self, times: int = 1, code: int = 0) -> None:
        """Apply every ten minutes."""
        for _ in range(times):
            self.later(minutes=10)
            self.apply(code)

    @contextmanager
    def at_hetzner(self, plugins: str) -> Iterator[None]:
        """Run a simulated Hetzner Cloud at the time of the story; commands are processes."""
        around = self.folder.parent
        self.environment |= {"FLEET_PASS": PASSPHRASE, "FLEET_PULUMI_PLUGINS": plugins}
        (around / "bin").mkdir()
        (around / "bin/pulumi").symlink_to(os.environ["FLEET_PULUMI"])
        self.environment["PATH"] = f"{around / 'bin'}{os.pathsep}{self.environment['PATH']}"
        api = SimulatedHetzner(state_file=self.folder / CLOUD, now=lambda: self.now)
        self._warm = Warm(around)
        try:
            with api:
                self.environment |= {"HCLOUD_ENDPOINT": api.endpoint, "HCLOUD_TOKEN": api.token}
                yield
        finally:
            self._warm.end()

    def wait_for(self, *requests: Mapping[str, object]) -> None:
        """Set the waiting requests of the queue."""
        moment = f"{BEGIN:%FT%TZ}"
        demand = {"demand": {"read_at": moment, "requests": requests}}
        world = {"fleet": "before", "time": moment, "queues": {"work": demand}}
        (self.folder / "world.json").write_text(json.dumps(world) + "\n", encoding="utf-8")

    def edit(self, old: str, new: str) -> None:
        """Replace a text in fleet.yaml."""
        path = self.folder / "fleet.yaml"
        text = path.read_text(encoding="utf-8")
        if old not in text:
            raise SystemExit(f"fleet.yaml has no {old!r}")
        path.write_text(text.replace(old, new), encoding="utf-8")


def own_machines(story: Story, store: Store) -> None:
    """Play two days of a fleet with simulated machines and machines of its own commands."""
    build = {"required": ["worker:cap:sbuild"], "scope": "debian"}
    chromium = {
        "id": "6",
        "owner": "praiskup",
        "project": "ping",
        "chroot": "fedora-42-x86_64",
        "package": "chromium",
    }
    story.tell("state", "init")
    for version in image_versions(story):
        store.save_image_version(version, was=None)
    story.wait_for(*({"id": str(number), **build} for number in range(1, 5)), chromium)
    story.run(2)
    # Some get a machine, some wait: for the limit of a user, for a type that is out of stock.
    for tag, *more in (
        ("on_prem", "--user=ada", "--lease=2d"),
        ("extra_powerful", "--user=bob"),
        ("extra_powerful", "--user=bob", "--priority=3", "--team=kernel"),
        ("on_prem", "--user=eve", "--sandbox=eve/llvm"),
        ("rare", "--user=ada", "--background"),
        ("on_prem", "--user=joe", "--lease=20m"),
    ):
        story.later(minutes=1)
        story.tell("ticket", "open", "--tag", tag, *more)
    story.run(2, code=5)
    story.tell("ticket", "check", "1", "--user", "ada")
    # One is given back, one expires, one is given up.
    story.tell("ticket", "close", "4", "--user", "eve")
    story.tell("ticket", "close", "5", "--user", "ada")
    story.run(3)
    # Approvals, of fleet.yaml and given by hand, are used up in part.
    story.edit("workers: {max: 3, min: 3}", "workers: {max: 2, min: 2}")
    story.edit("workers: {max: 6, min: 1, spare: 1}", "workers: {max: 4, min: 1, spare: 1}")
    story.apply(code=4)
    story.tell(
        *("approve", "delete", "--pool", "builders", "--count", "4"),
        *("--for", "25d", "--reason", "fewer builds in winter"),
    )
    story.tell(
        *("approve", "cost_increase", "--pool", "powerful", "--count", "2"),
        *("--for", "20d", "--reason", "a mass rebuild"),
    )
    story.run(4)
    # Orders that last, and a machine that works.
    why = ("--for", "20d", "--reason", "a look at its disk")
    story.tell("hold", "before-builders-0002", *why)
    story.tell("freeze", "--pool", "arm", "--deletes", *why)
    desk = SimCloud(story.folder / ".fleet/sim-desk.json", FixedClock(story.now))
    desk.assign("before-builders-0003", "2")
    story.wait_for(chromium)
    story.run(3)


def servers(story: Story) -> None:
    """Play an hour of servers at the simulated Hetzner Cloud, with the real engine."""
    story.tell("state", "init")
    story.run(2)
    for user in ("bob", "bob", "eve"):
        story.later(minutes=1)
        story.tell("ticket", "open", "--tag", "extra_powerful", "--user", user)
    story.run(2)
    story.tell("ticket", "close", "3", "--user", "eve")
    story.run()
    story.edit("workers: {max: 3, min: 2}", "workers: {max: 1, min: 1}")
    story.tell(
        *("approve", "delete", "--pool", "powerful", "--count", "4"),
        *("--for", "25d", "--reason", "fewer in winter"),
    )
    story.run(3)


def image_versions(story: Story) -> Iterator[Version]:
    """Yield three versions of an image: an earlier one, the current one, and a failed one."""
    fleet = load(str(story.folder / "fleet.yaml"), LocalFiles()).fleet
    recipe = fleet and fleet.images["trixie"]
    if not isinstance(recipe, ImageRecipe):
        raise SystemExit("fleet.yaml of the story is invalid")
    for day, state in ((20, "previous"), (23, "current"), (24, "failed")):
        built = BEGIN.replace(day=day)
        name = f"{built:%Y%m%dT%H%M%SZ}"
        yield Version(
            image="trixie",
            version=name,
            state=state,
            digest=f"{day}" * 32,
            recipe_digest=recipe_digest(recipe),
            role_digest="",
            since=built + timedelta(hours=1),
            built_at=built,
            built_by="ada",
            built_in=360,
            way="disk",
            why="its worker did not register" * (state == "failed"),
            provides=("worker:cap:sbuild", "worker:executor:unshare"),
            publications={
                "desk": Publication(id=f"img-{day}", at=built + timedelta(hours=1), verified=True)
            },
        )


@contextmanager
def a_story(name: str, store: str = "") -> Iterator[Story]:
    """Yield a story in a temporary folder, before its first command."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "fleet"
        copytree(STORIES / name, folder)
        story = Story(folder, clean_environment(Path(temporary), JOB))
        if store:
            story.edit("STORE", store)
        yield story


def record(story: Story, into: Path, url: str | None = None) -> None:
    """Store a fleet, and the output of this commit's commands ten minutes later."""
    story.later(minutes=10)
    if (story.folder / "world.json").exists():
        save_plan(story)
    if url is not None:
        # The database of a later test is another one.
        story.edit(url, "STORE")
    keep(story.folder, into, url)
    if url is not None:
        story.edit("STORE", url)
    at = story.now
    plan = json.loads(story.tell("plan", "--json"))
    if plan["actions"]:
        raise SystemExit("the story does not end at rest")
    tickets = json.loads(story.tell("ticket", "list", "--json"))
    expected = {
        "at": at.isoformat(),
        "approvals": plan["approvals"],
        "workers": [[each["worker"], each["verdict"]] for each in plan["workers"]],
        "tickets": tickets,
    }
    write_json(into / "expected.json", expected)


def save_plan(story: Story) -> None:
    """Save a plan for a queue with more waiting requests."""
    world, more = story.folder / "world.json", story.folder / "more.json"
    resting = world.read_bytes()
    waiting = json.loads(resting)
    waiting["queues"]["work"]["demand"]["requests"] += [{"id": str(n)} for n in range(20, 24)]
    more.write_text(f"{json.dumps(waiting)}\n", encoding="utf-8")
    world.write_bytes(more.read_bytes())
    story.tell("plan", "--out", "plan.json")
    world.write_bytes(resting)


def record_digests(into: Path) -> None:
    """Store the digests of machines of every kind, of recipes and of approvals."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "fleet"
        copytree(STORIES / "digests", folder)
        fleet = load(str(folder / "fleet.yaml"), LocalFiles()).fleet
        if fleet is None:
            raise SystemExit("fleet.yaml of the digests is invalid")
        write_json(folder / "world.json", a_world(fleet))
        story = Story(folder, clean_environment(Path(temporary), JOB))
        plan = json.loads(story.tell("plan", "--world", "world.json", "--json"))
        copytree(folder, into, dirs_exist_ok=True)
    made = {each["pool"]: each["inputs"]["labels"]["digest"] for each in plan["actions"]}
    if len(made) != len(fleet.pools):
        raise SystemExit(f"no machine for {sorted(fleet.pools.keys() - made.keys())}")
    recipes = {
        name: recipe_digest(image)
        for name, image in fleet.images.items()
        if isinstance(image, ImageRecipe)
    }
    approvals = [each["digest"] for each in plan["approvals"]]
    expected = {"machines": made, "recipes": recipes, "approvals": approvals}
    write_json(into / "expected.json", expected)


def a_world(fleet: Fleet) -> dict[str, object]:
    """Return a world in which each pool may create its first machine."""
    moment = f"{BEGIN:%FT%TZ}"
    demand = {"demand": {"read_at": moment, "requests": []}}
    bases = {name: parts_of(fleet, name) for name in fleet.providers}
    images = (
        ("full", {"hetzner": "99", "amazon": "ami-99"}),
        ("bare", {"desk": "img-bare"}),
        ("arm", {"desk": "img-arm"}),
    )
    return {
        "fleet": fleet.fleet,
        "time": moment,
        "queues": dict.fromkeys(fleet.queues, demand),
        "providers": {name: {"read_at": moment, "machines": []} for name in fleet.providers},
        "bases": {
            name: {
                "serial": 1,
                "parts": [part.model_dump(mode="json") for part in parts],
                "ids": {part.key: f"id-{number}" for number, part in enumerate(parts)},
                "laid": True,
            }
            for name, parts in bases.items()
            if parts
        },
        "images": [
            {"image": name, "version": "20261124T040000Z", "state": "current", "ids": ids}
            for name, ids in images
        ],
    }


def write_json(path: Path, value: object) -> None:
    """Write a value as sorted and indented JSON, for readable diffs."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def main(name: str) -> int:
    """Record each folder that this computer supports."""
    into = ROOT / "tests/fixtures/upgrades" / name
    record_digests(into / "digests")
    with a_story("own", "sqlite") as story:
        own_machines(story, Store(sqlite_url(story.folder / ".fleet/store.db"), "before"))
        record(story, into / "sqlite")
    plugins = os.environ.get("FLEET_PULUMI_PLUGINS", "")
    if not (os.environ.get("FLEET_PULUMI") and plugins):
        print(
            "WITHOUT hetzner: set FLEET_PULUMI and FLEET_PULUMI_PLUGINS, as tools/pulumi_*.py say"
        )
    else:
        with a_story("hetzner") as story, story.at_hetzner(plugins):
            servers(story)
            record(story, into / "hetzner")
    if because := postgres.why_not():
        print(f"WITHOUT postgresql: {because}")
    else:
        with (
            postgres.running() as server,
            postgres.database(server) as url,
            a_story("own", url) as story,
        ):
            own_machines(story, Store(url, "before"))
            record(story, into / "postgresql", url)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and the name
        sys.exit("usage: record_fleet.py NAME")
    sys.exit(main(sys.argv[1]))
