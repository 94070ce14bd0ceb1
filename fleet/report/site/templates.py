"""The templates of the pages, which escape every text, and the functions that they call."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from fleet.explain.tags import WORDS
from fleet.report import words
from fleet.report.document import MAX_ROWS, Block, Title, as_spans, is_empty, text_of
from fleet.report.html import table_cells
from fleet.report.site.links import IMAGES
from fleet.report.terminal import shown
from fleet.schema.findings import MAX_LISTED
from fleet.schema.units import write_duration

if TYPE_CHECKING:
    from jinja2 import Environment

    from fleet.report.status import PoolStatus


BROKEN = frozenset(
    {"deaf", "disconnected", "failed", "stopped", "never-registered", "unrecorded", "missing"}
)
"""States of workers that should work and cannot."""
_SHAPES = frozenset({"busy", "idle", "starting", "draining"})


@cache
def environment() -> Environment:
    """Return the templates, compiled once; an undefined name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("fleet.report", "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_visible,
    )
    found.globals.update(
        before_after=words.before_after,
        rates=words.rates,
        rate=words.rate,
        many=words.many,
        since=words.since,
        starts=words.starts,
        have_a_machine=words.have_a_machine,
        time=words.time,
        bar=_bar,
        look=_css_class,
        cost_of=words.cost_of,
        size_of=words.size_of,
        costs_of=lambda workers: [words.cost_of(worker) for worker in workers],
        named=words.named,
        state_of=words.state,
        cents=words.cents,
        bill=words.bill,
        place_note=words.place_note,
        rules_to_allow=words.rules_to_allow,
        duration=write_duration,
        share=_share,
        images_page=IMAGES,
        as_spans=as_spans,
        is_empty=is_empty,
        kind_of=lambda block: type(block).__name__,
        table_cells=table_cells,
        enforcer=WORDS,
        max_listed=MAX_LISTED,
        max_rows=MAX_ROWS,
    )
    return found


def document_to_html(blocks: Iterable[Block]) -> str:
    """Return a document as one page with its style."""
    blocks = [*blocks]
    title = next(each.line for each in blocks if isinstance(each, Title))
    page = environment().get_template("document.html")
    return page.render(title=text_of(title), blocks=blocks)


def _share(part: Decimal, whole: Decimal) -> float:
    """Return a part of a total in percent; a refund counts as zero."""
    return round(float(100 * max(Decimal(0), part) / whole), 1) if whole > 0 else 0.0


def _visible(value: object) -> object:
    """Escape invisible characters; markup made by templates passes."""
    return shown(value) if type(value) is str else value


def _css_class(state: str) -> str:
    """Return the CSS class of a state; rare and harmless states have no class."""
    if state in BROKEN or state == words.UNKNOWN:
        return "wrong"
    return state if state in _SHAPES else "plain"


def _bar(pool: PoolStatus) -> tuple[tuple[str, float, float], ...]:
    """Return the parts of a pool's bar: kind, start and width, of 100."""
    if pool.busy is None:
        counts = [("other", pool.machines or 0)]
    else:
        counts = [
            ("busy", pool.busy),
            ("idle", pool.idle or 0),
            ("starting", pool.starting or 0),
            ("other", pool.other or 0),
        ]
    whole = max(pool.max, sum(count for _, count in counts), 1)
    parts = []
    begin = 0.0
    for kind, count in counts:
        width = round(100 * count / whole, 2)
        if count:
            parts.append((kind, round(begin, 2), width))
        begin += width
    return tuple(parts)
