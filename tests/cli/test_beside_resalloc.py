"""Fleet beside a Resalloc that runs on: it plans, and changes none of its machines."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.process import ROOT
from tests.rigs.resalloc_server import ResallocServer
from tests.rigs.trial import Trial

POOLS = """\
hv_01_prod:
  max: 3
  max_prealloc: 2
  tags: [arch_x86_64, hv]
  cmd_new: sh vm-new
  cmd_delete: sh vm-delete
  cmd_list: sh vm-list
aws_prod:
  max: 2
  max_prealloc: 1
  tags: [arch_x86_64, aws]
  cmd_new: sh vm-new
  cmd_delete: sh vm-delete
  cmd_list: sh vm-list
"""
SCRIPTS = {
    "vm-new": 'mkdir -p machines; touch "machines/$RESALLOC_NAME"; echo "$RESALLOC_NAME"',
    # As production's: whatever begins with the name goes.
    "vm-delete": 'echo "$RESALLOC_NAME" >> deleted; rm -f machines/"$RESALLOC_NAME"*',
    "vm-list": 'ls machines | grep "^$RESALLOC_POOL_ID"',
}


class Sides:
    """A Resalloc and a fleet over the same commands and the same machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, script in SCRIPTS.items():
            (folder / name).write_text(f"{script}\n", encoding="utf-8")
        (folder / "pools.yaml").write_text(POOLS, encoding="utf-8")
        self.resalloc = ResallocServer(folder)
        self.fleet = Trial(folder)
        (folder / "fleet.yaml").unlink()
        code, said = self.fleet.do(
            *("import", "resalloc", "pools.yaml", "--fleet", "copr", "--out", "fleet.yaml")
        )
        assert code == 0, said
        assert self.fleet.do("state", "init")[0] == 0

    def run(self) -> None:
        """Have each side make a pass, twice: what one does the other sees."""
        for _ in range(2):
            self.resalloc.run()
            code, said = self.fleet.do("apply")
            assert code == 0, said

    def machines(self, pool: str) -> list[str]:
        """Return the machines of a pool that exist, whoever made them."""
        return sorted(p.name for p in (self.folder / "machines").glob(f"{pool}*"))

    def deleted(self) -> list[str]:
        """Return the names that `cmd_delete` was told."""
        path = self.folder / "deleted"
        return path.read_text(encoding="utf-8").split() if path.exists() else []


@pytest.fixture
def sides(project: Path) -> Sides:
    """Return both, with nothing moved yet."""
    return Sides(project)


def scripts_of_the_page(folder: Path) -> None:
    """Write the programs of run-beside-resalloc.md."""
    text = (ROOT / "docs/how-to/run-beside-resalloc.md").read_text(encoding="utf-8")
    for name in ("tickets.py", "compare.py"):
        found = re.search(rf"<!-- file: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (folder / name).write_text(found[1], encoding="utf-8")


def run_script(folder: Path, name: str, given: str) -> str:
    program = [sys.executable, name]
    done = subprocess.run(
        program, cwd=folder, input=given, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("taken", [(3, 1), pytest.param((40, 5), marks=pytest.mark.slow)])
def test_observed_fleet_plans_without_changes_of_resalloc(
    sides: Sides, taken: tuple[int, int]
) -> None:
    """What the guide says, with more tickets than a run may make machines for."""
    hv, aws = taken
    for pool, number in (("hv", hv), ("aws", aws)):
        for _ in range(number):
            sides.resalloc.take(pool, "arch_x86_64")
    sides.resalloc.run()
    folder, before = sides.folder, sides.machines("")
    scripts_of_the_page(folder)
    (folder / "resources.txt").write_text(sides.resalloc.resource_list(), encoding="utf-8")
    world = run_script(folder, "tickets.py", sides.resalloc.ticket_list())
    (folder / "tickets.json").write_text(world.replace("beside", "copr"), encoding="utf-8")
    path = folder / "fleet.yaml"
    text = path.read_text(encoding="utf-8").replace("mode: pause", "mode: observe")
    text = re.sub(r", max_starting: \d+", "", re.sub(r"max: \d+", "max: 60", text))
    text = re.sub(r"  tickets: .*", "  resalloc: {kind: world, path: tickets.json}", text)
    path.write_text(text, encoding="utf-8")

    code, plan = sides.fleet.do("plan", "--json")
    compared = run_script(folder, "compare.py", plan).splitlines()
    applied, _ = sides.fleet.do("apply")

    assert (code, applied) == (0, 0), plan
    rows = {cells[0]: cells[1:] for cells in map(str.split, compared[1:-1])}
    spare = {"hv_01_prod": 2, "aws_prod": 1}
    wanted = {"hv_01_prod": hv, "aws_prod": aws}
    theirs = {name: len(sides.machines(name)) for name in wanted}
    assert rows == {n: [str(theirs[n]), str(wanted[n] + spare[n])] for n in wanted}
    assert sides.machines("") == before == sides.resalloc.names()
    assert sides.deleted() == []
