"""Lay out lines for a terminal: styled spans and aligned columns.

Every value passes `clean`, so that no name can move the cursor or hide text.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Style(StrEnum):
    """How a span looks in colour; its text says the same without."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]
BLANK: Line = ()


def line(*parts: str | Span) -> Line:
    """Return a line of these parts, one after the other."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def title(text: str) -> Line:
    """Return the heading of a section."""
    return (Span(text, Style.BOLD),)


def clean(text: str) -> str:
    """Return the text with every control or invisible character written out as its escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


_HIDDEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
_UNCOLOURED = rf"(?!\x1b\[[0-9;]*m){_HIDDEN}"


def visible(text: str, *, colour: bool = False) -> str:
    """Return text with control characters other than line breaks and colours escaped as in JSON.

    The last check before printing, in case a renderer forgot `clean`.
    """
    hidden = _UNCOLOURED if colour else _HIDDEN
    return re.sub(hidden, lambda found: f"\\u{ord(found[0]):04x}", text)


def table(rows: Sequence[Sequence[Span]], *, right: Collection[int] = ()) -> list[Line]:
    """Return each row as a line, two spaces between columns, those in `right` right-aligned."""
    widths = [
        max(len(clean(row[column].text)) for row in rows if column < len(row))
        for column in range(max((len(row) for row in rows), default=0))
    ]
    return [
        tuple(
            span
            for column, cell in enumerate(row)
            for span in _padded(
                cell,
                widths[column],
                at_right=column in right,
                is_first=column == 0,
                is_last=column == len(row) - 1,
            )
        )
        for row in rows
    ]


def lines_to_text(lines: Iterable[Line], *, colour: bool) -> str:
    """Return the lines as text, each ended, with ANSI styles only where colour is wanted."""
    return "".join(_line_to_text(spans, colour=colour) + "\n" for spans in lines)


def _padded(
    cell: Span, width: int, *, at_right: bool, is_first: bool, is_last: bool
) -> Iterable[Span]:
    gap = " " * (width - len(clean(cell.text)))
    if not is_first:
        yield Span("  ")
    if at_right:
        yield Span(gap)
    yield cell
    if not at_right and not is_last:
        yield Span(gap)


def _line_to_text(spans: Line, *, colour: bool) -> str:
    styled = colour and any(span.style for span in spans)
    if not styled:
        return "".join(clean(span.text) for span in spans).rstrip()
    return "".join(
        f"\x1b[{span.style.value}m{clean(span.text)}\x1b[0m" if span.style else clean(span.text)
        for span in spans
    ).rstrip()
