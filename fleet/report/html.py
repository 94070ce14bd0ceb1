"""The cells of a table of a document, for templates to draw as HTML."""

from collections.abc import Sequence
from typing import NamedTuple

from fleet.report.document import Cell, Column, Form, Kind, Line, Lines, Table, as_spans


class HtmlCell(NamedTuple):
    """A cell: its heading, CSS class and lines, each with the id that follows it."""

    label: str
    look: str
    lines: Sequence[Line]
    id: str = ""


def table_cells(table: Table, title: str) -> tuple[list[HtmlCell], list[list[HtmlCell]]]:
    """Return the headings and the rows of a table."""
    used, drawn = table.select(Form.FULL)
    columns = [(nth, table.columns[nth]) for nth in used]
    headings = [
        HtmlCell(_label(column, title), _LOOKS.get(column.kind, ""), ())
        for _, column in columns
        if column.kind is not Kind.ID
    ]
    rows = []
    for row in drawn:
        found: list[HtmlCell] = []
        for nth, column in columns:
            cell = row.cell(nth)
            if column.kind is Kind.ID:
                found[-1] = found[-1]._replace(id=str(cell))
            else:
                look = _LOOKS.get(column.kind, "")
                found.append(HtmlCell(_label(column, title), look, _lines(cell)))
        rows.append(found)
    return headings, rows


def _label(column: Column, title: str) -> str:
    name = column.name or title
    return f"{name[:1].upper()}{name[1:]}"


_LOOKS = {Kind.FIGURE: "number", Kind.PROSE: "prose", Kind.COMMAND: "prose"}


def _lines(cell: Cell) -> list[Line]:
    lines = cell.lines if isinstance(cell, Lines) else (cell,)
    return [as_spans(each) for each in lines if each]
