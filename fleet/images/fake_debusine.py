"""A server on loopback for the test of an image: it records how far one worker comes.

A backend answers the worker: a fake Debusine, or a proxy to a real server. The fake announces work
and then has none.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from socket import SHUT_RDWR
from typing import Protocol, Self, cast

import httpx
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.http11 import Request as OpeningRequest
from websockets.server import ServerProtocol
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from fleet.queues.http import BackgroundServer, LoopbackServer, trusted

_REGISTER = "/api/1.0/worker/register/"
CONNECT = "/api/ws/1.0/worker/connect/"
_METADATA = "/api/1.0/worker/dynamic-metadata/"
_FETCH = "/api/1.0/work-request/get-next-for-worker/"
_WORK = "/api/1.0/work-request/"
_ENDED = "/completed/"
_MAX_BODY = 64 << 20
"""Bytes of a request or an answer; more is refused."""
_CLOSE_SECONDS = 1
"""How long a worker has to confirm that its websocket is closed."""


class Stage(IntEnum):
    """How far a worker has come; each needs the one before."""

    ABSENT = 0
    REGISTERED = 1
    CONNECTED = 2
    REPORTED = 3
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
    """What answers a worker."""

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""

    def connect(self, request: Request, accept: "Accept") -> None:
        """Accept a websocket and pass messages until either side ends; or raise Refused."""


Accept = Callable[[], AbstractContextManager[Connection]]
"""Opens the websocket that a worker requests."""


class Refused(Exception):
    """A worker gets no websocket."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WorkerServer(BackgroundServer):
    """Waits for the worker that has a token."""

    def __init__(self, token: str, backend: Backend) -> None:
        self._token = token
        self._backend = backend
        self._changed = threading.Condition()
        self._reached: dict[Stage, float] = {}
        self._provides: tuple[str, ...] = ()
        self._refusals: list[str] = []
        self._websockets: set[Connection] = set()
        super().__init__(LoopbackServer(self._handler()))

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return super().__enter__()

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        for each in tuple(self._websockets):
            with suppress(OSError):
                each.socket.shutdown(SHUT_RDWR)

    @property
    def provides(self) -> tuple[str, ...]:
        """Return the tags that the worker reported, sorted."""
        return self._provides

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return what was asked and refused, without any token."""
        return tuple(self._refusals)

    def reached(self) -> dict[Stage, float]:
        """Return the stages that the worker has come to, and after how many seconds."""
        with self._changed:
            return dict(sorted(self._reached.items()))

    def wait_for(self, stage: Stage, seconds: float) -> bool:
        """Wait until the worker is there, or so long."""
        with self._changed:
            return self._changed.wait_for(lambda: stage in self._reached, seconds)

    def _reach(self, stage: Stage) -> None:
        with self._changed:
            self._reached.setdefault(stage, time.monotonic() - self._began)
            self._changed.notify_all()

    def _note(self, request: Request, status: int) -> None:
        """Record what a request and how it was answered say of the worker."""
        match request.method, request.path, status:
            case "POST", path, 201 if path == _REGISTER and self._has_token(request):
                self._reach(Stage.REGISTERED)
            case "GET", path, 101 if path == CONNECT:
                self._reach(Stage.CONNECTED)
            case "PUT", path, 204 if path == _METADATA:
                self._provides = _tags_of(request.body)
                self._reach(Stage.REPORTED)
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
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else a body waits 40 ms until the worker has confirmed the headers before it.
            disable_nagle_algorithm = True
            timeout = 300

            def do_GET(self) -> None:
                server._serve(self)

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
            self._connect(handler, request)
            return
        answer = self._backend.answer(request)
        self._note(request, answer.status)
        _send(handler, answer)

    def _connect(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        """Have the backend talk over a websocket, where it accepts one."""

        @contextmanager
        def accept() -> Iterator[Connection]:
            with _accept(handler, lambda status: self._note(request, status)) as websocket:
                self._websockets.add(websocket)
                yield websocket
                self._websockets.discard(websocket)

        try:
            self._backend.connect(request, accept)
        except Refused as refused:
            self._note(request, refused.status)
            handler.send_error(refused.status)


def _accept(handler: BaseHTTPRequestHandler, note: Callable[[int], None]) -> Connection:
    """Return the websocket that a request opens; http.server has read its head already.

    `note` is called with the status before that is sent.
    """
    lines = [handler.requestline, *(f"{name}: {text}" for name, text in handler.headers.items())]
    protocol = ServerProtocol()
    protocol.receive_data("\r\n".join((*lines, "", "")).encode())
    for request in protocol.events_received():
        response = protocol.accept(cast("OpeningRequest", request))
        note(response.status_code)
        protocol.send_response(response)
    handler.wfile.write(b"".join(protocol.data_to_send()))
    return Connection(handler.connection, protocol, close_timeout=_CLOSE_SECONDS)


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
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
    return handler.rfile.read(length) if length <= _MAX_BODY else None


def _chunks_of(handler: BaseHTTPRequestHandler) -> bytes | None:
    found = bytearray()
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        if len(found) + size > _MAX_BODY:
            return None
        found += handler.rfile.read(size)
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        pass
    return bytes(found)


def _tags_of(body: bytes) -> tuple[str, ...]:
    try:
        tags = json.loads(body)["provided_tags"]
    except (ValueError, KeyError, TypeError):
        return ()  # older workers report none
    return tuple(sorted({str(each) for each in tags})) if isinstance(tags, list) else ()


class FakeDebusine:
    """Takes the worker of one token, and sends it what Debusine sends a new worker."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._worker_token = ""
        self._connected: set[Connection] = set()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        match request.method, request.path:
            case "POST", path if path == _REGISTER:
                return self._register(request)
            case "PUT", path if path == _METADATA and self._is_known(request):
                for each in tuple(self._connected):
                    _tell(each, "work_request_available")
                return Answer(204)
            case "POST", path if path == _FETCH and self._is_known(request):
                return Answer(204)
            case _:
                return _problem(404 if self._is_known(request) else 403, "not for you")

    def connect(self, request: Request, accept: Accept) -> None:
        """Ask a worker that has registered what it can do, by websocket, until it ends."""
        if request.path != CONNECT or not self._is_known(request):
            raise Refused(403)
        with accept() as websocket:
            self._connected.add(websocket)
            _tell(websocket, "connected")
            _tell(websocket, "request_dynamic_metadata")
            with suppress(WebSocketException):
                for _ in websocket:
                    pass
            self._connected.discard(websocket)

    def _register(self, request: Request) -> Answer:
        if not compare_digest(request.token.encode(), self._token.encode()):
            return _problem(400, "Invalid worker activation token")
        try:
            self._worker_token = str(json.loads(request.body)["token"])
        except (ValueError, KeyError, TypeError):
            return _problem(400, "no token of the worker's own")
        return Answer(201, b"{}", {"Content-Type": "application/json"})

    def _is_known(self, request: Request) -> bool:
        return bool(self._worker_token) and compare_digest(
            request.token.encode(), self._worker_token.encode()
        )


def _tell(websocket: Connection, text: str) -> None:
    with suppress(WebSocketException):
        websocket.send(json.dumps({"type": "websocket.send", "text": text}))


def _problem(status: int, title: str) -> Answer:
    body = json.dumps({"title": title}).encode()
    return Answer(status, body, {"Content-Type": "application/problem+json"})


_SECONDS = 60
_HANDSHAKE = "sec-websocket-"
# Headers of one connection.
_HOP_BY_HOP = frozenset(
    ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade")
)


class Proxy:
    """Forwards requests and websockets to a real server."""

    def __init__(self, url: str) -> None:
        """`url` is the server's base URL, as in `queues.*.url`."""
        self._url = httpx.URL(url.rstrip("/"))

    def answer(self, request: Request) -> Answer:
        """Return the server's answer to a request; 502 where it gives none."""
        headers = {**_forwarded(request.headers), "accept-encoding": "identity"}
        try:
            answer = httpx.request(
                request.method,
                f"{self._url}{request.path}",
                content=request.body or None,
                headers=headers,
                timeout=_SECONDS,
                verify=trusted(),
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _problem(502, f"{self._url.host} gives no answer: {error}")
        return Answer(answer.status_code, answer.content, _forwarded(answer.headers))

    def connect(self, request: Request, accept: Accept) -> None:
        """Open the same websocket at the server, and pass messages until either side ends."""
        is_safe = self._url.scheme == "https"
        url = self._url.copy_with(scheme="wss" if is_safe else "ws")
        with ExitStack() as stack:
            try:
                opening = connect(
                    f"{url}{request.path}",
                    additional_headers=_forwarded(request.headers),
                    user_agent_header=None,
                    open_timeout=_SECONDS,
                    close_timeout=_CLOSE_SECONDS,
                    ssl=trusted() if is_safe else None,
                )
                upstream = stack.enter_context(opening)
            except InvalidStatus as refused:
                raise Refused(refused.response.status_code) from refused
            except (OSError, WebSocketException) as error:
                raise Refused(502) from error
            websocket = stack.enter_context(accept())
            back = threading.Thread(target=_pass_on, args=(upstream, websocket), daemon=True)
            back.start()
            _pass_on(websocket, upstream)
            back.join()


def _pass_on(source: Connection, target: Connection) -> None:
    """Pass messages on until either side ends, then end the other."""
    with suppress(WebSocketException), target:
        for message in source:
            target.send(message)


def _forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(_HANDSHAKE)
    }
