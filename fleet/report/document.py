"""The model of every report: lines, sections, lists, tables and plots.

A view builds blocks; `terminal`, `markdown` and `html` draw them. No view lays out columns, wraps
lines or writes markup.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fleet.report.plots import Panel


class Style(StrEnum):
    """The style of a text; the text has the same meaning without colour."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"


class StyledText(NamedTuple):
    """A text in one style, part of a line."""

    text: str
    style: Style = Style.PLAIN


MAX_ROWS = 500
"""Maximum rows or texts to draw per list: more than the pools of a large fleet."""
NO_MARK = StyledText("")
Line = tuple[StyledText, ...]
"""A paragraph; in a terminal, leading spaces indent the paragraph."""
BLANK: Line = ()


class Title(NamedTuple):
    """The heading of a whole report."""

    line: Line
    subject: str = ""
    """Name of the fleet, if the result is a separate line."""
    notes: Sequence["Block"] = ()
    """Blocks between heading and result in a terminal."""
    result: Line = ()


@dataclass(frozen=True)
class Items:
    """A list of texts, each with the same mark before it in a terminal."""

    texts: Sequence[str | Line]
    mark: StyledText = NO_MARK
    most: int = MAX_ROWS
    """Maximum texts to draw in a terminal."""
    noun: str = ""
    """Noun for the texts that a terminal leaves out, such as `warning`."""


class Form(StrEnum):
    """The renderers that draw a row or a column."""

    ALL = "all"
    BRIEF = "brief"
    """Only terminals, for example for a row with the number of hidden rows."""
    FULL = "full"
    """Only renderers that can fold a long table: Markdown and HTML."""


class ColumnKind(StrEnum):
    """Kind of a column, which determines how renderers draw its cells."""

    GROUP = "group"
    """In a terminal, a heading above the rows with the same cell."""
    NAME = "name"
    TEXT = "text"
    FIGURE = "figure"
    PROSE = "prose"
    """In a terminal, drawn on lines below the row."""
    COMMAND = "command"
    """In a terminal, drawn on lines below the row, to be copied."""
    ID = "id"
    """Drawn after the previous cell, in brackets."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: ColumnKind = ColumnKind.TEXT
    fold: int = 0
    """Rank for folding: a narrow terminal draws the highest ranks below the row.

    0 means never.
    """
    lead: str = ""
    """Words before a cell that is drawn below its row."""
    style: Style = Style.PLAIN
    form: Form = Form.ALL


class Lines(NamedTuple):
    """A cell of several lines."""

    lines: Sequence[str]


Cell = str | Line | Lines


class Row(NamedTuple):
    """A row of a table; missing cells are empty."""

    cells: Sequence[Cell]
    mark: StyledText = NO_MARK
    """Mark that a terminal draws before the row."""
    form: Form = Form.ALL

    def cell(self, nth: int) -> Cell:
        """Return the cell of a column, by number; empty if missing."""
        return self.cells[nth] if nth < len(self.cells) else ""


def row(*cells: Cell, mark: StyledText = NO_MARK, form: Form = Form.ALL) -> Row:
    """Return a row of a table."""
    return Row(cells, mark, form)


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    columns: Sequence[Column]
    """The columns; if the first has no name, the section's title is its heading."""
    rows: Sequence[Row]
    is_list: bool = False
    """Whether the rows need no headings, so that a terminal leaves the headings out."""

    def select(self, form: Form) -> tuple[list[int], list[Row]]:
        """Return the columns and rows that renderers of a form draw.

        Empty columns are left out, except for the first one and, under headings, figures.
        """
        rows = [row for row in self.rows if row.form in (Form.ALL, form)]
        used = {
            nth
            for row in rows
            for nth, cell in enumerate(row.cells)
            if (cell.lines if isinstance(cell, Lines) else cell)
        }
        if not self.is_list:
            used |= {
                n for n, column in enumerate(self.columns) if column.kind is ColumnKind.FIGURE
            }
        columns = [
            nth
            for nth, column in enumerate(self.columns)
            if column.form in (Form.ALL, form) and (nth in used or not nth)
        ]
        return columns, rows


@dataclass(frozen=True)
class Plots:
    """Plots over time, drawn only on pages and only when needed."""

    panels: Callable[[], Iterable[Panel]]


@dataclass(frozen=True)
class Section:
    """Blocks under a title; a section without blocks is left out."""

    title: str
    blocks: Sequence["Block"]
    id: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks under a summary; renderers that can fold them do so."""

    summary: str
    blocks: Sequence["Block"]


Block = Line | Title | Items | Table | Plots | Section | Fold


def line(*parts: str | StyledText) -> Line:
    """Return a line that consists of these parts."""
    return tuple(StyledText(part) if isinstance(part, str) else part for part in parts)


def as_spans(cell: str | Line | Lines, style: Style = Style.PLAIN) -> Line:
    """Return a cell as a line; join the lines of a cell with several."""
    if isinstance(cell, Lines):
        cell = "; ".join(cell.lines)
    if isinstance(cell, str):
        return (StyledText(cell, style),) if cell else ()
    return cell


def text_of(spans: Line) -> str:
    """Return the text of a line without styles."""
    return "".join(span.text for span in spans)


def bold(text: str) -> Line:
    """Return a line with one bold text."""
    return (StyledText(text, Style.BOLD),)


def figures(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table in which all columns except the first are figures."""
    first, *others = headings
    columns = [
        Column(first, ColumnKind.NAME),
        *(Column(each, ColumnKind.FIGURE) for each in others),
    ]
    return Table(columns, [*map(Row, rows)])


def is_empty(block: Block) -> bool:
    """Return whether a block has no content to draw."""
    match block:
        case Section(blocks=blocks) | Fold(blocks=blocks):
            return all(map(is_empty, blocks))
        case Items(texts=parts) | Table(rows=parts):
            return not parts
    return False


def shorten(rows: Sequence[Row], most: int, rest: str, *, at: int = 0) -> list[Row]:
    """Return rows of which a terminal draws at most `most`, then a text in column `at`.

    The text is `rest`, in which `{}` becomes the number of hidden rows.
    """
    hidden = [row._replace(form=Form.FULL) for row in rows[most:]]
    more = Row((*[""] * at, f"… and {rest.format(f'{len(hidden):,}')}"), form=Form.BRIEF)
    return [*rows[:most], *hidden, *([more] if hidden else [])]
