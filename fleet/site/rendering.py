"""The HTML templates of the pages, and the functions that they call; every text is escaped."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from fleet.explain.tags import WORDS
from fleet.model.values import amount_of
from fleet.report.document import MAX_ROWS
from fleet.report.html import html_environment
from fleet.schema.findings import MAX_LISTED, yaml_key
from fleet.schema.units import write_duration
from fleet.site.pages import IMAGES, contact_link
from fleet.words import figures as words
from fleet.words import waiting
from fleet.words.images import describe_waiting

if TYPE_CHECKING:
    from jinja2 import Environment

    from fleet.report.status import PoolStatus


BROKEN = frozenset(
    {"deaf", "disconnected", "failed", "stopped", "never-registered", "unrecorded", "missing"}
)
"""States of workers that should work but cannot."""
_SHAPES = frozenset({"busy", "idle", "starting", "draining"})


@cache
def environment() -> Environment:
    """Return the compiled templates; an undefined name in a template is an error."""
    found = html_environment("fleet.site")
    found.globals.update(
        amount=words.amount,
        before_after=words.before_after,
        yaml_key=yaml_key,
        rates=words.rates,
        rate=words.rate,
        many=words.many,
        since=words.since,
        starts=words.starts,
        have_a_machine=words.have_a_machine,
        time=words.time,
        bar=_bar,
        look=_css_class,
        cost_of=lambda worker: amount_of(worker.cost),
        size_of=words.size_of,
        costs_of=lambda workers: [amount_of(worker.cost) for worker in workers],
        named=words.named,
        state_of=words.state,
        cents=words.cents,
        bill=words.bill,
        place_note=words.place_note,
        contact_link=contact_link,
        choice=waiting.describe_choice,
        nothing=waiting.NOTHING,
        never=waiting.UNLESS,
        name_request=waiting.name_request,
        no_contact_notice=waiting.NO_CONTACT,
        no_contact=waiting.describe_no_contact,
        rules_to_allow=words.rules_to_allow,
        waiting_version=describe_waiting,
        duration=write_duration,
        share=_share,
        images_page=IMAGES,
        enforcer=WORDS,
        max_listed=MAX_LISTED,
        max_rows=MAX_ROWS,
    )
    return found


def _share(part: Decimal, whole: Decimal) -> float:
    """Return a part of a total in percent; a negative part (refund) counts as zero."""
    return round(float(100 * max(Decimal(0), part) / whole), 1) if whole > 0 else 0.0


def _css_class(state: str) -> str:
    """Return the CSS class of a state; rare states without a problem get `plain`."""
    if state in BROKEN or state == words.UNKNOWN:
        return "wrong"
    return state if state in _SHAPES else "plain"


def _bar(pool: PoolStatus) -> tuple[tuple[str, float, float], ...]:
    """Return the parts of a pool's bar: kind, start and width, in percent."""
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
