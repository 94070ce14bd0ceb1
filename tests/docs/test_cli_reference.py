"""The pages about the verbs say what the program's own help says."""

from pathlib import Path

from tests.rigs.process import ROOT
from tools.cli_reference import FOLDER, pages


def test_the_committed_pages_are_those_that_the_parser_gives() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}

    assert committed == pages(), "run: python tools/cli_reference.py"


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
