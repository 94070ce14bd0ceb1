"""The documentation: links lead somewhere, and what must have a page has one."""

import pytest

from tests.rigs.process import ROOT


def test_each_adr_has_context_decision_alternatives_consequences() -> None:
    decisions = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))

    texts = {path.name: path.read_text(encoding="utf-8") for path in decisions}

    parts = ("**Context.**", "**Decision.**", "**Alternatives.**", "**Consequences.**")
    assert len(texts) >= 6
    assert [n for n, text in texts.items() if not all(part in text for part in parts)] == []


WORDS = (
    "fleet pool provider queue image tag guard approval state cadence budget world demand request "
    "worker machine stack plan signature verdict action reason cause engine outcome finding"
)


@pytest.mark.parametrize("word", WORDS.split())
def test_glossary_has_the_words_of_the_contracts(word: str) -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

    assert f"| **{word}**" in glossary
