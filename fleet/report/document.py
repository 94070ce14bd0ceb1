"""The model of every report: lines, sections, lists, tables and plots.

A view builds blocks, and `terminal`, `markdown` and `html` draw them: no view lays out
columns, wraps lines or writes markup.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fleet.report.plots import Panel


class Style(StrEnum):
    """Style of a span; its text has the same meaning without colour."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"


class StyledText(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: Style = Style.PLAIN


MAX_ROWS = 500
"""Maximum rows or texts drawn of one list: more than the pools of a large fleet."""
NO_MARK = StyledText("")
Line = tuple[StyledText, ...]
"""A paragraph; leading spaces indent it in a terminal."""
BLANK: Line = ()


class Title(NamedTuple):
    """The heading of a whole report."""

    line: Line
    subject: str = ""
    """Name of the fleet, if the result is a line of its own."""
    notes: Sequence["Block"] = ()
    """Parts between heading and result in a terminal."""
    result: Line = ()


@dataclass(frozen=True)
class Items:
    """A list of texts, each after the same mark in a terminal."""

    texts: Sequence[str | Line]
    mark: StyledText = NO_MARK
    most: int = MAX_ROWS
    """Maximum texts drawn in a terminal."""
    noun: str = ""
    """Names the texts that a terminal leaves out."""


class Form(StrEnum):
    """The renderers that draw a row or a column."""

    ALL = "all"
    BRIEF = "brief"
    """Terminals only, for example a row that counts hidden rows."""
    FULL = "full"
    """Renderers that can fold a long table."""


class ColumnKind(StrEnum):
    """The way in which the cells of a column are drawn."""

    GROUP = "group"
    """In a terminal the heading of the rows that have the same cell."""
    NAME = "name"
    TEXT = "text"
    FIGURE = "figure"
    PROSE = "prose"
    """In a terminal, lines below the row."""
    COMMAND = "command"
    """In a terminal, lines below the row, to be copied."""
    ID = "id"
    """Follows the cell before it."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: ColumnKind = ColumnKind.TEXT
    fold: int = 0
    """A narrow terminal draws the cells of the column with the highest figure below the row.

    0: never.
    """
    lead: str = ""
    """Words before each cell that is drawn below its row."""
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
    """Drawn before the row in a terminal."""
    form: Form = Form.ALL

    def cell(self, nth: int) -> Cell:
        """Return the cell of a column."""
        return self.cells[nth] if nth < len(self.cells) else ""


def row(*cells: Cell, mark: StyledText = NO_MARK, form: Form = Form.ALL) -> Row:
    """Return a row of a table."""
    return Row(cells, mark, form)


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    columns: Sequence[Column]
    """If the first one has no name, the title of the section is its heading."""
    rows: Sequence[Row]
    is_list: bool = False
    """Whether the rows can be read without headings, which a terminal then leaves out."""

    def select(self, form: Form) -> tuple[list[int], list[Row]]:
        """Return the columns and rows that renderers of a form draw.

        Columns without a cell are left out, except the first one and figures with a heading.
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
    """Plots over time, which only a page has; they are drawn when they are needed."""

    panels: Callable[[], Iterable[Panel]]


@dataclass(frozen=True)
class Section:
    """Blocks under a title; it is left out without blocks."""

    title: str
    blocks: Sequence["Block"]
    id: str = ""


@dataclass(frozen=True)
class Fold:
    """Content under a summary, folded by renderers that can."""

    summary: str
    blocks: Sequence["Block"]


Block = Line | Title | Items | Table | Plots | Section | Fold


def line(*parts: str | StyledText) -> Line:
    """Return a line of these parts, one after the other."""
    return tuple(StyledText(part) if isinstance(part, str) else part for part in parts)


def as_spans(cell: str | Line | Lines, style: Style = Style.PLAIN) -> Line:
    """Return a cell as a line; a cell of several lines is joined."""
    if isinstance(cell, Lines):
        cell = "; ".join(cell.lines)
    if isinstance(cell, str):
        return (StyledText(cell, style),) if cell else ()
    return cell


def text_of(spans: Line) -> str:
    """Return the text of a line without styles."""
    return "".join(span.text for span in spans)


def bold(text: str) -> Line:
    """Return a line of one bold text."""
    return (StyledText(text, Style.BOLD),)


def figures(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table of names and their figures."""
    first, *others = headings
    columns = [
        Column(first, ColumnKind.NAME),
        *(Column(each, ColumnKind.FIGURE) for each in others),
    ]
    return Table(columns, [*map(Row, rows)])


def is_empty(block: Block) -> bool:
    """Return whether nothing of a block is drawn."""
    match block:
        case Section(blocks=blocks) | Fold(blocks=blocks):
            return all(map(is_empty, blocks))
        case Items(texts=parts) | Table(rows=parts):
            return not parts
    return False


def shorten(rows: Sequence[Row], most: int, rest: str, *, at: int = 0) -> list[Row]:
    """Return rows of which a terminal draws the first ones, then a text in column `at`.

    `rest` is about the others; it has their number in place of `{}`.
    """
    hidden = [row._replace(form=Form.FULL) for row in rows[most:]]
    more = Row((*[""] * at, f"… and {rest.format(f'{len(hidden):,}')}"), form=Form.BRIEF)
    return [*rows[:most], *hidden, *([more] if hidden else [])]
