"""Serve a simulated Hetzner Cloud on the loopback, with faults on request.

It is for tests and for trials without an account. It makes no machine: nothing boots, and no
worker registers by itself.
"""

import json
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fleet.queues.http import BackgroundServer, LoopbackServer
from simulators.hetzner.api import answer
from simulators.hetzner.faults import Fault, halve
from simulators.hetzner.project import Project
from simulators.hetzner.wire import Refused, Reply, Request

TOKEN = "made-up-token-of-the-simulated-hetzner-cloud-for-trials-and-test"  # noqa: S105 - opens nothing
"""The only token: 64 characters, as clients insist on."""

_VERSION = "/v1"
_CONTROL = "/sim/"
_MOST_BYTES = 1 << 20
_REQUESTS_PER_HOUR = 3600

Watch = Callable[[str, Request], None]


class SimulatedHetzner(BackgroundServer):
    """The API at `endpoint`, open to `token`; `state` is what exists there."""

    def __init__(
        self,
        *,
        port: int = 0,
        state_file: Path | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.token = TOKEN
        self.state = Project(now) if now else Project()
        self.requests: list[Request] = []
        """What was asked, in the order of its arrival."""
        self.watch: Watch = lambda _, __: None
        """Called with "asked" before each request is answered, with "done" after its deed."""
        self._faults: list[Fault] = []
        self._file = state_file
        if state_file:
            self.state.load(state_file)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        super().__init__(LoopbackServer(_handler(self), port))
        self.url = f"http://127.0.0.1:{self.port}"
        self.endpoint = self.url + _VERSION

    def __exit__(self, *reason: object) -> None:
        """Stop, and release requests that wait for a late answer."""
        self._closed.set()
        super().__exit__(*reason)

    def fail(self, fault: Fault) -> None:
        """Let requests fail from now on; the first fault that strikes decides."""
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._faults.clear()

    def serve(self, request: Request) -> tuple[Reply, Fault]:
        """Return the answer to a request, and how it is to fail on its way back."""
        self.watch("asked", request)
        with self._lock:
            self.requests.append(request)
            strikes = [fault for fault in self._faults if fault.strikes(request)]
            fault = strikes[0] if strikes else _WELL
            refusal = fault.refusal()
            reply = self._done(request) if refusal is None or fault.done else refusal
            if fault.action_fails:
                self.state.fail_last()
        self.watch("done", request)
        return refusal or (halve(reply) if fault.half_page else reply), fault

    def control(self, request: Request) -> Reply:
        """Set faults, stock and limits over HTTP."""
        body = dict(request.body)
        match request.method, request.path.removeprefix(_CONTROL):
            case "POST", "faults":
                try:
                    self.fail(Fault(**body))
                except TypeError as error:
                    raise Refused(422, "invalid_input", str(error)) from error
            case "DELETE", "faults":
                self.heal()
            case "PUT", "stock" | "limits" as name:
                with self._lock:
                    getattr(self.state, name).update(body)
            case _:
                raise Refused(404, "not_found", f"there is no {request.path}")
        return Reply(204)

    def late(self, seconds: float) -> None:
        """Wait that long, or until the end."""
        self._closed.wait(seconds)

    def _done(self, request: Request) -> Reply:
        try:
            reply = answer(self.state, request)
        except Refused as refused:
            return refused.reply()
        if self._file and request.method != "GET":
            self.state.save(self._file)
        # What is sent must not change while it is sent.
        return Reply(reply.status, json.loads(json.dumps(reply.content)), reply.headers)


_WELL = Fault()


def _handler(api: SimulatedHetzner) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body go out in one piece; else each answer would wait for the other side.
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            """Answer."""
            _respond(api, self)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - same
            """Log nothing."""

    return Handler


def _respond(api: SimulatedHetzner, handler: BaseHTTPRequestHandler) -> None:
    fault = _WELL
    try:
        request = _read(api, handler)
        if request.path.startswith(_CONTROL):
            reply = api.control(request)
        else:
            reply, fault = api.serve(request)
    except Refused as refused:
        reply = refused.reply()
    except Exception:
        logging.getLogger(__name__).exception("%s %s", handler.command, handler.path)
        reply = Refused(500, "server_error", "a fault of the simulation: see its log").reply()
    api.late(fault.latency)
    if fault.answer_lost:
        handler.close_connection = True
        return
    body = reply.body()
    handler.send_response_only(reply.status)
    for name, value in {**_rates(reply), **reply.headers}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2] if fault.broken_off else body)
    handler.close_connection = handler.close_connection or fault.broken_off


def _read(api: SimulatedHetzner, handler: BaseHTTPRequestHandler) -> Request:
    announced = handler.headers.get("Content-Length") or "0"
    if not announced.isdecimal():
        handler.close_connection = True
        raise Refused(400, "json_error", "Content-Length is no number")
    length = int(announced)
    if length > _MOST_BYTES:
        handler.close_connection = True
        raise Refused(413, "request_entity_too_large", "the body is too long")
    raw = handler.rfile.read(length)
    if handler.headers.get("Authorization") != f"Bearer {api.token}":
        raise Refused(401, "unauthorized", "unable to authenticate")
    parts = urlsplit(handler.path)
    path = parts.path.removeprefix(_VERSION)
    if path == parts.path and not path.startswith(_CONTROL):
        raise Refused(404, "not_found", f"the API is below {_VERSION}")
    body = _json(raw)
    return Request(handler.command, path, parse_qs(parts.query), body)


def _json(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw) if raw.strip() else {}
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "json_error", "the body is no JSON object")
    return body


def _rates(reply: Reply) -> dict[str, str]:
    left = 0 if "Retry-After" in reply.headers else _REQUESTS_PER_HOUR - 1
    return {
        "Content-Type": "application/json",
        "RateLimit-Limit": str(_REQUESTS_PER_HOUR),
        "RateLimit-Remaining": str(left),
        "RateLimit-Reset": "0",
    }
