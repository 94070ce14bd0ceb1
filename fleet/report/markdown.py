"""Write Markdown in which hostile text has no effect.

Names become code, since neither Markdown nor GitLab parses mentions, references, links, HTML or
formulas there. In a sentence, every word that is not plain becomes code too, and a span written as
one piece stays one: `a command`, {env: NAME}.
"""

import re
from collections.abc import Sequence

from fleet.report.terminal import clean, shown

_PLAIN_WORD = re.compile(
    r"""[("']*                          # may open a bracket or a quotation
        (?:[+-](?=\d+[.,]\d|\d+\Z))?     # the sign of an amount
        [^\W_]+(?:[-/.,'][^\W_]+)*      # letters and digits, joined by simple marks
        %?[)"']*[.,;:?)]*\Z             # may be a share, close a bracket, end a sentence
        |%\)?[.,;:]*\Z                 # a share sign that stands alone
    """,
    re.VERBOSE,
)
_PLAIN_MARKS = frozenset({"-", "…", "+", "=", "/", "→"})
_LINKED_WORD = re.compile(  # GitLab links these nevertheless: hosts, commits, foreign issues
    r"(?i:www\.)|(?i:[0-9a-f]{7,40})\b|[A-Z][A-Z0-9]+-[0-9]"
)
_MENTIONLESS_TAIL = re.compile(r"[.,;:]+\Z")
_OPENED_BEFORE = re.compile(r"([^()]+)(\)[.,;:]*)\Z")
_IN_BRACKETS = re.compile(r"\((.+)\)([.,;:]*)\Z")
_FOLDED = re.compile("^<details>", re.MULTILINE)
_UNFOLDED = re.compile("^</details>", re.MULTILINE)
_MOST_NESTED = 3
_PIECE = re.compile(
    r"""(?P<before>\(?)
        (?: `(?P<marked>[^`\s](?:[^`]*[^`\s])?)`          # `fleet explain pool x`
          | (?P<braced>\{(?:[^{}]|\{[^{}]*\})*\}) )       # {env: NAME}
        (?P<after>\)?[.,;:?]*) (?!\S)
        | (?P<word>\S+)
    """,
    re.VERBOSE,
)


def code(text: str) -> str:
    """Return a name as inline code, safe in a table cell; empty stays empty."""
    text = shown(text)
    if not text.strip():
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    edge = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{edge}{_without_pipes(text)}{edge}{fence}"


def sentence(text: str) -> str:
    """Return a sentence in which every word with a meaning in Markdown is code."""
    line = " ".join(shown(text).split())
    return " ".join(_piece(match) for match in _PIECE.finditer(line))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already; `>` ends a right-aligned heading."""
    width = len(headings)
    lines = [
        [heading.removesuffix(" >") for heading in headings],
        ["--:" if heading.endswith(" >") else "---" for heading in headings],
        *([*row, *[""] * (width - len(row))] for row in rows),
    ]
    return "\n".join(f"| {clean(' | '.join(cells))} |" for cells in lines)


def details(summary: str, body: str) -> str:
    """Return a folded block; the summary is the caller's own text, never a value."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def cut(text: str, most: int, note: str) -> str:
    """Return Markdown of at most `most` characters: cut between blocks, `note` after it.

    Folded blocks that the cut leaves open are closed.
    """
    if len(text) <= most:
        return text
    closing = "\n\n</details>"
    room = most - len(note) - 4 - _MOST_NESTED * len(closing)
    # A single block that is too long is cut between its lines: rows of a table, items of a list.
    end = max(text.rfind("\n\n", room // 2, room), -1)
    end = text.rfind("\n", 0, room) if end < 0 else end
    kept = text[: max(0, end)]
    is_open = len(_FOLDED.findall(kept)) - len(_UNFOLDED.findall(kept))
    return f"{kept}{closing * is_open}\n\n{note}\n"


def _piece(piece: re.Match[str]) -> str:
    if piece["word"]:
        return _word(piece["word"])
    return f"{piece['before']}{code(piece['marked'] or piece['braced'])}{piece['after']}"


def _word(word: str) -> str:
    if word == "->":
        return "→"
    if word in _PLAIN_MARKS or (_PLAIN_WORD.match(word) and not _LINKED_WORD.search(word)):
        return word
    if inner := _IN_BRACKETS.match(word):
        return f"({code(inner[1])}){inner[2]}"
    if closing := _OPENED_BEFORE.match(word):
        return code(closing[1]) + closing[2]
    tail = _MENTIONLESS_TAIL.search(word)
    if tail and tail.start():
        return code(word[: tail.start()]) + tail.group()
    return code(word)


def _without_pipes(text: str) -> str:
    # Tables are split at pipes before code is parsed, and an escaped pipe breaks if the value
    # holds a backslash before it; a similar character does not.
    return text.replace("|", "\N{DIVIDES}")
