"""The pages about the verbs say what the program's own help says."""

from pathlib import Path

from tests.rigs.golden import Golden
from tests.rigs.process import ROOT
from tools.cli_reference import FOLDER, pages
from tools.man_page import PAGE, page


def test_the_committed_pages_are_those_that_the_parser_gives(golden: Golden) -> None:
    now = pages()

    for name, text in now.items():
        golden.compare(FOLDER / name, text)
    assert {path.name for path in FOLDER.glob("*.md")} == {*now}


def test_the_committed_manual_page_is_that_of_the_parser(golden: Golden) -> None:
    golden.compare(PAGE, page())


def test_every_verb_has_one_module_one_page_and_one_test_file() -> None:
    verbs = {name.removesuffix(".md") for name in pages()} - {"index"}

    for folder, form in (("fleet/cli", "{}.py"), ("tests/cli", "test_{}.py")):
        files = {
            verb: [ROOT / folder / form.format(name) for name in (verb, f"{verb}_")]
            for verb in verbs
        }
        # A word of Python, as in `import`, is no name for a module: that one ends in `_`.
        missing = [verb for verb, either in files.items() if not any(map(Path.exists, either))]
        assert missing == [], folder
