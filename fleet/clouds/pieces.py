"""Cut a disk image into pieces, so that only missing or damaged pieces are sent again."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from fleet.model.images import Tell, Total

_T = TypeVar("_T")


class Pieces:
    """A raw disk image in pieces of `size` bytes, with the SHA-256 of each piece.

    With `blocks`, the last piece is padded with zeros, and pieces of zeros are left out.
    """

    def __init__(self, path: Path, size: int, tell: Tell, *, blocks: bool = False) -> None:
        self.bytes = path.stat().st_size
        self._path = path
        self._size = size
        self._blocks = blocks
        self.sums: dict[int, bytes] = {}
        """Number of a piece to its SHA-256, in order."""
        total, zeros = Total(tell, "prepare", self.bytes), bytes(size if blocks else 0)
        for number in range(-(-self.bytes // size)):
            piece = self.read(number)
            if not blocks or piece != zeros:
                self.sums[number] = hashlib.sha256(piece).digest()
            total.move(size)

    def length(self, number: int) -> int:
        """Return the length of a piece in bytes."""
        return self._size if self._blocks else min(self._size, self.bytes - number * self._size)

    def read(self, number: int) -> bytes:
        """Return the content of a piece."""
        with self._path.open("rb") as file:
            file.seek(number * self._size)
            return file.read(self._size).ljust(self.length(number), b"\0")

    def map(
        self,
        phase: Literal["upload", "read back"],
        numbers: Sequence[int],
        act: Callable[[int], _T],
        tell: Tell,
        workers: int = 1,
    ) -> Iterator[tuple[int, _T]]:
        """Yield the number of each piece and the result of `act`; report the progress.

        Several workers call `act` concurrently until the first error.
        """
        total = Total(tell, phase, sum(map(self.length, self.sums)))
        total.move(total.total - sum(map(self.length, numbers)))
        with ThreadPoolExecutor(workers) as pool:
            # In batches, so that no further batch starts after an error.
            for start in range(0, len(numbers), workers):
                batch = numbers[start : start + workers]
                # Without threads for a single worker, so that an interruption ends `act`.
                for number, result in zip(
                    batch, (pool.map if workers > 1 else map)(act, batch), strict=True
                ):
                    yield number, result
                    total.move(self.length(number))
