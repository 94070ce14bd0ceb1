"""Lay out lines for a terminal: styled spans and aligned columns.

Every value passes `shown`, so that no name can move the cursor, hide text or fill the screen.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

_P = ParamSpec("_P")
_Row = TypeVar("_Row")
WIDTH = 100
"""Columns of a line, in terminals and in logs."""
MAX_ROWS = 500
"""Maximum rows drawn of one list: more than the pools of a large fleet."""

_WORD = re.compile(
    rf"(?:`[^`]{{,{WIDTH - 20}}}`"  # a command stays on one line to be copied
    r"|(?<=\d) (?=(?:s|min|h|d)\b)|(?<=\d[dhm]) (?=\d+[hms]\b)"  # 1 h 20 min, 1h 20m
    r"|(?<=\d-\d\d) (?=\d\d:)|(?<=:\d\d) (?=UTC)"  # 2026-11-21 08:00 UTC
    r"|\S)+"
)
_MARGIN = re.compile(r"(\s*)(?:[^\w\s`\"(\[{] )?")


class Style(StrEnum):
    """Style of a span; its text has the same meaning without colour."""

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
_BREAK = Span("\n")


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


_MAX_WORD = 300
"""Maximum characters drawn of a word: more than the 200 of the longest tag of fleet.yaml."""
_LONG_WORD = re.compile(rf"\S{{{_MAX_WORD + 1},}}")


def shown(text: str) -> str:
    """Return the text to draw: `clean`, and every very long word cut."""
    text = clean(text)
    if len(text) <= _MAX_WORD:
        return text
    return _LONG_WORD.sub(lambda word: f"{word[0][: _MAX_WORD - 1]}…", text)


def bounded(items: Sequence[_Row], draw: Callable[[_Row], Iterable[Line]]) -> Iterator[Line]:
    """Yield the lines of each item; of a long list only the first, and the number of others."""
    for each in items[:MAX_ROWS]:
        yield from draw(each)
    if others := len(items[MAX_ROWS:]):
        yield line(f"  … and {others:,} more")


_PLAIN = bytes([ord("\n"), *range(ord(" "), ord("~") + 1)])
_PIECE = 1 << 16
_HIDDEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
_UNCOLOURED = rf"(?!\x1b\[[0-9;]*m){_HIDDEN}"


def visible(text: str, *, colour: bool = False) -> str:
    """Escape control characters other than line breaks and colours, as in JSON.

    The last check before printing, in case a renderer forgot `clean`.
    """
    # Megabytes of JSON are plain, which this test finds faster; chunks avoid memory allocations.
    pieces = (text[at : at + _PIECE].encode() for at in range(0, len(text), _PIECE))
    if text.isascii() and not any(piece.translate(None, _PLAIN) for piece in pieces):
        return text
    hidden = _UNCOLOURED if colour else _HIDDEN
    return re.sub(hidden, lambda found: f"\\u{ord(found[0]):04x}", text)


def table(rows: Sequence[Sequence[Span]], *, right: Collection[int] = ()) -> list[Line]:
    """Return each row as a line, its columns two spaces apart, those in `right` right-aligned.

    Figures that do not fit have one space between them, or are below the row's name.
    """
    widths = [
        max(len(shown(row[column].text)) for row in rows if column < len(row))
        for column in range(max((len(row) for row in rows), default=0))
    ]
    room = WIDTH - sum(widths) if len(widths) - 1 in right else WIDTH
    between = "  " if room >= 2 * len(widths) - 2 else " "
    is_wide = room < len(widths) - 1
    lines = []
    for row in rows:
        spans: list[Span] = []
        for column, cell in enumerate(row):
            gap = Span(" " * (widths[column] - len(shown(cell.text))))
            if column == 0 and is_wide:
                spans += [cell, _BREAK, Span("   ")]
                continue
            spans += [Span(between)] if column else []
            spans += [gap, cell] if column in right else [cell, gap]
        lines.append(tuple(spans))
    return lines


def lines_to_text(lines: Iterable[Line], *, colour: bool) -> str:
    """Return the lines as text, each ended, with ANSI styles only if `colour`."""
    return "".join(
        _format_span(part, colour=colour) + "\n" for spans in lines for part in _split_row(spans)
    )


def wrapped(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines of at most `WIDTH` columns: longer ones are wrapped with a hanging indent."""
    for spans in lines:
        for part in _split_row(spans):
            yield from _wrap(part)


def wrapping(lines: Callable[_P, Iterable[Line]]) -> Callable[_P, Iterator[Line]]:
    """Wrap the lines that a function yields."""

    @wraps(lines)
    def made(*args: _P.args, **options: _P.kwargs) -> Iterator[Line]:
        return wrapped(lines(*args, **options))

    return made


def _split_row(spans: Line) -> list[Line]:
    """Return the lines of a row that `table` broke after its name."""
    at = next((nth for nth, span in enumerate(spans) if span is _BREAK), None)
    return [spans] if at is None else [spans[:at], spans[at + 1 :]]


def _wrap(spans: Line) -> Iterator[Line]:
    """Yield a line, wrapped; words are never cut, and quoted output after a bar is not wrapped."""
    spans = tuple(Span(shown(text), style) for text, style in spans)
    text = "".join(span.text for span in spans).rstrip()
    margin = _MARGIN.match(text)
    if len(text) <= WIDTH or margin is None or text.lstrip().startswith("| "):
        yield spans
        return
    indent = margin.end() if margin.end() > margin.end(1) else margin.end() + 2
    begin = end = 0
    for word in _WORD.finditer(text):
        room = WIDTH - indent if begin else WIDTH
        if word.end() - begin > room and end > (begin or margin.end()):
            yield _part(spans, begin, end, indent)
            begin = word.start()
        end = word.end()
    yield _part(spans, begin, end, indent)


def _part(spans: Line, begin: int, end: int, indent: int) -> Line:
    """Return the spans between two columns, indented unless they start the line."""
    parts = [Span(" " * indent)] if begin else []
    at = 0
    for text, style in spans:
        parts.append(Span(text[max(0, begin - at) : max(0, end - at)], style))
        at += len(text)
    return tuple(part for part in parts if part.text)


def _format_span(spans: Line, *, colour: bool) -> str:
    styled = colour and any(span.style for span in spans)
    if not styled:
        return "".join(shown(span.text) for span in spans).rstrip()
    return "".join(
        f"\x1b[{span.style.value}m{shown(span.text)}\x1b[0m" if span.style else shown(span.text)
        for span in spans
    ).rstrip()
