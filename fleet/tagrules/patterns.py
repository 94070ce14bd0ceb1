"""This module reads a pattern of the allow-list as a person means it: words and wildcards.

It claims only what is plain: what is neither a word nor a wildcard is `other`, and a pattern that
it cannot read has no parts at all.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from fleet.tagrules.allow import compile_pattern
from fleet.tagrules.parts import end_of_piece

Kind = Literal["word", "any", "part", "other"]

_QUANTIFIED = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_ANYTHING, _NO_SLASH = "\ue000", "\ue001"
"""Stand for what an `any` and a `part` take; no name and no word of a pattern holds them."""
_MOST_CHOICES = 6
_STRANGE = re.compile("[\ue000\ue001]")
_FLAG = re.compile(r"\(\?[a-zA-Z-]+\)")
_PUNCTUATION = re.compile(r"[!-.:-@\[-`{-~]")


@dataclass(frozen=True)
class Piece:
    """A piece of a pattern: where it stands, and the text that it means if it is a word.

    `any` is `.*` or `.+`, `part` is `[^/]*` or `[^/]+` (within one part of the name), `other` is
    everything else; `least` is 1 where at least one character is needed.
    """

    kind: Kind
    start: int
    end: int
    text: str = ""
    least: int = 0


def read_pattern(pattern: str) -> tuple[Piece, ...] | None:
    """Return the pieces of a valid pattern; None where its parts do not mean the whole."""
    if _STRANGE.search(pattern) or r"\Q" in pattern:
        return None
    pieces = tuple(_pieces(pattern))
    return None if any(_changes_others(piece) for piece in pieces) else pieces


def is_word(pieces: Sequence[Piece]) -> bool:
    """Say whether a pattern takes exactly one text."""
    return all(piece.kind == "word" for piece in pieces)


def word_of(pieces: Sequence[Piece]) -> str:
    """Return the text that pieces which are all words take."""
    return "".join(piece.text for piece in pieces)


def takes_all_of(wide: Sequence[Piece], narrow: Sequence[Piece]) -> bool:
    """Say whether it is plain that whatever `narrow` takes, `wide` takes too."""
    simple, samples = simplified(wide), samples_of(narrow)
    if simple is None or not samples:
        return False
    taker = compile_pattern(simple)
    return all(taker.takes(sample) for sample in samples)


def simplified(wide: Sequence[Piece] | None) -> str | None:
    """Return the pattern to try on `samples_of` others; None where it is not plain."""
    if wide is None or any(piece.kind == "other" for piece in wide):
        return None
    return "(?s)" + "".join(map(_taking, wide))


def samples_of(narrow: Sequence[Piece] | None) -> tuple[str, ...]:
    """Return texts such that whatever takes all of them takes all that `narrow` takes.

    Every wildcard becomes one character that only a wildcard can take, or nothing at all where it
    may be empty. None at all where that would be too many, or the pattern cannot be read.
    """
    if narrow is None:
        return ()
    choices = [_samples(piece) for piece in narrow]
    if sum(len(choice) > 1 for choice in choices) > _MOST_CHOICES:
        return ()
    return tuple("".join(sample) for sample in product(*choices))


def segments(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Return pieces cut at each slash that is written; the slashes are left out."""
    found: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.kind == "word" and piece.text == "/":
            found.append([])
        else:
            found[-1].append(piece)
    return found


def _samples(piece: Piece) -> tuple[str, ...]:
    if piece.kind == "word":
        return (piece.text,)
    sample = _NO_SLASH if piece.kind == "part" else _ANYTHING
    return (sample,) if piece.least else (sample, "")


def _changes_others(piece: Piece) -> bool:
    """Say whether a piece gives those beside it another meaning: a choice, or a flag like (?i)."""
    return piece.kind == "other" and (piece.text == "|" or bool(_FLAG.match(piece.text)))


def _taking(piece: Piece) -> str:
    if piece.kind == "word":
        return _PUNCTUATION.sub(r"\\\g<0>", piece.text)
    sign = "+" if piece.least else "*"
    return f".{sign}" if piece.kind == "any" else f"[^/{_ANYTHING}]{sign}"


def _pieces(pattern: str) -> Iterator[Piece]:
    at = 0
    while at < len(pattern):
        if _is_anchor(pattern, at):
            at += 1  # a whole name is matched anyway
            continue
        end, word = _atom(pattern, at)
        quantifier = _QUANTIFIED.match(pattern, end)
        written = pattern[at:end]
        if quantifier:
            end = quantifier.end()
            yield _repeated(written, quantifier[0], (at, end))
        elif word is None:
            yield Piece("other", at, end, text=written)
        else:
            yield Piece("word", at, end, text=word)
        at = end


def _is_anchor(pattern: str, at: int) -> bool:
    if at == 0:
        return pattern[0] == "^" and not _QUANTIFIED.match(pattern, 1)
    return at == len(pattern) - 1 and pattern[at] == "$"


def _repeated(written: str, quantifier: str, place: tuple[int, int]) -> Piece:
    """Return a repeated piece; `.*?` takes what `.*` takes, for a whole name is matched."""
    start, end = place
    sign = quantifier.removesuffix("?")
    if written in (".", "[^/]") and sign in ("*", "+"):
        kind: Kind = "any" if written == "." else "part"
        return Piece(kind, start, end, least=int(sign == "+"))
    return Piece("other", start, end, text=written + quantifier)


def _atom(pattern: str, at: int) -> tuple[int, str | None]:
    """Return where a piece ends, and its text if it is a plain character."""
    first = pattern[at]
    if first == "\\" and at + 1 < len(pattern):
        following = pattern[at + 1]
        if following.isascii() and following.isalnum():
            return _escape_end(pattern, at), None
        return at + 2, following
    if first == "[":
        return end_of_piece(pattern, at), None
    if first == "(":
        return _group_end(pattern, at), None
    return at + 1, None if first in ".|)^$" else first


def _escape_end(pattern: str, at: int) -> int:
    found = re.compile(r"\\(?:[pP]\{[^}]*\}|[pP].|x\{[^}]*\}|x..|[0-7]{1,3}|.)").match(pattern, at)
    return found.end() if found else len(pattern)


def _group_end(pattern: str, at: int) -> int:
    depth, end = 0, at
    while end < len(pattern):
        depth += {"(": 1, ")": -1}.get(pattern[end], 0)
        end = end_of_piece(pattern, end)
        if depth == 0:
            return end
    return len(pattern)
