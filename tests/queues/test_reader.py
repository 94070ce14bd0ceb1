"""The bounds of every reading over HTTP."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, repeat

import pytest

from fleet.errors import SourceUnreachable
from fleet.queues.http import Reader, ReadLimits, TooSlow
from tests.rigs.loopback import Answer, Loopback

PLAIN = {"Content-Type": "text/plain"}


def test_response_larger_than_its_limit_is_aborted() -> None:
    with (
        Loopback(lambda _: Answer(200, b"x" * 1000, PLAIN)) as server,
        Reader(server.url, limits=ReadLimits(body_bytes=999)) as reader,
        pytest.raises(SourceUnreachable, match="999 bytes"),
    ):
        reader.get("/", {}, {})


def test_response_slower_than_deadline_is_aborted() -> None:
    seconds = count(step=40)

    with (
        Loopback(lambda _: Answer(200, b"x", PLAIN)) as server,
        Reader(server.url, limits=ReadLimits(total=60), clock=lambda: next(seconds)) as reader,
        pytest.raises(TooSlow, match="60 s"),
    ):
        reader.get("/", {}, {})


def test_only_host_and_path_of_an_address_are_used() -> None:
    with Loopback(lambda _: Answer(200, b"", PLAIN)) as server:
        with Reader(f"{server.url}/sub/?key=canary#canary") as reader:
            reply = reader.get("/list", {"a": "b c"}, {})

        assert reply.address == f"{server.url}/sub/list"
        assert server.received[0].path == "/sub/list"
        assert server.received[0].query == {"a": "b c"}


def test_compressed_response_is_not_requested() -> None:
    with Loopback(lambda _: Answer(200, b"", PLAIN)) as server:
        with Reader(server.url) as reader:
            reader.get("/", {}, {})

        assert server.received[0].headers["accept-encoding"] == "identity"


def test_invalid_address_is_an_error() -> None:
    with (
        Reader("http://127.0.0.1:many") as reader,
        pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:many.*HTTP"),
    ):
        reader.get("/", {}, {})


def test_only_lines_with_prefix_are_kept() -> None:
    text = b"a 1\nb 2\n\na 3\nba 4\n" * 50_000 + b"a 5"

    with (
        Loopback(lambda _: Answer(200, text, PLAIN)) as server,
        Reader(server.url) as reader,
    ):
        body = reader.get("/", {}, {}, only=b"a ").body

    assert body == b"a 1\na 3\n" * 50_000 + b"a 5"


def test_last_line_with_other_prefix_is_dropped() -> None:
    with (
        Loopback(lambda _: Answer(200, b"a 1\nb 2", PLAIN)) as server,
        Reader(server.url) as reader,
    ):
        assert reader.get("/", {}, {}, only=b"a ").body == b"a 1\n"


@pytest.mark.parametrize("text", [b"a" * 1000, b"a\n" * 500, b"b" * 1000])
def test_filtered_body_and_line_length_are_bounded(text: bytes) -> None:
    with (
        Loopback(lambda _: Answer(200, text, PLAIN)) as server,
        Reader(server.url, limits=ReadLimits(body_bytes=999)) as reader,
        pytest.raises(SourceUnreachable, match="999 bytes"),
    ):
        reader.get("/", {}, {}, only=b"a")


def test_number_of_dropped_lines_is_unlimited() -> None:
    with (
        Loopback(lambda _: Answer(200, b"b\n" * 5000 + b"a\n", PLAIN)) as server,
        Reader(server.url, limits=ReadLimits(body_bytes=9_999)) as reader,
    ):
        assert reader.get("/", {}, {}, only=b"a").body == b"a\n"


def test_one_query_may_have_a_longer_timeout() -> None:
    with Loopback(lambda _: Answer(200, b"", PLAIN)) as server:
        server.faults.hold = True

        with (
            Reader(server.url, limits=ReadLimits(silence=30)) as reader,
            pytest.raises(SourceUnreachable, match=r"within 0\.\d s|nothing.*0\.1"),
        ):
            reader.get("/", {}, {}, silence=0.1)


def test_reply_has_date_header_as_written() -> None:
    headers = PLAIN | {"Date": "Sat, 21 Nov 2026 12:34:56 GMT"}

    with Loopback(lambda _: Answer(200, b"", headers)) as server, Reader(server.url) as reader:
        assert reader.get("/", {}, {}).date == "Sat, 21 Nov 2026 12:34:56 GMT"


def dripping() -> Iterator[bytes]:
    """Yield an answer whose head never ends."""
    yield b"HTTP/1.1 200 OK\r\n"
    for number in count():
        yield b"X-%d: y\r\n" % number


def continuing() -> Iterator[bytes]:
    """Yield word after word that an answer will come."""
    return repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


def trickling() -> Iterator[bytes]:
    """Yield a body a letter at a time."""
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    yield from repeat(b"x")


@pytest.mark.parametrize("speak", [dripping, continuing, trickling])
def test_endless_slow_response_is_aborted(
    speak: Callable[[], Iterator[bytes]],
) -> None:
    pause = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65536)
                for piece in speak():
                    connection.sendall(piece)
                    pause.wait(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        limits = ReadLimits(silence=0.3, total=0.5)
        began = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Reader(url, limits=limits) as reader,
            pytest.raises(SourceUnreachable, match="within"),
        ):
            reader.get("/", {}, {})
        assert time.monotonic() - began < 10
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
