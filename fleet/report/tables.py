"""A report of sentences, tables and plots, as text, as Markdown and as one HTML page."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fleet.report import markdown
from fleet.report.site.history import Panel
from fleet.report.site.templates import environment
from fleet.report.terminal import BLANK, Line, Span, Style, line, table, title


class Section(NamedTuple):
    """One table; without rows its note gives the reason."""

    id: str
    title: str
    headings: tuple[str, ...]
    """Headings after the first belong to figures."""
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Tables(NamedTuple):
    """A whole report."""

    headline: tuple[str, ...]
    """Sentences, the first as the heading."""
    sections: tuple[Section, ...]
    panels: Callable[[], Iterable[Panel]] = tuple
    """Draws the plots, which only a page has."""


def tables_to_lines(report: Tables) -> Iterator[Line]:
    """Yield the sentences, then the tables."""
    for nth, sentence in enumerate(report.headline):
        yield line(Span(sentence, Style.PLAIN if nth else Style.BOLD))
    for section in report.sections:
        yield from (BLANK, title(section.title))
        if section.rows:
            rows = [[*map(Span, row)] for row in (section.headings, *section.rows)]
            yield from table(rows, right=range(1, len(section.headings)))
        if section.note:
            yield line(f"  {section.note}")


def tables_to_markdown(report: Tables) -> str:
    """Return the sentences and tables as Markdown."""
    heading, *more = map(markdown.sentence, report.headline)
    parts = [f"# {heading}", *more]
    for section in report.sections:
        parts.append(f"## {section.title}")
        if section.rows:
            first, *others = map(markdown.sentence, section.headings)
            rows = [[markdown.code(row[0]), *row[1:]] for row in section.rows]
            parts.append(markdown.table([first, *(f"{each} >" for each in others)], rows))
        if section.note:
            parts.append(markdown.sentence(section.note))
    return "\n\n".join(parts)


def tables_to_html(report: Tables) -> str:
    """Return the sentences, plots and tables as one page."""
    heading, *remarks = report.headline
    page = environment().get_template("tables.html")
    return page.render(
        headline=heading, remarks=remarks, sections=report.sections, panels=[*report.panels()]
    )
