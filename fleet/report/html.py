"""Draw a document as an HTML page, alone or as a page of a site; every text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape

from fleet.report.document import (
    MAX_ROWS,
    Bar,
    Block,
    Cell,
    Column,
    ColumnKind,
    Form,
    Line,
    Lines,
    Row,
    Style,
    Table,
    Title,
    as_spans,
    is_empty,
    text_of,
)
from fleet.report.terminal import shown

if TYPE_CHECKING:
    from jinja2 import Template

_ELEMENTS = {Style.BOLD: "strong", Style.CODE: "code", Style.DIM: "small"}
_CODE = re.compile(r"`([^`]+)`")
_PLAIN_FIGURE = re.compile(r"[\d.,]+")


class SiteFrame(NamedTuple):
    """The parts that all pages of a site share: its name, the time, and the navigation."""

    name: str
    time: str
    moment: str
    """The time in the format of ISO 8601."""
    navigation: Sequence[tuple[str, str]]
    """Label and path of each page in the navigation."""


def document_to_html(
    blocks: Iterable[Block], path: str = "", frame: SiteFrame | None = None
) -> str:
    """Return a document as an HTML page. Without a frame, the page includes its style sheet."""
    blocks = [*blocks]
    title = next(each.line for each in blocks if isinstance(each, Title))
    up = "../" * path.count("/")
    return _template().render(
        title=text_of(title),
        blocks=blocks,
        frame=frame,
        path=path,
        up=up,
        html=partial(_draw_line, up),
        draw_table=partial(_draw_table, up),
    )


def style_sheet() -> str:
    """Return the style sheet of all pages."""
    return _template().environment.get_template("style.css").render()


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("fleet.report"),
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
        most=MAX_ROWS,
        is_figure=_PLAIN_FIGURE.fullmatch,
        kind_of=lambda block: "Table" if isinstance(block, Table) else type(block).__name__,
        text_of=text_of,
    )
    return found.get_template("page.html")


def _draw_line(up: str, spans: Line) -> Markup:
    """Return a line as HTML; `up` leads from its page to the root of the site."""
    parts = []
    for text, style, target in (span for span in spans if span.text):
        part = str(escape(shown(text)))
        if "`" in part:
            part = _CODE.sub(r"<code>\1</code>", part)
        if style in _ELEMENTS:
            part = f"<{_ELEMENTS[style]}>{part}</{_ELEMENTS[style]}>"
        elif style:
            part = f'<span class="{style.name.lower()}">{part}</span>'
        if target:
            is_path = ":" not in target and not target.startswith("#")
            part = f'<a href="{up if is_path else ""}{escape(target)}">{part}</a>'
        parts.append(part)
    return Markup("".join(parts))  # noqa: S704 - each text above is escaped


def _draw_table(
    up: str, table: Table, title: str
) -> tuple[list[tuple[str, str]], list[tuple[Markup, Markup]]]:
    """Return the headings of a table, each with its CSS class, and its groups of rows as HTML.

    A group has a heading, empty without a heading, and its rows. `title` is the heading of a first
    column without a name.
    """
    used, rows = table.select(Form.FULL)
    rest, rows = rows[MAX_ROWS:], rows[:MAX_ROWS]
    columns = [(nth, table.columns[nth]) for nth in used]
    ids = {nth - 1 for nth, column in columns if column.kind is ColumnKind.ID}
    group = next((nth for nth, column in columns if column.kind is ColumnKind.GROUP), None)
    heads = {
        nth: _head(column, "" if nth else title)
        for nth, column in columns
        if column.kind not in (ColumnKind.ID, ColumnKind.GROUP)
    }
    first, *others = heads
    tags = {nth: _open_cell(*heads[nth]) for nth in others}

    def draw(row: Row) -> str:
        def cell(nth: int) -> str:
            id_ = f" `{row.cell(nth + 1)}`" if nth in ids and row.cell(nth + 1) else ""
            return _draw_cell(up, row.cell(nth)) + (id_ and _draw_cell(up, id_))

        cells = "".join([f"{tag}{cell(nth)}</td>" for nth, tag in tags.items()])
        return f'<tr><th scope="row">{cell(first)}</th>{cells}</tr>\n'

    groups = groupby(rows, lambda row: "" if group is None else row.cell(group))
    bodies = [(_draw_cell(up, name), "".join(map(draw, part))) for name, part in groups]
    if rest:
        bodies.append((Markup(""), f"<tr><td>… and {len(rest):,} more</td></tr>\n"))
    return [*heads.values()], [
        (name, Markup(body))  # noqa: S704 - texts are escaped
        for name, body in bodies
    ]


def _head(column: Column, title: str) -> tuple[str, str]:
    """Return the heading of a column, and the CSS class of its cells."""
    name = column.name or title
    name = name.lower() if name.isupper() else name
    look = f"{_LOOKS.get(column.kind, '')} {'fold' if column.fold else ''}".strip()
    return f"{name[:1].upper()}{name[1:]}", look


def _open_cell(label: str, look: str) -> str:
    """Return the start of a cell with its heading, which narrow pages draw before the cell."""
    named = f' data-label="{escape(shown(label))}"' if label else ""
    return f"<td{named}" + (f' class="{look}">' if look else ">")


_LOOKS = {
    ColumnKind.FIGURE: "number",
    ColumnKind.PROSE: "prose",
    ColumnKind.COMMAND: "prose",
}


def _draw_cell(up: str, cell: Cell) -> Markup:
    if isinstance(cell, Bar):
        return _draw_bar(cell)
    if isinstance(cell, Lines):
        return Markup("<br>").join(_draw_line(up, as_spans(each)) for each in cell.lines if each)
    return _draw_line(up, as_spans(cell))


def _draw_bar(bar: Bar) -> Markup:
    shares, begin = "", 0.0
    for kind, width in bar.parts:
        shares += f'<rect class="{kind}" x="{round(begin, 2)}" width="{width}" height="8"/>'
        begin += width
    return Markup(  # noqa: S704 - kinds and numbers of the program
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" '
        f'focusable="false"><rect class="free" width="100" height="8"/>{shares}</svg>'
    )
