"""Every kind of page at three widths, light and dark: nothing sticks out, axe-core is content."""

import os
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from fleet.site.files import Shown, site
from tests.builders import a_worker_verdict
from tests.builders.budgeting import a_budget_verdict
from tests.builders.explaining import LONG_NAME, some_waits
from tests.builders.past import a_shown_past
from tests.builders.telling import a_lively_plan
from tests.rigs.browser import Tab, tab

__all__ = ["tab"]

pytestmark = pytest.mark.pages

_WIDTHS = (400, 1280, 1920)
_OUT = """(() => {
  const wide = document.documentElement.clientWidth;
  return [...document.querySelectorAll("body *")]
    .filter(one => !one.classList.contains("skip"))
    .filter(one => !one.closest("thead") || wide > 720)
    .filter(one => one.getBoundingClientRect().right > wide + 1)
    .map(one => one.tagName + ": " + one.textContent.trim().slice(0, 60));
})()"""
_UNDER = """(() => {
  return [...document.querySelectorAll("td[data-label]")].filter(cell => {
    const label = getComputedStyle(cell, "::before");
    const room = parseFloat(getComputedStyle(cell).paddingLeft);
    const isUnder = label.content !== "none" && label.position === "absolute";
    return isUnder && parseFloat(label.width) > room;
  }).map(cell => cell.dataset.label);
})()"""
_AXE = """axe.run().then(found => found.violations.map(each =>
  each.id + ": " + each.nodes.map(node => node.html.slice(0, 160)).slice(0, 3).join(" | ")))"""


def _sites() -> dict[str, Shown]:
    plan = a_lively_plan()
    odd = a_worker_verdict(
        worker=LONG_NAME, pool=LONG_NAME, running=LONG_NAME, image=LONG_NAME, because=LONG_NAME
    )
    broken = a_worker_verdict(worker="w-1", state="disconnected", because="not connected for 3 h")
    budgets = (a_budget_verdict(), *plan.budgets)
    plan = plan.altered(workers=(*plan.workers, odd, broken), budgets=budgets)
    return {"now": Shown(plan, waits=some_waits(plan)), "past": a_shown_past()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write the sites and return the address of each page."""
    found = {}
    for name, shown in _sites().items():
        root = tmp_path_factory.mktemp(name)
        for path, text in site(replace(shown)).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            if path.endswith(".html"):
                found[f"{name}/{path}"] = (root / path).as_uri()
    return found


def test_pages_fit_the_window(tab: Tab, pages: dict[str, str]) -> None:
    found = {}
    for (name, url), width in product(pages.items(), _WIDTHS):
        tab.show(url, width=width)
        out = tab.evaluate(_OUT)
        if out:
            found[name, width] = out[:3]

    assert found == {}


def test_label_of_narrow_page_does_not_overlap_its_value(tab: Tab, pages: dict[str, str]) -> None:
    found = {}
    for name, url in pages.items():
        tab.show(url, width=400)
        under = tab.evaluate(_UNDER)
        if under:
            found[name] = under[:3]

    assert found == {}


@pytest.fixture(scope="module")
def axe() -> str:
    path = os.environ.get("FLEET_AXE")
    if not path:
        pytest.skip("SKIPPED: no axe-core; `nox -s pages` installs it with npm")
    return Path(path).read_text(encoding="utf-8")


def violations(
    tab: Tab, axe: str, url: str, *, width: int = 1280, dark: bool = False
) -> list[str]:
    """Return what axe-core has against a page: the id of each rule, and elements."""
    tab.show(url, width=width, dark=dark)
    tab.evaluate(f"{axe}; true")
    found: list[str] = tab.evaluate(_AXE)
    return found


def test_axe_finds_no_fault_on_any_page(tab: Tab, axe: str, pages: dict[str, str]) -> None:
    found = {}
    for (name, url), (width, dark) in product(pages.items(), ((400, True), (1280, False))):
        against = violations(tab, axe, url, width=width, dark=dark)
        if against:
            found[name, width, dark] = against

    assert found == {}


@pytest.mark.parametrize(
    "wrong",
    [
        ('<p><img src="x.png"></p>', "image-alt"),
        ('<p style="color: #ccc; background: #fff">Hardly to be read</p>', "color-contrast"),
        ('<p><a href="x.html"></a></p>', "link-name"),
        ("<h5>Too deep</h5>", "heading-order"),
    ],
)
def test_axe_detects_planted_faults(
    tab: Tab, axe: str, pages: dict[str, str], tmp_path: Path, wrong: tuple[str, str]
) -> None:
    put, rule = wrong
    text = Path(unquote(urlsplit(pages["now/index.html"]).path)).read_text(encoding="utf-8")
    # The page's own policy lets no style through that stands in it.
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</main>", f"{put}</main>")
    (tmp_path / "index.html").write_text(text, encoding="utf-8")

    found = violations(tab, axe, (tmp_path / "index.html").as_uri())

    assert rule in {each.partition(":")[0] for each in found}
