"""This module reads the lists of packages of an APT source: package to its newest version.

Nothing is verified here: what they say decides only whether an image is built anew, and apt
verifies whatever is installed then. What was read is kept as long as the archive says that it is
the same.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, Protocol

from fleet.canonical import digest
from fleet.errors import SourceUnreachable
from fleet.promotion.debian_versions import version_key
from fleet.promotion.updates import Source

_SECONDS = 60
_NOT_FOUND, _NOT_MODIFIED = 404, 304
_MOST_BYTES = 100 * 1000 * 1000


class _Opener(Protocol):
    def __call__(self, packed: BytesIO, /) -> Iterable[bytes]: ...


class _Kept(NamedTuple):
    """A list as it was read before."""

    asked: dict[str, str]
    """Request headers that ask whether it is another one now."""
    versions: dict[str, str]


class _Answer(NamedTuple):
    packed: bytes | None
    """None: it is the same as before."""
    asks: dict[str, str]
    """Request headers that ask later whether it is another one then."""


_FORMS: tuple[tuple[str, _Opener], ...] = ((".xz", lzma.open), (".gz", gzip.open))


def read_index(source: Source, cache: Path) -> dict[str, str]:
    """Return every package with its newest version; empty where there is no such list.

    What was read is kept in that folder. Raises SourceUnreachable where the archive does not
    answer, or answers garbage.
    """
    folder = f"dists/{source.suite}/{source.component}/binary-{source.architecture}"
    base = f"{source.uri.rstrip('/')}/{folder}/Packages"
    for ending, unpack in _FORMS:
        place = cache / f"{digest(base + ending)}.json"
        kept = _read_kept(place)
        answer = _fetch(base + ending, kept.asked)
        if answer is None:
            continue
        if answer.packed is None:
            return kept.versions
        try:
            found = _newest(unpack(BytesIO(answer.packed)))
        except (lzma.LZMAError, zlib.error, OSError, EOFError, UnicodeDecodeError) as error:
            raise SourceUnreachable(f"{base}{ending} is no list of packages: {error}") from error
        if answer.asks:
            _keep(place, _Kept(answer.asks, found))
        return found
    return {}


def _read_kept(place: Path) -> _Kept:
    """Return what was kept; nothing where it is not there, or was written by half."""
    with suppress(OSError, ValueError, TypeError):
        return _Kept(**json.loads(place.read_text(encoding="utf-8")))
    return _Kept({}, {})


def _keep(place: Path, kept: _Kept) -> None:
    partial = place.with_suffix(".partial")
    with suppress(OSError):  # it is read again then
        place.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(kept._asdict()), encoding="utf-8")
        partial.replace(place)


def _fetch(url: str, asked: Mapping[str, str]) -> _Answer | None:
    """Return what is there; None where nothing is."""
    import httpx

    from fleet.web.trust import trusted

    try:
        with httpx.stream(
            "GET",
            url,
            headers=dict(asked),
            timeout=_SECONDS,
            follow_redirects=True,
            verify=trusted(),
        ) as answer:
            if answer.status_code == _NOT_FOUND:
                return None
            if asked and answer.status_code == _NOT_MODIFIED:
                return _Answer(None, {})
            if answer.is_error:
                raise SourceUnreachable(f"{url} answers {answer.status_code}")
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > _MOST_BYTES:
                    raise SourceUnreachable(f"{url} is larger than any list of packages")
            return _Answer(bytes(content), _asks(answer.headers))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceUnreachable(f"{url} does not answer: {error}") from error


def _asks(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what asks an archive whether a file is another one than what it answered."""
    if tag := headers.get("ETag"):
        return {"If-None-Match": tag}
    if moment := headers.get("Last-Modified"):
        return {"If-Modified-Since": moment}
    return {}


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
