"""Call servers over HTTP, with limits of time and size, and serve on the loopback interface.

Redirects are never followed, so that a secret header reaches only the server in fleet.yaml. httpx
takes 60 ms to import, so only the functions that call a server import it.
"""

import json
import os
import random
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR, socket
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from fleet.clock import utc_now
from fleet.errors import SourceUnreachable
from fleet.observation import current_observation

if TYPE_CHECKING:
    import httpx

_SETTINGS = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def trusted() -> ssl.SSLContext:
    """Return the trusted certificates. Read them again after a change of settings or files."""
    return _read(tuple((os.environ.get(name), _identify_version(name)) for name in _SETTINGS))


def _identify_version(name: str) -> object:
    """Return a value that identifies the version of a variable's file; None without a file."""
    try:
        found = Path(os.environ[name]).stat()
    except (KeyError, OSError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _read(_: object) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


_SLOW_START_FACTOR = 2
"""Maximum time until a reply starts, as a multiple of the permitted silence."""
GET_TRIES = 3
"""Maximum number of times to send a GET. A restarting gateway answers within seconds."""
_REPEATED_STATUSES = frozenset({429, 502, 503, 504})
"""Status codes of an overloaded or restarting server. A later GET may succeed."""
_FIRST_PAUSE_SECONDS = 0.5
MAX_RETRY_AFTER_SECONDS = 30
"""Maximum pause in seconds that a server may request. If it is longer, the next run retries."""
_MAX_REPEATING_SECONDS = 45
"""Seconds after which a GET is not sent again. A gateway that hangs would hang again."""
Query = Mapping[str, str]
Change = Literal["POST", "PUT", "DELETE"]
Body = Mapping[str, object] | None
Shape = TypeVar("Shape", bound=BaseModel)


class QueueReply(BaseModel, strict=True, frozen=True):
    """Base of models for the used part of a server's reply, with strict types."""


class TooSlow(SourceUnreachable):
    """The time limit of a whole reading is exceeded."""


class _NoAnswer(SourceUnreachable):
    """A server did not answer a request."""

    may_repeat = False
    is_failure = True

    def __init__(self, address: str, because: str) -> None:
        super().__init__(f"{address} {because}; is the server up and the address right?")
        self.because = because


class _Reset(_NoAnswer):
    """A server closed the connection before the end of its reply."""

    may_repeat = True


@dataclass(frozen=True)
class ReadLimits:
    """Limits of a reading: times in seconds, size of a reply in bytes."""

    connect: float = 10
    silence: float = 30
    total: float = 300
    body_bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True)
class Reply:
    """A complete reply. `address` is the requested URL without secrets."""

    address: str
    status: int
    kind: str
    body: bytes
    date: str = ""
    """Time at which the server sent the reply, as text from the server."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Map of header names, in lower case, to values."""

    @property
    def may_repeat(self) -> bool:
        """Return whether the same GET, sent again, may succeed soon."""
        return self.status in _REPEATED_STATUSES

    @property
    def is_failure(self) -> bool:
        """Return whether the server is down. Status 429 only asks for fewer requests."""
        return self.may_repeat and self.status != HTTPStatus.TOO_MANY_REQUESTS

    @property
    def because(self) -> str:
        """Return the reason why the GET is sent again, as text."""
        return f"answered with status {self.status}"

    def accepted(self, advice: Mapping[int, str], fix: str = "") -> Self:
        """Return the reply; raises SourceUnreachable with the status's advice for an error.

        `fix` is the command that fixes the error, if the advice mentions it.
        """
        if self.status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            return self
        said = advice.get(self.status) or retry_advice(self.status)
        raise SourceUnreachable(
            f"{self.address} answered with status {self.status}: {said}",
            fix=fix if fix in said else "",
        )

    def parse(self, model: type[Shape]) -> Shape:
        """Parse the JSON of the reply; raises SourceUnreachable if it does not fit the model."""
        self._check_kind()
        return self.check(lambda: model.model_validate_json(self.body))

    def parse_readable(
        self, model: type[Shape], place: tuple[str, ...]
    ) -> tuple[Shape, list[tuple[Any, str]]]:
        """Return the reply without unreadable rows of a list, and these rows with reasons.

        Unreadable rows have all their keys, but values of the wrong type or out of range.
        """
        self._check_kind()
        try:
            return model.model_validate_json(self.body), []
        except ValidationError as error:
            unreadable = _unreadable_rows(error, place)
        if not unreadable:
            return self.parse(model), []
        content = json.loads(self.body, parse_int=lambda text: int(text[:_MAX_DIGITS]))
        rows = content
        for key in place:
            rows = rows[key]
        taken = [(rows[number], because) for number, because in unreadable.items()]
        rows[:] = [row for number, row in enumerate(rows) if number not in unreadable]
        return replace(self, body=json.dumps(content).encode()).parse(model), taken

    def _check_kind(self) -> None:
        if "html" in self.kind:
            raise SourceUnreachable(
                f"{self.address} answered with an HTML page instead of JSON; is this the address "
                "of a login page or proxy?"
            )

    def check(self, read: Callable[[], Shape]) -> Shape:
        """Return the result of `read`; raises SourceUnreachable for an invalid structure."""
        try:
            return read()
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = "".join(f" at {'.'.join(map(str, first['loc']))}" for _ in first["loc"][:1])
            # The cause would show the server's text, which may contain a secret.
            raise SourceUnreachable(
                f"{self.address}: unexpected answer{where}: {first['msg']}; is the address right, "
                "and the server's version supported?"
            ) from None


def _unreadable_rows(error: ValidationError, place: tuple[str, ...]) -> dict[int, str]:
    """Map row numbers of a list to errors in values; empty if other parts are invalid.

    A missing key means another version of the server, which omits the key in all rows.
    """
    found: dict[int, str] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        above, rest = each["loc"][: len(place)], each["loc"][len(place) :]
        is_value = len(rest) > 1 and isinstance(rest[0], int) and each["type"] != "missing"
        if above != place or not is_value:
            return {}
        found.setdefault(int(rest[0]), f"{'.'.join(map(str, rest[1:]))}: {each['msg']}")
    return found


_MAX_DIGITS = 40
"""Digits of an integer to read. Python refuses thousands of digits."""


class _Request(NamedTuple):
    """An HTTP request to send."""

    method: str
    address: str
    query: Query
    headers: Mapping[str, str]
    body: Body = None


class Reader:
    """One reading of one server, with one connection and one time limit for all calls.

    A GET is sent up to `tries` times. A caller that repeats requests itself passes 1.
    """

    pause: Callable[[float], object] = staticmethod(time.sleep)
    """Waits for the given seconds before a GET is sent again."""

    def __init__(
        self,
        url: str,
        *,
        limits: ReadLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        tries: int = GET_TRIES,
    ) -> None:
        self._limits = limits or ReadLimits()
        self._clock = clock
        self._tries = tries
        self._observation = current_observation()
        self._total = self._limits.total
        self._silence = self._limits.silence
        self.base = re.split("[?#]", url, maxsplit=1)[0].rstrip("/")
        self.clock_ahead: int | None = None
        """Minutes by which the server's clock is ahead of this computer's; None if unknown."""

    def __enter__(self) -> Self:
        """Start the time limit of the reading."""
        import httpx

        if self._observation is not None:
            self._total = min(self._total, max(0.0, self._observation.left()))
        self._until = self._clock() + self._total
        # With compression, a small reply could expand to any size.
        asks = {"Accept-Encoding": "identity", "User-Agent": "fleet"}
        self._client = httpx.Client(follow_redirects=False, headers=asks, verify=trusted())
        self._sockets: list[socket] = []
        self._is_cut = False
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._client.close()

    def left(self) -> float:
        """Return the remaining seconds of this reading."""
        return self._until - self._clock()

    def get(
        self,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        *,
        only: bytes = b"",
        silence: float | None = None,
    ) -> Reply:
        """Return the reply to a GET with any status except a redirect.

        If `only` is set, the body has only the lines that start with it. `silence` is the maximum
        time in seconds without data.
        """
        self._silence = silence or self._limits.silence
        asked = _Request("GET", self.base + path, query, headers)
        observation, began = self._observation, self._clock()
        if observation and (because := observation.failure_of(self.base)):
            raise SourceUnreachable(
                f"{asked.address} was not asked: {because} earlier in this run"
            )
        tried = 1
        while (got := self._try(asked, only)).may_repeat:
            wait = self._pause_before_repeat(tried, began, got)
            if wait is None:
                break
            if observation:
                observation.note_repeat(self.base, got.because)
            self.pause(wait)
            tried += 1
        if observation and got.is_failure:
            observation.note_failure(self.base, f"{asked.address} {got.because}")
        elif observation:
            observation.note_answer(self.base)
        if isinstance(got, Reply):
            return got
        raise got

    def _try(self, asked: "_Request", only: bytes) -> "Reply | _NoAnswer":
        try:
            return self._ask(asked, only)
        except _NoAnswer as error:
            return error

    def _pause_before_repeat(
        self, tried: int, began: float, got: "Reply | _NoAnswer"
    ) -> float | None:
        """Return the pause in seconds before the GET is sent again; None to give up."""
        after = _retry_after(got) if isinstance(got, Reply) else 0
        took = self._clock() - began
        if (
            tried >= self._tries
            or after > MAX_RETRY_AFTER_SECONDS
            or took > _MAX_REPEATING_SECONDS
        ):
            return None
        # Jitter, so that clients that lost their connection together do not return together.
        jitter = random.uniform(0.5, 1)  # noqa: S311 - no secret
        wait = after + _FIRST_PAUSE_SECONDS * 2 ** (tried - 1) * jitter
        return wait if wait < self.left() else None

    def change(
        self,
        method: Change,
        path: str,
        headers: Mapping[str, str],
        body: Body,
        *,
        query: Query = MappingProxyType({}),
    ) -> Reply:
        """Send a request and return the reply. A POST is sent once, others up to twice."""
        self._silence = self._limits.silence
        asked = _Request(method, self.base + path, query, headers, body)
        try:
            return self._ask(asked, b"")
        except _Reset:
            # A server may close a persistent connection at any time; gunicorn does so after N
            # requests.
            if method == "POST" or self._tries == 1:
                raise
            return self._ask(asked, b"")

    @contextmanager
    def _cut_after(self, seconds: float) -> Iterator[None]:
        """Close all connections after this time, because a server may send slowly without end."""

        def cut() -> None:
            self._is_cut = True
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(SHUT_RDWR)

        self._is_cut = False
        timer = threading.Timer(max(0.0, seconds), cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        """Record each connection that the HTTP library opens, so that it can be cut."""
        stream: Any = info.get("return_value") if event.endswith(".complete") else None
        if hasattr(stream, "get_extra_info"):
            self._sockets.append(stream.get_extra_info("socket"))

    def _ask(self, asked: "_Request", only: bytes) -> Reply:
        import httpx

        address = asked.address
        try:
            # Complete silence is noticed earlier, and has its own message.
            with self._cut_after(min(self._silence * _SLOW_START_FACTOR, self.left())):
                response = self._begin(asked)
        except httpx.TransportError as error:
            raise self._translate_error(address, error) from error
        except (httpx.InvalidURL, UnicodeError):
            # Their messages may contain the value of a header, which may be a secret.
            raise _unsendable(address) from None
        try:
            if 300 <= response.status_code < 400:  # noqa: PLR2004 - the redirects of HTTP
                raise _redirect_error(address, response.headers.get("location", ""))
            with self._cut_after(self.left()):
                body = self._body(address, response, only)
        except httpx.TransportError as error:
            raise self._broken_off(address, error) from error
        finally:
            response.close()
        kind = response.headers.get("content-type", "").lower()
        headers = dict(response.headers)
        date = headers.get("date", "")
        # A cached reply was sent at another time.
        if "age" not in headers and (sent := read_date(date)) is not None:
            self.clock_ahead = round((sent - utc_now()) / timedelta(minutes=1))
        return Reply(address, response.status_code, kind, body, date, headers)

    def _begin(self, asked: "_Request") -> "httpx.Response":
        import httpx

        address = asked.address
        request = self._client.build_request(
            asked.method,
            address,
            params=dict(asked.query) or None,
            headers=dict(asked.headers),
            json=asked.body,
            timeout=self._timeout(address),
            extensions={"trace": self._note},
        )
        try:
            return self._client.send(request, stream=True)
        except httpx.LocalProtocolError:
            raise _unsendable(address) from None
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            if self._is_cut or asked.method != "POST":
                raise
            raise SourceUnreachable(
                f"{address} closed the connection without an answer; it may have made the change"
            ) from error

    def _body(self, address: str, response: "httpx.Response", only: bytes) -> bytes:
        body, line = bytearray(), b""
        for part in response.iter_raw():
            self._timeout(address)
            if only:
                *lines, line = (line + part).split(b"\n")
                body += b"".join(each + b"\n" for each in lines if each.startswith(only))
            else:
                body += part
            if len(body) + len(line) > self._limits.body_bytes:
                raise SourceUnreachable(
                    f"{address} answered with more than {self._limits.body_bytes} bytes"
                )
        return bytes(body) + (line if line.startswith(only) else b"")

    def _timeout(self, address: str) -> "httpx.Timeout":
        import httpx

        left = self.left()
        if left <= 0:
            raise TooSlow(f"{address} was not read within {self._total:g} s")
        return httpx.Timeout(min(self._silence, left), connect=min(self._limits.connect, left))

    def _translate_error(self, address: str, error: "httpx.TransportError") -> SourceUnreachable:
        import httpx

        match error:
            case _ if self._is_cut:
                self._timeout(address)
                because = (
                    f"did not begin its answer within {self._silence * _SLOW_START_FACTOR:g} s"
                )
            case httpx.ConnectTimeout():
                because = f"could not be reached within {self._limits.connect:g} s"
            case httpx.TimeoutException():
                self._timeout(address)
                because = f"sent nothing for {self._silence:g} s"
            case httpx.ConnectError() if not _is_reset(error):
                because = f"could not be reached ({error})"
            case httpx.ProxyError():
                because = "could not be reached through the proxy in the environment"
            case httpx.NetworkError() | httpx.RemoteProtocolError():
                return _Reset(address, "closed the connection without an answer")
            case _:
                because = f"failed ({type(error).__name__})"
        return _NoAnswer(address, because)

    def _broken_off(self, address: str, error: "httpx.TransportError") -> SourceUnreachable:
        import httpx

        if self._is_cut:
            return TooSlow(f"{address} was not read within {self._total:g} s")
        if isinstance(error, httpx.TimeoutException):
            self._timeout(address)
            because = f"stopped in the middle of its answer for {self._silence:g} s"
            return _NoAnswer(address, because)
        return _Reset(address, "broke off in the middle of its answer")


def _is_reset(error: BaseException | None) -> bool:
    """Return whether a connection was reset during its setup, for example in TLS."""
    while error is not None:
        if isinstance(error, ConnectionResetError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _retry_after(reply: Reply) -> float:
    """Return the pause in seconds that a server requests; 0 without a request."""
    said = reply.headers.get("retry-after", "").strip()
    if re.fullmatch("[0-9]+", said):
        return float(said)  # infinite if it has thousands of digits
    until = read_date(said)
    if until is None:
        return 0
    seconds = (until - (read_date(reply.date) or utc_now())) / timedelta(seconds=1)
    return max(0.0, seconds)


def read_date(header: str) -> datetime | None:
    """Parse the time in a `Date` header; None if it is invalid."""
    try:
        found = parsedate_to_datetime(header)
    except ValueError:
        return None
    return found if found.tzinfo else None


def retry_advice(status: int) -> str:
    """Return advice about an error status that the request did not cause."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "too many requests; retry later"
    return "retry, then look at the server's log"


def _redirect_error(address: str, location: str) -> SourceUnreachable:
    try:
        host = urlsplit(location).hostname or ""
    except ValueError:
        host = ""
    # The server chose this text, so show only its host name.
    host = re.sub(r"[^a-z0-9.:-]", "", host)[:100]
    target = f"to the host {host}" if host else "to another path of the same host"
    return SourceUnreachable(
        f"{address} redirects {target}; fleet does not follow redirects and sent no token "
        "there. If that address is right, write it into fleet.yaml"
    )


def _unsendable(address: str) -> SourceUnreachable:
    return SourceUnreachable(
        f"{address}: the address, token or scope has characters that HTTP cannot carry; does the "
        "secret contain a line break?"
    )


class BackgroundServer:
    """Context manager that runs a server in a thread."""

    def __init__(self, server: HTTPServer) -> None:
        self._server = server
        self.port = server.server_port

    def __enter__(self) -> Self:
        """Start the server's thread."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server and wait for its thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class ThreadedServer(ThreadingHTTPServer):
    """An HTTP server with a thread per client. It ignores clients that disconnect."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own types
        """Ignore the error of a client that disconnects. Print other errors."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class LoopbackServer(ThreadedServer):
    """A server that listens only on the loopback interface."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
