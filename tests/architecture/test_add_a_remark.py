"""What CONTRIBUTING says of a remark of an edge is followed in a copy of the tree."""

import json
import shutil
from collections.abc import Iterator

import pytest

from tests.architecture.recipes import Tree, follow, steps_of
from tests.rigs.process import ROOT, Completed, unwrapped

TITLE = "Let an edge remark something"
FLEET = """\
fleet: debian-ci
providers: {desk: {kind: sim}}
queues: {debian: {kind: world, path: world.json, queue: debian}}
images: {trixie: {suite: trixie, architecture: amd64}}
pools: {builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 2}}}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    root, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("trial")
    follow(TITLE, root, "fleet", "stacks")
    world = (ROOT / "world.json").read_text(encoding="utf-8")
    (folder / "world.json").write_text(world.replace('"2026-', '"2020-'))
    (folder / "fleet.yaml").write_text(FLEET)
    yield Tree(root, folder)
    shutil.rmtree(root)


def shown(tree: Tree, *command: str) -> Completed:
    return tree.run("fleet", *command)


def test_remark_is_added_in_one_place() -> None:
    assert [place for place, _ in steps_of(TITLE)] == ["fleet/queues/recorded.py"]


@pytest.mark.slow
def test_added_remark_is_shown_once_by_each_command(tree: Tree) -> None:
    assert shown(tree, "state", "init").returncode == 0

    (remark,) = json.loads(shown(tree, "plan", "--json").stdout)["remarks"]

    assert "world.json was recorded " in remark
    for command in (("plan",), ("plan", "--markdown"), ("status",)):
        done = shown(tree, *command)
        assert unwrapped(done.stdout + done.stderr).count("was recorded") == 1
