"""The built wheel: it works without the checkout, stacks and role inside."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.rigs.installed import Installed
from tests.rigs.process import ROOT, Completed, clean_environment, run_process
from tools.man_page import PAGE

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
def test_wheel_contains_stacks_and_role(wheel: Path, part: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert part in names
    assert [name for name in names if "__pycache__" in name or name.startswith("tests/")] == []


def test_wheel_contains_each_page_at_path_in_messages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [
            name.partition(".data/data/share/doc/fleet-reconciler/")[2]
            for name in archive.namelist()
        ]

    pages = {page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert {name for name in names if name} == pages | {"README.md"}


def test_installed_program_is_the_wheel(installed: Installed, elsewhere: Path) -> None:
    asked = run_process(
        *(installed.program.with_name("python"), "-c", "import fleet; print(fleet.__file__)"),
        cwd=elsewhere,
        env=clean_environment(elsewhere),
    )

    assert Path(asked.stdout.strip()).is_relative_to(installed.site)


def test_installed_program_prints_its_version(
    wheel: Path, minimal: Installed, elsewhere: Path
) -> None:
    asked = run_installed(minimal.program, elsewhere, "--version")

    version = wheel.name.split("-")[1]
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, f"fleet {version}\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_installed_program_has_shell_completions(
    minimal: Installed, elsewhere: Path, shell: str
) -> None:
    asked = run_installed(minimal.program, elsewhere, "completion", shell)

    assert (asked.returncode, asked.stderr) == (0, "")
    assert "explain" in asked.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").iterdir()))
def test_installed_program_writes_the_files_of_each_page(
    minimal: Installed, tmp_path: Path, name: str
) -> None:
    done = run_installed(minimal.program, tmp_path, "init", "--example", name)

    theirs = {path.name: path.read_bytes() for path in (ROOT / "examples" / name).iterdir()}
    assert done.returncode == 0, done.stderr
    assert {each: (tmp_path / each).read_bytes() for each in theirs} == theirs


def test_man_page_is_installed_and_can_be_formatted(minimal: Installed, elsewhere: Path) -> None:
    page = minimal.program.parents[1] / "share" / "man" / "man1" / "fleet.1"
    groff = shutil.which("groff")

    assert page.read_bytes() == PAGE.read_bytes()
    if groff is None:
        pytest.skip("groff is not installed")
    options = ("-man", "-Tutf8", "-ww", "-b")
    shown = run_process(groff, *options, page, cwd=elsewhere, env=clean_environment(elsewhere))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "fleet explain" in re.sub(r".\x08|\x1b\[[0-9;]*m", "", shown.stdout)
