"""The pages about the verbs say what the program's own help says."""

import re

from fleet.program import VERBS
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT
from tools.cli_reference import FOLDER, pages
from tools.man_page import PAGE, page


def test_committed_command_pages_equal_generated_ones(golden: Golden) -> None:
    now = pages()

    for name, text in now.items():
        golden.compare(FOLDER / name, text)
    assert {path.name for path in FOLDER.glob("*.md")} == {*now}


def test_committed_man_page_equals_generated_one(golden: Golden) -> None:
    golden.compare(PAGE, page())


def test_every_verb_has_a_module_a_page_and_tests() -> None:
    assert {name.removesuffix(".md") for name in pages()} - {"index"} == VERBS.keys()

    stories = [path.read_text("utf-8") for path in (ROOT / "tests/cli/stories").glob("*.txt")]
    told = re.findall(r"^ +\$\S* (\S+)", "\n".join(stories), re.MULTILINE)
    files = [f"{command.module.replace('.', '/')}.py" for command in VERBS.values()]
    files += [f"tests/cli/test_{verb}.py" for verb in VERBS.keys() - {*told}]
    assert [file for file in files if not (ROOT / file).is_file()] == []
