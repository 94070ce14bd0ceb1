"""Links between pages lead to a file and a heading that exist, and no page is left alone."""

import re
from collections.abc import Iterator
from pathlib import Path

from fleet.planner.lifecycle.table import RULES
from tests.architecture.source import tracked_files
from tests.rigs.process import ROOT

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
ELSEWHERE = ("https://", "http://", "mailto:")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *$", re.MULTILINE)


def links(page: Path) -> Iterator[str]:
    """Yield where a page's links lead, those to other sites and in code left out."""
    prose = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    for match in LINK.finditer(prose):
        if not match["target"].startswith(ELSEWHERE):
            yield match["target"]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitLab and GitHub make them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def is_dangling(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    return not path.exists() or bool(anchor and anchor not in anchors(path))


def test_every_link_leads_to_a_page_and_a_heading_that_exist() -> None:
    dangling = [
        (str(page), target)
        for page in (path for path in tracked_files().values() if path.suffix == ".md")
        for target in links(page)
        if is_dangling(page, target)
    ]

    assert dangling == []


def test_every_page_is_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]

    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
        waiting += [target for target in targets if target.suffix == ".md"]

    left_alone = {page for page in PAGES if "docs" in page.parts} - reached
    assert left_alone == set()


def test_documented_steps_of_a_plan_are_in_order_of_reconcile() -> None:
    page = (ROOT / "docs/explanation/how-a-plan-is-made.md").read_text(encoding="utf-8")
    reconcile = "".join(
        (ROOT / file).read_text(encoding="utf-8")
        for file in ("fleet/planner/begin.py", "fleet/reconcile.py")
    )
    told = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)

    before, after = ([type(rule).__name__ for rule in rules] for rules in RULES.values())
    between = told[len(before) : -len(after)]
    places = [reconcile.find(f"{function}(") for function in between]
    assert told == [*before, *between, *after]
    assert between == ["drain_unpaid", "sign_demand", "allocate"]
    assert -1 not in places
    assert places == sorted(places)


def test_computed_figure_equals_figure_of_the_tour() -> None:
    page = (ROOT / "docs/explanation/allocation.md").read_text(encoding="utf-8")
    tour = (ROOT / "docs/tour.md").read_text(encoding="utf-8")

    told = re.search(r"(\d+) machines x ([\d.]+) EUR/h x ([\d.]+) / 60 h = ([\d.]+) EUR", page)
    assert told is not None
    machines, price, minutes, total = told.groups()

    rows = re.findall(r"^\|.*\| ([\d.]+) \|$", page, re.MULTILINE)
    assert sum(map(float, rows)) == float(minutes)
    assert f"{int(machines) * float(price) * float(minutes) / 60:.4f}" == total
    assert f"These {machines} machines cost about {float(total):.2f} EUR" in tour
