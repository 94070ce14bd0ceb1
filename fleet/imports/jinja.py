"""This module takes out of a file what only Jinja understands, and tells it with its line."""

import re

from fleet.imports.changes import Notes
from fleet.imports.writing import comment_text
from fleet.schema.findings import Span
from fleet.schema.nodes import lines_of

_TAG = re.compile(r"\{%[-+]?\s*(?P<word>\w+).*?%\}", re.DOTALL)
_COMMENT = re.compile(r"^[ \t]*\{#[^\n]*#\}[ \t]*$", re.MULTILINE)
_BLOCKS = ("if", "for", "macro", "filter", "call", "block", "raw")
_INSTEAD = "not carried over, for Jinja decides; import the file that Ansible wrote on the server"


def without_jinja(name: str, text: str, notes: Notes) -> str:
    """Return a text with blanks in place of Jinja's statements and of what stands under them."""
    text = _COMMENT.sub(lambda found: " " * len(found[0]), text)
    kept, done, depth = [], 0, 0
    first: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        first = first or tag
        ends = tag["word"].startswith("end") and tag["word"].removeprefix("end") in _BLOCKS
        depth = max(0, depth + (tag["word"] in _BLOCKS) - ends)
        if depth == 0:
            kept += [text[done : first.start()], _told(name, text, first, tag.end(), notes)]
            first, done = None, tag.end()
    if first is not None:
        kept += [text[done : first.start()], _told(name, text, first, len(text), notes)]
        done = len(text)
    return "".join(kept) + text[done:]


def is_filled_in(text: str, place: Span, what: str, notes: Notes) -> bool:
    """Say whether Jinja writes a part of a value, and tell that it is not carried over."""
    if "{{" not in text:
        return False
    notes.change("no-equivalent", place, f"{what}{comment_text(text)}", _INSTEAD)
    return True


def _told(name: str, text: str, tag: re.Match[str], end: int, notes: Notes) -> str:
    """Tell a part of the text, and return as many blanks."""
    before, part = lines_of(text[: tag.start()]), text[tag.start() : end]
    line, column = len(before), len(before[-1]) + 1
    last = line + len(lines_of(part)) - 1
    place = Span(name, line, column, line, column + len(lines_of(tag[0])[0]))
    until = f" and what stands under it, to line {last}" if last > line else ""
    # What is set may be a password.
    said = comment_text(tag[0]) if tag["word"] in ("if", "for") else f"{{% {tag['word']} … %}}"
    notes.change("no-equivalent", place, f"{said}{until}", _INSTEAD)
    return re.sub(r"[^\r\n]", " ", part)
