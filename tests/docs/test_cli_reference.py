"""The pages about the verbs say what the program's own help says."""

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


def test_every_verb_has_a_module_a_page_and_a_test_file() -> None:
    assert {name.removesuffix(".md") for name in pages()} - {"index"} == VERBS.keys()

    modules = [command.module for command in VERBS.values()]
    absent = [
        file
        for file in (
            *(f"{module.replace('.', '/')}.py" for module in modules),
            *(f"tests/cli/test_{verb}.py" for verb in VERBS),
        )
        if not (ROOT / file).is_file()
    ]
    assert absent == []
