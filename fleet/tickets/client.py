"""Call a `fleet serve`, or a Resalloc server, for tickets over XML-RPC.

The client sends the token in a header of each call, and reads it from a file that only the user
can read. A token in an address or an argument would be visible in logs and to other users.
"""

import argparse
import http.client
import ipaddress
import netrc
import os
import ssl
from base64 import b64encode
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xmlrpc.client import Error, Fault, ProtocolError, SafeTransport, ServerProxy, Transport

from fleet.errors import FileUnreadable, SourceUnreachable, TicketRefused, WrongUsage
from fleet.ports import Clock, Console, Waiter
from fleet.schema.units import read_duration

_TIMEOUT_SECONDS = 60
_GROUP_AND_OTHERS = 0o077
_UNAUTHORIZED = 401


class TicketServer:
    """A ticket server at a URL. Calls raise TicketRefused if the server refuses them."""

    def __init__(self, url: str, netrc_file: str | None) -> None:
        host = _host_of(url)
        found = _find_login(host, netrc_file)
        if found and urlsplit(url).scheme != "https" and not _is_loopback(host):
            raise WrongUsage(
                f"--server {url}: the token for {host} in {netrc_file or '~/.netrc'} is sent over "
                "https:// only"
            )
        basic = b64encode(":".join(found).encode()).decode() if found else ""
        self._headers = [("Authorization", f"Basic {basic}")] if found else []
        self._url = url
        self._netrc = netrc_file or "~/.netrc"

    def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - what XML-RPC holds
        """Call a method of the server and return its result; may raise SourceUnreachable."""
        try:
            with ServerProxy(self._url, transport=self._transport()) as server:
                return getattr(server, name)(*arguments)
        except Fault as fault:
            raise TicketRefused(f"{self._url}: {fault.faultString}") from fault
        except ProtocolError as error:
            if error.errcode == _UNAUTHORIZED:
                why = (
                    f"does not recognise the token in {self._netrc}; correct the line"
                    if self._headers
                    else f"requires a token; add to {self._netrc} (or --netrc FILE) a line"
                )
                raise TicketRefused(
                    f"{self._url} {why} `machine HOST login NAME password TOKEN`"
                ) from error
            raise SourceUnreachable(f"{self._url}: {error.errcode} {error.errmsg}") from error
        except (OSError, http.client.HTTPException, Error) as error:
            raise SourceUnreachable(f"{self._url} cannot be reached: {error}") from error

    def _transport(self) -> Transport:
        if not self._url.startswith("https:"):
            return _HttpTransport(headers=self._headers)
        return _HttpsTransport(headers=self._headers, context=ssl.create_default_context())


class _HttpTransport(Transport):
    def make_connection(self, host: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - typeshed's
        """Return a connection with a time limit."""
        connection = super().make_connection(host)
        connection.timeout = _TIMEOUT_SECONDS
        return connection


class _HttpsTransport(SafeTransport):
    def make_connection(self, host: Any) -> http.client.HTTPSConnection:  # noqa: ANN401 - typeshed's
        """Return a connection with a time limit."""
        connection = super().make_connection(host)
        connection.timeout = _TIMEOUT_SECONDS
        return connection


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, login = parts.hostname, parts.username or parts.password
        _ = parts.port
    except ValueError:
        host, login = None, None
    if login:
        raise WrongUsage(
            "--server: every user of this computer can see a token in an address: write it to "
            "~/.netrc (mode 0600), or to a file named with --netrc"
        )
    if not host or not url.startswith(("http://", "https://")):
        raise WrongUsage(f"--server {url}: expected http://HOST:PORT or https://HOST:PORT")
    return host


def _find_login(host: str, file: str | None) -> Sequence[str] | None:
    """Return the name and token for a host; None without a file or a line for the host."""
    path = Path(file) if file else Path(os.path.expanduser("~/.netrc"))  # noqa: PTH111 - without HOME, ~ stays
    try:
        mode = path.stat().st_mode
        entry = netrc.netrc(str(path)).authenticators(host)
    except FileNotFoundError as error:
        if file is None:
            return None
        raise FileUnreadable(f"{path}: no such file or directory") from error
    except OSError as error:
        raise FileUnreadable(f"{path}: {error.strerror}") from error
    except (netrc.NetrcParseError, UnicodeDecodeError) as error:
        # Do not show the error's text, which may contain the token.
        line = f":{error.lineno}" if isinstance(error, netrc.NetrcParseError) else ""
        raise FileUnreadable(
            f"{path}{line}: expected lines of `machine HOST login NAME password TOKEN`"
        ) from None
    if entry is None:
        return None
    if mode & _GROUP_AND_OTHERS:
        raise FileUnreadable(f"{path}: other users can read or write it: chmod 600 {path}")
    return entry[0], entry[2]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_POLL_SECONDS = 3
_UNSUPPORTED_OPTIONS = (
    "owner",
    "build",
    "team",
    "priority",
    "background",
    "lease",
    "user",
    "queue",
    "built",
)
"""Options that no call of Resalloc's interface has an argument for."""


def run(args: argparse.Namespace, console: Console, waiter: Waiter, clock: Clock) -> int:
    """Run an action at the server; return 0 on success, and 1 if the ticket is not ready."""
    more = [name for name in _UNSUPPORTED_OPTIONS if getattr(args, name, None)]
    if more:
        raise WrongUsage(
            f"--{more[0]}: not allowed with --server, which gets tags and a sandbox only; the "
            "submitter is part of the sandbox, as in OWNER/PROJECT--SUBMITTER"
        )
    server = TicketServer(args.server, args.netrc)
    match args.action:
        case "open":
            sandbox = [args.sandbox] if args.sandbox else []
            console.out(str(server.call("takeTicket", sorted(set(args.tag)), *sandbox)))
            return 0
        case "close":
            if not server.call("closeTicket", args.ticket):
                console.note(f"ticket {args.ticket} was not open")
            return 0
        case "wait":
            return _wait(args, console, server, waiter, clock)
        case _:
            return _check(args.ticket, console, server.call("collectTicket", args.ticket))


def _wait(
    args: argparse.Namespace, console: Console, server: TicketServer, waiter: Waiter, clock: Clock
) -> int:
    seconds = None if args.most is None else read_duration(args.most)
    if args.most is not None and seconds is None:
        raise WrongUsage(f"--for {args.most}: expected a duration like 90s or 10m")
    began = clock.now()
    while True:
        found = server.call("collectTicket", args.ticket)
        is_over = seconds is not None and clock.now() - began >= timedelta(seconds=seconds)
        if is_over or not _is_waiting(found):
            return _check(args.ticket, console, found)
        if not waiter.wait(_POLL_SECONDS):
            raise KeyboardInterrupt


def _is_waiting(found: object) -> bool:
    return (
        isinstance(found, dict)
        and not (found.get("ready") or found.get("closed") or found.get("failed"))
        and found.get("ready") is not None
    )


def _check(number: str, console: Console, found: object) -> int:
    """Print the answer of a ready ticket and return 0, or print its state and return 1."""
    if not isinstance(found, dict) or found.get("ready") is None:
        raise TicketRefused(f"the server has no ticket {number} of this client")
    for word in ("closed", "failed"):
        if found.get(word):
            console.note(f"ticket {number} is {word}")
            return 1
    if not found["ready"]:
        console.note(f"ticket {number} waits")
        return 1
    console.out(str(found.get("output") or "").rstrip("\n"))
    return 0
