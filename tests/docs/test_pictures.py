"""The pictures of docs/pictures are today's; `--update-golden` draws them again."""

import shutil
from pathlib import Path

import pytest

from fleet.model.plan import Plan
from tests.docs.test_documents import Shell, steady
from tests.rigs.browser import Tab
from tests.rigs.golden import Golden
from tests.rigs.pictures import terminal_to_svg
from tests.rigs.process import ROOT
from tests.rigs.shown import plan_to_text
from tests.rigs.warm import Warm
from tests.walks.walking import Walk

PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 150_000
PNG = b"\x89PNG\r\n"
WIDTH, HEIGHT = 1000, 730
"""Pixels of a page's picture."""


@pytest.fixture
def shell(tmp_path: Path, warm: Warm) -> Shell:
    """Return a shell beside the example fleet.yaml, with a store."""
    made = Shell(tmp_path, warm.command())
    assert "created" in made.run("fleet state init")
    return made


def test_picture_of_plan_shows_the_plan(tmp_path: Path, warm: Warm, golden: Golden) -> None:
    # What is left of a day's budget depends on the hour: the clock of a walk is always the same.
    walk = Walk(tmp_path, warm)
    for name in ("fleet.yaml", "world.json"):
        shutil.copy(ROOT / name, walk.project)
    assert "created" in walk.run("fleet state init")
    plan = Plan.model_validate_json(walk.run("fleet plan --json"))

    drawn = terminal_to_svg(plan_to_text(plan, colour=True), "fleet plan in a terminal")

    golden.compare(PICTURES / "plan.svg", drawn, steady)


@pytest.mark.pages
def test_status_page_has_a_picture(shell: Shell, tmp_path: Path, golden: Golden) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium on PATH")
    shell.run("fleet apply")
    shell.run("fleet status --site site")

    with Tab(program, tmp_path / "profile") as tab:
        tab.show((shell.project / "site" / "index.html").as_uri(), width=WIDTH)
        picture = tab.picture(width=WIDTH, height=HEIGHT)

    assert picture.startswith(PNG)
    assert len(picture) < MOST_BYTES
    if golden.updates:
        (PICTURES / "status.png").write_bytes(picture)


def test_pictures_are_small_and_each_is_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)

    found = sorted(PICTURES.iterdir())

    assert {each.name for each in found} == {
        *(f"policies-{name}.svg" for name in ("archive", "ci", "copr")),
        *("calibration.svg", "plan.svg", "status.png"),
    }
    assert all(0 < each.stat().st_size < MOST_BYTES for each in found)
    assert [each.name for each in found if f"pictures/{each.name}" not in text] == []
