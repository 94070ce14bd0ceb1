"""This module passes on what a worker asks to a real server, and the answers back."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from fleet.images.reception import Answer, Request

_SECONDS = 60
_CHUNK = 65536
_LONGEST_HEAD = 65536
# What holds for one connection only, or is made anew on the next.
_NOT_PASSED = frozenset(
    ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding")
)


class PassOn:
    """A real server behind the reception."""

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
        headers = {"Host": self._named, **_passed(request.headers)}
        try:
            connection.request(
                request.method, self._base + request.path, request.body or None, headers
            )
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), _passed(dict(answer.getheaders())))
        except (OSError, http.client.HTTPException) as error:
            text = json.dumps({"title": f"{self._named} gives no answer: {error}"})
            return Answer(502, text.encode(), {"Content-Type": "application/problem+json"})
        finally:
            connection.close()

    def connect(
        self, handler: BaseHTTPRequestHandler, request: Request, tell: Callable[[int], None]
    ) -> None:
        """Open the same websocket at the server, and pass messages until either side ends."""
        try:
            upstream = self._dial()
        except OSError:
            tell(502)
            handler.send_error(502)
            return
        with upstream, suppress(OSError):
            with self._lock:
                self._open.add(upstream)
            upstream.sendall(self._opening(request))
            first = _first(upstream)
            tell(int(first.split(b" ", 2)[1]))
            handler.wfile.write(first)
            back = threading.Thread(target=_pump_back, args=(upstream, handler), daemon=True)
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
            *(f"{name}: {value}" for name, value in _passed(request.headers).items()),
        ]
        return "\r\n".join((*lines, "", "")).encode()


def _pump_back(upstream: socket.socket, handler: BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        upstream.settimeout(None)
        while told := upstream.recv(_CHUNK):
            handler.wfile.write(told)
    with suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


def _first(upstream: socket.socket) -> bytes:
    """Return a server's answer to the opening, and what of the messages came along."""
    found = b""
    while b"\r\n\r\n" not in found:
        told = upstream.recv(_CHUNK)
        if not told or len(found) > _LONGEST_HEAD:
            raise ConnectionError
        found += told
    return found


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED}
