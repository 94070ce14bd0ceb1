"""Look for secrets where none may be: as they are, in base64, URL-encoded, in hex.

Base64 of a text depends on where in the encoded bytes it begins: all three places are looked for.
"""

import base64
import gzip
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, quote_plus

import zstandard

from tests.ports.engines import family_of

Place = tuple[str, bytes]
"""Where something was found, and what stood there."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_SHORTEST = 8


def forms(secret: str) -> frozenset[bytes]:
    """Return every way in which a secret may have been written down."""
    raw = secret.encode()
    texts = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    texts |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    encoded = {form for before in range(3) for form in _base64(raw, before)}
    return frozenset({text.encode() for text in texts} | encoded | {raw.hex().encode()})


def find_leaks(secrets: Mapping[str, str], places: Iterable[Place]) -> list[str]:
    """Return which secret is where it must not be, sorted."""
    assert all(len(secret) >= _SHORTEST for secret in secrets.values()), "found by chance"
    wanted = {
        name: re.compile(b"|".join(map(re.escape, sorted(forms(secret)))))
        for name, secret in secrets.items()
    }
    return sorted(
        f"{name} in {place}"
        for place, content in places
        for name, pattern in wanted.items()
        if pattern.search(content)
    )


def in_files(*folders: Path, besides: Iterable[Path] = ()) -> Iterator[Place]:
    """Yield what the files in some folders hold, unpacked too, and what they are called."""
    left_out = set(besides)
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        yield f"the name of {path}", str(path).encode()
        if path.is_file() and path not in left_out:
            yield str(path), path.read_bytes()
            yield from ((f"{path} (unpacked)", text) for text in _unpacked(path))


def in_processes(work: Path) -> Iterator[Place]:
    """Yield arguments and environment of this process's family and of all that work in a folder.

    Other tests, and other runs of the tests, may have the same secrets.
    """
    family = family_of(os.getpid())
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) in family or (folder / "cwd").readlink().is_relative_to(work):
                for name in ("cmdline", "environ"):
                    yield f"{name} of process {folder.name}", (folder / name).read_bytes()
        except OSError:  # it has ended, or is another user's
            continue


def _base64(raw: bytes, before: int) -> tuple[bytes, bytes]:
    """Return the characters that depend on nothing but the secret, in both alphabets."""
    whole = raw[: len(raw) - (before + len(raw)) % 3]
    encoded = base64.b64encode(bytes(before) + whole)
    known = encoded[(0, 2, 3)[before] :]
    return known, known.translate(bytes.maketrans(b"+/", b"-_"))


def _unpacked(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)
    if content.startswith(_ZSTD) or b"fleet-1\n" in content[:64]:
        with zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True) as all_:
            yield all_.read()
    if content.startswith(b"SQLite format 3\0"):
        # A long value is spread over pages.
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            yield "\n".join(connection.iterdump()).encode()
