"""Decisions: every code has words and is in the reference."""

from typing import get_args

from fleet.model.decisions import Code, Decision, DecisionFigures, NoMachineReason, Served, Unfit
from fleet.words.pools import describe_pool
from tests.rigs.process import ROOT


def test_reference_lists_every_reason_code() -> None:
    page = (ROOT / "docs/reference/reasons.md").read_text(encoding="utf-8")

    codes = [code for family in get_args(Code) for code in family]

    assert [code for code in codes if f"`{code}`" not in page] == []


def test_every_reason_code_of_request_and_pool_names_the_pool() -> None:
    for code in (*Served, *Unfit, *NoMachineReason):
        sentence = describe_pool([Decision(code=code, subject=("arm",), message="is at 3")])
        assert sentence.startswith("pool arm ")


def test_sentence_names_every_tag_and_minimum() -> None:
    tags = {
        Unfit.TAG_MISSING: ("x", "y"),
        Unfit.TAG_NOT_BROUGHT: ("r", "s"),
        Unfit.TAG_EXCLUSIVE: ("b", "c"),
        Unfit.TOO_SMALL: ("cpu>=2", "mem>=9"),
    }
    unfit = [
        Decision(code=c, subject=("arm",), figures=DecisionFigures(tags=t))
        for c, t in tags.items()
    ]

    parts = describe_pool(unfit).split("; ")

    names = ("x, y", "r, s", "b, c", "cpu>=2", "mem>=9")
    assert len(parts) == len(names)
    assert all(name in part for name, part in zip(names, parts, strict=True))
