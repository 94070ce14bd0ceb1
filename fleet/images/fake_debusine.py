"""A local server for the boot test of an image, which records the stages that a worker reaches.

The server responds to a new worker like Debusine, and announces work but assigns no request.
`Proxy` forwards all traffic to a real server instead.
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


class WorkerServer:
    """A server in a thread that speaks Debusine's worker protocol. Only `token` may register."""

    def __init__(self, token: str) -> None:
        self.token = token
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
                answer = await self.answer(request)
        except WSServerHandshakeError as refused:
            answer = _problem(refused.status, refused.message)
        except (ClientError, OSError, ValueError) as error:
            answer = _problem(502, f"the server gives no answer: {error}")
        except web.HTTPException as refused:
            answer = _problem(refused.status, refused.reason)
        self._record_answer(request, answer.status, body)
        return answer

    def _record_answer(self, request: web.Request, status: int, body: bytes = b"") -> None:
        """Record the stage or the refusal that follows from a request and its response."""
        match request.method, request.path, status:
            case "POST", path, 201 if path == _REGISTER and _has_token(request, self.token):
                self._record_stage(Stage.REGISTERED)
            case "GET", path, 101 if path == CONNECT:
                self._record_stage(Stage.CONNECTED)
            case "PUT", path, 204 if path == _METADATA:
                with suppress(ValueError, KeyError, TypeError):  # older workers report no tags
                    tags = json.loads(body)["provided_tags"]
                    self.provides = tuple(sorted({str(each) for each in tags}))
                self._record_stage(Stage.REPORTED)
            case "POST", path, 200 | 204 if path == _FETCH:
                self._record_stage(Stage.ASKED)
                if status == 200:  # noqa: PLR2004 - there is work in it
                    self._record_stage(Stage.FETCHED)
            case "PUT", path, 200 if path.startswith(_WORK) and path.endswith(_ENDED):
                self._record_stage(Stage.ENDED)
            case method, path, _ if status >= 400:  # noqa: PLR2004 - HTTP's errors
                self.refusals += (f"{method} {path}: {status}",)

    def _record_stage(self, stage: Stage) -> None:
        with self._changed:
            self._reached.setdefault(stage, time.monotonic() - self._began)
            self._changed.notify_all()

    async def answer(self, request: web.Request) -> web.Response:
        """Return the response to an HTTP request of a worker."""
        match request.method, request.path:
            case "POST", path if path == _REGISTER:
                if not _has_token(request, self.token):
                    return _problem(400, "Invalid worker activation token")
                try:
                    self._own_token = str(json.loads(await request.read())["token"])
                except (ValueError, KeyError, TypeError):
                    return _problem(400, "no token of the worker's own")
                return web.json_response({}, status=201)
            case "PUT", path if path == _METADATA and self._is_registered(request):
                for each in tuple(self._connected):
                    await _send_text(each, "work_request_available")
                return web.Response(status=204)
            case "POST", path if path == _FETCH and self._is_registered(request):
                return web.Response(status=204)
            case _:
                return _problem(404 if self._is_registered(request) else 403, "not for you")

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Request the metadata of a registered worker by websocket; return when it is closed."""
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
        self._record_answer(request, websocket.status)
        yield websocket
        await websocket.close()

    def _is_registered(self, request: web.Request) -> bool:
        return bool(self._own_token) and _has_token(request, self._own_token)


class Proxy(WorkerServer):
    """A server that forwards requests and websockets to a real server."""

    def __init__(self, token: str, url: str) -> None:
        """Forward to the server with the base URL `url`, as in `queues.*.url`."""
        super().__init__(token)
        self._url = url.rstrip("/")

    async def answer(self, request: web.Request) -> web.Response:
        """Return the real server's response to a request."""
        async with self._client.request(
            request.method,
            self._build_url(request),
            data=await request.read(),
            headers=_drop_hop_headers(request.headers),
            allow_redirects=False,
            ssl=trusted(),
        ) as answer:
            headers = _drop_hop_headers(answer.headers)
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    async def connect(self, request: web.Request) -> web.WebSocketResponse:
        """Connect the worker's websocket to the real server until either of them closes."""
        upstream = self._client.ws_connect(
            self._build_url(request), headers=_drop_hop_headers(request.headers), ssl=trusted()
        )
        async with upstream as theirs, self.accepted(request) as ours:
            both = (_forward_messages(ours, theirs), _forward_messages(theirs, ours))
            passing = [asyncio.ensure_future(each) for each in both]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        return ours

    def _build_url(self, request: web.Request) -> URL:
        return URL(f"{self._url}{request.raw_path}", encoded=True)


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
