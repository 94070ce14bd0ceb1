"""A server on loopback for the test of an image: it records how far one worker comes.

A backend answers the worker: a fake Debusine, or a proxy to a real server. The fake announces work
and then has none.
"""

import base64
import hashlib
import http.client
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from socket import SHUT_RDWR
from typing import NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from fleet.queues.http import BackgroundServer, LoopbackServer

_REGISTER = "/api/1.0/worker/register/"
CONNECT = "/api/ws/1.0/worker/connect/"
_METADATA = "/api/1.0/worker/dynamic-metadata/"
_FETCH = "/api/1.0/work-request/get-next-for-worker/"
_WORK = "/api/1.0/work-request/"
_ENDED = "/completed/"
_MAX_BODY = 64 << 20
"""Bytes of a request or an answer; more is refused."""


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

    def connect(
        self, handler: BaseHTTPRequestHandler, request: Request, on_status: Callable[[int], None]
    ) -> None:
        """Answer with a websocket and pass messages until either side ends; or refuse it.

        `on_status` is called with the status before that is sent.
        """

    def close(self) -> None:
        """End every websocket."""


class WorkerServer(BackgroundServer):
    """Waits for the worker that has a token."""

    def __init__(self, token: str, backend: Backend) -> None:
        self._token = token
        self._backend = backend
        self._changed = threading.Condition()
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


_ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 says so
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_FINAL = 0x80
_LENGTH = 0x7F
_SHORT = 126
_MAX_FRAME = 1 << 20


class FakeDebusine:
    """Takes the worker of one token, and sends it what Debusine sends a new worker."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._worker_token = ""
        self._connected: set[BaseHTTPRequestHandler] = set()
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        match request.method, request.path:
            case "POST", "/api/1.0/worker/register/":
                return self._register(request)
            case "PUT", "/api/1.0/worker/dynamic-metadata/" if self._is_known(request):
                self._tell("work_request_available")
                return Answer(204)
            case "POST", "/api/1.0/work-request/get-next-for-worker/" if self._is_known(request):
                return Answer(204)
            case _:
                return _problem(404 if self._is_known(request) else 403, "not for you")

    def connect(
        self, handler: BaseHTTPRequestHandler, request: Request, on_status: Callable[[int], None]
    ) -> None:
        """Ask a worker that has registered what it can do, by websocket, until it ends."""
        if request.path != CONNECT or not self._is_known(request):
            on_status(403)
            handler.send_error(403)
            return
        key = request.headers.get("sec-websocket-key", "")
        digest = hashlib.sha1(f"{key}{_ACCEPT}".encode(), usedforsecurity=False).digest()
        on_status(101)
        handler.send_response_only(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        handler.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        handler.end_headers()
        self._serve(handler)

    def close(self) -> None:
        """End every websocket."""
        with self._lock:
            for each in self._connected:
                with suppress(OSError):
                    each.connection.shutdown(SHUT_RDWR)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self._connected.add(handler)
        self._tell("connected")
        self._tell("request_dynamic_metadata")
        with suppress(OSError, EOFError):
            while (frame := _read(handler.rfile)).kind != _CLOSE:
                if frame.kind == _PING:
                    self._send(handler, _PONG, frame.body)
        with self._lock:
            self._connected.discard(handler)

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

    def _tell(self, text: str) -> None:
        message = json.dumps({"type": "websocket.send", "text": text}).encode()
        with self._lock:
            connected = tuple(self._connected)
        for each in connected:
            with suppress(OSError):
                self._send(each, _TEXT, message)

    def _send(self, handler: BaseHTTPRequestHandler, kind: int, body: bytes) -> None:
        """Send a frame; every message is short."""
        with self._lock:
            handler.wfile.write(bytes((_FINAL | kind, len(body))) + body)


class _Frame(NamedTuple):
    kind: int
    body: bytes


def _read(stream: BufferedIOBase) -> _Frame:
    """Return the next frame of a client, which masks what it sends."""
    first, second = _exactly(stream, 2)
    length = second & _LENGTH
    if length >= _SHORT:
        form = ">H" if length == _SHORT else ">Q"
        (length,) = struct.unpack(form, _exactly(stream, struct.calcsize(form)))
    if length > _MAX_FRAME:
        raise EOFError
    mask = _exactly(stream, 4)
    body = _exactly(stream, length)
    return _Frame(first & 0x0F, bytes(each ^ mask[at % 4] for at, each in enumerate(body)))


def _exactly(stream: BufferedIOBase, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise EOFError
    return found


def _problem(status: int, title: str) -> Answer:
    body = json.dumps({"title": title}).encode()
    return Answer(status, body, {"Content-Type": "application/problem+json"})


_SECONDS = 60
_CHUNK = 65536
_LONGEST_HEAD = 65536
# Headers of one connection.
_HOP_BY_HOP = frozenset(
    ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding")
)


class Proxy:
    """Forwards requests and websockets to a real server."""

    def __init__(self, url: str) -> None:
        """`url` is the server's base URL, as in `queues.*.url`."""
        parts = urlsplit(url)
        self._is_safe = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_safe else 80)
        self._named = parts.netloc.rpartition("@")[2]
        self._base = parts.path.rstrip("/")
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Return the server's answer to a request; 502 where it gives none."""
        kind = http.client.HTTPSConnection if self._is_safe else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=_SECONDS)
        headers = {"Host": self._named, **_forwarded(request.headers)}
        try:
            connection.request(
                request.method, self._base + request.path, request.body or None, headers
            )
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), _forwarded(dict(answer.getheaders())))
        except (OSError, http.client.HTTPException) as error:
            text = json.dumps({"title": f"{self._named} gives no answer: {error}"})
            return Answer(502, text.encode(), {"Content-Type": "application/problem+json"})
        finally:
            connection.close()

    def connect(
        self, handler: BaseHTTPRequestHandler, request: Request, on_status: Callable[[int], None]
    ) -> None:
        """Open the same websocket at the server, and pass messages until either side ends."""
        try:
            upstream = self._dial()
        except OSError:
            on_status(502)
            handler.send_error(502)
            return
        with upstream, suppress(OSError):
            with self._lock:
                self._open.add(upstream)
            upstream.sendall(self._opening(request))
            first = _read_head(upstream)
            on_status(int(first.split(b" ", 2)[1]))
            handler.wfile.write(first)
            back = threading.Thread(target=_forward_back, args=(upstream, handler), daemon=True)
            back.start()
            while sent := handler.rfile.read1(_CHUNK):
                upstream.sendall(sent)
        with self._lock:
            self._open.discard(upstream)

    def close(self) -> None:
        """End every websocket."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _dial(self) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), timeout=_SECONDS)
        if not self._is_safe:
            return plain
        return ssl.create_default_context().wrap_socket(plain, server_hostname=self._host)

    def _opening(self, request: Request) -> bytes:
        lines = [
            f"GET {self._base}{request.path} HTTP/1.1",
            f"Host: {self._named}",
            "Connection: Upgrade",
            *(f"{name}: {value}" for name, value in _forwarded(request.headers).items()),
        ]
        return "\r\n".join((*lines, "", "")).encode()


def _forward_back(upstream: socket.socket, handler: BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        upstream.settimeout(None)
        while received := upstream.recv(_CHUNK):
            handler.wfile.write(received)
    with suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


def _read_head(upstream: socket.socket) -> bytes:
    """Return a server's answer to the opening, and what of the messages came along."""
    found = b""
    while b"\r\n\r\n" not in found:
        received = upstream.recv(_CHUNK)
        if not received or len(found) > _LONGEST_HEAD:
            raise ConnectionError
        found += received
    return found


def _forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
