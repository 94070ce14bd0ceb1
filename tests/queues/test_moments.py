"""Moments of a history, read one after the other: what still waits is not checked again."""

import json
from datetime import timedelta

import pytest

from fleet.errors import FileUnreadable
from fleet.model.facts import Attempt, Demand, Request, World
from fleet.queues.recorded import Moments, world_of
from tests.builders import NOW, a_reading, a_request, a_world, an_attempt


def moment(nth: int, *waiting: Request) -> bytes:
    """Return a recorded world: what waits, `nth` times ten minutes after the beginning."""
    time = NOW + timedelta(minutes=10 * nth)
    return a_world(time=time, queues={"debian": a_reading(*waiting)}).model_dump_json().encode()


def waiting_in(world: World) -> tuple[Request, ...]:
    demand = world.queues["debian"].demand
    assert isinstance(demand, Demand)
    return demand.requests


def test_a_moment_is_what_it_is_when_read_alone() -> None:
    moments = Moments()
    texts = [
        moment(0),
        moment(1, a_request(id="1"), a_request(id="2")),
        moment(2, a_request(id="2", priority=5), a_request(id="3")),
        moment(3, a_request(id="3"), a_request(id="2", priority=5)),
    ]

    for text in texts:
        assert moments.world_of("history", text) == world_of("history", text)


def test_what_still_waits_is_the_same_object() -> None:
    moments = Moments()
    before = waiting_in(
        moments.world_of("history", moment(0, a_request(id="1"), a_request(id="2")))
    )
    after = waiting_in(
        moments.world_of("history", moment(1, a_request(id="1"), a_request(id="2", priority=5)))
    )

    assert [old is new for old, new in zip(before, after, strict=True)] == [True, False]


def test_a_value_that_is_only_equal_to_that_before_is_read_again() -> None:
    moments = Moments()
    texts = [moment(nth, a_request(id="1", task_data={"x": x})) for nth, x in enumerate((1, True))]

    for text in texts:
        read, alone = moments.world_of("history", text), world_of("history", text)
        assert read.model_dump_json() == alone.model_dump_json()


@pytest.mark.parametrize(
    "task_data",
    [
        {"requests": [{"id": "2"}, {"id": "3"}], "stored": True},
        {"x": [{"y": 1}, {"id": "2"}, {"pool": "3"}]},
        {'"requests': [{"id": "2"}]},
        {"text": '}],"stored":'},
        {"attempts": [{"pool": "2"}, {"pool": "3"}], "approved": {}},
    ],
    ids=["a list of the same name", "objects alike", "a quote", "the end", "attempts"],
)
@pytest.mark.parametrize("attempts", [(), (an_attempt(worker="1"), an_attempt(worker="2"))])
def test_what_only_looks_like_a_list_of_the_world_is_left(
    task_data: dict[str, object], attempts: tuple[Attempt, ...]
) -> None:
    request = a_request(id="1", task_data=task_data)
    queues = {
        "a": a_reading(),
        "debian": a_reading(request, a_request(id="4", task_data=task_data)),
    }
    text = a_world(queues=queues, attempts=attempts).model_dump_json().encode()

    assert Moments().world_of("history", text) == world_of("history", text)


@pytest.mark.parametrize(
    "wrong",
    [b"{", b"[]", b'{"queues": {"debian": {"demand": {"requests": [1]}}}}'],
    ids=["no JSON", "no object", "a request is a number"],
)
def test_what_cannot_be_read_is_said_as_of_a_file(wrong: bytes) -> None:
    with pytest.raises(FileUnreadable) as of_a_file:
        world_of("history", wrong)
    with pytest.raises(FileUnreadable) as of_a_moment:
        Moments().world_of("history", wrong)

    assert str(of_a_moment.value) == str(of_a_file.value)


def test_a_wrong_request_is_said_with_its_place() -> None:
    recorded = json.loads(moment(0, a_request(id="1"), a_request(id="2")))
    recorded["queues"]["debian"]["demand"]["requests"][1]["priority"] = "high"

    with pytest.raises(FileUnreadable, match=r"requests\[1\]\.priority"):
        Moments().world_of("history", json.dumps(recorded).encode())
