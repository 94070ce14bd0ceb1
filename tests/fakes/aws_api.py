"""EC2 and IAM on the loopback, played by moto, that fail when told to.

Each one is an account of its own, whose contents can be copied into another.
"""

import copy
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Any
from urllib.parse import parse_qs

from fleet.queues.http import BackgroundServer, LoopbackServer
from tests.fakes.aws import PROVIDER

_ACCOUNTS = count(200000000001)
_PER_ACCOUNT = {"ec2": PROVIDER.region, "iam": "aws"}
"""The services that keep something, and what moto calls the region of each."""
_WORKER = "fleet:worker"


@dataclass
class Fault:
    """A failure of some calls; `action` is one of the API's, empty: any.

    With a code the call is refused, and nothing is done unless `done` says so. Else it is done,
    and its answer comes broken or not at all.
    """

    action: str = ""
    code: str = ""
    status: int = 400
    done: bool = False
    """The call is refused, but it was done all the same."""
    having: str = ""
    """Only calls with this in their body."""
    after: int = 0
    """How many matching calls are answered well before the first that fails."""
    count: int | None = None
    """How many fail; None: all that follow."""
    answer_lost: bool = False
    """The deed is done, and the connection is closed without an answer."""
    broken_off: bool = False
    """The answer breaks off in its middle."""
    halved: bool = False
    """Only the first half of the answer is there, and is said to be all of it."""
    continued: bool = False
    """A listing says that another page follows."""
    seen: int = 0
    """How many calls have matched."""

    def strikes(self, action: str, body: str) -> bool:
        """Count a call, and say whether it is to fail."""
        if self.action not in ("", action) or self.having not in body:
            return False
        self.seen += 1
        return self.after < self.seen <= self.after + (self.count or self.seen)


_WELL = Fault()


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]


class SimulatedAws(BackgroundServer):
    """One account at `url`."""

    def __init__(self) -> None:
        # moto would read its own table of some thousand images.
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.test import Client

        self.account = str(next(_ACCOUNTS))
        self.watch: Callable[[str, str], None] = lambda _, __: None
        """Called with "asked" before each call is answered, with "done" after its deed."""
        self._moto = Client(DomainDispatcherApplication(create_backend_app))
        self._faults: list[Fault] = []
        self._made: dict[str, _Answer] = {}
        self._lock = threading.Lock()
        super().__init__(LoopbackServer(_handler(self)))
        self.url = f"http://127.0.0.1:{self.port}"

    def fail(self, fault: Fault) -> None:
        """Let calls fail from now on; the first fault that strikes decides."""
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._faults.clear()

    def instances(self) -> list[Any]:
        """Return moto's own records of the instances that are not gone."""
        reservations = _account("ec2", self.account).reservations.values()
        found = (each for reservation in reservations for each in reservation.instances)
        return [each for each in found if each.state != "terminated"]

    def named(self) -> list[tuple[str, str]]:
        """Return the workers' names and the ids of the instances, sorted."""
        return sorted((self._tags(each).get(_WORKER, ""), each.id) for each in self.instances())

    def given(self, name: str) -> str:
        """Return the user data of a worker's instance."""
        text = next(each.user_data for each in self._of(name))
        return str(text.decode())

    def end(self, *names: str) -> None:
        """Take workers' instances away, as anybody with the credentials can."""
        _account("ec2", self.account).terminate_instances([each.id for each in self._of(*names)])

    def launched(self, moment: datetime, *names: str) -> None:
        """Have workers' instances be launched at another moment."""
        for each in self._of(*names):
            each.launch_time = moment.replace(tzinfo=None)

    def contents(self) -> Mapping[str, Any]:
        """Return a copy of all that is in the account."""
        return {name: copy.deepcopy(_account(name, self.account)) for name in _PER_ACCOUNT}

    def fill(self, contents: Mapping[str, Any]) -> None:
        """Have a copy of another account's contents be in this one."""
        for name, region in _PER_ACCOUNT.items():
            copied = copy.deepcopy(contents[name])
            copied.account_id = self.account
            dict.__setitem__(_backends(name)[self.account], region, copied)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one call, or fail as told."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        action = parse_qs(body).get("Action", [""])[0]
        self.watch("asked", action)
        with self._lock:
            strikes = [fault for fault in self._faults if fault.strikes(action, body)]
            fault = strikes[0] if strikes else _WELL
            answer = _refusal(fault) if fault.code else None
            if answer is None or fault.done:
                done = self._done(handler, body)
                answer = answer or done
        self.watch("done", action)
        if fault.answer_lost:
            handler.close_connection = True
            return
        if fault.continued:
            pages = answer.body.replace(b"</reservationSet>", _NEXT).replace(b"<nextToken/>", b"")
            answer = _Answer(answer.status, pages, answer.headers)
        half = answer.body[: len(answer.body) // 2]
        told = half if fault.halved else answer.body
        handler.send_response_only(answer.status)
        handler.send_header("Content-Type", answer.headers.get("Content-Type", "text/xml"))
        handler.send_header("Content-Length", str(len(told)))
        handler.end_headers()
        handler.wfile.write(half if fault.broken_off else told)
        handler.close_connection = handler.close_connection or fault.broken_off

    def _done(self, handler: BaseHTTPRequestHandler, body: str) -> _Answer:
        # As AWS does: what is asked for again with the same token is not made again.
        (token,) = parse_qs(body).get("ClientToken", [""])
        if token in self._made:
            return self._made[token]
        headers = {**handler.headers, "x-moto-account-id": self.account}
        reply = self._moto.post(handler.path, data=body, headers=headers)
        answer = _Answer(reply.status_code, reply.get_data(), dict(reply.headers))
        if token:
            self._made[token] = answer
        return answer

    def _of(self, *names: str) -> list[Any]:
        return [each for each in self.instances() if self._tags(each).get(_WORKER) in names]

    def _tags(self, instance: Any) -> Mapping[str, str]:  # noqa: ANN401 - moto's own class
        return {tag["key"]: tag["value"] for tag in instance.get_tags()}


_NEXT = b"</reservationSet><nextToken>the-second-page</nextToken>"


def _refusal(fault: Fault) -> _Answer:
    error = f"<Error><Code>{fault.code}</Code><Message>this failure was ordered</Message></Error>"
    body = f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"
    return _Answer(fault.status, body.encode(), {"Content-Type": "text/xml"})


def _backends(service: str) -> Any:  # noqa: ANN401 - moto's own class
    from moto.backends import get_backend

    return get_backend(service)  # type: ignore[call-overload] # a name that is not a literal


def _account(service: str, account: str) -> Any:  # noqa: ANN401 - same
    return _backends(service)[account][_PER_ACCOUNT[service]]


def _handler(aws: SimulatedAws) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else a body waits 40 ms until the client has confirmed the headers before it.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            aws.serve(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    return Handler
