"""The built wheel: it works without the checkout, stacks and role inside."""

import os
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.rigs.process import ROOT, Completed, clean_environment, run_process

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run_process(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT),
        cwd=folder,
        env=clean_environment(folder, {"PYTHONWARNINGS": "ignore"}),
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program in a fresh environment: the wheel itself, dependencies by a path."""
    folder = tmp_path_factory.mktemp("installed")
    environment = clean_environment(folder, {"PYTHONWARNINGS": "ignore"})
    made = run_process(
        *(sys.executable, "-m", "venv", "--without-pip", folder / "venv"),
        cwd=folder,
        env=environment,
    )
    assert made.returncode == 0, made.stderr
    site = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    put = run_process(
        *(sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python"),
        *("install", "--quiet", "--no-index", "--no-deps", wheel),
        cwd=folder,
        env=environment,
    )
    assert put.returncode == 0, put.stderr
    # Only what stands in it, not its .pth files: they would lead back to the checkout.
    append = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n"
    (site / "dependencies.pth").write_text(append, encoding="utf-8")
    return folder / "venv" / "bin" / "fleet"


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
    installed: Path, elsewhere: Path
) -> None:
    asked = run_process(
        *(installed.with_name("python"), "-c", "import fleet; print(fleet.__file__)"),
        cwd=elsewhere,
        env=clean_environment(elsewhere),
    )

    assert os.path.commonpath([asked.stdout.strip(), installed.parent.parent]) == str(
        installed.parent.parent
    )


def test_the_installed_program_knows_its_version(installed: Path, elsewhere: Path) -> None:
    asked = run_installed(installed, elsewhere, "--version")

    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "fleet 0.1.0\n", "")


def test_the_installed_program_validates_from_another_folder(
    installed: Path, elsewhere: Path
) -> None:
    checked = run_installed(installed, elsewhere, "validate")

    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_installed_program_applies_with_the_stacks_inside_it(
    installed: Path, elsewhere: Path
) -> None:
    made = run_installed(installed, elsewhere, "state", "init")
    applied = run_installed(installed, elsewhere, "apply")
    planned = run_installed(installed, elsewhere, "plan", "--exit-code")

    assert made.returncode == 0, made.stderr
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert planned.returncode == 0, planned.stdout + planned.stderr
