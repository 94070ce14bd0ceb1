"""What asks the sources of an observation: the same of the fake and of the one with threads."""

import pytest

from fleet.apply.observe import Concurrently
from fleet.errors import SourceUnreachable
from fleet.model.facts import Unknown
from fleet.ports import Asking
from tests.fakes.asking import FakeAsking


@pytest.fixture(params=[FakeAsking, Concurrently])
def asking(request: pytest.FixtureRequest) -> Asking:
    made: Asking = request.param()
    return made


def _fail() -> int:
    raise SourceUnreachable("the cable is out")


def _break() -> int:
    raise TimeoutError("a defect")


def test_each_source_is_told_by_name(asking: Asking) -> None:
    assert list(asking("queue", {"b": lambda: 2, "a": lambda: 1}).items()) == [("a", 1), ("b", 2)]


def test_a_source_that_fails_is_unknown_and_holds_no_other_up(asking: Asking) -> None:
    told = asking("queue", {"a": _fail, "b": lambda: 2})

    assert told == {"a": Unknown(unknown="the cable is out"), "b": 2}


def test_a_defect_is_not_taken_for_an_answer(asking: Asking) -> None:
    with pytest.raises(TimeoutError, match="a defect"):
        asking("queue", {"a": _break})


def test_nothing_to_ask_is_no_answer(asking: Asking) -> None:
    assert asking("queue", {}) == {}
