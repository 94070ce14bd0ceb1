"""An HTTP server on the loopback that answers as told and lies on request."""

import socket
import sys
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qsl, urlsplit

from fleet.queues.http import BackgroundServer, LoopbackServer


@dataclass(frozen=True)
class Received:
    """A request as it arrived; header names are in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str = ""
    method: str = "GET"


@dataclass(frozen=True)
class Answer:
    """What to send back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"Content-Type": "application/json"}
    )


def since(first: int) -> Container[int]:
    """Return the numbers of a request and of all that follow."""
    return range(first, sys.maxsize)


@dataclass
class Faults:
    """How the server misbehaves until a test says otherwise; requests are counted from 1."""

    drop: Container[int] = ()
    """Requests that end with a closed connection and no answer."""
    truncate: Container[int] = ()
    """Requests whose answer breaks off in the middle."""
    hold: bool = False
    """Nothing is answered until the server is closed."""
    instead: dict[str, Answer] = field(default_factory=dict)
    """What a path answers instead of the truth."""


def html(status: int = 200) -> Answer:
    """Return a page where JSON was expected."""
    page = b"<!DOCTYPE html><title>Sign in</title>"
    return Answer(status, page, {"Content-Type": "text/html; charset=utf-8"})


def redirect(location: str) -> Answer:
    """Return a redirect."""
    return Answer(302, b"", {"Location": location})


class Loopback(BackgroundServer):
    """A server at `url` that answers each request with what a function makes of it."""

    def __init__(self, answer: Callable[[Received], Answer]) -> None:
        self.faults = Faults()
        self.received: list[Received] = []
        self.asked = threading.Event()
        """Set when the first request has arrived."""
        self._answer = answer
        self._released = threading.Event()
        super().__init__(LoopbackServer(self._handler()))
        self.url = f"http://127.0.0.1:{self.port}"

    def __exit__(self, *reason: object) -> None:
        self._released.set()
        super().__exit__(*reason)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else a body waits 40 ms until the client has confirmed the headers before it.
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                loopback._serve(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - same
                """Say nothing."""

        return Handler

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.get("content-length", 0))).decode()
        received = Received(
            parts.path, dict(parse_qsl(parts.query)), headers, body, handler.command
        )
        self.received.append(received)
        self.asked.set()
        count = len(self.received)
        if self.faults.hold:
            self._released.wait()
        if self.faults.hold or count in self.faults.drop:
            handler.close_connection = True
            return
        answer = self.faults.instead.get(received.path) or self._answer(received)
        handler.send_response_only(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        whole = count not in self.faults.truncate
        handler.wfile.write(answer.body if whole else answer.body[: len(answer.body) // 2])
        handler.close_connection = handler.close_connection or not whole


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
