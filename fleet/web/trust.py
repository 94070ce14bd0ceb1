"""This module knows whose certificates are believed, as httpx would read it each time anew."""

import os
import ssl
from functools import lru_cache
from pathlib import Path

import httpx

_SETTINGS = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def trusted() -> ssl.SSLContext:
    """Return what connections are checked with: read once, for that outlasts most answers.

    Another setting, or another file under the same name, is read too.
    """
    return _read(tuple((os.environ.get(name), _changed(name)) for name in _SETTINGS))


def _changed(name: str) -> object:
    """Return what another file has otherwise: two may be written within one tick of the clock."""
    try:
        found = Path(os.environ[name]).stat()
    except (KeyError, OSError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _read(_: object) -> ssl.SSLContext:
    return httpx.create_ssl_context()
