"""How an explanation reads."""

from fleet.explain.values import ExplainedReason, Explanation
from fleet.report.answers import explanation_blocks
from fleet.report.terminal import document_to_text
from tests.builders.telling import an_explanation
from tests.report.conftest import Golden


def said(explanation: Explanation) -> str:
    return document_to_text(explanation_blocks(explanation), colour=False)


def test_explanation_has_reason_first_and_suggestions_last(golden: Golden) -> None:
    golden("explanation.txt", said(an_explanation()))


def test_explanation_names_line_instead_of_key() -> None:
    reason = ExplainedReason(because="it is full", path=("pools",), place="fleet.yaml:12:3")

    text = said(an_explanation(reasons=(reason,)))

    assert "    see fleet.yaml:12:3\n" in text


def test_short_explanation_is_one_line() -> None:
    bare = an_explanation(facts=(), reasons=(), next_steps=())

    assert said(bare) == f"{bare.headline}\n"


def test_reason_without_deciding_line_names_no_line() -> None:
    reason = ExplainedReason(because="the queue gave no answer")

    assert "see" not in said(an_explanation(reasons=(reason,)))
