"""Draw a document for a terminal or a log, in the available width.

Every value passes `shown`, so that no name can move the cursor, hide text or fill the screen.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, groupby
from unicodedata import category, east_asian_width

from fleet.ports import Console
from fleet.report.document import (
    BLANK,
    Block,
    Cell,
    ColumnKind,
    Fold,
    Form,
    Items,
    Line,
    Lines,
    Plots,
    Row,
    Section,
    Style,
    StyledText,
    Table,
    Title,
    as_spans,
    bold,
    dim,
    is_empty,
    line,
)

WIDTH = 100
"""Characters per line without a terminal, for example in a log."""
MIN_WIDTH = 40
"""Minimum characters per line. A narrower terminal breaks the lines itself."""
_TAIL = 12
"""Characters to reserve for a text in the last column, where long texts are wrapped."""
_CELLS_PER_LONG = 10
"""Number of cells per overlong cell that a column may have. Each column may have one."""
_MIN_EXCESS = 8
"""Minimum characters by which an overlong cell is wider than the other cells of its column."""

_ALIGNED = (ColumnKind.NAME, ColumnKind.TEXT, ColumnKind.FIGURE)
"""Kinds of columns to draw in the row. Other kinds are drawn on lines below the row."""
_MARGIN = re.compile(r"(\s*)(?:[^\w\s`\"(\[{] )?")


def clean(text: str) -> str:
    """Return the text with an escape in place of each control or invisible character."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


_MAX_WORD = 300
"""Maximum characters to draw per word; the longest tag of fleet.yaml has 200."""
_LONG_WORD = re.compile(rf"\S{{{_MAX_WORD + 1},}}")


def shown(text: str) -> str:
    """Return the text with invisible characters replaced and very long words cut."""
    text = clean(text)
    if len(text) <= _MAX_WORD:
        return text
    return _LONG_WORD.sub(lambda word: f"{word[0][: _MAX_WORD - 1]}…", text)


def width_of(text: str) -> int:
    """Return the number of terminal columns of a text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    """Return the terminal columns of a character: 2 if wide, 0 if combining, else 1."""
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


_PLAIN = bytes([ord("\n"), *range(ord(" "), ord("~") + 1)])
_PIECE = 1 << 16
_HIDDEN = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
_UNCOLOURED = rf"(?!\x1b\[[0-9;]*m){_HIDDEN}"


def visible(text: str, *, colour: bool = False) -> str:
    """Escape control characters, except for line breaks and, with `colour`, colour codes.

    This is the last check before printing, in case a renderer did not call `clean`.
    """
    # Test for plain text first, which is faster for megabytes of JSON; chunks save allocations.
    pieces = (text[at : at + _PIECE].encode() for at in range(0, len(text), _PIECE))
    if text.isascii() and not any(piece.translate(None, _PLAIN) for piece in pieces):
        return text
    hidden = _UNCOLOURED if colour else _HIDDEN
    return re.sub(hidden, lambda found: f"\\u{ord(found[0]):04x}", text)


def document_to_text(blocks: Iterable[Block], *, colour: bool = False, width: int = WIDTH) -> str:
    """Return a document as text of this width. Only with `colour`, the text has ANSI styles."""
    width = max(MIN_WIDTH, width)
    lines = (part for each in _layout(blocks, width) for part in _wrap(each, width))
    return "".join(_format_spans(spans, colour=colour) + "\n" for spans in lines)


def text_for(console: Console, blocks: Iterable[Block], *, piped: int | None = WIDTH) -> str:
    """Return a document as text for a console; `piped` is the width without a terminal."""
    width = console.columns(piped) or sys.maxsize
    return document_to_text(blocks, colour=console.colour, width=width)


def _layout(blocks: Iterable[Block], width: int, indent: int = 0) -> Iterator[Line]:
    """Yield the lines of blocks, with a blank line before each section except the first."""
    is_first = True
    for block in blocks:
        if is_empty(block):
            continue
        if isinstance(block, Section | Fold) and not is_first:
            yield BLANK
        is_first = False
        match block:
            case Section(title=title, blocks=parts):
                yield from _section(title, parts, width)
            case Fold(summary=summary, blocks=parts):
                yield bold(summary)
                yield from _layout(parts, width)
            case Title():
                yield block.line
                yield from _layout(block.notes, width)
                yield from [block.result] if block.result else []
            case Items():
                yield from _items(block, indent)
            case Table():
                yield from _TableLayout(block, "", width, indent if block.is_list else 0).lines()
            case Plots():
                pass  # only a page has them
            case _:
                yield block


def _section(title: str, blocks: Sequence[Block], width: int) -> Iterator[Line]:
    first, *others = (block for block in blocks if not is_empty(block))
    if isinstance(first, Table) and not first.columns[0].name:
        yield from _TableLayout(first, title, width, 2).lines()
        blocks = others
    elif title:
        yield bold(title)
    yield from _layout(blocks, width, 2 if title else 0)


def _items(items: Items, indent: int) -> Iterator[Line]:
    lead = " " * indent
    for text in items.texts[: items.most]:
        yield line(lead, items.mark, *as_spans(text))
    if others := len(items.texts[items.most :]):
        noun = f" {items.noun}{'' if others == 1 else 's'}" if items.noun else ""
        yield line(f"{lead}… and {others:,} more{noun}")


class _TableLayout:
    """The layout of a table in a given width. Columns that do not fit are below their row."""

    def __init__(self, table: Table, title: str, width: int, indent: int) -> None:
        self._table, self._indent = table, indent
        used, self._rows = table.select(Form.BRIEF)
        kinds = {nth: table.columns[nth].kind for nth in used}
        self._group = next((nth for nth in used if kinds[nth] is ColumnKind.GROUP), None)
        self._inner = indent + 2 * (self._group is not None)
        self._columns = [nth for nth in used if nth != self._group]
        self._heads = [nth for nth in used if kinds[nth] in _ALIGNED]
        self._names = {nth: table.columns[nth].name for nth in self._heads}
        self._offset = -self._inner if title else indent - self._inner
        """Terminal column of the headings, relative to the rows."""
        if title:
            self._names[self._heads[0]] = title
        self._cells = [self._cells_of(row) for row in self._rows]
        self._widths = {nth: self._width(nth) for nth in self._heads}
        if sum(self._widths.values()) + len(self._heads) - 1 + self._inner > width:
            self._narrow()
        self._fit(width)

    def lines(self) -> Iterator[Line]:
        """Yield the headings, then each row with its other cells below it."""
        if not self._table.is_list:
            names = {
                nth: (StyledText(name, Style.BOLD if nth == self._heads[0] else Style.DIM),)
                for nth, name in self._names.items()
            }
            yield from self._align(names, self._offset)
        drawn = zip(self._rows, self._cells, strict=True)
        for group, rows in groupby(drawn, lambda each: self._group_of(each[0])):
            if group:
                yield line(" " * self._indent, *as_spans(group, Style.BOLD))
            # Adjacent rows of a group with equal prose share one copy of it.
            prose: list[Line] = []
            for row, (heads, below) in rows:
                if below != prose or self._group is None:
                    yield from prose
                yield from self._row(row, heads)
                prose = below
            yield from prose

    def _group_of(self, row: Row) -> Cell:
        return "" if self._group is None else row.cell(self._group)

    def _row(self, row: Row, heads: Mapping[int, Line]) -> Iterator[Line]:
        if row.form is Form.BRIEF:
            indent = self._inner if self._group_of(row) else self._indent
            yield line(" " * indent, *(span for cell in heads.values() for span in cell))
            return
        yield from self._align(heads)
        named = not self._table.is_list
        folded = [
            f"{_lower(self._names[nth])} {text}" if named else text
            for nth in self._heads
            if nth not in self._kept and (text := _text(heads[nth]))
        ]
        if folded:
            yield line(" " * (self._inner + 4), dim(", ".join(folded)))

    def _cells_of(self, row: Row) -> tuple[dict[int, Line], list[Line]]:
        """Return a row's aligned cells by column number, and the lines below the row."""
        heads: dict[int, Line] = dict.fromkeys(self._heads, ())
        below: list[Line] = []
        margin = " " * (self._inner + 4)
        for nth in self._columns:
            column, cell = self._table.columns[nth], row.cell(nth)
            if column.kind in _ALIGNED:
                heads[nth] = as_spans(cell, column.style)
                if nth == self._heads[0] and row.mark.text:
                    heads[nth] = (row.mark, *heads[nth])
            elif column.kind is ColumnKind.ID and cell:
                id_ = (StyledText(" "), StyledText(f"[{cell}]", Style.CYAN))
                if below:
                    below[-1] += id_
                else:
                    heads[self._heads[-1]] += id_
            elif isinstance(cell, Lines):
                deep = margin if column.kind is ColumnKind.PROSE else f"{margin}  "
                if column.lead and cell.lines:
                    below.append(line(margin + column.lead.rstrip()))
                below += [(StyledText(deep), *as_spans(e, column.style)) for e in cell.lines]
            elif cell:
                lead = as_spans(column.lead, column.style)
                below.append((StyledText(margin), *lead, *as_spans(cell, column.style)))
        return heads, below

    def _cell_widths(self, nth: int) -> list[int]:
        """Return the widths of the cells of a column, in terminal columns."""
        rows = zip(self._rows, self._cells, strict=True)
        return [width_of(_text(heads[nth])) for row, (heads, _) in rows if row.form is Form.ALL]

    def _narrow(self) -> None:
        """Narrow the columns that only a few long cells widen. Rows break after such a cell."""
        for nth in self._heads[:-1]:
            cells = sorted(self._cell_widths(nth))
            is_figure = self._table.columns[nth].kind is ColumnKind.FIGURE
            if cells[2:] and not (is_figure or self._table.is_list):
                usual = cells[-1 - max(1, len(cells) // _CELLS_PER_LONG)]
                if cells[-1] - usual > _MIN_EXCESS:
                    self._widths[nth] = max(usual, width_of(shown(self._names[nth])))

    def _width(self, nth: int) -> int:
        """Return the width of a column, in terminal columns."""
        widths = self._cell_widths(nth)
        if not self._table.is_list:
            offset = self._offset if nth == self._heads[0] else 0
            widths.append(width_of(shown(self._names[nth])) + offset)
        return max(widths, default=0)

    def _fit(self, width: int) -> None:
        """Choose the columns to fold below the rows, and the gap between the other columns."""
        columns = self._table.columns
        self._kept = [*self._heads]
        while True:
            widths = [self._widths[nth] for nth in self._kept]
            if columns[self._kept[-1]].kind is not ColumnKind.FIGURE and self._kept[1:]:
                widths[-1] = min(widths[-1], _TAIL)
            room = width - self._inner - sum(widths)
            if room >= len(widths) - 1 or not self._kept[1:]:
                break
            self._kept.remove(max(self._kept[1:], key=lambda nth: (columns[nth].fold, nth)))
        self._gap = 2 if room >= 2 * len(widths) - 2 else 1

    def _align(self, cells: Mapping[int, Line], offset: int = 0) -> Iterator[Line]:
        spans: list[StyledText] = []
        at, end = self._inner + offset, 0
        for nth in self._kept:
            if end > at:
                yield tuple(spans)
                spans, end = [], 0
            free = self._widths[nth] - width_of(_text(cells[nth]))
            is_figure = self._table.columns[nth].kind is ColumnKind.FIGURE
            begin = at + (free if is_figure else 0)
            spans += [StyledText(" " * (begin - end)), *cells[nth]]
            end = begin + width_of(_text(cells[nth]))
            at = (self._inner if nth == self._kept[0] else at) + self._widths[nth] + self._gap
        yield tuple(spans)


def _lower(name: str) -> str:
    return name.lower() if name.isupper() else name


def _text(spans: Line) -> str:
    return "".join(shown(span.text) for span in spans)


@cache
def _words(width: int) -> re.Pattern[str]:
    """Return the pattern of a word, command or time, which must stay on one line."""
    return re.compile(
        rf"(?:`[^`]{{,{width - 20}}}`"  # a command stays on one line to be copied
        r"|(?<=\d) (?=(?:s|min|h|d)\b)|(?<=\d[dhm]) (?=\d+[hms]\b)"  # 1 h 20 min, 1h 20m
        r"|(?<=\d-\d\d) (?=\d\d:)|(?<=:\d\d) (?=UTC)"  # 2026-11-21 08:00 UTC
        r"|\S)+"
    )


def _wrap(spans: Line, width: int) -> Iterator[Line]:
    """Wrap a line with a hanging indent, and yield its parts.

    Words are never cut. Quoted output after a bar is not wrapped.
    """
    spans = tuple(StyledText(shown(span.text), span.style) for span in spans)
    text = "".join(span.text for span in spans).rstrip()
    margin = _MARGIN.match(text)
    if width_of(text) <= width or margin is None or text.lstrip().startswith("| "):
        yield spans
        return
    indent = margin.end() if margin.end() > margin.end(1) else margin.end() + 2
    columns = [0, *accumulate(map(_columns, text))]
    begin = end = 0
    for word in _words(width).finditer(text):
        room = width - indent if begin else width
        if columns[word.end()] - columns[begin] > room and end > (begin or margin.end()):
            yield _part(spans, begin, end, indent)
            begin = word.start()
        end = word.end()
    yield _part(spans, begin, end, indent)


def _part(spans: Line, begin: int, end: int, indent: int) -> Line:
    """Return the part of a line between two columns; indent it unless it starts the line."""
    parts = [StyledText(" " * indent)] if begin else []
    at = 0
    for text, style, _ in spans:
        parts.append(StyledText(text[max(0, begin - at) : max(0, end - at)], style))
        at += len(text)
    return tuple(part for part in parts if part.text)


def _format_spans(spans: Line, *, colour: bool) -> str:
    if not colour:
        return "".join(span.text for span in spans).rstrip()
    runs = groupby((span for span in spans if span.text), key=lambda span: span.style)
    parts = ((style, "".join(span.text for span in run)) for style, run in runs)
    return "".join(
        f"\x1b[{style.value}m{text}\x1b[0m" if style else text for style, text in parts
    ).rstrip()
