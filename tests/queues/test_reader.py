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


def test_response_slower_than_deadline_is_aborted() -> None:
    limits = ReadLimits(total=60, silence=30)
    with (
        Loopback(lambda _: Answer(200, b"x", PLAIN)) as server,
        Reader(server.url, limits=limits, clock=count(step=40).__next__) as reader,
        pytest.raises(TooSlow, match="60 s"),
    ):
        reader.get("/", {}, {})
    with Loopback(lambda _: Answer(200, b"", PLAIN)) as server, Reader(server.url) as reader:
        server.faults.hold = True
        with pytest.raises(SourceUnreachable, match=r"within 0\.\d s|nothing.*0\.1"):
            reader.get("/", {}, {}, silence=0.1)
    invalid = r"127\.0\.0\.1:many.*HTTP"
    with (
        Reader("http://127.0.0.1:many") as reader,
        pytest.raises(SourceUnreachable, match=invalid),
    ):
        reader.get("/", {}, {})


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


def test_only_host_and_path_of_an_address_are_used() -> None:
    headers = PLAIN | {"Date": "Sat, 21 Nov 2026 12:34:56 GMT"}

    with Loopback(lambda _: Answer(200, b"", headers)) as server:
        with Reader(f"{server.url}/sub/?key=canary#canary") as reader:
            reply = reader.get("/list", {"a": "b c"}, {})

        assert reply.address == f"{server.url}/sub/list"
        assert reply.date == "Sat, 21 Nov 2026 12:34:56 GMT"
        assert server.received[0].path == "/sub/list"
        assert server.received[0].query == {"a": "b c"}
        assert server.received[0].headers["accept-encoding"] == "identity"


def read(text: bytes, only: bytes = b"", most: int = 10_000_000) -> bytes:
    """Return what is read of a body: the lines that begin so, within a limit."""
    with (
        Loopback(lambda _: Answer(200, text, PLAIN)) as server,
        Reader(server.url, limits=ReadLimits(body_bytes=most)) as reader,
    ):
        return reader.get("/", {}, {}, only=only).body


def test_only_lines_with_prefix_are_kept() -> None:
    text = b"a 1\nb 2\n\na 3\nba 4\n" * 50_000

    assert read(text + b"a 5", b"a ") == b"a 1\na 3\n" * 50_000 + b"a 5"
    assert read(b"a 1\nb 2", b"a ") == b"a 1\n"
    # What is dropped does not count.
    assert read(b"b\n" * 5000 + b"a\n", b"a", 9_999) == b"a\n"


@pytest.mark.parametrize(
    ("text", "only"),
    [(b"x" * 1000, b""), (b"a" * 1000, b"a"), (b"a\n" * 500, b"a"), (b"b" * 1000, b"a")],
)
def test_body_and_line_length_are_bounded(text: bytes, only: bytes) -> None:
    with pytest.raises(SourceUnreachable, match="999 bytes"):
        read(text, only, 999)
