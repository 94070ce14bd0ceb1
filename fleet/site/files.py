"""Render the status site. Its kinds of pages: overview, worker, pool, waiting, money and image.

The site works as files, and at any path of a web server.
"""

from collections.abc import Callable, Iterator

from fleet.report.document import StyledText, Title, line
from fleet.report.html import SiteFrame, document_to_html, style_sheet
from fleet.report.json import value_to_json
from fleet.site.image import images
from fleet.site.machines import pools, workers
from fleet.site.money import money
from fleet.site.overview import overview
from fleet.site.pages import IMAGES, MONEY, OVERVIEW, QUEUE, REQUESTS, WORKERS, Page, Shown
from fleet.site.waiting import waiting
from fleet.words import figures as words

__all__ = ["KINDS", "Shown", "site"]

KINDS: tuple[Callable[[Shown], Iterator[Page]], ...] = (
    overview,
    workers,
    pools,
    waiting,
    money,
    images,
)
"""The renderer of each kind of page."""
_NAVIGATION = (
    ("Overview", OVERVIEW),
    ("Workers", f"{WORKERS}/index.html"),
    ("Waiting", f"{QUEUE}/index.html"),
    ("Find a build", f"{REQUESTS}/index.html"),
    ("Money", MONEY),
    ("Images", IMAGES),
)


_MOVED = ("-/status/gone/index.html", "-/status/inactive/index.html")
"""Old paths of lists that are on the page of workers now."""


def _link_moved() -> Iterator[Page]:
    there = StyledText("the page of workers", target=f"{WORKERS}/index.html")
    text = line("Inactive and deleted workers are at the end of ", there, ".")
    for path in _MOVED:
        yield Page(path, [Title(line("Moved")), text])


def site(shown: Shown) -> dict[str, str]:
    """Map the relative path of each file of the status site to its text."""
    time = shown.status.time
    frame = SiteFrame(shown.status.fleet, words.time(time), time.isoformat(), _NAVIGATION)
    files = {"status.json": value_to_json(shown.status), "style.css": style_sheet()}
    for page in (*_link_moved(), *(page for kind in KINDS for page in kind(shown))):
        files[page.path] = document_to_html(page.blocks, page.path, frame)
    return dict(sorted(files.items()))
