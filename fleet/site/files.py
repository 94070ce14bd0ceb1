"""Render the status site: an overview, the waiting requests, and pages per pool and worker.

The site works as files, and at any path of a web server. Templates escape all texts.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fleet.report.json import value_to_json
from fleet.site.machines import gone, images, pools, workers
from fleet.site.money import money
from fleet.site.overview import overview
from fleet.site.pages import (
    IMAGES,
    MONEY,
    MOST_LISTED,
    OVERVIEW,
    QUEUE,
    REQUESTS,
    WORKERS,
    Page,
    PageLinks,
    Shown,
)
from fleet.site.queue import queue, requests
from fleet.site.rendering import environment

__all__ = ["PARTS", "Shown", "SitePart", "site"]


class SitePart(NamedTuple):
    """A part of the site: the renderer of its pages, and its entry in the navigation."""

    pages: Callable[[Shown], Iterator[Page]]
    label: str = ""
    """Text of the entry; empty if the part has no entry."""
    path: str = ""
    """Page to which the entry links."""


PARTS = (
    SitePart(overview, "Overview", OVERVIEW),
    SitePart(workers, "Workers", f"{WORKERS}/index.html"),
    SitePart(queue, "Waiting", f"{QUEUE}/index.html"),
    SitePart(requests, "Find a build", f"{REQUESTS}/index.html"),
    SitePart(money, "Money", MONEY),
    SitePart(images, "Images", IMAGES),
    SitePart(pools),
    SitePart(gone),
)
"""All parts, in the order of the navigation."""


def site(shown: Shown) -> dict[str, str]:
    """Map the relative path of each file of the status site to its text."""
    templates = environment()
    parts: Any = templates.get_template("parts.html").module
    facts = {pool.pool: parts.pool_facts(shown.status, pool) for pool in shown.status.pools}
    shared = {
        # Thousands of workers share the facts of about a hundred pools.
        "pool_facts": facts,
        "plan": shown.plan,
        "status": shown.status,
        "most": MOST_LISTED,
        "navigation": [(part.label, part.path) for part in PARTS if part.label],
    }
    files = {
        "status.json": value_to_json(shown.status),
        "style.css": templates.get_template("style.css").render(),
    }
    for page in (page for part in PARTS for page in part.pages(shown)):
        here = PageLinks(page.path, shown.addresses)
        template = templates.get_template(page.template)
        files[page.path] = template.render(here=here, **shared, **page.values)
    return dict(sorted(files.items()))
