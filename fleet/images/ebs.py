"""This module writes a disk into a snapshot of Amazon EBS and reads it back, block by block.

Blocks of zeros are not sent: what a snapshot does not hold reads as zeros. Each block goes with
its SHA-256, and the snapshot is sealed with the SHA-256 of all of those in their order.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fleet.images.progress import Tell, Total

BLOCK = 512 * 1024
_ZEROS = bytes(BLOCK)
_AT_ONCE = 16
_GIB = 1 << 30


@dataclass(frozen=True)
class Block:
    """Where a block of a disk is, and its checksum."""

    index: int
    digest: bytes

    @property
    def checksum(self) -> str:
        """Return the checksum as EBS writes it."""
        return base64.b64encode(self.digest).decode()


@dataclass(frozen=True)
class Disk:
    """A raw disk, and its blocks that are not all zeros."""

    path: Path
    size: int
    blocks: tuple[Block, ...]

    @property
    def gib(self) -> int:
        """Return how large a volume has to be for it."""
        return -(-self.size // _GIB)

    @property
    def checksum(self) -> str:
        """Return the checksum of the checksums of all blocks, in their order."""
        sums = hashlib.sha256(b"".join(each.digest for each in self.blocks))
        return base64.b64encode(sums.digest()).decode()

    def read(self, block: Block) -> bytes:
        """Return the content of a block; the last one ends in zeros."""
        with self.path.open("rb") as file:
            file.seek(block.index * BLOCK)
            return file.read(BLOCK).ljust(BLOCK, b"\0")


def read_disk(path: Path, tell: Tell) -> Disk:
    """Return a disk with the checksums of its blocks."""
    size, blocks = path.stat().st_size, []
    total = Total(tell, "prepare", size)
    with path.open("rb") as file:
        index = 0
        while piece := file.read(BLOCK):
            if piece != _ZEROS[: len(piece)]:
                digest = hashlib.sha256(piece.ljust(BLOCK, b"\0")).digest()
                blocks.append(Block(index, digest))
            total.move(len(piece))
            index += 1
    return Disk(path, size, tuple(blocks))


class Noted:
    """The blocks that were sent to a snapshot, in a file, so that the next run need not again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done = frozenset(path.read_text().split()) if path.exists() else frozenset()

    def note(self, block: Block) -> None:
        """Write down that a block was sent."""
        with self._path.open("a") as file:
            file.write(f"{_key(block)}\n")

    def __contains__(self, block: Block) -> bool:
        return _key(block) in self.done


def put_blocks(ebs: Any, snapshot: str, disk: Disk, noted: Noted, tell: Tell) -> None:  # noqa: ANN401 - boto3 ships no types
    """Send each block that was not sent before."""
    total = Total(tell, "upload", len(disk.blocks) * BLOCK)
    missing = [each for each in disk.blocks if each not in noted]
    total.move((len(disk.blocks) - len(missing)) * BLOCK)
    for block in _each(missing, partial(_put, ebs, snapshot, disk)):
        noted.note(block)
        total.move(BLOCK)


def differing_blocks(ebs: Any, snapshot: str, disk: Disk, tell: Tell) -> int:  # noqa: ANN401 - same
    """Read a snapshot back; return how many blocks it lacks, has beside or has otherwise."""
    total = Total(tell, "read back", len(disk.blocks) * BLOCK)
    tokens = dict(_tokens(ebs, snapshot))
    ours = {each.index: each for each in disk.blocks}
    both = [ours[index] for index in sorted(ours.keys() & tokens)]
    wrong = len(ours.keys() ^ tokens)
    for is_right in _each(both, partial(_is_right, ebs, snapshot, tokens)):
        wrong += not is_right
        total.move(BLOCK)
    return wrong


def _put(ebs: Any, snapshot: str, disk: Disk, block: Block) -> Block:  # noqa: ANN401 - same
    ebs.put_snapshot_block(
        SnapshotId=snapshot,
        BlockIndex=block.index,
        BlockData=disk.read(block),
        DataLength=BLOCK,
        Checksum=block.checksum,
        ChecksumAlgorithm="SHA256",
    )
    return block


def _is_right(ebs: Any, snapshot: str, tokens: Mapping[int, str], block: Block) -> bool:  # noqa: ANN401 - same
    told = ebs.get_snapshot_block(
        SnapshotId=snapshot, BlockIndex=block.index, BlockToken=tokens[block.index]
    )
    return hashlib.sha256(told["BlockData"].read()).digest() == block.digest


def _tokens(ebs: Any, snapshot: str) -> Iterator[tuple[int, str]]:  # noqa: ANN401 - same
    asked = {"SnapshotId": snapshot}
    while True:
        page = ebs.list_snapshot_blocks(**asked)
        yield from ((each["BlockIndex"], each["BlockToken"]) for each in page["Blocks"])
        if not page.get("NextToken"):
            return
        asked["NextToken"] = page["NextToken"]


def _each(blocks: list[Block], done: Callable[[Block], Any]) -> Iterator[Any]:
    """Yield what becomes of each block, several at once; what fails ends it."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # In parts: what was not begun when one fails never is.
        for start in range(0, len(blocks), _AT_ONCE):
            yield from pool.map(done, blocks[start : start + _AT_ONCE])


def _key(block: Block) -> str:
    return f"{block.index}:{block.digest.hex()}"
