"""This module stands in for a Debusine server, for one worker that has an activation token.

It gives no work: it says that there is some, and answers whoever comes for it that there is none.
"""

import base64
import hashlib
import json
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from socket import SHUT_RDWR
from typing import NamedTuple

from fleet.images.reception import CONNECT, Answer, Request

_ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 says so
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_FINAL = 0x80
_LENGTH = 0x7F
_SHORT = 126
_MOST = 1 << 20


class StandIn:
    """Takes the worker of one token, and tells it what Debusine tells a new worker."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._own = ""
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
        self, handler: BaseHTTPRequestHandler, request: Request, tell: Callable[[int], None]
    ) -> None:
        """Ask a worker that has registered what it can do, by websocket, until it ends."""
        if request.path != CONNECT or not self._is_known(request):
            tell(403)
            handler.send_error(403)
            return
        key = request.headers.get("sec-websocket-key", "")
        digest = hashlib.sha1(f"{key}{_ACCEPT}".encode(), usedforsecurity=False).digest()
        tell(101)
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
            self._own = str(json.loads(request.body)["token"])
        except (ValueError, KeyError, TypeError):
            return _problem(400, "no token of the worker's own")
        return Answer(201, b"{}", {"Content-Type": "application/json"})

    def _is_known(self, request: Request) -> bool:
        return bool(self._own) and compare_digest(request.token.encode(), self._own.encode())

    def _tell(self, text: str) -> None:
        message = json.dumps({"type": "websocket.send", "text": text}).encode()
        with self._lock:
            connected = tuple(self._connected)
        for each in connected:
            with suppress(OSError):
                self._send(each, _TEXT, message)

    def _send(self, handler: BaseHTTPRequestHandler, kind: int, body: bytes) -> None:
        """Send a frame; all that is ever told is short."""
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
    if length > _MOST:
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
