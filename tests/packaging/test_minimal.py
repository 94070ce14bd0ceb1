"""Without any extra: enough to validate, plan from a recording and draw pages."""

import json
import os
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from fleet.cli.doctor import EXTRAS
from simulators.hetzner.server import SimulatedHetzner
from tests.rigs.installed import Installed
from tests.rigs.process import ROOT, Completed, clean_environment, run_process

pytestmark = pytest.mark.slow

MOST_BYTES, MOST_WITH_BYTECODE = 40_000_000, 63_000_000
"""As uv unpacks it, and as pip leaves it, which compiles what it installs: 38.4 and 61.0 MB
(58 MiB) with 0.2.0 on Python 3.11, of which 1.0 MB are the pages; 62.0 MB in November 2026."""
HETZNER = """\
fleet: paid
providers: {cloud: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}}
queues: {work: {kind: world, path: world.json}}
images: {trixie: {existing: {cloud: "1"}}}
pools: {builders: {provider: cloud, machine: ccx33, image: trixie, workers: {max: 2}}}
state: {passphrase: {env: FLEET_PASSPHRASE}}
"""


class Stranger:
    """Somebody who has only installed the wheel."""

    def __init__(self, installed: Installed, folder: Path) -> None:
        self.folder = folder
        self.said = {"HCLOUD_TOKEN": "x", "FLEET_PASSPHRASE": "x"}
        self._installed = installed

    def does(self, *arguments: str) -> Completed:
        return run_process(
            self._installed.program,
            *arguments,
            cwd=self.folder,
            env=clean_environment(self.folder, self.said),
        )


@pytest.fixture
def stranger(minimal: Installed, tmp_path: Path) -> Stranger:
    return Stranger(minimal, tmp_path)


def test_minimal_install_is_small(minimal: Installed) -> None:
    assert minimal.size(bytecode=False) < MOST_BYTES
    assert minimal.size(bytecode=True) < MOST_WITH_BYTECODE
    assert not minimal.names & {"pulumi", "boto3", "numpy", "highspy", "psycopg", "ansible-core"}


def test_doctor_checks_every_package_of_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = {
        extra: {re.split(r"[^\w-]", requirement, maxsplit=1)[0] for requirement in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }
    distribution = packages_distributions()

    assert {
        extra: {distribution[module][0].replace("_", "-") for module in modules}
        for extra, modules in EXTRAS.items()
    } == {extra: names - {"fleet-reconciler"} for extra, names in packages.items()}


def test_minimal_install_prints_a_plan_and_pages(stranger: Stranger) -> None:
    begun = stranger.does("init")
    checked = stranger.does("validate")
    planned = stranger.does("plan", "--json")
    recorded = stranger.does("observe", "--out", "recorded.json")
    again = stranger.does("plan", "--world", "recorded.json", "--json")
    drawn = stranger.does("status", "--site", "site")

    for done in (begun, checked, planned, recorded, again, drawn):
        assert done.returncode == 0, done.stderr
    plan = json.loads(planned.stdout)
    assert [each["action"] for each in plan["actions"]] == ["create"] * 3
    assert json.loads(again.stdout)["actions"] == plan["actions"]
    assert (stranger.folder / "site" / "index.html").is_file()


def test_plan_without_solver_names_its_extra(stranger: Stranger) -> None:
    stranger.does("init")

    plan = json.loads(stranger.does("plan", "--json").stdout)

    assert "'fleet-reconciler[solver]'" in plan["optimum"]["because"]


def test_apply_and_doctor_name_extra_of_the_engine(stranger: Stranger) -> None:
    stranger.does("init")

    applied = stranger.does("apply")
    examined = json.loads(stranger.does("doctor", "--json").stdout)

    assert applied.returncode == 1
    assert "'fleet-reconciler[pulumi]'" in applied.stdout + applied.stderr
    (engine,) = (each for each in examined["findings"] if each["about"].endswith(", engine"))
    assert engine["result"] == "wrong"
    assert "'fleet-reconciler[pulumi]'" in engine["fix"]


def test_pulumi_fleet_is_planned_but_not_applied_without_extra(
    stranger: Stranger,
) -> None:
    text = HETZNER.replace("kind: world, path: world.json", "kind: tickets")
    (stranger.folder / "fleet.yaml").write_text(text, encoding="utf-8")
    with SimulatedHetzner() as api:
        stranger.said |= {"HCLOUD_ENDPOINT": api.endpoint, "HCLOUD_TOKEN": api.token}
        for words in (("state", "init"), ("ticket", "open", "--tag", "worker:build-arch:amd64")):
            assert stranger.does(*words).returncode == 0

        planned = stranger.does("plan", "--json")
        applied = stranger.does("apply")

        assert api.state.servers == {}
    assert planned.returncode == 0, planned.stderr
    assert [each["action"] for each in json.loads(planned.stdout)["actions"]] == ["create"]
    assert applied.returncode == 1
    assert "'fleet-reconciler[hcloud]'" in applied.stdout + applied.stderr


def test_missing_pulumi_engine_is_unknown_and_named(stranger: Stranger) -> None:
    stranger.does("init")
    (stranger.folder / "fleet.yaml").write_text(HETZNER, encoding="utf-8")

    examined = stranger.does("doctor", "--json")

    assert examined.returncode == 1
    found = {each["about"]: each for each in json.loads(examined.stdout)["findings"]}
    for about in ("provider cloud, engine", "fleet, extras"):
        assert found[about]["result"] == "wrong"
        assert "fleet-reconciler[hcloud]" in found[about]["fix"]


def test_aws_prices_name_their_extra(stranger: Stranger) -> None:
    stranger.does("init", "--cloud", "aws", "--queue", "debusine")

    checked = stranger.does("prices", "check")

    assert checked.returncode == 1
    assert "'fleet-reconciler[aws]'" in checked.stdout


def test_image_build_names_its_extra(stranger: Stranger) -> None:
    stranger.does("init", "--cloud", "local", "--queue", "debusine")
    stranger.said["PATH"] = os.defpath  # without the programs of this checkout

    built = stranger.does("image", "build", "trixie")

    assert built.returncode == 1
    assert "'fleet-reconciler[images]'" in built.stderr


def test_install_with_extra_applies_the_plan(installed: Installed, tmp_path: Path) -> None:
    somebody = Stranger(installed, tmp_path)
    somebody.does("init")

    applied = somebody.does("apply", "--json")
    planned = somebody.does("plan", "--json", "--exit-code")

    assert applied.returncode == 0, applied.stderr
    assert (planned.returncode, json.loads(planned.stdout)["actions"]) == (0, [])
