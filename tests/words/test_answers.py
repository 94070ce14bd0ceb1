"""Sentences of `fleet explain` about tags."""

import pytest

from fleet.words.answers import describe_enforcement


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (["tag"], ""),
        (["exclusive"], " exclusive is"),
        (["limits"], " limits are"),
        (["asked_by", "exclusive", "limits"], " asked_by, exclusive and limits are"),
    ],
)
def test_enforcement_has_a_verb_for_the_claims(claims: list[str], said: str) -> None:
    found = describe_enforcement("big", claims, "enforced by x", "debian", "why")

    assert found == f"big:{said} enforced by x at debian: why"
