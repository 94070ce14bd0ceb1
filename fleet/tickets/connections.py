"""Receive requests in one loop without a thread per connection; answer in a thread per request.

The loop accepts connections, performs TLS handshakes and reads requests. A connection without a
complete request after `patience` seconds is closed. If too many connections wait for data, the
oldest is closed first.
"""

import http.client
import re
import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from heapq import heappop, heappush
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from itertools import count
from socket import AF_INET, AF_INET6
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from fleet.queues.http import ThreadedServer
from fleet.tickets.refusals import WrongTokens, network_of

MOST_BYTES = 64 * 1024
"""Maximum bytes of the body of a request."""
_MAX_HEAD_BYTES = 64 * 1024
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_MAX_DRAINED_BYTES = 1024 * 1024
_MAX_LENGTH_DIGITS = 9
_PART_BYTES = 64 * 1024
_ACCEPTED_AT_ONCE = 32
"""Maximum connections to accept in a row, before the loop reads from other connections."""


@dataclass(frozen=True)
class Bounds:
    """Limits of the server."""

    calls: int = 2_000
    """Maximum requests to answer concurrently, each in a thread."""
    idle: int = 1_000
    """Maximum connections that have not sent a complete request."""
    patience: float = 30
    """Seconds after which a connection without a complete request is closed."""


class Caller(NamedTuple):
    """The sender of a request, as far as the server knows."""

    key: str
    """Identity for the limit of concurrent requests per caller."""
    client: str | None
    """Name of the client with this token; None if the token is wrong or not needed."""
    is_wrong: bool = False
    """Whether the request needs a valid token but has an invalid one."""


_UNKNOWN = Caller("", None)
Identify = Callable[[str, str, str | None, str], Caller]
"""Function that identifies the caller by method, path, Authorization header and address."""


@dataclass(eq=False)
class PendingConnection:
    """A connection whose request is not complete, with the received part of the request."""

    connection: socket.socket
    address: tuple[Any, ...]
    until: float
    network: str
    is_shaken: bool
    received: bytearray = field(default_factory=bytearray)
    caller: Caller = _UNKNOWN
    has_head: bool = False
    """Whether all headers were received, so that `caller` is known."""
    missing: int = 0
    """Number of bytes of the body not yet received."""
    is_kept: bool = True
    """Whether to keep the body. The body of a refused request is discarded."""

    @property
    def is_complete(self) -> bool:
        """Return whether the complete request was received."""
        return self.has_head and self.missing <= 0


class Places:
    """A limited number of places for concurrent requests, which callers share.

    A caller may hold at most `share` times as many places as are free. With share 3, a single
    caller holds at most 3/4 of all places, and each of two callers 3/7.
    """

    def __init__(self, total: int, share: int = 3) -> None:
        self._total = total
        self._share = share
        self._held: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, key: str) -> bool:
        """Occupy a place for a caller. Return False if the caller already has its full share."""
        with self._lock:
            free = self._total - self._held.total()
            if self._held[key] >= self._share * free:
                return False
            self._held[key] += 1
            return True

    def release(self, key: str) -> None:
        """Release one place of a caller."""
        with self._lock:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]


class ConnectionServer(ThreadedServer):
    """A server that reads requests in one loop, over TLS if `tls` is set."""

    block_on_close = False
    # Hundreds of builders may connect at the same time.
    request_queue_size = 1024

    def __init__(
        self,
        address: tuple[str, int],
        handler: Callable[[PendingConnection], BaseHTTPRequestHandler],
        identify: Identify,
        wrong: WrongTokens,
        bounds: Bounds,
    ) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.tls: ssl.SSLContext | None = None
        self._answer = handler
        self._identify = identify
        self._wrong = wrong
        self._bounds = bounds
        self._places = Places(bounds.calls)
        self._waiting: dict[PendingConnection, None] = {}
        """Connections without a complete request, the oldest first."""
        self._of_network: dict[str, dict[PendingConnection, None]] = {}
        self._delayed: list[tuple[float, int, PendingConnection]] = []
        self._numbers = count()
        self._stopped = Event()
        self._selector = selectors.DefaultSelector()
        self._inner, self._outer = socket.socketpair()
        super().__init__(address, BaseHTTPRequestHandler)

    # The loop.

    def serve_forever(self, poll_interval: float = 0.5) -> None:  # noqa: ARG002 - socketserver's own argument
        """Run the loop until another thread calls `shutdown`."""
        self.socket.setblocking(False)
        self._selector.register(self.socket, selectors.EVENT_READ)
        self._selector.register(self._inner, selectors.EVENT_READ)
        while not self._stopped.is_set():
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj is self.socket:
                    self._accept_connections()
                elif isinstance(key.data, PendingConnection) and key.data in self._waiting:
                    self._advance(key.data)
            self._expire()
        for each in [*self._waiting, *(each for _, _, each in self._delayed)]:
            self._close(each)

    def shutdown(self) -> None:
        """Stop the loop."""
        self._stopped.set()
        self._outer.send(b"x")

    def server_close(self) -> None:
        """Close the sockets, after the loop has stopped."""
        super().server_close()
        self._selector.close()
        self._inner.close()
        self._outer.close()

    def _pause(self) -> float:
        """Return the seconds until the next time limit of the loop."""
        first = next(iter(self._waiting), None)
        moments = [first.until] if first else []
        moments += [self._delayed[0][0]] if self._delayed else []
        moments += [self._wrong.next_report] if self._wrong.next_report else []
        return max(0.0, min(moments, default=time.monotonic() + 60) - time.monotonic())

    def _expire(self) -> None:
        """Close expired connections, and answer requests whose delay is over."""
        now = time.monotonic()
        while (first := next(iter(self._waiting), None)) and first.until <= now:
            self._close(first)
        while self._delayed and self._delayed[0][0] <= now:
            self._hand_over(heappop(self._delayed)[2])
        self._wrong.report(now)

    # One connection.

    def _accept_connections(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError:
                # No file descriptor is free: close the oldest connection to free one.
                if oldest := next(iter(self._waiting), None):
                    self._close(oldest)
                else:
                    time.sleep(0.01)
                return
            self._admit(connection, address)

    def _admit(self, connection: socket.socket, address: tuple[Any, ...]) -> None:
        """Add a new connection. If too many wait, close the oldest connection first."""
        network = network_of(str(address[0]))
        ours = self._of_network.get(network, {})
        if len(ours) >= max(1, self._bounds.idle * 3 // 4):
            self._close(next(iter(ours)))
        if len(self._waiting) >= self._bounds.idle - len(self._delayed):
            self._close(next(iter(self._waiting)))
        connection.setblocking(False)
        tls = self.tls
        until = time.monotonic() + self._bounds.patience
        try:
            if tls is not None:
                connection = tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            waiting = PendingConnection(connection, address, until, network, is_shaken=tls is None)
            self._selector.register(connection, selectors.EVENT_READ, waiting)
        except (OSError, ValueError):
            connection.close()
            return
        self._waiting[waiting] = None
        self._of_network.setdefault(network, {})[waiting] = None

    def _advance(self, waiting: PendingConnection) -> None:
        """Continue a connection's TLS handshake, or read more of its request."""
        wanted = selectors.EVENT_READ
        try:
            if not waiting.is_shaken and isinstance(waiting.connection, ssl.SSLSocket):
                waiting.connection.do_handshake()
                waiting.is_shaken = True
            while not waiting.is_complete:
                part = waiting.connection.recv(_PART_BYTES)
                if not part:
                    self._close(waiting)
                    return
                self._take(waiting, part)
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        except ssl.SSLWantWriteError:
            wanted = selectors.EVENT_WRITE
        except Exception as error:  # noqa: BLE001 - one connection must not end the loop
            if not isinstance(error, OSError):
                self.handle_error(waiting.connection, waiting.address)
            self._close(waiting)
            return
        if waiting.is_complete:
            self._leave(waiting)
            self._finish(waiting)
        elif self._selector.get_key(waiting.connection).events != wanted:
            self._selector.modify(waiting.connection, wanted, waiting)

    def _take(self, waiting: PendingConnection, part: bytes) -> None:
        """Add received bytes to the request of a connection."""
        if waiting.has_head:
            waiting.missing -= len(part)
            if waiting.is_kept:
                waiting.received += part
            return
        start = max(0, len(waiting.received) - 3)
        waiting.received += part
        if found := _END_OF_HEAD.search(waiting.received, start):
            self._read_head(waiting, found.end())
        elif len(waiting.received) > _MAX_HEAD_BYTES:
            self._read_head(waiting, len(waiting.received))

    def _read_head(self, waiting: PendingConnection, end: int) -> None:
        """Read the caller and the length of the body from the received headers."""
        line, _, rest = bytes(waiting.received[:end]).partition(b"\n")
        method, path, *_ = (*line.decode("latin-1").split(), "", "")
        try:
            headers: Message = http.client.parse_headers(BytesIO(rest))
        except (http.client.HTTPException, ValueError):
            headers = Message()
        address = str(waiting.address[0])
        authorization = headers.get("Authorization")
        waiting.has_head = True
        waiting.caller = self._identify(method, path, authorization, address)
        length = body_length(headers.get("Content-Length", "")) if method == "POST" else 0
        # Read the body even if the request is refused: a client that still sends reads no answer.
        waiting.missing = min(length or 0, _MAX_DRAINED_BYTES) - (len(waiting.received) - end)
        waiting.is_kept = (length or 0) <= MOST_BYTES and waiting.caller.client is not None

    def _finish(self, waiting: PendingConnection) -> None:
        """Answer a complete request, after a delay if its token is wrong.

        At most a quarter of the waiting connections have a delayed answer.
        """
        delay = 0.0
        if waiting.caller.is_wrong:
            delay = self._wrong.count(str(waiting.address[0]), time.monotonic())
        if delay and len(self._delayed) >= self._bounds.idle // 4:
            self._close(waiting)
        elif delay:
            moment = time.monotonic() + delay
            heappush(self._delayed, (moment, next(self._numbers), waiting))
        else:
            self._hand_over(waiting)

    def _hand_over(self, waiting: PendingConnection) -> None:
        """Answer a request in a thread, or refuse it if the caller already holds its share."""
        if self._places.take(waiting.caller.key):
            try:
                Thread(target=self._answer_in_thread, args=(waiting,), daemon=True).start()
            except RuntimeError:  # the system is out of threads
                self._places.release(waiting.caller.key)
            else:
                return
        with suppress(OSError):
            waiting.connection.send(
                b"HTTP/1.0 503 Too many calls at once\r\nContent-Length: 0\r\n\r\n"
            )
        self.shutdown_request(waiting.connection)

    def _answer_in_thread(self, waiting: PendingConnection) -> None:
        try:
            waiting.connection.settimeout(self._bounds.patience)
            self._answer(waiting)
        except Exception:  # noqa: BLE001 - printed like errors of other servers
            self.handle_error(waiting.connection, waiting.address)
        finally:
            self.shutdown_request(waiting.connection)
            self._places.release(waiting.caller.key)

    def _leave(self, waiting: PendingConnection) -> None:
        """Stop waiting for data from a connection, but do not close the connection."""
        self._waiting.pop(waiting, None)
        ours = self._of_network.get(waiting.network, {})
        ours.pop(waiting, None)
        if not ours:
            self._of_network.pop(waiting.network, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(waiting.connection)

    def _close(self, waiting: PendingConnection) -> None:
        """Close a connection without an answer."""
        self._leave(waiting)
        with suppress(OSError):
            waiting.connection.close()


def body_length(text: str) -> int | None:
    """Parse the length in a Content-Length header; None if the header is invalid.

    Only the first digits of a long number count. They are more than any body may have. Leading
    zeros do not count: else the end of a body would be read as the next request.
    """
    is_number = text.isascii() and text.isdigit()
    return int(text.lstrip("0")[:_MAX_LENGTH_DIGITS] or 0) if is_number else None
