"""The page of what waits."""

from collections.abc import Iterator

from fleet.report.site.links import QUEUE
from fleet.report.site.pages import Page, Shown


def queue(shown: Shown) -> Iterator[Page]:
    """Yield the page of what waits."""
    del shown
    yield Page(f"{QUEUE}/index.html", "queue.html")
