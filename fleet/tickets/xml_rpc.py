"""Serve XML-RPC calls, limited in number, size and time; over TLS if configured.

The token of a call identifies the client. If no tokens are configured, every client is `anybody`
with its address.
"""

import hmac
import json
import re
import select
import ssl
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BufferedReader, BytesIO
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.parsers import expat
from xmlrpc.client import Error, Fault, Unmarshaller, dumps

from fleet.errors import FileUnreadable, FleetError, Locked
from fleet.model.tickets import ANYBODY
from fleet.ports import Clock, WebPage
from fleet.queues.http import BackgroundServer
from fleet.state.files import LocalFiles
from fleet.tickets.connections import (
    MOST_BYTES,
    Bounds,
    Caller,
    ConnectionServer,
    PendingConnection,
    body_length,
)
from fleet.tickets.refusals import WrongTokens

_MALFORMED_CODE = -32700
_INVALID_XML_CHARACTERS = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are invalid in XML. A client could not parse an answer with them."""

Answer = Callable[[str, str, Sequence[Any]], Any]
"""Function that handles a call by client, method and arguments; raises Fault to refuse it."""
ReadHealth = Callable[[], tuple[bool, Mapping[str, object]]]
"""Function that returns whether the service is healthy, and the body for /healthz."""


ReadPage = Callable[[str], WebPage | None]
"""Function that returns the web page at a URL path; None if there is no such page."""
ReadMetrics = Callable[[], str]
"""Function that returns the body for /metrics, valid as OpenMetrics and Prometheus text."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
"""Media types of metrics. The response has the type that the scraper accepts."""
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


_answering = threading.local()


def has_hung_up() -> bool:
    """Return whether the client of this thread's call has disconnected."""
    poll = select.poll()
    poll.register(_answering.connection, select.POLLRDHUP)
    return bool(poll.poll(0))


class XmlRpcServer(BackgroundServer):
    """An XML-RPC server that handles each call in a separate thread."""

    def __init__(  # noqa: PLR0913 - settings of the service
        self,
        address: tuple[str, int],
        answer: Answer,
        *,
        tokens: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        bounds: Bounds | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tokens = tokens or {}
        self.health: ReadHealth = lambda: (True, {})
        self.pages: ReadPage | None = None
        self.metrics: ReadMetrics | None = None
        self._wrong = WrongTokens(note)
        handler = _handler(self, answer)
        self.listener = ConnectionServer(
            address, handler, self._identify, self._wrong, bounds or Bounds()
        )
        self.listener.tls = tls
        super().__init__(self.listener)
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        self.url = f"http{'s' if tls else ''}://{shown}:{port}"

    @property
    def tokens(self) -> Mapping[str, str]:
        """Map client names to tokens; empty if calls need no token."""
        return self._tokens

    @property
    def wrong_tokens(self) -> int:
        """Return the number of requests with a wrong token since the start."""
        return self._wrong.total

    def needs_token(self, method: str, path: str) -> bool:
        """Return whether a request needs a token."""
        if method == "POST":
            return True
        if method not in ("GET", "HEAD") or path == "/healthz":
            return False
        is_metrics = urlsplit(path).path == "/metrics" and self.metrics is not None
        return is_metrics or self.pages is not None

    def _identify(self, method: str, path: str, authorization: str | None, address: str) -> Caller:
        """Return the caller of a request. Limits count calls and pages of a client separately."""
        if not self.needs_token(method, path):
            return Caller(f"address {address}", None)
        client = find_client(authorization, self._tokens)
        if client is None:
            return Caller(f"address {address}", None, is_wrong=authorization is not None)
        name = f"{ANYBODY} {address}" if client == ANYBODY else client
        return Caller(f"{'calls' if method == 'POST' else 'pages'} of {name}", name)

    def renew(self, tokens: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        """Use these tokens and this TLS certificate for later connections."""
        self._tokens = tokens
        self.listener.tls = tls


def read_call(body: bytes) -> tuple[str, tuple[Any, ...]]:
    """Parse a call to method name and arguments; raises Fault if the call is malformed.

    A document type is refused, because its entities can expand a few bytes to gigabytes.
    """
    call = Unmarshaller(use_builtin_types=True)
    # The parser has already decoded the document.
    call.xml("", None)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = call.start
    parser.EndElementHandler = call.end
    parser.CharacterDataHandler = call.data
    try:
        parser.Parse(body, True)
        values = call.close()
    except (Error, expat.ExpatError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Fault(_MALFORMED_CODE, f"not an XML-RPC call: {error}") from error
    name = call.getmethodname()
    if name is None:
        raise Fault(_MALFORMED_CODE, "not an XML-RPC call: it has no methodName")
    return name, tuple(values)


def _refuse_doctype(*_: object) -> None:
    raise ValueError("it has a document type, which is not allowed")


def _handler(
    server: XmlRpcServer, answer: Answer
) -> Callable[[PendingConnection], BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            """Set up the handler with the request that the connection loop received."""
            waiting: PendingConnection = self.request
            self.client = waiting.caller.client
            self.connection = waiting.connection
            self.rfile = BufferedReader(BytesIO(waiting.received))
            self.wfile = waiting.connection.makefile("wb")

        def do_POST(self) -> None:
            """Handle an XML-RPC call."""
            client = _require_client(self, self.client)
            if client is None or (body := _read(self)) is None:
                return
            _answering.connection = self.connection
            _reply(self, 200, _run_call(answer, client, body), "text/xml")

        def do_GET(self) -> None:
            """Send a page. /healthz needs no token, because it names no ticket or machine."""
            if self.path != "/healthz":
                _send_page(self, server, self.client)
                return
            is_well, figures = server.health()
            body = json.dumps(figures).encode() + b"\n"
            _reply(self, 200 if is_well else 503, body, "application/json")

        def do_HEAD(self) -> None:
            """Handle HEAD like GET, without a body in the response."""
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
            """Log nothing, so that clients cannot fill the disk."""

    def handle(waiting: PendingConnection) -> BaseHTTPRequestHandler:
        # The handler's argument `request` is the received data, not a socket.
        return Handler(waiting, waiting.address, server.listener)  # type: ignore[arg-type]

    return handle


def find_client(authorization: str | None, tokens: Mapping[str, str]) -> str | None:
    """Return the client with the token in the header; None if the token is wrong."""
    if not tokens:
        return ANYBODY
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, token = b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    expected = tokens.get(name, "")
    is_right = hmac.compare_digest(expected.encode(), token.encode())
    return name if expected and is_right else None


def _send_page(handler: BaseHTTPRequestHandler, server: XmlRpcServer, client: str | None) -> None:
    metrics = server.metrics if urlsplit(handler.path).path == "/metrics" else None
    if server.pages is None and metrics is None:
        body = b"not found: GET /healthz or /metrics, or POST a call\n"
        _reply(handler, 404, body, "text/plain")
    elif _require_client(handler, client) is None:
        return
    elif metrics is not None:
        is_open = "application/openmetrics-text" in handler.headers.get("Accept", "")
        kind = OPENMETRICS if is_open else PLAIN
        _reply(handler, 200, metrics().encode(), kind, {"Cache-Control": "no-store"})
    elif server.pages is not None and (page := server.pages(handler.path)):
        headers = {**_PAGE_HEADERS, "ETag": f'"{page.tag}"'}
        is_known = headers["ETag"] in handler.headers.get("If-None-Match", "")
        _reply(handler, 304 if is_known else 200, page.content, page.kind, headers)
    else:
        _reply(handler, 404, b"there is no such page\n", "text/plain", _PAGE_HEADERS)


def _require_client(handler: BaseHTTPRequestHandler, client: str | None) -> str | None:
    """Return the client of a request. If it is None, respond with status 401."""
    if client is None:
        refusal = {"WWW-Authenticate": 'Basic realm="fleet"'}
        _reply(handler, 401, b"authentication required (NAME:TOKEN)\n", "text/plain", refusal)
    return client


def _read(handler: BaseHTTPRequestHandler) -> bytes | None:
    """Return the body of a request; None if it was refused because of its length."""
    length = body_length(handler.headers.get("Content-Length", ""))
    if length is not None and length <= MOST_BYTES:
        return handler.rfile.read(length)
    why = f"send a Content-Length of at most {MOST_BYTES} bytes\n"
    _reply(handler, 411 if length is None else 413, why.encode(), "text/plain")
    return None


def _run_call(answer: Answer, client: str, body: bytes) -> bytes:
    try:
        name, arguments = read_call(body)
        result: Any = (answer(client, name, arguments),)
    except Fault as fault:
        result = fault
    answered = dumps(result, methodresponse=True, allow_none=True)
    return _INVALID_XML_CHARACTERS.sub("\ufffd", answered).encode()


def _reply(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    kind: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    handler.send_response(status)
    for name, value in {"Content-Type": kind, **(headers or {})}.items():
        handler.send_header(name, value)
    if status != HTTPStatus.NOT_MODIFIED:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD" and status != HTTPStatus.NOT_MODIFIED:
        handler.wfile.write(body)


_MAX_TOKEN_FILE_BYTES = 100_000
_MIN_TOKEN_LENGTH = 20


class Credentials(NamedTuple):
    """Map of client names to tokens, and TLS settings; empty and None if not configured."""

    tokens: Mapping[str, str]
    tls: ssl.SSLContext | None


class CredentialFiles:
    """The files with the tokens, the certificate and the private key of a service."""

    def __init__(
        self,
        tokens: str | None,
        certificate: str | None,
        key: str | None,
        note: Callable[[str], None],
    ) -> None:
        self._tokens = tokens
        self._certificate = certificate
        self._key = key
        self._note = note
        self._refused = ""

    def read(self) -> Credentials:
        """Read all files; raises FileUnreadable if a file is invalid."""
        return Credentials(
            tokens=read_tokens(self._tokens) if self._tokens else {},
            tls=load_tls(self._certificate, self._key) if self._certificate else None,
        )

    def read_again(self) -> Credentials | None:
        """Read all files again; None if a file is invalid. Log the same error only once."""
        try:
            found = self.read()
        except FleetError as error:
            if str(error) != self._refused:
                self._note(f"{error}\nkeeping the previous tokens and certificate")
            self._refused = str(error)
            return None
        self._refused = ""
        return found


def read_tokens(name: str) -> Mapping[str, str]:
    """Map client names to the tokens in a file of NAME TOKEN lines; raises FileUnreadable."""
    lines = LocalFiles().read(name, _MAX_TOKEN_FILE_BYTES).decode(errors="replace").splitlines()
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or ":" in words[0] or len(words[1]) < _MIN_TOKEN_LENGTH:  # noqa: PLR2004 - a name and its token
            raise FileUnreadable(
                f"{name}:{number}: expected NAME TOKEN: a name without a colon, and a token of at "
                f"least {_MIN_TOKEN_LENGTH} letters"
            )
        if words[0] in tokens:
            raise FileUnreadable(f"{name}:{number}: second token for {words[0]}")
        tokens[words[0]] = words[1]
    if not tokens:
        raise FileUnreadable(f"{name}: no clients; expected lines of NAME TOKEN")
    return tokens


def load_tls(certificate: str, key: str | None) -> ssl.SSLContext:
    """Return TLS settings with a certificate chain and private key; raises FileUnreadable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password, OpenSSL would request an encrypted key's password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        raise FileUnreadable(
            f"{certificate}: not a certificate with its private key in PEM: {error.reason}"
        ) from error
    except OSError as error:
        raise FileUnreadable(f"{error.filename or certificate}: {error.strerror}") from error
    return context


_MAX_FAILURES = 3
"""Number of consecutive failed runs from which /healthz returns status 503."""


class Health:
    """The results of the latest runs of `fleet serve`, for /healthz."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._ended: datetime | None = None

    @contextmanager
    def run(self) -> Iterator[None]:
        """Record whether the body, a run, succeeds. A locked fleet does not count as a failure."""
        try:
            yield
        except Locked:
            raise
        except BaseException:
            self._failures += 1
            raise
        self._failures = 0
        self._ended = self._clock.now()

    def tell(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the latest runs succeeded, with figures for /healthz."""
        ended = self._ended.isoformat() if self._ended else None
        figures = {"failed_runs_in_a_row": self._failures, "last_run_ended": ended}
        return self._failures < _MAX_FAILURES, figures
