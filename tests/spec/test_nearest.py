"""Which known word is taken for the one that a person meant."""

import pytest

from fleet.schema.findings import nearest


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("ccx34", ["ccx33", "ccx63"], "ccx33"),
        ("bildrs", ["builders", "powerful"], "builders"),
        ("TRIXIE-AMD46", ["trixie-amd64", "trixie-arm64"], "trixie-amd64"),
        ("chromium", ["ccx33"], ""),
    ],
)
def test_of_equally_near_words_the_one_that_begins_alike_is_meant(
    word: str, known: list[str], meant: str
) -> None:
    assert nearest(word, known) == meant
