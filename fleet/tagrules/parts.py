"""This module takes patterns of the allow-list apart, as far as other systems need their parts.

It never guesses: what is not surely one of a few forms is None, and the caller says so.
"""

import re
from collections.abc import Iterator

ANYTHING = (".*", ".+", "[^/]*", "[^/]+")
"""Patterns of one part of a name that stand for whatever is written there."""

_UP_TO = re.compile(r"\{,[0-9]*\}")
_MOST = 100
_DEEPEST = 10
_SPECIAL = frozenset("\\.[]()*+?{}|^$")


class NotFinite(Exception):
    """A pattern that does not stand for a short list of words."""


def split_top(pattern: str, separator: str) -> list[str]:
    """Return a pattern's parts, cut at separators outside groups and classes."""
    parts = [""]
    depth = 0
    for piece in pieces(pattern):
        if piece == separator and depth == 0:
            parts.append("")
            continue
        depth += (piece == "(") - (piece == ")")
        parts[-1] += piece
    return parts


def pieces(pattern: str) -> Iterator[str]:
    """Yield the pieces that belong together: an escape, a class, or one character."""
    at = 0
    while at < len(pattern):
        end = end_of_piece(pattern, at)
        yield pattern[at:end]
        at = end


def end_of_piece(pattern: str, at: int) -> int:
    """Return where the piece ends that begins here."""
    if pattern[at] == "\\":
        return min(len(pattern), at + 2)
    if pattern[at] != "[":
        return at + 1
    end = at + 1
    while end < len(pattern) and (pattern[end] != "]" or _is_first(pattern, at, end)):
        named = pattern.find(":]", end + 2) if pattern.startswith("[:", end) else -1
        end = named + 2 if named >= 0 else end + (2 if pattern[end] == "\\" else 1)
    return min(len(pattern), end + 1)


def with_brace(pattern: str, brace: str) -> str:
    """Return a pattern with another brace in `{,9}`: Python's "up to 9", plain text in RE2."""
    found, at = "", 0
    for piece in pieces(pattern):
        found += brace if _UP_TO.match(pattern, at) and piece == "{" else piece
        at += len(piece)
    return found


def alternatives(pattern: str) -> list[str]:
    """Return the top-level alternatives of a pattern, a group around all of it taken away."""
    if pattern.startswith("(?:") and _closes(pattern) == len(pattern) - 1:
        return alternatives(pattern[3:-1])
    return split_top(pattern, "|")


def words(pattern: str) -> list[str]:
    """Return the few words that a pattern stands for, sorted; raises NotFinite."""
    return sorted(set(_words(pattern, 0)))


def never_takes(pattern: str, characters: str) -> bool:
    """Say whether a pattern surely never takes one of these characters."""
    for piece in pieces(pattern):
        if piece == "." or piece.startswith("[^") or "[:" in piece or piece.isspace():
            return False
        if piece.startswith("\\") and (piece[1:].isalnum() or piece[1:] in characters):
            return False
        if piece.startswith("[") and ("\\" in piece or _in_class(piece, characters)):
            return False
        if piece in characters:
            return False
    return "(?" not in pattern.replace("(?:", "")


def _in_class(piece: str, characters: str) -> bool:
    ranges = [(low, high) for low, high in re.findall("(.)-(.)", piece[1:-1])]
    return any(
        each in piece or any(low <= each <= high for low, high in ranges) for each in characters
    )


def _is_first(pattern: str, at: int, end: int) -> bool:
    return pattern[at + 1 : end] in ("", "^")


def _closes(pattern: str) -> int:
    """Return where the group that begins the pattern ends."""
    depth = at = 0
    for piece in pieces(pattern):
        depth += (piece == "(") - (piece == ")")
        if depth == 0:
            return at
        at += len(piece)
    return -1


def _words(pattern: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise NotFinite(pattern)
    for alternative in split_top(pattern, "|"):
        found = [""]
        for atom in _atoms(alternative):
            found = [word + end for word in found for end in _words_of_atom(atom, depth)]
            if len(found) > _MOST:
                raise NotFinite(pattern)
        yield from found


def _words_of_atom(atom: str, depth: int) -> list[str]:
    if atom.endswith("?") and atom not in ("?", "\\?"):
        return ["", *_words_of_atom(atom[:-1], depth)]
    if atom.startswith("("):
        return list(_words(atom[1:-1].removeprefix("?:"), depth + 1))
    if atom.startswith("\\") and not atom[1:].isalnum() and atom[1:]:
        return [atom[1:]]
    if atom.startswith("[") and atom[1:-1].replace("_", "").isalnum():
        return list(atom[1:-1])
    if atom[0] in _SPECIAL:
        raise NotFinite(atom)
    return [atom]


def _atoms(pattern: str) -> Iterator[str]:
    """Yield what a quantifier may follow, with the `?` that follows it."""
    atom, depth = "", 0
    for piece in pieces(pattern):
        if depth == 0 and piece == "?" and atom:
            yield atom + piece
            atom = ""
            continue
        if depth == 0 and atom:
            yield atom
            atom = ""
        depth += (piece == "(") - (piece == ")")
        atom += piece
    if atom:
        if depth:
            raise NotFinite(pattern)
        yield atom
