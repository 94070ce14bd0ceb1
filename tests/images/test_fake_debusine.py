"""A server records how far a worker comes, before a fake Debusine or a real server."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from aiohttp import ClientSession, web

from fleet.images.fake_debusine import CONNECT, Stage, WorkerServer
from fleet.queues.http import BackgroundServer, LoopbackServer
from tests.rigs.worker_client import OWN, TAGS, WorkerClient

TOKEN = "a" * 64


@pytest.fixture(params=["fake", "proxy"])
def server(request: pytest.FixtureRequest) -> Iterator[WorkerServer]:
    """Return a server before a fake Debusine, and one before another server."""
    with ExitStack() as stack:
        first = stack.enter_context(WorkerServer(TOKEN))
        if request.param == "fake":
            yield first
        else:
            url = f"http://127.0.0.1:{first.port}/"
            yield stack.enter_context(WorkerServer(TOKEN, url))


@pytest.fixture
def worker(server: WorkerServer) -> WorkerClient:
    return WorkerClient(server.port)


def test_fake_worker_registers_connects_and_requests_work(
    server: WorkerServer, worker: WorkerClient
) -> None:
    assert worker.register(TOKEN) == 201
    with worker.connected() as websocket:
        assert websocket.status == 101
        assert websocket.headers["upgrade"] == "websocket"
        assert len(websocket.headers["sec-websocket-accept"]) == 28
        assert websocket.message() == "connected"
        assert websocket.message() == "request_dynamic_metadata"
        assert worker.tell([*TAGS, *TAGS]) == 204
        assert websocket.message() == "work_request_available"
        assert worker.fetch() == 204

    assert server.wait_for(Stage.ASKED, 5)
    reached = server.reached()
    assert list(reached) == [Stage.REGISTERED, Stage.CONNECTED, Stage.REPORTED, Stage.ASKED]
    assert sorted(reached.values()) == list(reached.values())
    assert server.provides == ("worker:build-arch:amd64", "worker:type:external")
    assert server.refusals == ()


def test_registration_is_refused_with_wrong_token(
    server: WorkerServer, worker: WorkerClient
) -> None:
    assert worker.register("b" * 64) == 400

    assert not server.wait_for(Stage.REGISTERED, 0.01)
    assert server.refusals == ("POST /api/1.0/worker/register/: 400",)


def test_unregistered_worker_is_refused(server: WorkerServer, worker: WorkerClient) -> None:
    with worker.connected() as websocket:
        assert websocket.status == 403

    assert (worker.tell(TAGS), worker.fetch()) == (403, 403)
    assert server.reached() == {}
    assert server.provides == ()


@pytest.mark.parametrize("text", [b"there?", b"x" * 125])
def test_pings_are_answered(worker: WorkerClient, text: bytes) -> None:
    worker.register(TOKEN)
    with worker.connected() as websocket:
        websocket.message()
        websocket.message()

        assert websocket.ping(text) == (0xA, text)


def test_odd_requests_of_a_worker_are_answered(server: WorkerServer, worker: WorkerClient) -> None:
    assert worker.ask("POST", "worker/register/", {}, TOKEN, length=1 << 40) == 413
    worker.register(TOKEN)
    assert worker.ask("GET", "work-request/1/", None) == 404
    worker.tell()
    assert server.wait_for(Stage.REPORTED, 5)
    assert server.provides == ()


def test_worker_is_not_connected_when_its_handshake_lacks_the_key(
    server: WorkerServer, worker: WorkerClient
) -> None:
    worker.register(TOKEN)
    lines = (f"GET {CONNECT} HTTP/1.1", "Host: x", f"token: {OWN}", "Upgrade: websocket")
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall("\r\n".join((*lines, "Connection: Upgrade", "", "")).encode())
        status = connection.makefile("rb").readline().split()[1]

    assert status in (b"400", b"426")
    assert not server.wait_for(Stage.CONNECTED, 0.01)


def test_websocket_ends_with_the_server() -> None:
    with ExitStack() as stack:
        with WorkerServer(TOKEN) as server:
            worker = WorkerClient(server.port)
            worker.register(TOKEN)
            websocket = stack.enter_context(worker.connected())
            websocket.message()
            websocket.message()

        assert websocket.ended()


def test_missing_response_of_server_is_reported() -> None:
    closed = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    closed.server_close()
    with WorkerServer(TOKEN, f"http://127.0.0.1:{closed.server_port}") as server:
        worker = WorkerClient(server.port)

        assert worker.register(TOKEN) == 502
        with worker.connected() as websocket:
            assert websocket.status == 502
        assert server.refusals == (
            "POST /api/1.0/worker/register/: 502",
            "GET /api/ws/1.0/worker/connect/: 502",
        )


class _WithWork(BaseHTTPRequestHandler):
    """A server that has work and is told when it is done."""

    def do_POST(self) -> None:
        self._answer(200)

    def do_PUT(self) -> None:
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""

    def _answer(self, status: int) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


def test_work_is_followed_to_its_end() -> None:
    with (
        BackgroundServer(LoopbackServer(_WithWork)) as real,
        WorkerServer(TOKEN, f"http://127.0.0.1:{real.port}") as server,
    ):
        worker = WorkerClient(server.port)
        worker.fetch()
        fetched = server.wait_for(Stage.FETCHED, 5)
        ended_before = Stage.ENDED in server.reached()
        worker.ask("PUT", "work-request/7/completed/", {"result": "success"})
        ended = server.wait_for(Stage.ENDED, 5)

    assert (fetched, ended_before, ended) == (True, False, True)


class _Echo(WorkerServer):
    """A server that says what it hears."""

    async def connect(self, request: web.Request) -> web.StreamResponse:
        async with self.accepted(request) as websocket:
            async for message in websocket:
                await _send(websocket, message.data)
        return websocket


@pytest.mark.parametrize("sent", ["x" * 200_000, b"\x00\xff"], ids=type)
def test_websocket_passes_messages_on_when_proxied(sent: str | bytes) -> None:
    with _Echo(TOKEN) as real, WorkerServer(TOKEN, f"http://127.0.0.1:{real.port}") as server:
        assert asyncio.run(_answer(server.port, sent)) == sent


async def _answer(port: int, sent: str | bytes) -> object:
    async with (
        ClientSession() as client,
        client.ws_connect(f"http://127.0.0.1:{port}{CONNECT}") as websocket,
    ):
        await _send(websocket, sent)
        return (await websocket.receive(10)).data


async def _send(websocket: Any, content: str | bytes) -> None:  # noqa: ANN401 - either side of it
    await (websocket.send_str if isinstance(content, str) else websocket.send_bytes)(content)
