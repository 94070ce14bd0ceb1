"""Open the status pages in headless Chromium: they show what is there, styled."""

import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleet.queues.http import BackgroundServer
from fleet.site.files import site
from tests.builders.past import a_shown_past

pytestmark = pytest.mark.pages

_LIGHT_PAPER = (0xFB, 0xFA, 0xF8)
_DARK_PAPER = (0x16, 0x18, 0x1C)
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """Headless Chromium, a new profile each time."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._runs = 0

    def dom(self, url: str) -> str:
        """Return a page's elements as the browser understood them."""
        return self._run("--dump-dom", url).decode()

    def screenshot(self, url: str, name: str, *, size: str, dark: bool = False) -> bytes:
        """Return a picture of a page; it stays in the test's folder to be looked at."""
        picture = self._folder / f"{name}.png"
        flags = ["--force-dark-mode"] if dark else []
        self._run(
            *flags, "--hide-scrollbars", f"--window-size={size}", f"--screenshot={picture}", url
        )
        return picture.read_bytes()

    def _run(self, *args: str) -> bytes:
        self._runs += 1
        profile = self._folder / f"profile-{self._runs}"
        done = subprocess.run(
            [self._program, *_FLAGS, f"--user-data-dir={profile}", *args],
            capture_output=True,
            check=True,
            timeout=120,
        )
        return done.stdout


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    if _CHROMIUM is None:
        pytest.skip("SKIPPED: no chromium on PATH; install it to test the status pages")
    return Browser(_CHROMIUM, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the site of an ordinary day and return where it is."""
    root = tmp_path / "served" / "group" / "project"
    for path, text in site(a_shown_past()).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name there
        """Say nothing."""


@pytest.fixture
def served(folder: Path) -> Iterator[str]:
    """Serve the site below a path, as GitLab Pages does, and return its address."""
    handler = partial(_QuietHandler, directory=str(folder.parent.parent))
    with BackgroundServer(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.port}/group/project"


def _size(picture: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def _first_pixel(picture: bytes) -> tuple[int, ...]:
    """Return the colour in the upper left corner, which no PNG filter changes."""
    packed, place = b"", 8
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        if picture[place + 4 : place + 8] == b"IDAT":
            packed += picture[place + 8 : place + 8 + length]
        place += length + 12
    return tuple(zlib.decompress(packed)[1:4])


def test_overview_is_styled_from_a_file(browser: Browser, folder: Path) -> None:
    url = (folder / "index.html").as_uri()

    picture = browser.screenshot(url, "overview", size="1280,900")

    assert _size(picture) == (1280, 900)
    assert _first_pixel(picture) == _LIGHT_PAPER


def test_overview_fits_a_phone(browser: Browser, folder: Path) -> None:
    url = (folder / "index.html").as_uri()

    picture = browser.screenshot(url, "overview-phone", size="400,800")

    assert _size(picture) == (400, 800)


def test_overview_is_dark_when_preferred(browser: Browser, folder: Path) -> None:
    url = (folder / "index.html").as_uri()

    picture = browser.screenshot(url, "overview-dark", size="1280,900", dark=True)

    assert _first_pixel(picture) == _DARK_PAPER


def test_page_is_styled_below_a_path_of_a_server(browser: Browser, served: str) -> None:
    url = f"{served}/-/status/workers/debian-ci-powerful-0001/index.html"

    picture = browser.screenshot(url, "worker", size="1280,900")

    assert _first_pixel(picture) == _LIGHT_PAPER


def test_overview_has_a_row_per_pool(browser: Browser, folder: Path) -> None:
    dom = browser.dom((folder / "index.html").as_uri())

    assert dom.count('<th scope="row"><a href="-/status/pools/') == 4
    assert "Needs attention" in dom


def test_workers_page_has_a_row_per_active_worker(browser: Browser, folder: Path) -> None:
    dom = browser.dom((folder / "-/status/workers/index.html").as_uri())

    # One that needs attention is also named above the list.
    links = re.findall('<th scope="row"><a href="../../../-/status/workers/([^"]+)', dom)
    assert (len(links), len(set(links))) == (8, 7)
    assert "debian-ci-builders-0009" not in links


def test_worker_page_leads_to_its_pool(browser: Browser, served: str) -> None:
    dom = browser.dom(f"{served}/-/status/workers/debian-ci-powerful-0001/index.html")

    assert '<a href="../../../../-/status/pools/powerful/index.html">powerful</a>' in dom


def test_page_is_served_at_its_folder(browser: Browser, served: str) -> None:
    dom = browser.dom(f"{served}/-/status/workers/")

    assert "<h1>Workers</h1>" in dom


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1920, False)])
def test_page_with_plots_fits_every_width(
    browser: Browser, folder: Path, width: int, *, dark: bool
) -> None:
    url = (folder / "-/status/pools/builders/index.html").as_uri()

    picture = browser.screenshot(url, "pool", size=f"{width},900", dark=dark)

    assert _size(picture) == (width, 900)
    assert _first_pixel(picture) == (_DARK_PAPER if dark else _LIGHT_PAPER)


def test_browser_draws_each_plot_and_its_description(browser: Browser, folder: Path) -> None:
    dom = browser.dom((folder / "-/status/pools/builders/index.html").as_uri())

    assert dom.count('<svg class="plot" role="img"') == 3
    assert dom.count("<desc ") == 3
