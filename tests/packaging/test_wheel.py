"""The built wheel: it works without the checkout, stacks and role inside."""

import zipfile
from pathlib import Path

import pytest

from tests.rigs.installed import Installed
from tests.rigs.process import Completed, clean_environment, run_process

pytestmark = pytest.mark.slow

SMALL = """\
fleet: wheel
providers:
  desk: {kind: sim}
queues:
  trial: {kind: world, path: world.json}
images:
  trixie: {existing: {desk: trixie}}
pools:
  builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 2, min: 1}}
"""
WORLD = """\
{"format": "fleet-world-1", "fleet": "wheel", "time": "2026-11-21T08:00:00Z",
 "queues": {"trial": {"demand": {"read_at": "2026-11-21T08:00:00Z"}}}}
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "world.json").write_text(WORLD, encoding="utf-8")
    return tmp_path


def run_installed(program: Path, folder: Path, *arguments: str) -> Completed:
    return run_process(program, *arguments, cwd=folder, env=clean_environment(folder))


@pytest.mark.parametrize(
    "part",
    [
        "fleet/_shipped/stacks/sim/Pulumi.yaml",
        "fleet/_shipped/stacks/sim/__main__.py",
        "fleet/_shipped/stacks/hcloud/Pulumi.yaml",
        "fleet/_shipped/ansible/worker.yml",
        "fleet/_shipped/ansible/roles/debusine_worker/meta/argument_specs.yml",
        "fleet/_shipped/ansible/roles/debusine_worker/tasks/main.yml",
    ],
)
def test_the_wheel_holds_stacks_and_role(wheel: Path, part: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert part in names


def test_the_wheel_holds_no_leftovers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert [name for name in names if "__pycache__" in name or name.startswith("tests/")] == []


def test_the_installed_program_is_the_wheel_and_not_the_checkout(
    installed: Installed, elsewhere: Path
) -> None:
    asked = run_process(
        *(installed.program.with_name("python"), "-c", "import fleet; print(fleet.__file__)"),
        cwd=elsewhere,
        env=clean_environment(elsewhere),
    )

    assert Path(asked.stdout.strip()).is_relative_to(installed.site)


def test_the_installed_program_knows_its_version(installed: Installed, elsewhere: Path) -> None:
    asked = run_installed(installed.program, elsewhere, "--version")

    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "fleet 0.1.0\n", "")


def test_the_installed_program_validates_from_another_folder(
    installed: Installed, elsewhere: Path
) -> None:
    checked = run_installed(installed.program, elsewhere, "validate")

    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_installed_program_applies_with_the_stacks_inside_it(
    installed: Installed, elsewhere: Path
) -> None:
    made = run_installed(installed.program, elsewhere, "state", "init")
    applied = run_installed(installed.program, elsewhere, "apply")
    planned = run_installed(installed.program, elsewhere, "plan", "--exit-code")

    assert made.returncode == 0, made.stderr
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert planned.returncode == 0, planned.stdout + planned.stderr
