"""Keep the observation of each run as one moment in a compressed file.

A moment is a complete zstd frame with one line of JSON, so that `zstdcat` reads the file. A mark
follows each frame. It is a skippable frame that contains the length of the frame before it and the
time in whole seconds. If the file does not end with a mark, an append was killed: readers skip the
bytes after the last mark, and the next append removes them.
"""

import fcntl
import os
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, TypeVar

from fleet.errors import FileUnreadable, touching
from fleet.state.files import LocalFiles
from fleet.state.zstd import zstd

_LEVEL = 12  # level 19 saves 7 % of space and takes 40 times as long
_MAX_MOMENT_BYTES = 200 * 1000 * 1000
EARLIER_PERIOD = timedelta(days=30)
Element = TypeVar("Element")
MAX_EARLIER, _MAX_EARLIER_BYTES = 60, 2_000_000
_SKIPPABLE = 0x184D2A5E
_SIGNATURE = b"fleet-1\n"
_MARK = struct.Struct("<II8sQQ")
_FILE_HEADER = _MARK.pack(_SKIPPABLE, _MARK.size - 8, _SIGNATURE, 0, 0)
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Appended:
    """The size of a history file after an append, and the bytes that the append removed."""

    size: int
    """Bytes of the whole history file after the append."""
    added: int
    torn: int
    """Bytes of an incomplete observation that the append removed."""


def append(name: str, line: str, at: datetime) -> Appended:
    """Append an observation, as a line of JSON, to a history file. Create a missing file."""
    parameter = zstd.CompressionParameter
    options = {int(parameter.compression_level): _LEVEL, int(parameter.checksum_flag): 1}
    frame = zstd.compress(line.encode(), options=options)
    mark = _MARK.pack(_SKIPPABLE, _MARK.size - 8, _SIGNATURE, len(frame), int(at.timestamp()))
    with (
        touching(f"{name}: cannot be written", FileUnreadable),
        os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file,
    ):
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        end = _find_end(name, file)
        file.truncate(end)
        file.seek(end)
        content = (b"" if end else _FILE_HEADER) + frame + mark
        while content:
            content = content[file.write(content) :]
        os.fsync(file.fileno())
        return Appended(size=file.tell(), added=file.tell() - end, torn=size - end)


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    """Open a history file for reading; raises FileUnreadable if it cannot be opened or read."""
    with touching(f"{name}: cannot be read", FileUnreadable), Path(name).open("rb") as file:
        yield file


@dataclass(frozen=True)
class StoredMoment:
    """One recorded observation in a history, as JSON."""

    content: bytes
    at: datetime
    torn: int
    """Number of skipped bytes after the last complete observation."""


def read_moment(name: str, until: datetime | None = None) -> StoredMoment:
    """Return the latest observation in a history file, up to `until`; raises FileUnreadable."""
    with _reading(name) as file:
        size = file.seek(0, os.SEEK_END)
        end = _find_end(name, file)
        for start, length, at in _index_backwards(name, file, end):
            if until is None or at <= until:
                return StoredMoment(_read_frame(name, file, start, length), at, size - end)
    when = f"at or before {until:%Y-%m-%d %H:%M} UTC" if until else "in it"
    raise FileUnreadable(f"{name}: nothing was observed {when}")


def last_moment(name: str) -> datetime | None:
    """Return the time of the latest observation in a history file; None if the file is empty."""
    if not Path(name).exists():
        return None
    with _reading(name) as file:
        return next((at for *_, at in _index_backwards(name, file, _find_end(name, file))), None)


def read_earlier(name: str, before: datetime) -> list[bytes]:
    """Return observations from the 30 days before a time as JSON, oldest first.

    The observations are evenly spaced. Their number and bytes are limited, so that this takes
    seconds.
    """
    with _reading(name) as file:
        moments = _index_backwards(name, file, _find_end(name, file))
        later = (each for each in moments if each[2] < before)
        found = list(takewhile(lambda each: each[2] >= before - EARLIER_PERIOD, later))[::-1]
        size = max(1, sum(length for _, length, _ in found) // max(1, len(found)))
        some = spread(found, min(MAX_EARLIER, _MAX_EARLIER_BYTES // size))
        return [_read_frame(name, file, *each[:2]) for each in some]


def spread(found: Sequence[Element], most: int) -> Sequence[Element]:
    """Return at most `most` evenly spaced elements, and at least one."""
    return found[:: max(1, -(-len(found) // max(1, most)))]


def read_moments(name: str, since: datetime | None, until: datetime | None) -> Iterator[bytes]:
    """Yield the observations of a history file between two times as JSON, oldest first.

    Lengths and times are read first, then one observation at a time, to save memory.
    """
    with _reading(name) as file:
        lengths = array("Q")
        first = 0
        for start, length, at in _index_backwards(name, file, _find_end(name, file)):
            if since is not None and at < since:
                break
            if until is None or at <= until:
                lengths.append(length)
                first = start
        while lengths:
            yield _read_frame(name, file, first, lengths[-1])
            first += lengths.pop() + _MARK.size


def _read_frame(name: str, file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    frame = file.read(length)
    try:
        if (zstd.get_frame_info(frame).decompressed_size or 0) > _MAX_MOMENT_BYTES:
            raise FileUnreadable(
                f"{name}: a moment is larger than {_MAX_MOMENT_BYTES // 10**6} MB"
            )
        return zstd.ZstdDecompressor().decompress(frame, _MAX_MOMENT_BYTES)
    except zstd.ZstdError as error:
        raise FileUnreadable(f"{name}: a moment in it is damaged: {error}") from error


class RecordedFiles(LocalFiles):
    """Local files, and observations in history files (`history.jsonl.zst@2026-11-21T08:00`).

    A name without a time means the latest observation. A time without a zone is in UTC.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file; for a history file, one observation in it."""
        path, moment = _split_name(name)
        if not path:
            return super().read(name, limit)
        found = read_moment(path, _parse_time(name, moment))
        if found.torn:
            self._note(f"fleet: warning: {path}: {_torn_end(found.torn)} was skipped")
        return found.content

    def earlier(self, name: str, before: datetime) -> list[bytes]:
        """Return the observations before a time, oldest first; empty if the file is no history."""
        path, _ = _split_name(name)
        return read_earlier(path, before) if path else []


def _split_name(name: str) -> tuple[str, str]:
    """Split a name into a history's path and the requested time; both empty for other files."""
    path, is_history, moment = name.partition(".zst")
    if not is_history or (moment and not moment.startswith("@")):
        return "", ""
    return path + is_history, moment[1:]


def find_torn_end(name: str) -> str:
    """Return a message about the incomplete end of a history file, which readers skip."""
    with _reading(name) as file:
        size = file.seek(0, os.SEEK_END)
        torn = size - _find_end(name, file)
    return f"{name}: {_torn_end(torn)} was skipped" if torn else ""


def torn_message(appended: Appended) -> str:
    """Return a message about an incomplete observation that an append removed."""
    return f"{_torn_end(appended.torn)} was cut off"


def _torn_end(size: int) -> str:
    return f"an incomplete observation of {size} bytes at the end (a killed append or a cut file)"


def _parse_time(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise FileUnreadable(
            f"{name}: {text} is no time; write it like 2026-11-21T08:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _index_backwards(name: str, file: BinaryIO, end: int) -> Iterator[tuple[int, int, datetime]]:
    """Yield the offset, length and time of each observation in the file, the latest first."""
    while end > len(_FILE_HEADER):
        mark = _read_mark(file, end)
        if mark is None:
            raise FileUnreadable(f"{name}: is damaged before byte {end}")
        length, seconds = mark
        end -= _MARK.size + length
        yield end, length, datetime.fromtimestamp(seconds, UTC)


def _find_end(name: str, file: BinaryIO) -> int:
    """Return the offset of the end of the last complete observation."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begin = file.read(len(_FILE_HEADER))
    if begin != _FILE_HEADER[: len(begin)]:
        raise FileUnreadable(f"{name}: is no history that `fleet observe --append` began")
    if len(begin) < len(_FILE_HEADER):
        return 0
    while size > len(_FILE_HEADER):
        if _read_mark(file, size) is not None:
            return size
        size = _find_last_mark(file, size)
    return len(_FILE_HEADER)


def _find_last_mark(file: BinaryIO, before: int) -> int:
    """Return the largest offset below `before` at which a mark may end; 0 if no mark is found."""
    tail = _MARK.size - 8  # length of a mark from the start of its signature
    after, until = b"", before - 1
    while until > 0:
        start = max(0, until - _BLOCK_BYTES)
        file.seek(start)
        block = file.read(until - start) + after
        found = block.rfind(_SIGNATURE)
        while found >= 0:
            if start + found + tail < before:
                return start + found + tail
            found = block.rfind(_SIGNATURE, 0, found)
        after, until = block[: len(_SIGNATURE) - 1], start
    return 0


def _read_mark(file: BinaryIO, end: int) -> tuple[int, int] | None:
    """Return the length and time in the mark that ends at an offset; None without a mark."""
    if end < _MARK.size:
        return None
    file.seek(end - _MARK.size)
    number, size, sign, length, seconds = _MARK.unpack(file.read(_MARK.size))
    is_mark = (number, size, sign) == (_SKIPPABLE, _MARK.size - 8, _SIGNATURE)
    if not is_mark or end - _MARK.size - length < (len(_FILE_HEADER) if length else 0):
        return None
    return length, seconds
