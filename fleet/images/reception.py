"""This module listens for one worker on loopback and records how far it came, by HTTP alone.

What a worker asks is answered by a backend: one that stands in for Debusine, or the real one.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from typing import Protocol, Self

from fleet.web.background import BackgroundServer, LoopbackServer

_REGISTER = "/api/1.0/worker/register/"
CONNECT = "/api/ws/1.0/worker/connect/"
_TELL = "/api/1.0/worker/dynamic-metadata/"
_FETCH = "/api/1.0/work-request/get-next-for-worker/"
_WORK = "/api/1.0/work-request/"
_ENDED = "/completed/"
_MOST = 64 << 20
"""Bytes of a request or an answer; more is refused."""


class Stage(IntEnum):
    """How far a worker has come; each needs the one before."""

    ABSENT = 0
    REGISTERED = 1
    CONNECTED = 2
    TOLD = 3
    ASKED = 4
    FETCHED = 5
    ENDED = 6


@dataclass(frozen=True)
class Request:
    """What a worker asks; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)

    @property
    def token(self) -> str:
        """Return the token it comes with."""
        return self.headers.get("token", "")


@dataclass(frozen=True)
class Answer:
    """What it is answered."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """What stands behind the reception."""

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""

    def connect(
        self, handler: BaseHTTPRequestHandler, request: Request, tell: Callable[[int], None]
    ) -> None:
        """Answer with a websocket and pass messages until either side ends; or refuse it.

        `tell` is called with the status before that is sent.
        """

    def close(self) -> None:
        """End every websocket."""


class Reception(BackgroundServer):
    """Waits for the worker that has a token."""

    def __init__(self, token: str, backend: Backend) -> None:
        self._token = token
        self._backend = backend
        self._moved = threading.Condition()
        self._reached: dict[Stage, float] = {}
        self._provides: tuple[str, ...] = ()
        self._refusals: list[str] = []
        super().__init__(LoopbackServer(self._handler()))

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return super().__enter__()

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        self._backend.close()

    @property
    def provides(self) -> tuple[str, ...]:
        """Return the tags that the worker told, sorted."""
        return self._provides

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return what was asked and refused, without any token."""
        return tuple(self._refusals)

    def reached(self) -> dict[Stage, float]:
        """Return the stages that the worker has come to, and after how many seconds."""
        with self._moved:
            return dict(sorted(self._reached.items()))

    def wait_for(self, stage: Stage, seconds: float) -> bool:
        """Wait until the worker is there, or so long."""
        with self._moved:
            return self._moved.wait_for(lambda: stage in self._reached, seconds)

    def _reach(self, stage: Stage) -> None:
        with self._moved:
            self._reached.setdefault(stage, time.monotonic() - self._began)
            self._moved.notify_all()

    def _note(self, request: Request, status: int) -> None:
        """Record what a request and how it was answered say of the worker."""
        match request.method, request.path, status:
            case "POST", path, 201 if path == _REGISTER and self._has_token(request):
                self._reach(Stage.REGISTERED)
            case "GET", path, 101 if path == CONNECT:
                self._reach(Stage.CONNECTED)
            case "PUT", path, 204 if path == _TELL:
                self._provides = _tags_of(request.body)
                self._reach(Stage.TOLD)
            case "POST", path, 200 | 204 if path == _FETCH:
                self._reach(Stage.ASKED)
                if status == 200:  # noqa: PLR2004 - there is work in it
                    self._reach(Stage.FETCHED)
            case "PUT", path, 200 if path.startswith(_WORK) and path.endswith(_ENDED):
                self._reach(Stage.ENDED)
            case method, path, _ if status >= 400:  # noqa: PLR2004 - HTTP's errors
                self._refusals.append(f"{method} {path}: {status}")

    def _has_token(self, request: Request) -> bool:
        return compare_digest(request.token.encode(), self._token.encode())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        reception = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else a body waits 40 ms until the worker has confirmed the headers before it.
            disable_nagle_algorithm = True
            timeout = 300

            def do_GET(self) -> None:
                reception._serve(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - same
                """Say nothing: a path may hold what is not for everybody."""

        return Handler

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = _body_of(handler)
        if body is None:
            handler.close_connection = True
            handler.send_error(413)
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(handler.command, handler.path, headers, body)
        if headers.get("upgrade", "").lower() == "websocket":
            handler.close_connection = True
            self._backend.connect(handler, request, lambda status: self._note(request, status))
            return
        answer = self._backend.answer(request)
        self._note(request, answer.status)
        send(handler, answer)


def send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    """Send an answer whole."""
    handler.send_response_only(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    if answer.status != 204:  # noqa: PLR2004 - no content, and no length of it
        handler.send_header("Content-Length", str(len(answer.body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(answer.body)


def _body_of(handler: BaseHTTPRequestHandler) -> bytes | None:
    """Return what a request holds; None where it is too much."""
    if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
        return _chunks_of(handler)
    length = int(handler.headers.get("Content-Length") or 0)
    return handler.rfile.read(length) if length <= _MOST else None


def _chunks_of(handler: BaseHTTPRequestHandler) -> bytes | None:
    found = bytearray()
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        if len(found) + size > _MOST:
            return None
        found += handler.rfile.read(size)
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        pass
    return bytes(found)


def _tags_of(body: bytes) -> tuple[str, ...]:
    try:
        told = json.loads(body)["provided_tags"]
    except (ValueError, KeyError, TypeError):
        return ()  # older workers tell none
    return tuple(sorted({str(each) for each in told})) if isinstance(told, list) else ()
