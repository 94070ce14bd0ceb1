"""Imports as text: each case of `imports/` has a file of another system, and all that it becomes.

A case is a title, the file below it, and after `->` what the import says: its findings, or what it
changes, and how fleet.yaml differs from that of the first case of its system. A line `< NAME` is
a listing of tests/fixtures/debusine-0.16.2.
"""

import re
from collections.abc import Iterator
from difflib import ndiff
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import pytest

from fleet.migrate.from_copr import import_copr
from fleet.migrate.from_debusine import import_debusine
from fleet.migrate.from_resalloc import import_resalloc
from fleet.migrate.reading import Imported
from tests.migrate.reading import fleet_of
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT

IMPORTS = {
    "copr": (import_copr, "copr.conf"),
    "debusine": (import_debusine, "pools.yaml"),
    "resalloc": (import_resalloc, "pools.yaml"),
}
FOLDER = Path(__file__).parent / "imports"
RECORDED = ROOT / "tests/fixtures/debusine-0.16.2"
SECRET = "hunter2"
"""What the files of these cases hold as the value of a password."""


class Case(NamedTuple):
    """A title, and the text of a file."""

    title: str
    text: str

    def imported(self, system: str) -> Imported:
        """Return what becomes of the file."""
        read, name = IMPORTS[system]
        text = re.sub(r"< (.*)\n", lambda found: (RECORDED / found[1]).read_text(), self.text)
        return read(name, text.encode(), "demo")


def cases_of(system: str) -> Iterator[Case]:
    """Yield the cases of a system, as its file has them."""
    for block in re.split(r"\n+(?=[^\s-])", (FOLDER / f"{system}.txt").read_text("utf-8")):
        title, _, rest = block.partition("\n")
        if not title.startswith("#"):
            yield Case(title, re.sub("^  ", "", rest.partition("->")[0], flags=re.MULTILINE))


def lines_of(found: Imported) -> list[str]:
    """Return each finding or change as a line."""
    wrong = [
        f"{each.span}: {each.rule}: {each.message}" + (f"; {each.hint}" if each.hint else "")
        for each in found.findings
    ]
    changes = [
        f"{each.place.line}: {each.kind}: {each.what}: {each.now}" for each in found.changes
    ]
    return [" ".join(line.split()) for line in wrong + changes]


def told(found: Imported, first: Imported) -> str:
    """Return what an import says beside what that of the first case says."""
    lines = [line for line in lines_of(found) if line not in lines_of(first)]
    if found.text is not None:
        before, after = str(first.text or "").splitlines(), found.text.splitlines()
        changes = (line.rstrip() for line in ndiff(before, after) if line[0] in "+-")
        lines += [line for line in changes if line[1:].strip()]
    return indent("\n".join(lines) or "nothing else", "  ")


@pytest.mark.parametrize("system", IMPORTS)
def test_import_equals_its_cases(system: str, golden: Golden) -> None:
    path = FOLDER / f"{system}.txt"
    head, *_ = re.split(r"\n+(?=[^\s#])", path.read_text("utf-8"), maxsplit=1)
    cases = [*cases_of(system)]
    empty = Imported(cases[0].imported(system).document)
    found = [case.imported(system) for case in cases]
    now = [head]
    for case, each in zip(cases, found, strict=True):
        first = empty if each is found[0] else found[0]
        now.append(f"{case.title}\n{indent(case.text, '  ')}->\n{told(each, first)}")
        if each.text is not None:
            fleet_of(each)
        assert SECRET not in now[-1].partition("\n->")[2]

    golden.compare(path, "\n\n".join(now) + "\n")
