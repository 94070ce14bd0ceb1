"""This module reads the lists of packages of an APT source: package to its newest version.

Nothing is verified here: what they say decides only whether an image is built anew, and apt
verifies whatever is installed then.
"""

import gzip
import lzma
import zlib
from collections.abc import Iterable
from io import BytesIO
from typing import Protocol

from fleet.debian_versions import version_key
from fleet.errors import SourceUnreachable
from fleet.updates import Source

_SECONDS = 60
_NOT_FOUND = 404
_MOST_BYTES = 100 * 1000 * 1000


class _Opener(Protocol):
    def __call__(self, packed: BytesIO, /) -> Iterable[bytes]: ...


_FORMS: tuple[tuple[str, _Opener], ...] = ((".xz", lzma.open), (".gz", gzip.open))


def read_index(source: Source) -> dict[str, str]:
    """Return every package with its newest version; empty where there is no such list.

    Raises SourceUnreachable where the archive does not answer, or answers garbage.
    """
    folder = f"dists/{source.suite}/{source.component}/binary-{source.architecture}"
    base = f"{source.uri.rstrip('/')}/{folder}/Packages"
    for ending, unpack in _FORMS:
        packed = _fetch(base + ending)
        if packed is not None:
            try:
                return _newest(unpack(BytesIO(packed)))
            except (lzma.LZMAError, zlib.error, OSError, EOFError, UnicodeDecodeError) as error:
                raise SourceUnreachable(
                    f"{base}{ending} is no list of packages: {error}"
                ) from error
    return {}


def _fetch(url: str) -> bytes | None:
    """Return what is there; None where nothing is."""
    import httpx

    try:
        with httpx.stream("GET", url, timeout=_SECONDS, follow_redirects=True) as answer:
            if answer.status_code == _NOT_FOUND:
                return None
            if answer.is_error:
                raise SourceUnreachable(f"{url} answers {answer.status_code}")
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > _MOST_BYTES:
                    raise SourceUnreachable(f"{url} is larger than any list of packages")
            return bytes(content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceUnreachable(f"{url} does not answer: {error}") from error


def _newest(lines: Iterable[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.startswith(b"Package: "):
            name = line[9:].strip().decode()
        elif line.startswith(b"Version: "):
            version = line[9:].strip().decode()
            if name not in found or version_key(version) > version_key(found[name]):
                found[name] = version
    return found
