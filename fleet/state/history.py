"""Keep what was observed, one moment after the other, in one compressed file.

Each moment is a whole zstd frame that holds one line of JSON, so that `zstdcat` reads the file. A
mark follows each frame: a skippable frame, which says how long the one before it is and of what
time, in whole seconds. A file that does not end with a mark was torn while it was written: what
follows the last mark is skipped, and cut off by the next append.
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

_LEVEL = 12  # 19 is 7 % smaller, and takes 40 times as long
_MOST_BYTES = 200 * 1000 * 1000
EARLIER = timedelta(days=30)
Each = TypeVar("Each")
MOST_EARLIER, _MOST_EARLIER_BYTES = 60, 2_000_000
_SKIPPABLE, _SIGN = 0x184D2A5E, b"fleet-1\n"
_MARK = struct.Struct("<II8sQQ")
_BEGIN = _MARK.pack(_SKIPPABLE, _MARK.size - 8, _SIGN, 0, 0)
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Appended:
    """What an append made of a history."""

    size: int
    """How many bytes the whole history takes now."""
    added: int
    torn: int
    """How many bytes of a torn frame were cut off."""


def append(name: str, line: str, at: datetime) -> Appended:
    """Add what was observed at a moment; a history is begun where there is none."""
    parameter = zstd.CompressionParameter
    options = {int(parameter.compression_level): _LEVEL, int(parameter.checksum_flag): 1}
    frame = zstd.compress(line.encode(), options=options)
    mark = _MARK.pack(_SKIPPABLE, _MARK.size - 8, _SIGN, len(frame), int(at.timestamp()))
    with (
        touching(f"{name}: cannot be written", FileUnreadable),
        os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file,
    ):
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        end = _end(name, file)
        file.truncate(end)
        file.seek(end)
        _write(file, (b"" if end else _BEGIN) + frame + mark)
        os.fsync(file.fileno())
        return Appended(size=file.tell(), added=file.tell() - end, torn=size - end)


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    """Open a history; FileUnreadable where it cannot be read, then or while the block lasts."""
    with touching(f"{name}: cannot be read", FileUnreadable), Path(name).open("rb") as file:
        yield file


@dataclass(frozen=True)
class Observed:
    """A moment of a history, as JSON."""

    content: bytes
    at: datetime
    torn: int
    """How many bytes after the last whole moment were skipped."""


def read_moment(name: str, until: datetime | None = None) -> Observed:
    """Return the latest moment of a history, not later than `until`."""
    with _reading(name) as file:
        size = file.seek(0, os.SEEK_END)
        end = _end(name, file)
        for start, length, at in _moments(name, file, end):
            if until is None or at <= until:
                return Observed(_frame(name, file, start, length), at, size - end)
    when = f"at or before {until:%Y-%m-%d %H:%M} UTC" if until else "in it"
    raise FileUnreadable(f"{name}: nothing was observed {when}")


def last_moment(name: str) -> datetime | None:
    """Return the time of a history's latest moment; None where nothing is in it yet."""
    if not Path(name).exists():
        return None
    with _reading(name) as file:
        return next((at for *_, at in _moments(name, file, _end(name, file))), None)


def read_earlier(name: str, before: datetime) -> list[bytes]:
    """Return some moments of a history from the month before a time, oldest first, as JSON.

    They are spread evenly, as many as can be read in a few seconds.
    """
    with _reading(name) as file:
        moments = _moments(name, file, _end(name, file))
        later = (each for each in moments if each[2] < before)
        found = list(takewhile(lambda each: each[2] >= before - EARLIER, later))[::-1]
        size = max(1, sum(length for _, length, _ in found) // max(1, len(found)))
        some = spread(found, min(MOST_EARLIER, _MOST_EARLIER_BYTES // size))
        return [_frame(name, file, *each[:2]) for each in some]


def spread(found: Sequence[Each], most: int) -> Sequence[Each]:
    """Return at most so many, at even distances, and one at least."""
    return found[:: max(1, -(-len(found) // max(1, most)))]


def read_moments(name: str, since: datetime | None, until: datetime | None) -> Iterator[bytes]:
    """Yield the moments of a history from one time to another, oldest first, as JSON.

    Of each only its length is kept before it is read.
    """
    with _reading(name) as file:
        lengths = array("Q")
        first = 0
        for start, length, at in _moments(name, file, _end(name, file)):
            if since is not None and at < since:
                break
            if until is None or at <= until:
                lengths.append(length)
                first = start
        while lengths:
            yield _frame(name, file, first, lengths[-1])
            first += lengths.pop() + _MARK.size


def _frame(name: str, file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return _unpacked(name, file.read(length))


class RecordedFiles(LocalFiles):
    """Files of this computer; of a history, as in `history.jsonl.zst@2026-11-21T08:00`, a moment.

    Without a time it is the latest; a time without a zone is UTC.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's bytes, or one moment of a history."""
        path, moment = _history(name)
        if not path:
            return super().read(name, limit)
        found = read_moment(path, _time(name, moment))
        if found.torn:
            self._note(f"fleet: warning: {path}: {_torn(found.torn)} was skipped")
        return found.content

    def earlier(self, name: str, before: datetime) -> list[bytes]:
        """Return what the same history has of the month before; nothing where it is none."""
        path, _ = _history(name)
        return read_earlier(path, before) if path else []


def _history(name: str) -> tuple[str, str]:
    """Return the path of a history and the moment asked for; no path where it is none."""
    path, is_history, moment = name.partition(".zst")
    if not is_history or (moment and not moment.startswith("@")):
        return "", ""
    return path + is_history, moment[1:]


def torn_off(appended: Appended) -> str:
    """Return what to say of a torn end that an append cut off."""
    return f"{_torn(appended.torn)} was cut off"


def _torn(size: int) -> str:
    return f"a torn end of {size} bytes, of an append that was killed,"


def _time(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise FileUnreadable(
            f"{name}: {text} is no time; write it like 2026-11-21T08:00"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _write(file: BinaryIO, content: bytes) -> None:
    while content:
        content = content[file.write(content) :]


def _unpacked(name: str, frame: bytes) -> bytes:
    try:
        if (zstd.get_frame_info(frame).decompressed_size or 0) > _MOST_BYTES:
            raise FileUnreadable(f"{name}: a moment is larger than {_MOST_BYTES // 10**6} MB")
        return zstd.ZstdDecompressor().decompress(frame, _MOST_BYTES)
    except zstd.ZstdError as error:
        raise FileUnreadable(f"{name}: a moment in it is damaged: {error}") from error


def _moments(name: str, file: BinaryIO, end: int) -> Iterator[tuple[int, int, datetime]]:
    """Yield where each moment begins, how long it is and its time, the latest first."""
    while end > len(_BEGIN):
        mark = _mark(file, end)
        if mark is None:
            raise FileUnreadable(f"{name}: is damaged before byte {end}")
        length, seconds = mark
        end -= _MARK.size + length
        yield end, length, datetime.fromtimestamp(seconds, UTC)


def _end(name: str, file: BinaryIO) -> int:
    """Return where the last whole moment ends; what follows was torn off."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begin = file.read(len(_BEGIN))
    if begin != _BEGIN[: len(begin)]:
        raise FileUnreadable(f"{name}: is no history that `fleet observe --append` began")
    if len(begin) < len(_BEGIN):
        return 0
    while size > len(_BEGIN):
        if _mark(file, size) is not None:
            return size
        size = _last_sign(file, size)
    return len(_BEGIN)


def _last_sign(file: BinaryIO, before: int) -> int:
    """Return where the last mark could end that ends before some place."""
    tail = _MARK.size - 8  # what follows the beginning of the sign
    after, until = b"", before - 1
    while until > 0:
        start = max(0, until - _BLOCK)
        file.seek(start)
        block = file.read(until - start) + after
        found = block.rfind(_SIGN)
        while found >= 0:
            if start + found + tail < before:
                return start + found + tail
            found = block.rfind(_SIGN, 0, found)
        after, until = block[: len(_SIGN) - 1], start
    return 0


def _mark(file: BinaryIO, end: int) -> tuple[int, int] | None:
    """Return length and time of the moment before a mark that ends here; None: there is none."""
    if end < _MARK.size:
        return None
    file.seek(end - _MARK.size)
    number, size, sign, length, seconds = _MARK.unpack(file.read(_MARK.size))
    is_mark = (number, size, sign) == (_SKIPPABLE, _MARK.size - 8, _SIGN)
    if not is_mark or end - _MARK.size - length < (len(_BEGIN) if length else 0):
        return None
    return length, seconds
