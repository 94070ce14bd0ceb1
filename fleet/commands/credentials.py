"""This module reads who may ask `fleet serve`, and what proves it to be that, as files say now."""

import argparse
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from fleet.errors import FileUnreadable, FleetError
from fleet.ports import Console
from fleet.store.files import LocalFiles

_MOST_TOKEN_BYTES = 100_000
_LEAST_LETTERS = 20


class Credentials(NamedTuple):
    """The clients' tokens, and how this server proves to be itself; empty or None: neither."""

    tokens: Mapping[str, str]
    tls: ssl.SSLContext | None


class CredentialFiles:
    """The files of tokens, certificate and key that a service was started with."""

    def __init__(self, args: argparse.Namespace, console: Console) -> None:
        self._args = args
        self._console = console
        self._refused = ""

    def read(self) -> Credentials:
        """Return what the files say; FileUnreadable where that is wrong."""
        args = self._args
        return Credentials(
            tokens=read_tokens(args.tokens) if args.tokens else {},
            tls=load_tls(args.certificate, args.key) if args.certificate else None,
        )

    def read_again(self) -> Credentials | None:
        """Return what the files say by now; None where that is wrong, and it is told once."""
        try:
            found = self.read()
        except FleetError as error:
            if str(error) != self._refused:
                self._console.note(f"{error}\ngoing on with the tokens and certificate of before")
            self._refused = str(error)
            return None
        self._refused = ""
        return found


def read_tokens(name: str) -> Mapping[str, str]:
    """Return the clients and their tokens that a file names, one in a line."""
    lines = LocalFiles().read(name, _MOST_TOKEN_BYTES).decode(errors="replace").splitlines()
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or ":" in words[0] or len(words[1]) < _LEAST_LETTERS:  # noqa: PLR2004 - a name and its token
            raise FileUnreadable(
                f"{name}:{number}: expected NAME TOKEN, the name without a colon, the token of "
                f"{_LEAST_LETTERS} letters or more"
            )
        if words[0] in tokens:
            raise FileUnreadable(f"{name}:{number}: {words[0]} has a token already")
        tokens[words[0]] = words[1]
    if not tokens:
        raise FileUnreadable(f"{name}: it names no client: expected lines of NAME TOKEN")
    return tokens


def load_tls(certificate: str, key: str | None) -> ssl.SSLContext:
    """Return how to prove to be this server, by a chain and its private key in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key that is encrypted would be asked for at a terminal that nobody watches.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        raise FileUnreadable(
            f"{certificate}: no certificate with its private key in PEM: {error.reason}"
        ) from error
    except OSError as error:
        raise FileUnreadable(f"{error.filename or certificate}: {error.strerror}") from error
    return context
