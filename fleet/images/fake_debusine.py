"""A local server for the boot test of an image, which records the stages that a worker reaches.

The server responds to a new worker like Debusine, and announces work but assigns no request.
It can also forward all traffic to a real server.
"""

import asyncio
import json
import re
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
_MAX_BODY_BYTES = 64 << 20
"""Maximum size of a request. The server refuses larger requests."""
_TIMEOUT_SECONDS = 60
"""Time limit for connecting to a real server, and for each read from this server."""
_CLOSE_SECONDS = 1
"""Time limit for a worker to confirm that its websocket is closed."""
_HANDSHAKE = "sec-websocket-"
# Headers that apply only to one connection, so that the proxy does not forward them.
_HOP_BY_HOP = frozenset(
    ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade")
)


class Stage(IntEnum):
    """Stages that a worker reaches in this order, from absent to the end of its work."""

    ABSENT = 0
    REGISTERED = 1
    CONNECTED = 2
    REPORTED = 3
    ASKED = 4
    FETCHED = 5
    ENDED = 6


_STAGES = (
    ("POST", re.compile(_REGISTER), (201,), Stage.REGISTERED),
    ("GET", re.compile(CONNECT), (101,), Stage.CONNECTED),
    ("PUT", re.compile(_METADATA), (204,), Stage.REPORTED),
    ("POST", re.compile(_FETCH), (200, 204), Stage.ASKED),
    ("POST", re.compile(_FETCH), (200,), Stage.FETCHED),
    ("PUT", re.compile("/api/1.0/work-request/.*/completed/"), (200,), Stage.ENDED),
)
"""Method, path and statuses of the request with which a worker reaches a stage."""


class WorkerServer:
    """A server in a thread that speaks Debusine's worker protocol. Only `token` may register.

    With a base URL, as in `queues.*.url`, it forwards requests and websockets to a real server.
    """

    def __init__(self, token: str, url: str = "") -> None:
        self.token = token
        self._url = url.rstrip("/")
        self._own_token = ""
        self._connected: set[web.WebSocketResponse] = set()
        self._changed = threading.Condition()
        self._reached: dict[Stage, float] = {}
        self.provides: tuple[str, ...] = ()
        """The tags that the worker reported, sorted."""
        self.refusals: tuple[str, ...] = ()
        """The refused requests as method, path and status."""

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
        """Serve until stopped. Set `opened` to the port and the function that stops the server."""
        ended = asyncio.Event()
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        limit = ClientTimeout(
            total=None, sock_connect=_TIMEOUT_SECONDS, sock_read=_TIMEOUT_SECONDS
        )
        async with ClientSession(
            auto_decompress=False, timeout=limit, trust_env=True
        ) as self._client:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
            opened.set_result((int(runner.addresses[0][1]), end))
            await ended.wait()
            await runner.cleanup()

    def reached(self) -> dict[Stage, float]:
        """Map each reached stage to the seconds since the server started."""
        with self._changed:
            return dict(sorted(self._reached.items()))

    def wait_for(self, stage: Stage, seconds: float) -> bool:
        """Wait for a stage, at most `seconds`; return whether the worker reached the stage."""
        with self._changed:
            return self._changed.wait_for(lambda: stage in self._reached, seconds)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        answer: web.StreamResponse
        body = b""
        try:
            if (request.content_length or 0) > _MAX_BODY_BYTES:
                raise web.HTTPRequestEntityTooLarge(_MAX_BODY_BYTES, request.content_length or 0)
            if request.headers.get("Upgrade", "").lower() == "websocket":
                answer = await self.connect(request)
            else:
                body = await request.read()
                answer = await (self._forward if self._url else self._answer)(request, body)
        except WSServerHandshakeError as refused:
            answer = _problem(refused.status, refused.message)
        except (ClientError, OSError, ValueError) as error:
            answer = _problem(502, f"the server gives no answer: {error}")
        except web.HTTPException as refused:
            answer = _problem(refused.status, refused.reason)
        self._record(request, answer.status, body)
        return answer

    def _record(self, request: web.Request, status: int, body: bytes = b"") -> None:
        """Record the stages or the refusal that follow from a request and its response."""
        if status >= 400:  # noqa: PLR2004 - HTTP's errors
            self.refusals += (f"{request.method} {request.path}: {status}",)
        elif request.path == _METADATA:
            with suppress(ValueError, KeyError, TypeError):  # older workers report no tags
                tags = json.loads(body)["provided_tags"]
                self.provides = tuple(sorted({str(each) for each in tags}))
        is_other = request.path == _REGISTER and not _has_token(request, self.token)
        with self._changed:
            for method, path, statuses, stage in () if is_other else _STAGES:
                is_it = request.method == method and status in statuses
                if is_it and path.fullmatch(request.path):
                    self._reached.setdefault(stage, time.monotonic() - self._began)
            self._changed.notify_all()

    async def _answer(self, request: web.Request, body: bytes) -> web.Response:
        """Return the local response to an HTTP request of a worker."""
        is_registered = self._is_registered(request)
        match request.method, request.path:
            case "POST", path if path == _REGISTER:
                if not _has_token(request, self.token):
                    return _problem(400, "Invalid worker activation token")
                try:
                    self._own_token = str(json.loads(body)["token"])
                except (ValueError, KeyError, TypeError):
                    return _problem(400, "no token of the worker's own")
                return web.json_response({}, status=201)
            case "PUT", path if path == _METADATA and is_registered:
                for each in tuple(self._connected):
                    await _send_text(each, "work_request_available")
                return web.Response(status=204)
            case "POST", path if path == _FETCH and is_registered:
                return web.Response(status=204)
        return _problem(404 if is_registered else 403, "not for you")

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        """Return the real server's response to an HTTP request of a worker."""
        async with self._client.request(
            request.method,
            URL(f"{self._url}{request.raw_path}", encoded=True),
            data=body,
            headers=_drop_hop_headers(request.headers),
            allow_redirects=False,
            ssl=trusted(),
        ) as answer:
            headers = _drop_hop_headers(answer.headers)
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Connect the websocket of a worker until it is closed.

        Request the metadata of a registered worker, or forward messages of the real server.
        """
        if self._url:
            address = URL(f"{self._url}{request.raw_path}", encoded=True)
            headers = _drop_hop_headers(request.headers)
            upstream = self._client.ws_connect(address, headers=headers, ssl=trusted())
            async with upstream as theirs, self.accepted(request) as ours:
                both = (_forward_messages(ours, theirs), _forward_messages(theirs, ours))
                passing = [asyncio.ensure_future(each) for each in both]
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            return ours
        if request.path != CONNECT or not self._is_registered(request):
            return _problem(403, "not for you")
        async with self.accepted(request) as websocket:
            self._connected.add(websocket)
            await _send_text(websocket, "connected")
            await _send_text(websocket, "request_dynamic_metadata")
            async for _ in websocket:
                pass
            self._connected.discard(websocket)
        return websocket

    @asynccontextmanager
    async def accepted(self, request: web.Request) -> AsyncIterator[web.WebSocketResponse]:
        """Accept the websocket of a worker, and close it when the context ends."""
        websocket = web.WebSocketResponse(timeout=_CLOSE_SECONDS, max_msg_size=_MAX_BODY_BYTES)
        await websocket.prepare(request)
        self._record(request, websocket.status)
        yield websocket
        await websocket.close()

    def _is_registered(self, request: web.Request) -> bool:
        return bool(self._own_token) and _has_token(request, self._own_token)


async def _forward_messages(source: Any, target: Any) -> None:  # noqa: ANN401 - either side of a websocket
    """Forward messages from source to target until either of them closes."""
    with suppress(ConnectionError):
        async for message in source:
            send = target.send_str if message.type is WSMsgType.TEXT else target.send_bytes
            await send(message.data)


async def _send_text(websocket: web.WebSocketResponse, text: str) -> None:
    with suppress(ConnectionError):
        await websocket.send_json({"type": "websocket.send", "text": text})


def _has_token(request: web.Request, token: str) -> bool:
    return compare_digest(request.headers.get("token", "").encode(), token.encode())


def _problem(status: int, title: str) -> web.Response:
    return web.json_response(
        {"title": title}, status=status, content_type="application/problem+json"
    )


def _drop_hop_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and not name.lower().startswith(_HANDSHAKE)
    }
