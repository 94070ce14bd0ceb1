"""A document as an HTML page: links, cells, groups and figures; every text is escaped."""

import pytest

from fleet.report.document import (
    Bar,
    Block,
    Column,
    ColumnKind,
    Section,
    Style,
    StyledText,
    Table,
    Title,
    line,
    row,
)
from fleet.report.html import SiteFrame, document_to_html
from fleet.report.markdown import document_to_markdown
from fleet.report.terminal import document_to_text

FRAME = SiteFrame("demo", "now", "2026-11-21T08:00:00+00:00", (("Workers", "w/index.html"),))


def drawn(*blocks: Block, path: str = "a/b/index.html") -> str:
    return document_to_html([Title(line("Pools")), *blocks], path, FRAME)


@pytest.mark.parametrize(
    ("target", "href"),
    [
        ("w/x%252F1/index.html", "../../w/x%252F1/index.html"),
        ("#builds-2", "#builds-2"),
        ("https://queue.example/1/", "https://queue.example/1/"),
        ("mailto:a@example.org", "mailto:a@example.org"),
    ],
)
def test_link_is_relative_only_within_the_site(target: str, href: str) -> None:
    assert f'<p><a href="{href}">one</a></p>' in drawn(line(StyledText("one", target=target)))


def test_text_and_target_are_escaped() -> None:
    text = StyledText("<b>\x1b`<i>`", Style.BOLD, '"><script>')

    page = drawn(line(text))

    assert "<strong>&lt;b&gt;\\x1b<code>&lt;i&gt;</code></strong>" in page
    assert 'href="../../&#34;&gt;&lt;script&gt;"' in page


def test_rows_of_a_group_have_a_heading_with_an_id() -> None:
    columns = (Column("Pool", ColumnKind.GROUP), Column("WORKER"), Column("Type", fold=1))
    rows = [row("arm", "w-1", "cax41"), row("arm", "w-2"), row("big", "w-3")]

    page = drawn(Section("", [Table(columns, rows)], "all"))

    assert page.count('<th scope="rowgroup"') == 2
    assert page.index('<tbody id="all-1">') < page.index("w-2") < page.index('<tbody id="all-2">')
    assert '<th scope="col">Worker</th>' in page
    assert '<td data-label="Type" class="fold">cax41</td>' in page


BAR = Bar((("busy", 25.0), ("idle", 50.0)))


def test_bar_is_drawn_only_in_html() -> None:
    table = Table((Column("Pool"), Column("in use")), [row("arm", BAR)])

    assert '<rect class="idle" x="25.0" width="50.0" height="8"/>' in drawn(table)
    assert "25" not in document_to_text([table]) + document_to_markdown([table])
