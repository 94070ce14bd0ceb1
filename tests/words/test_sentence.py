"""A sentence has a gap for each of its figures, and each figure its form."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import get_args

import pytest

import fleet.words
from fleet.words.sentence import Sentence

COUNT = Sentence[int, str]("{count:action is} withheld, {count:machine} of {pool}")


def sentences() -> Iterator[tuple[str, Sentence[()]]]:
    for module in pkgutil.iter_modules(fleet.words.__path__, "fleet.words."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Sentence):
                yield f"{module.name}.{name}", value


@pytest.mark.parametrize(("name", "sentence"), [*sentences()])
def test_sentence_has_as_many_gaps_as_figures(name: str, sentence: Sentence[()]) -> None:
    figures = get_args(vars(sentence)["__orig_class__"])

    assert len(sentence.gaps) == len(figures), name


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 action is withheld, 1 machine of arm"),
        (2, "2 actions are withheld, 2 machines of arm"),
    ],
)
def test_repeated_gap_has_one_figure(count: int, text: str) -> None:
    assert COUNT(count, "arm") == text


CLAUSES = Sentence[str, str | None, bool, int](
    "{pool} stops[: {reason}][{later:if}, later][{later:unless}, now]; {count:,} {count:is|are} on"
)


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        (("arm", None, False, 1), "arm stops, now; 1 is on"),
        (("arm", "", True, 1200), "arm stops, later; 1,200 are on"),
        (("arm", "full", True, 0), "arm stops: full, later; 0 are on"),
    ],
)
def test_clause_is_left_out_when_its_figure_is_empty(
    figures: tuple[str, str | None, bool, int], text: str
) -> None:
    assert CLAUSES(*figures) == text
