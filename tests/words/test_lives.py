"""Sentences of actions on machines."""

import pytest

from fleet.words.lives import describe_unnamed, explain_requests
from tests.builders import a_create
from tests.builders.sentences import tells


@pytest.mark.parametrize(
    "serves",
    [
        ("work/12", "work/1"),  # the id of one is in that of the other
        ("tickets/100", "tickets/10", "tickets/1"),
        ("fits/it", "it"),
    ],
)
def test_requests_of_a_machine_are_named_when_its_reason_names_one(
    serves: tuple[str, ...],
) -> None:
    made = a_create(serves=serves, because=explain_requests(serves[0], len(serves) - 1))

    assert tells(describe_unnamed(made), *serves[:2])


def test_request_of_a_machine_is_named_once_when_its_reason_names_it() -> None:
    made = a_create(serves=("work/1",), because=explain_requests("work/1", 0))

    assert describe_unnamed(made) == ""
