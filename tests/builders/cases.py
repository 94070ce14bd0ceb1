"""Cases of tests as text: a sentence, then `GIVEN | GIVEN -> RESULT` on one line or more.

A line `because ABOUT: WORDS` below has words of a sentence in the result. The folders are beside
the tests that read them, for example `tests/planner/decisions/`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """One sentence: parts between bars, a result after the arrow, and words of sentences."""

    sentence: str
    parts: tuple[str, ...]
    result: str
    because: tuple[tuple[str, str], ...]


def read_blocks(folder: Path) -> Iterator[Block]:
    """Yield the sentences of all files of a folder, without lines that begin with `#`."""
    for file in sorted(folder.glob("*.txt")):
        lines = file.read_text("utf-8").splitlines()
        text = "\n".join(line for line in lines if not line.startswith("#"))
        for block in re.split(r"\n(?=\S)", text.strip()):
            sentence, _, rest = block.partition("\n")
            said, *because = re.split(r"\n *because ", rest)
            before, _, result = " ".join(said.split()).partition("->")
            parts = tuple(part.strip() for part in before.split("|"))
            words = tuple((each.split(":")[0], each.partition(":")[2]) for each in because)
            yield Block(sentence, parts, result.strip(), words)
