"""This module holds the bounds of every reading over HTTP."""

from itertools import count

import pytest

from fleet.errors import SourceUnreachable
from fleet.web.reader import Limits, Reader, TooSlow
from tests.loopback import Answer, Loopback

PLAIN = {"Content-Type": "text/plain"}


def test_an_answer_larger_than_its_limit_is_given_up() -> None:
    with (
        Loopback(lambda _: Answer(200, b"x" * 1000, PLAIN)) as server,
        Reader(server.url, limits=Limits(body_bytes=999)) as reader,
        pytest.raises(SourceUnreachable, match="answered with more than 999 bytes"),
    ):
        reader.get("/", {}, {})


def test_an_answer_that_outlasts_the_deadline_is_given_up() -> None:
    seconds = count(step=40)

    with (
        Loopback(lambda _: Answer(200, b"x", PLAIN)) as server,
        Reader(server.url, limits=Limits(total=60), clock=lambda: next(seconds)) as reader,
        pytest.raises(TooSlow, match="was not read within 60 s"),
    ):
        reader.get("/", {}, {})


def test_nothing_of_an_address_but_its_host_and_path_is_used() -> None:
    with Loopback(lambda _: Answer(200, b"", PLAIN)) as server:
        with Reader(f"{server.url}/sub/?key=canary#canary") as reader:
            reply = reader.get("/list", {"a": "b c"}, {})

        assert reply.place == f"{server.url}/sub/list"
        assert server.received[0].path == "/sub/list"
        assert server.received[0].query == {"a": "b c"}


def test_a_compressed_answer_is_not_asked_for() -> None:
    with Loopback(lambda _: Answer(200, b"", PLAIN)) as server:
        with Reader(server.url) as reader:
            reader.get("/", {}, {})

        assert server.received[0].headers["accept-encoding"] == "identity"


def test_an_address_that_is_none_is_said_to_be() -> None:
    with (
        Reader("http://127.0.0.1:many") as reader,
        pytest.raises(SourceUnreachable, match="cannot be asked: its address"),
    ):
        reader.get("/", {}, {})
