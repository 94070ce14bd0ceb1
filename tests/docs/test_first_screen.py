"""A newcomer sees the gain before line 40 of the README, and in `make demo` a build that waits."""

import os
import shutil
from pathlib import Path

import pytest

from fleet.schema.load import load
from fleet.schema.pools import ImageRecipe
from fleet.state.files import LocalFiles
from tests.docs.test_documents import Shell
from tests.rigs.process import ROOT
from tests.rigs.warm import Warm
from tools import demo

FIRST_SCREEN = 40
"""Lines of the README that a reader sees before scrolling far."""


def test_readme_shows_picture_gain_and_commands_on_its_first_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN]

    def place(begin: str) -> int:
        return next(number for number, line in enumerate(lines) if line.startswith(begin))

    order = ("# fleet", "![", "- **", "make demo", "make test", "pipx install")
    assert [place(each) for each in order] == sorted(place(each) for each in order)
    assert sum(line.startswith("- **") for line in lines) == 5
    assert sum(line.startswith("pipx install") for line in lines) == 2


def test_example_of_the_root_shows_each_part_of_a_fleet() -> None:
    fleet = load(str(ROOT / "fleet.yaml"), LocalFiles()).fleet

    assert fleet is not None
    assert fleet.pools
    assert fleet.powerful
    assert fleet.budgets
    assert [tag for tag in fleet.tags.values() if tag.limits.per.submitter]
    assert [image for image in fleet.images.values() if isinstance(image, ImageRecipe)]


def test_demo_prints_one_plan_and_explains_why_chromium_waits(
    tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, warm.command())
    for name in ("fleet.yaml", "world.json"):
        shutil.copy(ROOT / name, shell.project)
    monkeypatch.setattr(demo, "ROOT", shell.project)
    monkeypatch.setattr(demo, "FLEET", shell.folder / "bin/fleet")
    monkeypatch.setattr(os, "environ", shell.environment)

    code = demo.main()

    said = capfd.readouterr().out
    assert code == 0
    assert said.count("\nPlan: ") == 1
    assert "sbuild chromium" in said
    assert "tags.extra_powerful.limits.per.submitter" in said
    assert "noop" not in said


def test_demo_prints_all_of_an_apply_that_fails(
    tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, warm.command())
    monkeypatch.setattr(demo, "ROOT", shell.project)
    monkeypatch.setattr(demo, "FLEET", shell.folder / "bin/fleet")

    code = demo.show("Without a store.", ["apply"], demo.APPLIED)

    assert code == 4
    assert "fleet state init" in capfd.readouterr().err
