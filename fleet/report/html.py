"""Draw a document as HTML; the templates escape every text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleet.report.document import (
    Block,
    Cell,
    Column,
    ColumnKind,
    Form,
    Line,
    Lines,
    Table,
    Title,
    as_spans,
    is_empty,
    text_of,
)
from fleet.report.terminal import shown

if TYPE_CHECKING:
    from jinja2 import Environment


class HtmlCell(NamedTuple):
    """A table cell with heading, CSS class and lines, and an id to draw after the lines."""

    label: str
    look: str
    lines: Sequence[Line]
    id: str = ""


def table_cells(table: Table, title: str) -> tuple[list[HtmlCell], list[list[HtmlCell]]]:
    """Return the heading cells and the rows of a table."""
    used, drawn = table.select(Form.FULL)
    columns = [(nth, table.columns[nth]) for nth in used]
    headings = [
        HtmlCell(_label(column, title), _LOOKS.get(column.kind, ""), ())
        for _, column in columns
        if column.kind is not ColumnKind.ID
    ]
    rows = []
    for row in drawn:
        found: list[HtmlCell] = []
        for nth, column in columns:
            cell = row.cell(nth)
            if column.kind is ColumnKind.ID:
                found[-1] = found[-1]._replace(id=str(cell))
            else:
                look = _LOOKS.get(column.kind, "")
                found.append(HtmlCell(_label(column, title), look, _lines(cell)))
        rows.append(found)
    return headings, rows


def _label(column: Column, title: str) -> str:
    name = column.name or title
    return f"{name[:1].upper()}{name[1:]}"


_LOOKS = {ColumnKind.FIGURE: "number", ColumnKind.PROSE: "prose", ColumnKind.COMMAND: "prose"}


def _lines(cell: Cell) -> list[Line]:
    lines = cell.lines if isinstance(cell, Lines) else (cell,)
    return [as_spans(each) for each in lines if each]


def html_environment(*packages: str) -> Environment:
    """Return a Jinja environment with the templates of these packages and of reports."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in (*packages, "fleet.report")]),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # A plain text gets escapes for its invisible characters; markup stays as it is.
        finalize=lambda value: shown(value) if type(value) is str else value,
    )
    found.globals.update(
        as_spans=as_spans,
        is_empty=is_empty,
        kind_of=lambda block: type(block).__name__,
        table_cells=table_cells,
    )
    return found


def document_to_html(blocks: Iterable[Block]) -> str:
    """Return a document as one HTML page with its style."""
    blocks = [*blocks]
    title = next(each.line for each in blocks if isinstance(each, Title))
    page = html_environment().get_template("document.html")
    return page.render(title=text_of(title), blocks=blocks)
