"""Open the status pages in headless Chromium: they show what is there, styled."""

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleet.queues.http import BackgroundServer
from fleet.site.files import site
from tests.builders.past import a_shown_past
from tests.rigs.browser import Tab, tab

__all__ = ["tab"]

pytestmark = pytest.mark.pages

_LIGHT_PAPER, _DARK_PAPER = "rgb(251, 250, 248)", "rgb(22, 24, 28)"
_PAPER = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the site of an ordinary day and return where it is."""
    root = tmp_path_factory.mktemp("served") / "group" / "project"
    for path, text in site(a_shown_past()).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name there
        """Say nothing."""


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[str]:
    """Serve the site below a path, as GitLab Pages does, and return its address."""
    handler = partial(_QuietHandler, directory=str(folder.parent.parent))
    with BackgroundServer(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.port}/group/project"


def elements(tab: Tab, url: str) -> str:
    """Return a page's elements as the browser understood them."""
    tab.show(url, width=1280)
    return str(tab.evaluate("document.documentElement.outerHTML"))


@pytest.mark.parametrize(
    ("page", "dark"),
    [
        ("index.html", False),
        ("index.html", True),
        ("-/status/pools/builders/index.html", True),
    ],
)
def test_page_is_styled_from_a_file_as_preferred(
    tab: Tab, folder: Path, page: str, *, dark: bool
) -> None:
    tab.show((folder / page).as_uri(), width=1280, dark=dark)

    assert tab.evaluate(_PAPER) == (_DARK_PAPER if dark else _LIGHT_PAPER)


def test_overview_has_a_row_per_pool(tab: Tab, folder: Path) -> None:
    dom = elements(tab, (folder / "index.html").as_uri())

    assert dom.count('<th scope="row"><a href="-/status/pools/') == 4
    assert "Needs attention" in dom


def test_workers_page_has_a_row_per_active_worker(tab: Tab, folder: Path) -> None:
    dom = elements(tab, (folder / "-/status/workers/index.html").as_uri())

    # One that needs attention is also named above the list.
    links = re.findall('<th scope="row"><a href="../../../-/status/workers/([^"]+)', dom)
    assert (len(links), len(set(links))) == (8, 7)
    assert "debian-ci-builders-0009" not in links


def test_page_below_a_path_of_a_server_is_styled_and_linked(tab: Tab, served: str) -> None:
    dom = elements(tab, f"{served}/-/status/workers/debian-ci-powerful-0001/index.html")

    assert tab.evaluate(_PAPER) == _LIGHT_PAPER
    assert '<a href="../../../../-/status/pools/powerful/index.html">powerful</a>' in dom
    assert "<h1>Workers</h1>" in elements(tab, f"{served}/-/status/workers/")


def test_browser_draws_each_plot_and_its_description(tab: Tab, folder: Path) -> None:
    dom = elements(tab, (folder / "-/status/pools/builders/index.html").as_uri())

    assert dom.count('<svg class="plot" role="img"') == 3
    assert dom.count("<desc ") == 3
