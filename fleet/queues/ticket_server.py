"""This module asks a `fleet serve`, or a Resalloc, for tickets over XML-RPC.

Its token is in a header of each call, from a file that only its owner reads: never in an address
or an argument, which other users of this computer and logs would see.
"""

import http.client
import ipaddress
import netrc
import os
import ssl
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xmlrpc.client import Error, Fault, ProtocolError, SafeTransport, ServerProxy, Transport

from fleet.errors import FileUnreadable, SourceUnreachable, TicketRefused, WrongUsage

_SECONDS = 60
_PRIVATE = 0o077
_UNAUTHORIZED = 401


class TicketServer:
    """A server of tickets at an address; TicketRefused where it refuses a call."""

    def __init__(self, url: str, netrc_file: str | None) -> None:
        host = _host_of(url)
        found = _find_login(host, netrc_file)
        if found and urlsplit(url).scheme != "https" and not _is_here(host):
            raise WrongUsage(
                f"--server {url}: {netrc_file or '~/.netrc'} has a token for {host}, which would "
                "be sent in clear: give an https:// address"
            )
        basic = b64encode(":".join(found).encode()).decode() if found else ""
        self._headers = [("Authorization", f"Basic {basic}")] if found else []
        self._url = url
        self._netrc = netrc_file or "~/.netrc"

    def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - what XML-RPC holds
        """Return what the server answers."""
        try:
            with ServerProxy(self._url, transport=self._transport()) as server:
                return getattr(server, name)(*arguments)
        except Fault as fault:
            raise TicketRefused(f"{self._url}: {fault.faultString}") from fault
        except ProtocolError as error:
            if error.errcode == _UNAUTHORIZED:
                raise TicketRefused(
                    f"{self._url} asks for a token: write a line `machine HOST login NAME "
                    f"password TOKEN` to {self._netrc}, or name such a file with --netrc"
                ) from error
            raise SourceUnreachable(f"{self._url}: {error.errcode} {error.errmsg}") from error
        except (OSError, http.client.HTTPException, Error) as error:
            raise SourceUnreachable(f"{self._url} cannot be reached: {error}") from error

    def _transport(self) -> Transport:
        if not self._url.startswith("https:"):
            return _Plain(headers=self._headers)
        return _Secret(headers=self._headers, context=ssl.create_default_context())


class _Plain(Transport):
    def make_connection(self, host: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - typeshed's
        """Return a connection that does not wait for ever."""
        connection = super().make_connection(host)
        connection.timeout = _SECONDS
        return connection


class _Secret(SafeTransport):
    def make_connection(self, host: Any) -> http.client.HTTPSConnection:  # noqa: ANN401 - typeshed's
        """Return a connection that does not wait for ever."""
        connection = super().make_connection(host)
        connection.timeout = _SECONDS
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
            "--server: an address with a token in it is seen by every user of this computer: "
            "write the token to ~/.netrc (mode 0600), or to a file named with --netrc"
        )
    if not host or not url.startswith(("http://", "https://")):
        raise WrongUsage(f"--server {url}: expected http://HOST:PORT or https://HOST:PORT")
    return host


def _find_login(host: str, file: str | None) -> Sequence[str] | None:
    """Return the name and token for a host; None where no file, or no line of it, has any."""
    path = Path(file) if file else Path(os.path.expanduser("~/.netrc"))  # noqa: PTH111 - without a home it stays as it is
    try:
        mode = path.stat().st_mode
        entry = netrc.netrc(str(path)).authenticators(host)
    except FileNotFoundError as error:
        if file is None:
            return None
        raise FileUnreadable(f"{path}: there is no such file or directory") from error
    except OSError as error:
        raise FileUnreadable(f"{path}: {error.strerror}") from error
    except (netrc.NetrcParseError, UnicodeDecodeError) as error:
        # What the error says may be the token.
        line = f":{error.lineno}" if isinstance(error, netrc.NetrcParseError) else ""
        raise FileUnreadable(
            f"{path}{line}: expected lines of `machine HOST login NAME password TOKEN`"
        ) from None
    if entry is None:
        return None
    if mode & _PRIVATE:
        raise FileUnreadable(f"{path}: others may read or write it: chmod 600 {path}")
    return entry[0], entry[2]


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
