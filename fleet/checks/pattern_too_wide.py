"""This module finds patterns of the allow-list that take everything somebody owns."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from fleet.schema.findings import Finding, as_written, quoted
from fleet.schema.model import Fleet, PowerfulRule

if TYPE_CHECKING:
    from fleet.tagrules.patterns import Piece

_BUILD = "[^/]+/[^/]+/[^/]+"
"""A project's, a chroot's and a package's name, of any owner."""


def pattern_too_wide(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a pattern that takes every build of an owner (or scope), or is open to anybody."""
    for number, rule in enumerate(fleet.powerful):
        taken = _taken(rule)
        if taken:
            tags = ", ".join(rule.ask)
            knows = f"; {rule.contact} knows which" if rule.contact else ""
            yield Finding(
                "pattern-too-wide",
                f"this gives {tags} to {taken}",
                ("powerful", number, "match"),
                severity="warning",
                hint=f"name the project and the package that need it{knows}",
            )


def _taken(rule: PowerfulRule) -> str:
    """Return what a pattern takes in a person's words, where that is too much."""
    from fleet.tagrules.allow import is_valid
    from fleet.tagrules.patterns import read_pattern

    pieces = read_pattern(rule.match) if is_valid(rule) else None
    return _words(rule.match, pieces) if pieces else ""


def _words(pattern: str, pieces: "Sequence[Piece]") -> str:
    from fleet.tagrules.patterns import read_pattern, takes_all_of, word_of

    build = read_pattern(_BUILD) or ()
    slash = read_pattern("/") or ()
    anybody = read_pattern("[^/]+") or ()
    if takes_all_of(pieces, (*anybody, *slash, *build)):
        return "every build of everybody"
    owner = [*takewhile(lambda piece: piece.text != "/", pieces)]
    words = [*takewhile(lambda piece: piece.kind == "word", owner)]
    if takes_all_of(pieces[len(owner) + 1 :], build):
        return f"every build of {as_written(pattern[: owner[-1].end])}" if owner else ""
    if words and takes_all_of(pieces, (*words, *slash, *build)):
        return f"every build of every owner whose name begins with {quoted(word_of(words))}"
    if owner and not words and all(piece.kind in ("any", "part") for piece in owner):
        return "builds of every owner: whoever names a package so has it"
    return ""
