"""A server on loopback for the test of an image: it records how far one worker comes.

It answers as Debusine answers a new worker, announces work and offers nothing; or it passes all on
to a real server.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from functools import partial
from hmac import compare_digest
from typing import Any, Self

from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    WSMsgType,
    WSServerHandshakeError,
    web,
)
from yarl import URL

from fleet.queues.http import trusted

_REGISTER = "/api/1.0/worker/register/"
CONNECT = "/api/ws/1.0/worker/connect/"
_METADATA = "/api/1.0/worker/dynamic-metadata/"
_FETCH = "/api/1.0/work-request/get-next-for-worker/"
_WORK = "/api/1.0/work-request/"
_ENDED = "/completed/"
_MAX_BODY = 64 << 20
"""Bytes of a request; more is refused."""
_SECONDS = 60
"""Limit for a connection to a real server, and for its silence before an answer."""
_CLOSE_SECONDS = 1
"""How long a worker has to confirm that its websocket is closed."""
_HANDSHAKE = "sec-websocket-"
# Headers of one connection.
_HOP_BY_HOP = frozenset(
    ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade")
)


class Stage(IntEnum):
    """How far a worker has come; each needs the one before."""

    ABSENT = 0
    REGISTERED = 1
    CONNECTED = 2
    REPORTED = 3
    ASKED = 4
    FETCHED = 5
    ENDED = 6


class WorkerServer:
    """Waits for the worker that has a token, in a thread; as Debusine does, without any work."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._own_token = ""
        self._connected: set[web.WebSocketResponse] = set()
        self._changed = threading.Condition()
        self._reached: dict[Stage, float] = {}
        self._provides: tuple[str, ...] = ()
        self._refusals: list[str] = []

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        opened: Future[tuple[int, Callable[[], object]]] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(opened),))
        self._thread.start()
        self.port, self._end = opened.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._thread.join()

    async def _run(self, opened: "Future[tuple[int, Callable[[], object]]]") -> None:
        """Serve until the end, and say on which port and what is called to end it."""
        ended = asyncio.Event()
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        limit = ClientTimeout(total=None, sock_connect=_SECONDS, sock_read=_SECONDS)
        async with ClientSession(
            auto_decompress=False, timeout=limit, trust_env=True
        ) as self._client:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
            opened.set_result((int(runner.addresses[0][1]), end))
            await ended.wait()
            await runner.cleanup()

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

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        answer: web.StreamResponse
        body = b""
        try:
            if (request.content_length or 0) > _MAX_BODY:
                raise web.HTTPRequestEntityTooLarge(_MAX_BODY, request.content_length or 0)
            if request.headers.get("Upgrade", "").lower() == "websocket":
                answer = await self.connect(request)
            else:
                body = await request.read()
                answer = await self.answer(request)
        except WSServerHandshakeError as refused:
            answer = _problem(refused.status, refused.message)
        except (ClientError, OSError, ValueError) as error:
            answer = _problem(502, f"the server gives no answer: {error}")
        except web.HTTPException as refused:
            answer = _problem(refused.status, refused.reason)
        self._note(request, answer.status, body)
        return answer

    def _note(self, request: web.Request, status: int, body: bytes = b"") -> None:
        """Record what a request and how it was answered say of the worker."""
        match request.method, request.path, status:
            case "POST", path, 201 if path == _REGISTER and _has(request, self.token):
                self._reach(Stage.REGISTERED)
            case "GET", path, 101 if path == CONNECT:
                self._reach(Stage.CONNECTED)
            case "PUT", path, 204 if path == _METADATA:
                self._provides = _tags_of(body)
                self._reach(Stage.REPORTED)
            case "POST", path, 200 | 204 if path == _FETCH:
                self._reach(Stage.ASKED)
                if status == 200:  # noqa: PLR2004 - there is work in it
                    self._reach(Stage.FETCHED)
            case "PUT", path, 200 if path.startswith(_WORK) and path.endswith(_ENDED):
                self._reach(Stage.ENDED)
            case method, path, _ if status >= 400:  # noqa: PLR2004 - HTTP's errors
                self._refusals.append(f"{method} {path}: {status}")

    def _reach(self, stage: Stage) -> None:
        with self._changed:
            self._reached.setdefault(stage, time.monotonic() - self._began)
            self._changed.notify_all()

    async def answer(self, request: web.Request) -> web.Response:
        """Return the answer to a request."""
        match request.method, request.path:
            case "POST", path if path == _REGISTER:
                return self._register(request, await request.read())
            case "PUT", path if path == _METADATA and self._is_known(request):
                for each in tuple(self._connected):
                    await _tell(each, "work_request_available")
                return web.Response(status=204)
            case "POST", path if path == _FETCH and self._is_known(request):
                return web.Response(status=204)
            case _:
                return _problem(404 if self._is_known(request) else 403, "not for you")

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Ask a worker that has registered what it can do, by websocket, until it ends."""
        if request.path != CONNECT or not self._is_known(request):
            return _problem(403, "not for you")
        async with self.accepted(request) as websocket:
            self._connected.add(websocket)
            await _tell(websocket, "connected")
            await _tell(websocket, "request_dynamic_metadata")
            async for _ in websocket:
                pass
            self._connected.discard(websocket)
        return websocket

    @asynccontextmanager
    async def accepted(self, request: web.Request) -> AsyncIterator[web.WebSocketResponse]:
        """Open the websocket that a worker requests, and close it afterwards."""
        websocket = web.WebSocketResponse(timeout=_CLOSE_SECONDS, max_msg_size=_MAX_BODY)
        await websocket.prepare(request)
        self._note(request, websocket.status)
        yield websocket
        await websocket.close()

    def _register(self, request: web.Request, body: bytes) -> web.Response:
        if not _has(request, self.token):
            return _problem(400, "Invalid worker activation token")
        try:
            self._own_token = str(json.loads(body)["token"])
        except (ValueError, KeyError, TypeError):
            return _problem(400, "no token of the worker's own")
        return web.json_response({}, status=201)

    def _is_known(self, request: web.Request) -> bool:
        return bool(self._own_token) and _has(request, self._own_token)


class Proxy(WorkerServer):
    """Forwards requests and websockets to a real server."""

    def __init__(self, token: str, url: str) -> None:
        """`url` is the server's base URL, as in `queues.*.url`."""
        super().__init__(token)
        self._url = url.rstrip("/")

    async def answer(self, request: web.Request) -> web.Response:
        """Return the server's answer to a request."""
        async with self._client.request(
            request.method,
            self._at(request),
            data=await request.read(),
            headers=_forwarded(request.headers),
            allow_redirects=False,
            ssl=trusted(),
        ) as answer:
            headers = _forwarded(answer.headers)
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        """Open the same websocket at the server, and pass messages until either side ends."""
        upstream = self._client.ws_connect(
            self._at(request), headers=_forwarded(request.headers), ssl=trusted()
        )
        async with upstream as theirs, self.accepted(request) as ours:
            both = (_pass_on(ours, theirs), _pass_on(theirs, ours))
            passing = [asyncio.ensure_future(each) for each in both]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        return ours

    def _at(self, request: web.Request) -> URL:
        return URL(f"{self._url}{request.raw_path}", encoded=True)


async def _pass_on(source: Any, target: Any) -> None:  # noqa: ANN401 - either side of a websocket
    """Pass messages on until either side ends."""
    with suppress(ConnectionError):
        async for message in source:
            send = target.send_str if message.type is WSMsgType.TEXT else target.send_bytes
            await send(message.data)


async def _tell(websocket: web.WebSocketResponse, text: str) -> None:
    with suppress(ConnectionError):
        await websocket.send_json({"type": "websocket.send", "text": text})


def _has(request: web.Request, token: str) -> bool:
    return compare_digest(request.headers.get("token", "").encode(), token.encode())


def _problem(status: int, title: str) -> web.Response:
    return web.json_response(
        {"title": title}, status=status, content_type="application/problem+json"
    )


def _tags_of(body: bytes) -> tuple[str, ...]:
    try:
        tags = json.loads(body)["provided_tags"]
    except (ValueError, KeyError, TypeError):
        return ()  # older workers report none
    return tuple(sorted({str(each) for each in tags})) if isinstance(tags, list) else ()


def _forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(_HANDSHAKE)
    }
