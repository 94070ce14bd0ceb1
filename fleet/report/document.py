"""The model of every report: lines, sections, lists, tables and plots.

A view builds blocks; `terminal`, `markdown` and `html` draw them. No view lays out columns, wraps
lines or writes markup.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from typing import Any, Generic, NamedTuple, Self, TypeVar

from fleet.report.plots import Panel


class Style(StrEnum):
    """Style of a text, such as bold or red. The meaning must not depend on the style."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"
    CODE = "0"
    """A text to copy as it is."""


class StyledText(NamedTuple):
    """A part of a line, in one style."""

    text: str
    style: Style = Style.PLAIN
    target: str = ""
    """Quoted path of a page of the same site, or a URL. Only HTML links to it."""


MAX_ROWS = 500
"""Maximum rows or texts to draw per list. Even large fleets have fewer pools."""
NO_MARK = StyledText("")
Line = tuple[StyledText, ...]
"""A paragraph of styled texts. In a terminal, leading spaces indent the whole paragraph."""
BLANK: Line = ()


class Title(NamedTuple):
    """The heading of a whole report."""

    line: Line
    subject: str = ""
    """Name of the fleet, drawn before the result in Markdown; empty without a result."""
    notes: Sequence["Block"] = ()
    """Blocks that a terminal draws between the heading and the result."""
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
    has_figures: bool = False
    """Whether each text starts with a figure, which a page draws large."""


class Form(StrEnum):
    """Kinds of renderers that draw a row or a column."""

    ALL = "all"
    BRIEF = "brief"
    """Draw only in a terminal, for example a row with the number of hidden rows."""
    FULL = "full"
    """Draw only where a long table can be folded: in Markdown and HTML."""


class ColumnKind(StrEnum):
    """Kind of a column. The kind determines how renderers draw the cells."""

    GROUP = "group"
    """Drawn in a terminal as a heading above all rows with the same cell."""
    NAME = "name"
    TEXT = "text"
    FIGURE = "figure"
    PROSE = "prose"
    """Drawn in a terminal on lines below the row."""
    COMMAND = "command"
    """Drawn in a terminal on lines below the row, for copying."""
    ID = "id"
    """Drawn after the previous cell, in brackets."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: ColumnKind = ColumnKind.TEXT
    fold: int = 0
    """Folding rank. A narrow terminal moves the highest rank below the row first, and 0 never."""
    lead: str = ""
    """Words before a cell that is drawn below its row."""
    style: Style = Style.PLAIN
    form: Form = Form.ALL


class Lines(NamedTuple):
    """A cell of several lines."""

    lines: Sequence[str | Line]


class Bar(NamedTuple):
    """A cell with shares of a whole. Only HTML draws them; figures next to it have the numbers."""

    parts: Sequence[tuple[str, float]]
    """Kind and percentage of each share, from the left."""


Cell = str | Line | Lines | Bar


class Row(NamedTuple):
    """A row of a table. Missing cells are empty."""

    cells: Sequence[Cell]
    mark: StyledText = NO_MARK
    """Mark that a terminal draws before the row."""
    form: Form = Form.ALL

    def cell(self, nth: int) -> Cell:
        """Return the cell of the column with this number; empty if the row is shorter."""
        return self.cells[nth] if nth < len(self.cells) else ""


def row(*cells: Cell, mark: StyledText = NO_MARK, form: Form = Form.ALL) -> Row:
    """Return a row of a table."""
    return Row(cells, mark, form)


@dataclass
class Table:
    """A table: rows under column headings."""

    columns: Sequence[Column]
    """Columns. If the first column has no name, the title of the section is its heading."""
    rows: Sequence[Row]
    is_list: bool = False
    """Whether the rows are clear without headings. A terminal and pages leave the headings out."""

    def select(self, form: Form) -> tuple[list[int], list[Row]]:
        """Return the numbers of the columns, and the rows, that renderers of a form draw.

        Empty columns are left out. The first column always stays, as do figures in tables with
        headings.
        """
        rows = [row for row in self.rows if row.form in (Form.ALL, form)]
        used = {
            nth
            for row in rows
            for nth, cell in enumerate(row.cells)
            if (cell[0] if isinstance(cell, Lines | Bar) else cell)
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


Entry = TypeVar("Entry")


class TableOf(Table, Generic[Entry]):
    """A table with a row per entry. Each column has a function that returns its cells."""

    def __init__(
        self,
        entries: Iterable[Entry],
        *,
        is_list: bool = False,
        mark: StyledText | Callable[[Entry], StyledText] = NO_MARK,
    ) -> None:
        self._entries = [*entries]
        self._cells: list[list[Cell]] = [[] for _ in self._entries]
        self._columns: list[Column] = []
        marks = (mark(each) if callable(mark) else mark for each in self._entries)
        rows = [Row(cells, sign) for cells, sign in zip(self._cells, marks, strict=True)]
        super().__init__(self._columns, rows, is_list)

    def add(self, column: Column, cell: Callable[[Entry], Cell]) -> Self:
        """Add a column of any kind."""
        self._columns.append(column)
        for cells, entry in zip(self._cells, self._entries, strict=True):
            cells.append(cell(entry))
        return self

    def name(self, heading: str, cell: Callable[[Entry], Cell]) -> Self:
        """Add a column of names."""
        return self.add(Column(heading, ColumnKind.NAME), cell)

    def text(self, heading: str, cell: Callable[[Entry], Cell], fold: int = 0) -> Self:
        """Add a column of texts."""
        return self.add(Column(heading, fold=fold), cell)

    def figure(self, heading: str, cell: Callable[[Entry], Cell], fold: int = 0) -> Self:
        """Add a column of figures."""
        return self.add(Column(heading, ColumnKind.FIGURE, fold), cell)

    def prose(
        self,
        heading: str,
        cell: Callable[[Entry], Cell],
        style: Style = Style.PLAIN,
        lead: str = "",
    ) -> Self:
        """Add a column of sentences."""
        return self.add(Column(heading, ColumnKind.PROSE, lead=lead, style=style), cell)

    def brief(self, text: str) -> Self:
        """Append a row that only a terminal draws."""
        groups = [""] * (self._columns[0].kind is ColumnKind.GROUP)
        self.rows = [*self.rows, Row((*groups, text), form=Form.BRIEF)]
        return self

    def keep(
        self,
        most: int,
        rest: Callable[[list[Entry]], str],
        order: Callable[[Entry], tuple[Any, ...]] = lambda _: (),
    ) -> Self:
        """Hide all rows in a terminal except the `most` largest by `order`, or the first."""
        places = range(len(self._entries))
        kept = nlargest(most, places, lambda nth: (*order(self._entries[nth]), -nth))
        return self.hide({*places} - {*kept}, rest)

    def hide(self, hidden: Container[int], rest: Callable[[list[Entry]], str]) -> Self:
        """Hide the rows at these positions in a terminal, and append a row about them there."""
        self.rows = [
            row._replace(form=Form.FULL) if nth in hidden else row
            for nth, row in enumerate(self.rows)
        ]
        entries = [entry for nth, entry in enumerate(self._entries) if nth in hidden]
        return self.brief(f"… and {rest(entries)}") if entries else self


@dataclass(frozen=True)
class Plots:
    """Plots over time. Only HTML pages draw plots, and compute them when drawing."""

    panels: Callable[[], Iterable[Panel]]


@dataclass(frozen=True)
class Section:
    """Blocks under a title. A section without blocks is left out."""

    title: str
    blocks: Sequence["Block"]
    id: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks under a summary. Markdown and HTML fold the blocks."""

    summary: str
    blocks: Sequence["Block"]


Block = Line | Title | Items | Table | Plots | Section | Fold


def dim(text: str) -> StyledText:
    """Return a text of little importance."""
    return StyledText(text, Style.DIM)


def red(text: str) -> StyledText:
    """Return a text about a failure."""
    return StyledText(text, Style.RED)


def yellow(text: str) -> StyledText:
    """Return a text that needs attention."""
    return StyledText(text, Style.YELLOW)


def link(text: str, target: str) -> Cell:
    """Return a text that links to a page; `target` is empty without a page."""
    return (StyledText(text, target=target),) if target else text


def line(*parts: str | StyledText) -> Line:
    """Return a line that consists of these parts."""
    return tuple(StyledText(part) if isinstance(part, str) else part for part in parts)


def as_spans(cell: Cell, style: Style = Style.PLAIN) -> Line:
    """Return a cell as one line. Join several lines with semicolons."""
    if isinstance(cell, Bar):
        return ()
    if isinstance(cell, Lines):
        cell = "; ".join(text_of(as_spans(each)) for each in cell.lines)
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
    """Return a table in which all columns except the first contain figures."""
    first, *others = headings
    columns = [
        Column(first, ColumnKind.NAME),
        *(Column(each, ColumnKind.FIGURE) for each in others),
    ]
    return Table(columns, [*map(Row, rows)])


def facts(*pairs: tuple[str, Cell]) -> Table:
    """Return a table of names, each with its fact."""
    return Table((Column("", ColumnKind.NAME), Column("")), [row(*pair) for pair in pairs], True)


def is_empty(block: Block) -> bool:
    """Return whether a block has no content to draw."""
    match block:
        case Section(blocks=blocks) | Fold(blocks=blocks):
            return all(map(is_empty, blocks))
        case Items(texts=parts) | Table(rows=parts):
            return not parts
    return False
