"""The contract of SourceReader, over the fake and the one with threads."""

import pytest

from fleet.apply.observe import Concurrently
from fleet.errors import SourceUnreachable
from fleet.model.facts import Unknown
from fleet.ports import SourceReader
from tests.fakes.source_reader import FakeSourceReader


@pytest.fixture(params=[FakeSourceReader, Concurrently])
def asking(request: pytest.FixtureRequest) -> SourceReader:
    made: SourceReader = request.param()
    return made


def _fail() -> int:
    raise SourceUnreachable("the cable is out")


def _break() -> int:
    raise TimeoutError("a defect")


def test_sources_are_returned_by_name_and_unknown_when_failing(asking: SourceReader) -> None:
    told = asking("queue", {"b": lambda: 2, "a": _fail})

    assert list(told.items()) == [("a", Unknown(unknown="the cable is out")), ("b", 2)]
    assert asking("queue", {}) == {}


def test_unexpected_exception_is_raised(asking: SourceReader) -> None:
    with pytest.raises(TimeoutError, match="a defect"):
        asking("queue", {"a": _break})
