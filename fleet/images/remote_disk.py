"""This module writes a disk over ssh, piece by piece, until all that is read back is right."""

import hashlib
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import SourceUnreachable
from fleet.images.progress import Tell, Total
from fleet.images.ssh import Ssh

_MIB = 1 << 20
_TRIES = 5


@dataclass(frozen=True)
class Writing:
    """How a disk is written."""

    device: str = "/dev/sda"
    piece_mib: int = 16
    """What is sent again after a connection was lost."""
    pause: Callable[[float], None] = time.sleep


def write_disk(ssh: Ssh, raw: Path, tell: Tell, writing: Writing) -> None:
    """Make a device there hold a disk, and read all of it back.

    A connection that is lost is made again, and only pieces that differ are sent again.
    """
    device, piece_mib = writing.device, writing.piece_mib
    size = raw.stat().st_size
    ours = _ours(raw, piece_mib * _MIB, Total(tell, "prepare", size))
    wrong: Sequence[int] = range(len(ours))
    _empty(ssh, device)
    for attempt in range(_TRIES):
        try:
            if attempt:
                wrong = _differing(ssh, device, ours, piece_mib, Total(_nobody, "read back", size))
            _send(ssh, raw, device, wrong, _Sending(piece_mib, size, tell))
            back = Total(tell, "read back", size)
            wrong = _differing(ssh, device, ours, piece_mib, back)
        except SourceUnreachable as error:
            lost = error
        else:
            if not wrong:
                return
            lost = SourceUnreachable(
                f"{len(wrong)} of {len(ours)} pieces on {device} of {ssh.host} are not what was "
                "sent"
            )
        writing.pause(2**attempt)
    raise SourceUnreachable(f"{lost} (the last of {_TRIES} tries)") from lost


def _empty(ssh: Ssh, device: str) -> None:
    """Give back all blocks of a device where it can: else the snapshot holds what was there."""
    named = shlex.quote(device)
    ssh.run(f"if [ -b {named} ]; then blkdiscard -f {named} 2>/dev/null || true; fi")


class _Sending:
    """How pieces are sent, and who hears of it."""

    def __init__(self, piece_mib: int, size: int, tell: Tell) -> None:
        self.piece_mib = piece_mib
        self.size = size
        self.total = Total(tell, "upload", size)


def _send(ssh: Ssh, raw: Path, device: str, numbers: Sequence[int], sending: _Sending) -> None:
    if not numbers:
        return
    mib = sending.piece_mib
    # Each dd takes its piece of what comes in; only the last piece may be shorter.
    script = (
        f"set -e; for i in {' '.join(map(str, numbers))}; do "
        f"dd of={shlex.quote(device)} bs=1M count={mib} seek=$((i*{mib})) "
        "iflag=fullblock conv=notrunc,fsync 2>/dev/null; done"
    )
    size = sending.size
    right = size - sum(min(mib * _MIB, size - i * mib * _MIB) for i in numbers)
    sending.total.move(right)
    ssh.run(script, _pieces(raw, numbers, mib * _MIB, sending.total))


def _pieces(raw: Path, numbers: Sequence[int], size: int, total: Total) -> Iterator[bytes]:
    with raw.open("rb") as file:
        for number in numbers:
            file.seek(number * size)
            left = size
            while left and (part := file.read(min(_MIB, left))):
                yield part
                left -= len(part)
                total.move(len(part))


def _differing(
    ssh: Ssh, device: str, ours: Sequence[str], piece_mib: int, total: Total
) -> list[int]:
    """Return the numbers of the pieces that are not there as they should be."""
    named = shlex.quote(device)
    rest = total.total - (len(ours) - 1) * piece_mib * _MIB
    # Past the caches of that device: what counts is what it gives back.
    script = (
        f"set -e; sync; blockdev --flushbufs {named} 2>/dev/null || true; "
        f"i=0; while [ $i -lt {len(ours)} ]; do n={piece_mib * _MIB}; "
        f"[ $i -lt {len(ours) - 1} ] || n={rest}; "
        f"dd if={named} bs=1M count={piece_mib} skip=$((i*{piece_mib})) 2>/dev/null "
        "| head -c $n | sha256sum; i=$((i+1)); done"
    )
    theirs = []
    for line in ssh.lines(script):
        theirs.append(line[:64])
        total.move(piece_mib * _MIB)
    if len(theirs) != len(ours):
        raise SourceUnreachable(f"{ssh.host} did not read back all of {device}")
    return [number for number, each in enumerate(ours) if theirs[number] != each]


def _ours(raw: Path, size: int, total: Total) -> list[str]:
    sums = []
    with raw.open("rb") as file:
        while piece := file.read(size):
            sums.append(hashlib.sha256(piece).hexdigest())
            total.move(len(piece))
    return sums


def _nobody(_: object) -> None:
    """Hear nothing."""
