"""Read the APT sources of a root file system, and the current state of their archive.

The state is the digest of the archive's signed Release files. While the state is unchanged, apt
installs the same packages.

This module verifies no signature: the state decides only whether an image is rebuilt, and apt
verifies all packages that it installs.
"""

import gzip
import hashlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path

from fleet.errors import FleetError, SourceUnreachable
from fleet.model.apt_sources import Source, archives, version_key
from fleet.model.values import digest

_SIGNED = b"-----BEGIN PGP SIGNED MESSAGE-----"
_DATE = re.compile(rb"^Date: (.+)$", re.MULTILINE)
_DEBIAN = "http://deb.debian.org/debian"
_DEBIAN_SECURITY = "http://security.debian.org/debian-security"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TRUSTED_KEYS = Path("/etc/apt/trusted.gpg.d")
_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 100 * 1000 * 1000
_SUITES_WITHOUT_UPDATES = ("sid", "unstable", "experimental")
_MIRROR_ADVICE = "name a mirror that works: --mirror URL, FLEET_MIRROR, or `mirror` in the recipe"


@dataclass(frozen=True)
class Archive:
    """The APT sources of a root file system, and the state of their archives."""

    lines: tuple[str, ...]
    state: str
    epoch: int
    """Unix time of the archive's last change. All files of an image get this time."""
    absent: tuple[str, ...] = ()
    """Update and security suites of a stable suite that this mirror does not have."""


def archive_of(suite: str, mirror: str | None) -> Archive:
    """Return the sources of a suite and their state; raises SourceUnreachable or FleetError."""
    found: dict[str, bytes] = {}
    absent = []
    # As mmdebstrap does: apt on Ubuntu does not trust Debian's keys. A mirror may have other keys.
    is_trusted = mirror or not _KEYRING.exists() or any(_TRUSTED_KEYS.glob("debian-archive-*"))
    option = "" if is_trusted else f'[signed-by="{_KEYRING}"] '
    for uri, name in mirror_suites(suite, mirror):
        line = f"deb {option}{uri} {name} main"
        release = _get(f"{uri}/dists/{name}/InRelease")
        if release is not None and not (release.startswith(_SIGNED) and _DATE.search(release)):
            raise SourceUnreachable(
                f"{uri} is no Debian archive: what it answers for dists/{name}/InRelease is no "
                f"signed Release file; {_MIRROR_ADVICE}"
            )
        if release is not None:
            found[line] = release
        elif name == suite:
            raise FleetError(
                f"{uri} has no suite {suite}: there is no dists/{suite}/InRelease; correct "
                f"`suite` in the recipe, or {_MIRROR_ADVICE}"
            )
        else:
            absent.append(line)
    digests = {line: hashlib.sha256(text).hexdigest() for line, text in found.items()}
    dates = [b"".join(_DATE.findall(text)[:1]).decode(errors="replace") for text in found.values()]
    try:
        # The Debian repository format requires UTC.
        moments = [parsedate_to_datetime(each.strip()) for each in dates]
    except ValueError:
        raise SourceUnreachable(
            f"a Release file has no date that can be read: {', '.join(dates)}"
        ) from None
    epoch = max(int(each.replace(tzinfo=UTC).timestamp()) for each in moments)
    return Archive(tuple(found), digest(digests), epoch, tuple(sorted(absent)))


def state_of(source: str) -> str | None:
    """Return the state of the archives in a deb822 source; None if an archive is unreadable."""
    found = {}
    for uri, suite in archives(source):
        place = f"{uri.rstrip('/')}/{suite if suite.endswith('/') else f'dists/{suite}/'}"
        try:
            signed = _get(f"{place}InRelease") or _get(f"{place}Release")
        except SourceUnreachable:
            return None
        if signed is None:
            return None
        found[f"{uri} {suite}"] = hashlib.sha256(signed).hexdigest()
    return digest(found)


def mirror_suites(suite: str, mirror: str | None) -> list[tuple[str, str]]:
    """Return (URI, name) of a suite, its updates suite and its security suite.

    Without a mirror, they are in the archives of Debian itself.
    """
    base = (mirror or _DEBIAN).rstrip("/")
    if suite in _SUITES_WITHOUT_UPDATES:
        return [(base, suite)]
    security = f"{base}-security" if mirror else _DEBIAN_SECURITY
    return [(base, suite), (base, f"{suite}-updates"), (security, f"{suite}-security")]


def _get(url: str) -> bytes | None:
    """Return the content of a URL; None for status 404, SourceUnreachable for other errors."""
    import httpx

    from fleet.queues.http import trusted

    try:
        with (
            httpx.Client(
                timeout=_TIMEOUT_SECONDS, follow_redirects=True, verify=trusted()
            ) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            if not answer.is_success:
                raise SourceUnreachable(f"{url} answers {answer.status_code}; {_MIRROR_ADVICE}")
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > _MAX_BYTES:
                    raise SourceUnreachable(f"{url} is larger than any list of packages")
            return bytes(content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceUnreachable(f"{url} does not answer: {error}; {_MIRROR_ADVICE}") from error


_Opener = Callable[[BytesIO], Iterable[bytes]]
_DECOMPRESSORS: tuple[tuple[str, _Opener], ...] = ((".xz", lzma.open), (".gz", gzip.open))


def read_index(source: Source) -> dict[str, str]:
    """Map package names to newest versions; empty if the archive has no such list.

    Raises SourceUnreachable if the archive does not respond or its list is invalid.
    """
    folder = f"dists/{source.suite}/{source.component}/binary-{source.architecture}"
    base = f"{source.uri.rstrip('/')}/{folder}/Packages"
    for ending, unpack in _DECOMPRESSORS:
        url = base + ending
        if (packed := _get(url)) is None:
            continue
        found, name = dict[str, str](), ""
        try:
            for line in unpack(BytesIO(packed)):
                key, _, text = line.partition(b": ")
                if key == b"Package":
                    name = text.strip().decode()
                elif key == b"Version":
                    version = text.strip().decode()
                    known = found.setdefault(name, version)
                    if version != known:
                        found[name] = max(known, version, key=version_key)
        except (lzma.LZMAError, zlib.error, OSError, EOFError, UnicodeDecodeError) as error:
            raise SourceUnreachable(f"{url} is no list of packages: {error}") from error
        return found
    return {}
