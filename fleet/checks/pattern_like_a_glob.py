"""This module finds patterns of the allow-list that read like a shell glob."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleet.schema.findings import Finding, as_written, quoted
from fleet.schema.model import Fleet, PowerfulRule

if TYPE_CHECKING:
    from fleet.tagrules.patterns import Piece

_STAR = re.compile(r"[\w/-]\*")
_BRACES = re.compile(r"[/-]\{([0-9]+),([0-9]+)\}")
_NOT_CLASS = re.compile(r"\[!.+\]")


def pattern_like_a_glob(fleet: Fleet) -> Iterator[Finding]:
    """Warn of `texlive*`, `fedora-{41,42}` and `[!a]`, which mean something else here."""
    for number, rule in enumerate(fleet.powerful):
        for piece, meaning, instead in _globs(rule):
            better = rule.match[: piece.start] + instead + rule.match[piece.end :]
            yield Finding(
                "pattern-like-a-glob",
                f"{as_written(rule.match[piece.start : piece.end])} means {meaning} here: "
                "this is a pattern, no shell glob",
                ("powerful", number, "match"),
                severity="warning",
                hint=f"did you mean '{better}'?",
                part=(piece.start, piece.end),
            )


def _globs(rule: PowerfulRule) -> Iterator[tuple["Piece", str, str]]:
    from fleet.tagrules.allow import is_valid
    from fleet.tagrules.patterns import read_pattern

    for piece in (is_valid(rule) and read_pattern(rule.match)) or ():
        if piece.kind != "other":
            continue
        first = piece.text[0]
        if _STAR.fullmatch(piece.text):
            yield piece, f"any number of {quoted(first)}", f"{first}.*"
        elif braces := _BRACES.fullmatch(piece.text):
            meaning = f"{braces[1]} to {braces[2]} times {quoted(first)}"
            yield piece, meaning, f"{first}({braces[1]}|{braces[2]})"
        elif _NOT_CLASS.fullmatch(piece.text):
            yield piece, "'!' or one of the characters after it", f"[^{piece.text[2:]}"
