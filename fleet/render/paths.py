"""This module turns names into parts of a path: safe in every file system and link.

Two names never share a part, no part leads upwards, and none is as long as a file name may be.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

_LONGEST = 120
_TAKEN = frozenset({".", "..", "index.html"})


def path_parts(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a part for each (name, qualifier); the qualifier shows only where a name repeats."""
    repeats = Counter(name for name, _ in set(names))
    return {
        (name, qualifier): path_part(name)
        if repeats[name] == 1
        else f"{path_part(name)}~~{path_part(qualifier)}"
        for name, qualifier in names
    }


def path_part(name: str) -> str:
    """Return a name as one part of a path, odd characters percent-encoded."""
    # quote() leaves ~ alone; encoded, it is free to mark what was shortened
    part = quote(name, safe="").replace("~", "%7E")
    if not part:
        return "~"
    if part.lower() in _TAKEN:
        return f"%{ord(part[0]):02X}{part[1:]}"
    if len(part) > _LONGEST:
        return f"{part[:_LONGEST]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return part


def link(path: str) -> str:
    """Return a path of the site as a relative link."""
    return quote(path, safe="/~")
