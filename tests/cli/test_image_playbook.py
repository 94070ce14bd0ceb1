"""Images of `kind: playbook`: the mock builder of contrib, at a simulated Hetzner."""

import json
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fleet.images import commands
from fleet.images.folder import find_build, list_versions
from fleet.model.images import recipe_digest
from fleet.schema.pools import PlaybookRecipe
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.rigs.machines import CLEAN, PACKAGES, READY, SYSTEM, MachineRig
from tests.rigs.process import ROOT
from tests.rigs.trial import Trial

TEST = "runuser -u mockbuilder -- mock --version && rpmbuild --version"
RPMS = (
    "bash\t5.3.0-2.fc43\tx86_64\tbash\t5.3.0-2.fc43\t\t\n",
    "mock\t6.4-1.fc43\tnoarch\tmock\t6.4-1.fc43\t\t\n",
    "python3-libs\t3.14.0-1.fc43\tx86_64\tpython3.14\t3.14.0-1.fc43\t\t\n",
)
FLEET = f"""\
fleet: trial
providers:
  hetzner: {{kind: hcloud, location: fsn1, token: {{env: HCLOUD_TOKEN}}}}
  desk: {{kind: sim}}
queues:
  builds: {{kind: tickets}}
images:
  mock:
    kind: playbook
    provider: hetzner
    base: fedora-43
    playbook: mock-builder/playbook.yml
    test: {TEST}
    provides: [copr_builder]
    rebuild: {{every: 7d}}
pools:
  builders: {{provider: hetzner, machine: ccx33, image: mock, workers: {{max: 1}}}}
"""


class Bakery:
    """A trial fleet whose builds rent machines of a simulated Hetzner that do nothing."""

    def __init__(self, trial: Trial, rig: MachineRig) -> None:
        self.trial, self.rig = trial, rig
        self.images = trial.folder / ".fleet/images"

    def do(self, *args: str) -> tuple[int, str]:
        return self.trial.do("image", *args)

    def servers(self) -> list[Mapping[str, Any]]:
        """Return what each server that was asked for was to be."""
        asked = (each for each in self.rig.api.requests if each.method == "POST")
        return [each.body for each in asked if each.path == "/servers"]

    def version(self) -> str:
        return list_versions(self.images, "mock")[-1]


@pytest.fixture
def bakery(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bakery]:
    trial.write(FLEET)
    shutil.copytree(ROOT / "contrib/copr/mock-builder", trial.folder / "mock-builder")
    with SimulatedHetzner(now=lambda: NOW) as api:
        monkeypatch.setenv("HCLOUD_TOKEN", api.token)
        monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)
        rig = MachineRig(trial.folder / ".fleet/images", api, fleet="trial", beside=trial.folder)
        rig.packages, rig.system = RPMS, "fedora-43"
        monkeypatch.setattr(commands, "builder_at", lambda *_: rig.builder)
        yield Bakery(trial, rig)


def test_playbook_runs_and_is_tested_on_machine_of_its_base(bakery: Bakery) -> None:
    code, said = bakery.do("build", "mock")

    assert (code, "it is tested" in said) == (0, True)
    (server,) = bakery.servers()
    image = bakery.rig.api.state.resources["images"][server["image"]]
    assert image["name"] == "fedora-43"
    assert bakery.rig.play == bakery.trial.folder / "mock-builder/playbook.yml"
    assert bakery.rig.asked[-5:] == [READY, f"set -e\n{TEST}", PACKAGES, SYSTEM, CLEAN]
    assert bakery.rig.hetzner.left() == []


def test_manifest_has_system_packages_machine_and_playbook(bakery: Bakery) -> None:
    bakery.do("build", "mock")

    folder, manifest = find_build(bakery.images, "mock", bakery.version())
    assert (manifest.way, manifest.suite) == ("instance", "fedora-43")
    assert [each.name for each in manifest.packages] == ["bash", "mock", "python3-libs"]
    assert manifest.rental
    assert manifest.rental.provider == "hetzner"
    assert manifest.role_digest
    purls = [
        reference["referenceLocator"]
        for each in json.loads((folder / "sbom.spdx.json").read_text())["packages"]
        for reference in each.get("externalRefs", ())
    ]
    assert purls[1] == "pkg:rpm/fedora/mock@6.4-1.fc43?arch=noarch&distro=fedora-43"


def test_playbook_version_is_published_promoted_and_rolled_back(bakery: Bakery) -> None:
    for _ in range(2):
        assert bakery.do("build", "mock")[0] == 0
        assert bakery.do("publish", "mock")[0] == 0
        assert bakery.do("promote", "mock")[0] == 0
    assert bakery.do("rollback", "mock")[0] == 0

    first, second = sorted(bakery.trial.versions())
    assert bakery.trial.versions() == {first: "current", second: "retired"}
    version, _ = sorted(bakery.trial.store().image_versions(), key=lambda each: each.version)
    assert version.publications["hetzner"].verified
    assert version.rental
    assert version.rental.seconds >= 1


def test_no_machine_and_snapshot_remain_when_test_fails(bakery: Bakery) -> None:
    bakery.rig.fails_at = f"set -e\n{TEST}"
    bakery.rig.failure = "mock: command not found"

    code, said = bakery.do("build", "mock")

    assert code == 1
    assert "images.mock.test" in said
    assert "mock: command not found" in said
    assert bakery.rig.hetzner.left() == []
    assert not any(each.path.endswith("/create_image") for each in bakery.rig.api.requests)


def test_missing_playbook_is_named_before_a_machine_is_rented(bakery: Bakery) -> None:
    (bakery.trial.folder / "mock-builder/playbook.yml").unlink()

    code, said = bakery.do("build", "mock")

    assert (code, bakery.servers()) == (1, [])
    assert "images.mock.playbook" in said
    assert "mock-builder/playbook.yml" in said


@pytest.mark.parametrize(
    ("base", "named"),
    [("fedora-99", "fedora-43"), ('"310557663"', "310557663"), ('"99"', "99")],
)
def test_unknown_base_is_refused_before_a_machine_is_rented(
    bakery: Bakery, base: str, named: str
) -> None:
    bakery.trial.change("fedora-43", base)

    code, said = bakery.do("build", "mock")

    assert (code, bakery.servers()) == (1, [])
    assert base.strip('"') in said
    assert named in said


def test_base_may_be_an_image_id(bakery: Bakery) -> None:
    bakery.trial.write(FLEET.replace("fedora-43", '"330557660"'))

    assert bakery.do("build", "mock")[0] == 0

    assert bakery.servers()[0]["image"] == 330557660


@pytest.mark.parametrize("option", [["--at", "desk"], ["--on", "builds"], ["--raw"]])
def test_playbook_build_refuses_options_of_other_builds(bakery: Bakery, option: list[str]) -> None:
    code, _ = bakery.do("build", "mock", *option)

    assert (code, bakery.servers()) == (2, [])


def due(bakery: Bakery) -> dict[str, object]:
    (image,) = json.loads(bakery.do("due", "--json")[1])["images"]
    found: dict[str, object] = image
    return found


def test_new_version_is_due_when_a_file_of_the_folder_changes(bakery: Bakery) -> None:
    assert due(bakery)["steps"] == ["build", "publish"]
    bakery.do("build", "mock")
    bakery.do("publish", "mock")
    assert due(bakery)["steps"] == []

    (bakery.trial.folder / "mock-builder/files/site-defaults.cfg").write_text("changed\n")

    assert due(bakery)["steps"] == ["build", "publish"]
    assert "mock-builder/playbook.yml" in str(due(bakery)["causes"])


def test_image_digest_depends_only_on_contents() -> None:
    keys = {
        "kind": "playbook",
        "provider": "hetzner",
        "base": "fedora-43",
        "playbook": "mock-builder/playbook.yml",
        "test": "true",
    }

    def digest(**more: object) -> str:
        return recipe_digest(PlaybookRecipe.model_validate(keys | more))

    assert digest(provides=["big"], promote="manual", rebuild={"every": "7d"}) == digest()
    assert len({digest(), digest(base="fedora-42"), digest(test="mock --version")}) == 3


@pytest.mark.parametrize(
    "path",
    ["playbook.yml", "../shared/p.yml", "/srv/p.yml", "a/../b/p.yml", "a/p.sh", ".git/p.yml"],
)
def test_playbook_path_is_refused_outside_own_folder(bakery: Bakery, path: str) -> None:
    bakery.trial.write(FLEET.replace("mock-builder/playbook.yml", path))

    code, said = bakery.trial.do("validate")

    assert (code, "images.mock.playbook" in said or "playbook" in said) == (1, True)


@pytest.mark.parametrize("line", ["suite: trixie", "publish: [desk]", "existing: {desk: x}"])
def test_playbook_image_refuses_keys_of_other_images(bakery: Bakery, line: str) -> None:
    bakery.trial.write(FLEET.replace("    base: ", f"    {line}\n    base: "))

    assert bakery.trial.do("validate")[0] == 1
