"""Speak to a server as a Debusine worker does: registers, connects, tell, asks."""

import base64
import http.client
import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader

OWN = "5" * 64
TAGS = ["worker:type:external", "worker:build-arch:amd64"]
_CONNECT = "/api/ws/1.0/worker/connect/"


class WorkerClient:
    """A worker at a port of loopback; it has one token of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def register(self, token: str) -> int:
        """Register with an activation token; returns the status."""
        return self.ask("POST", "worker/register/", {"token": OWN}, token)

    def tell(self, tags: list[str] | None = None) -> int:
        """Tell what it can do; returns the status."""
        told = {"system:cpu_count": 2, **({} if tags is None else {"provided_tags": tags})}
        return self.ask("PUT", "worker/dynamic-metadata/", told)

    def fetch(self) -> int:
        """Ask for work; returns the status."""
        return self.ask("POST", "work-request/get-next-for-worker/", {})

    def ask(
        self, method: str, path: str, body: object, token: str = OWN, *, length: int = 0
    ) -> int:
        """Ask anything of the API, perhaps lying about its length; returns the status."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            headers = {"token": token, "Content-Type": "application/json"}
            headers |= {"Content-Length": str(length)} if length else {}
            connection.request(method, f"/api/1.0/{path}", json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    @contextmanager
    def connected(self, token: str = OWN) -> Iterator["Websocket"]:
        """Open the websocket."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as sock:
            key = base64.b64encode(os.urandom(16)).decode()
            lines = (
                f"GET {_CONNECT} HTTP/1.1",
                "Host: here",
                f"token: {token}",
                "Upgrade: websocket",
                "Connection: Upgrade",
                "Sec-WebSocket-Version: 13",
                f"Sec-WebSocket-Key: {key}",
            )
            sock.sendall("\r\n".join((*lines, "", "")).encode())
            with sock.makefile("rb") as stream:
                yield Websocket(sock, stream)


class Websocket:
    """An open connection: its status, and the messages that come."""

    def __init__(self, sock: socket.socket, stream: BufferedReader) -> None:
        self._sock = sock
        self._stream = stream
        self.status = int(self._stream.readline().split()[1])
        self.headers = {}
        while line := self._stream.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value

    def message(self) -> str:
        """Return what the next message says."""
        kind, body = self._frame()
        assert kind == 1, kind
        return str(json.loads(body)["text"])

    def ping(self, text: bytes) -> tuple[int, bytes]:
        """Send a ping, as long as it may be; returns kind and body of the next frame."""
        mask = os.urandom(4)
        length = (
            bytes((0x80 | len(text),))
            if len(text) < 126
            else bytes((0x80 | 126,)) + struct.pack(">H", len(text))
        )
        masked = bytes(each ^ mask[at % 4] for at, each in enumerate(text))
        self._sock.sendall(b"\x89" + length + mask + masked)
        return self._frame()

    def ended(self) -> bool:
        """Say whether the server has hung up, waiting for that."""
        return self._stream.read(1) == b""

    def _frame(self) -> tuple[int, bytes]:
        first, length = self._stream.read(2)
        return first & 0x0F, self._stream.read(length)
