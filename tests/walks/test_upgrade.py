"""A fleet that an earlier release left is at rest with this one: nothing is lost or replaced.

Each folder of tests/fixtures/upgrades is called as the commit that wrote it, by
tools/record_fleet.py: stores, stacks, machines and saved plans of one story, and the digests of
machines, recipes and approvals. Digests of plans may change; those may not.
"""

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine

from fleet.model.images import recipe_digest
from fleet.schema.load import load
from fleet.schema.pools import ImageRecipe
from fleet.state.files import LocalFiles
from simulators.hetzner.server import SimulatedHetzner
from tests.builders.sentences import tells
from tests.ports.hcloud_rig import skip_without_plugin
from tests.rigs.older_fleet import restore, rows
from tests.rigs.postgres import database
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm
from tests.walks.walking import Walk

UPGRADES = ROOT / "tests/fixtures/upgrades"
RELEASES = sorted(each.name for each in UPGRADES.iterdir() if each.name != "story")
ON_BOTH = pytest.mark.parametrize("older", ["sqlite", "postgresql"], indirect=True)
ON_EACH = pytest.mark.parametrize(
    "older", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
KEPT = ("fleet_tickets", "fleet_tenancies", "fleet_orders", "fleet_spent", "fleet_images")
"""Tables of which an apply at rest changes no row."""
REWORDED = ("note", "because")
"""Why a ticket waits may be told in other words."""


def kept_rows(folder: Path, url: str | None = None) -> dict[str, list[dict[str, object]]]:
    """Return the rows of the tables that no apply at rest changes."""
    found = {name: rows(folder, name, url) for name in KEPT}
    for row in found["fleet_tickets"]:
        for column in REWORDED:
            del row[column]
    return found


def used(approvals: list[dict[str, Any]]) -> dict[str, tuple[object, ...]]:
    """Return how far each approval is used up, by its digest."""
    return {each["digest"]: (each["used"], each["count"], each["inert"]) for each in approvals}


class Older(Trial):
    """The fleet of a story as a release left it, ten minutes later."""

    def __init__(self, folder: Path, url: str | None) -> None:
        super().__init__(folder)
        self.url = url
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())

    def told(self, *args: str, code: int = 0) -> str:
        # A database server of today has another time than the story.
        trusting = ("--trust-clock",) if self.url and args[0] == "apply" else ()
        return super().told(*args, *trusting, code=code)

    def edit(self, old: str, new: str) -> None:
        path = self.folder / "fleet.yaml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def existing(self) -> dict[str, dict[str, str]]:
        """Return the labels of all machines, by name."""
        made = {each.inputs.name: dict(each.inputs.labels) for each in self.made()}
        commanded = (json.loads(path.read_text()) for path in (self.folder / "machines").iterdir())
        return made | {each["name"]: each["labels"] for each in commanded}

    def kept(self) -> dict[str, list[dict[str, object]]]:
        return kept_rows(self.folder, self.url)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    return UPGRADES / str(request.param)


@pytest.fixture
def older(request: pytest.FixtureRequest, tmp_path: Path, release: Path) -> Iterator[Older]:
    """Return the fleet that a release left, with its store."""
    fixture = release / str(request.param)
    if request.param == "sqlite":
        restore(fixture, tmp_path)
        yield from at_its_time(Older(tmp_path, None))
        return
    with database(request.getfixturevalue("postgres_server")) as url:
        restore(fixture, tmp_path, url)
        older = Older(tmp_path, url)
        older.edit("STORE", url)
        yield from at_its_time(older)


def at_its_time(older: Older) -> Iterator[Older]:
    with time_machine.travel(datetime.fromisoformat(older.expected["at"])):
        yield older


@ON_BOTH
def test_upgrade_changes_no_machine_or_ticket(older: Older) -> None:
    machines, kept = older.existing(), older.kept()

    plan = older.plan()
    outcome = json.loads(older.told("apply", "--json"))

    assert (plan["actions"], plan["unknown"], plan["bases"]) == ([], [], [])
    assert [[each["worker"], each["verdict"]] for each in plan["workers"]] == (
        older.expected["workers"]
    )
    assert {stack["result"] for stack in outcome["stacks"]} == {"unchanged"}
    assert older.existing() == machines
    assert older.kept() == kept


@ON_EACH
def test_upgrade_keeps_earlier_tickets(older: Older) -> None:
    listed = {each["id"]: each for each in json.loads(older.told("ticket", "list", "--json"))}

    assert listed.keys() == {each["id"] for each in older.expected["tickets"]}
    for before in older.expected["tickets"]:
        now = listed[before["id"]]
        assert {key: now[key] for key in before if key not in REWORDED} == {
            key: value for key, value in before.items() if key not in REWORDED
        }


@ON_EACH
def test_upgrade_keeps_used_approvals(older: Older) -> None:
    assert used(older.plan()["approvals"]) == used(older.expected["approvals"])


@ON_EACH
def test_approval_before_upgrade_permits_its_remainder(older: Older) -> None:
    older.edit("workers: {max: 2, min: 2}", "workers: {max: 0, min: 0}")

    older.told("apply", code=4)

    approved = {each["pool"]: each for each in older.plan()["approvals"] if not each.get("by")}
    assert (approved["spot"]["used"], approved["spot"]["count"]) == (2, 2)


@ON_EACH
def test_earlier_ticket_gets_machine_when_another_ends(older: Older) -> None:
    (done,) = [each for each in older.expected["tickets"] if each["team"]]
    (waiting,) = [each for each in older.expected["tickets"] if each["state"] == "waiting"]
    older.told("ticket", "close", str(done["id"]), "--user", done["submitter"])

    for _ in range(2):
        older.told("apply")

    answer = older.told("ticket", "check", str(waiting["id"]), "--user", waiting["submitter"])
    assert re.fullmatch(r"before-powerful-\d+\n", answer)
    assert answer.strip() != done["answer"]


@ON_EACH
def test_plan_saved_before_an_upgrade_is_applied_or_refused(older: Older) -> None:
    saved = json.loads((older.folder / "plan.json").read_text())
    planned = {each["worker"]: each["inputs"]["labels"] for each in saved["actions"]}
    before = older.existing()
    (older.folder / "more.json").rename(older.folder / "world.json")

    code, said = older.do("apply", "plan.json", *(["--trust-clock"] if older.url else []))

    made = {name: labels for name, labels in older.existing().items() if name not in before}
    if code:
        # In PostgreSQL, where fleet.yaml names another database now, and for new digests of plans.
        assert (code, made) == (4, {})
        assert "`fleet plan --out FILE`" in said
        older.told("apply")
        made = {name: labels for name, labels in older.existing().items() if name not in before}
    assert {name: labels["digest"] for name, labels in made.items()} == {
        name: labels["digest"] for name, labels in planned.items()
    }


@pytest.mark.parametrize("older", ["sqlite"], indirect=True)
def test_saved_plan_is_refused_when_its_digest_differs(older: Older) -> None:
    path = older.folder / "plan.json"
    saved = json.loads(path.read_text())
    saved["digests"]["plan"] = "0" * 64
    path.write_text(json.dumps(saved))
    before = older.existing()

    said = older.told("apply", "plan.json", code=4)

    assert tells(said, "plan.json", "another version of fleet", "`fleet plan --out FILE`")
    assert older.existing() == before


def test_digests_of_machines_recipes_and_approvals_are_stable(
    tmp_path: Path, release: Path, run_fleet: RunFleet
) -> None:
    restore(release / "digests", tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    at = json.loads((tmp_path / "world.json").read_text())["time"]

    with time_machine.travel(datetime.fromisoformat(at)):
        planned = run_fleet("plan", "--world", "world.json", "--json", cwd=tmp_path)

    plan = json.loads(planned.stdout)

    fleet = load(str(tmp_path / "fleet.yaml"), LocalFiles()).fleet
    assert fleet is not None
    found = {
        "machines": {a["pool"]: a["inputs"]["labels"]["digest"] for a in plan["actions"]},
        "recipes": {
            name: recipe_digest(image)
            for name, image in fleet.images.items()
            if isinstance(image, ImageRecipe)
        },
        "approvals": [each["digest"] for each in plan["approvals"]],
    }
    assert found == expected
    assert plan["bases"] == []


class AtHetzner(Walk):
    """Servers of the simulated Hetzner Cloud as a release left them, with the real engine."""

    def __init__(self, folder: Path, warm: Warm, fixture: Path) -> None:
        skip_without_plugin()
        super().__init__(folder, warm)
        for each in self.project.iterdir():
            each.unlink()
        restore(fixture, self.project)
        self.expected = json.loads((self.project / "expected.json").read_text())
        now = datetime.fromisoformat(self.expected["at"]).timestamp()
        Path(self.environment["WALK_CLOCK"]).write_text(str(now), encoding="utf-8")
        self.api = SimulatedHetzner(state_file=self.project / "hetzner.json", now=self.now)
        self.environment |= {
            "HCLOUD_ENDPOINT": self.api.endpoint,
            "HCLOUD_TOKEN": self.api.token,
            "FLEET_PASS": "a passphrase for tests",
            "FLEET_PULUMI_PLUGINS": os.environ["FLEET_PULUMI_PLUGINS"],
        }

    def stacks(self) -> dict[str, list[str]]:
        """Return the resources of each stack, as its engine recorded them."""
        place = self.project / ".fleet/.pulumi/stacks"
        states = {path.name: json.loads(path.read_text()) for path in place.glob("*/*.json")}
        return {
            name: sorted(each["urn"] for each in state["checkpoint"]["latest"]["resources"])
            for name, state in states.items()
        }


@pytest.fixture
def at_hetzner(tmp_path: Path, warm: Warm, release: Path) -> Iterator[AtHetzner]:
    walk = AtHetzner(tmp_path, warm, release / "hetzner")
    with walk.api:
        yield walk


@pytest.mark.engine
def test_upgrade_changes_no_server_or_ticket(at_hetzner: AtHetzner) -> None:
    servers, stacks = set(at_hetzner.api.state.servers), at_hetzner.stacks()
    kept = kept_rows(at_hetzner.project)

    plan = at_hetzner.json("fleet plan --json")
    outcome = at_hetzner.json("fleet apply --json")

    assert (plan["actions"], plan["unknown"], plan["bases"]) == ([], [], [])
    assert used(plan["approvals"]) == used(at_hetzner.expected["approvals"])
    assert {stack["result"] for stack in outcome["stacks"]} == {"unchanged"}
    writes = [each for each in at_hetzner.api.requests if each.method in ("POST", "DELETE")]
    assert writes == []
    assert set(at_hetzner.api.state.servers) == servers
    assert at_hetzner.stacks() == stacks
    assert kept_rows(at_hetzner.project) == kept


@pytest.mark.engine
def test_earlier_servers_are_deleted_by_new_version(at_hetzner: AtHetzner) -> None:
    (done,) = [each for each in at_hetzner.expected["tickets"] if each["state"] == "ready"]
    at_hetzner.run(f"fleet ticket close {done['id']} --user {done['submitter']}")
    (server,) = [
        each["id"]
        for each in at_hetzner.api.state.servers.values()
        if each["name"] == done["machine"]
    ]

    for _ in range(2):
        at_hetzner.run("fleet apply")

    assert server not in at_hetzner.api.state.servers
    (ticket,) = at_hetzner.json("fleet ticket list --json")
    assert ticket["state"] == "ready"
