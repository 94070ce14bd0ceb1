"""What the pages tell of the last days: plots and their table, money, images, failures."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.explain.history import history_of
from fleet.model.facts import Ledger
from fleet.model.plan import PoolVerdict
from fleet.site.charges import money_of
from fleet.site.files import Shown, site
from fleet.site.versions import image_stories
from tests.builders import (
    NOW,
    a_fleet,
    a_guard_result,
    a_plan,
    a_pool_verdict,
    a_signature,
    a_world,
    ago,
    an_attempt,
    an_unserved,
)
from tests.builders.past import (
    a_past_plan,
    a_shown_past,
    charges,
    samples,
    versions,
)
from tests.builders.sentences import tells
from tests.rigs.golden import Golden
from tests.site.test_site import HOSTILE, SitePage

BUILDERS = "-/status/pools/builders/index.html"
MONEY = "-/status/money/index.html"
IMAGES = "-/status/images/index.html"
GOLDEN = Path(__file__).parent / "golden/plots.html"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return site(a_shown_past())


def cells(page: str, head: str) -> list[str]:
    """Return the texts of the row that begins with a heading."""
    row = page[page.index(head) :]
    row = row[: row.index("</tr>")]
    return re.findall(r'<td data-label="[^"]*"[^>]*>([^<]*)</td>', row)


# plots


@pytest.mark.parametrize("path", ["index.html", BUILDERS, MONEY])
def test_every_plot_has_a_name_a_description_and_a_table(files: dict[str, str], path: str) -> None:
    page = files[path]

    plots = re.findall(r'<svg class="plot" role="img" aria-labelledby="(\S+) (\S+)">', page)
    assert len(plots) == (1 if path == MONEY else 3)
    for title, told in plots:
        assert f'<title id="{title}">' in page
        assert f'<desc id="{told}">' in page
    assert page.index('<svg class="plot"') < page.index("<details>") < page.index("</details>")


def test_plot_equals_committed_picture(golden: Golden) -> None:
    plan = a_plan(pools=(a_pool_verdict(max=4, idle=1),))
    history = history_of(a_fleet(), plan, samples(plan, days=1.2, minutes=60))

    page = site(Shown(plan, history=history))[BUILDERS]

    start = page.index('<h2 id="past">')
    golden.compare(GOLDEN, page[start : page.index('<section aria-labelledby="waiting', start)])


def test_history_table_has_last_week_in_steps_of_four_hours(files: dict[str, str]) -> None:
    table = files[BUILDERS].split("<details>")[1].split("</details>")[0]

    rows = re.findall(r'<th scope="row">(2026-11-\d\d \d\d:00) UTC</th>', table)
    assert (len(rows), rows[0], rows[-1]) == (42, "2026-11-21 04:00", "2026-11-14 08:00")
    assert cells(table, "2026-11-17 20:00")[:2] == ["unknown", "unknown"]


def test_no_plot_has_more_than_400_points(files: dict[str, str]) -> None:
    widths = {
        int(width)
        for page in files.values()
        for width in re.findall(r'viewBox="0 0 (\d+) 100" preserve', page)
    }

    assert widths
    assert max(widths) <= 400


def test_unknown_time_is_a_reported_gap(files: dict[str, str]) -> None:
    page = files[BUILDERS]

    assert page.count('fill="url(#fill-gap)"') > page.count('class="swatch"') / 3
    assert re.search(r"<desc[^>]*>Machines from [^<]*Unknown for 23 h", page)


def test_pool_without_samples_is_one_gap() -> None:
    plan = a_plan(pools=(a_pool_verdict(),))

    page = site(Shown(plan, history=history_of(a_fleet(), plan, ())))[BUILDERS]

    assert page.count('y="0" width="336" height="100" fill="url(#fill-gap)"') == 3


# a pool


def test_pool_page_names_binding_limit_and_key() -> None:
    page = site(a_shown_past())["-/status/pools/powerful/index.html"]

    held = page[page.index('<h2 id="binding">') :]
    assert tells(held, "1 request", "limits.total", "worker:class:powerful", "limits.total</code>")


def test_pool_page_shows_guards_and_budgets_that_bind() -> None:
    plan = a_plan(
        pools=(a_pool_verdict(),),
        signatures=(a_signature(id="s"),),
        unserved=(an_unserved(signature="s", because="budget all is used up", path=("budgets",)),),
        guards=(a_guard_result(pool="builders", because="3 of 4 would go"),),
    )

    page = site(Shown(plan))[BUILDERS]

    held = page[page.index('<h2 id="binding">') :]
    assert tells(held, "used up", "<code>budgets</code>")
    assert tells(held, "3 of 4 would go")


def test_pool_page_has_budget_with_projection(files: dict[str, str]) -> None:
    row = cells(files[BUILDERS], ">pools.builders.budget.per_month</th>")

    assert row[:2] == ["this month", "91.30"]
    assert row[4:8] == ["103.50", "200.00 EUR", "120.02"]
    assert "budgets.all.per_month" not in files[BUILDERS]


def test_pool_page_has_version_and_age_of_image(files: dict[str, str]) -> None:
    page = files[BUILDERS]

    said = page[page.index('<h2 id="image">') :]
    assert tells(said, versions()[2].version, "current", "2 d 2 h")
    assert 'href="../../../../-/status/images/index.html">' in said


def test_pool_page_has_failures_newest_first(files: dict[str, str]) -> None:
    page = files[BUILDERS]

    failures = page[page.index('<h2 id="failures">') :]
    assert tells(failures, "2", "4 attempts")
    assert cells(failures, "2026-11-20 02:00")[0] == "failed"
    assert cells(failures, "2026-11-19 08:00")[::3] == ["out-of-stock", "ccx33 is out in fsn1"]
    assert failures.index("2026-11-20") < failures.index("2026-11-19")


# money


def test_sums_of_money_page_equal_ledger(files: dict[str, str]) -> None:
    page = files[MONEY]

    month, today = (sum(each.money[nth] for each in charges()) for nth in (2, 1))
    assert re.findall(r"<strong>([^<]*)</strong>", page)[:4] == [
        f"{month:.2f}",
        "313.07",
        f"{4 * today:.2f}",
        f"{today:.2f}",
    ]
    parts = page.split('<h2 id="by-')[1:]
    everything = [cells(part, '<th scope="row">All') for part in parts]
    assert everything == [[f"{month:.2f}", "313.07", "77.92", "19.48", "360.0"]] * 3


def test_projected_excess_of_budget_is_shown() -> None:
    plan = a_past_plan()
    month = {"limit": Decimal(100), "spent": Decimal("91.30")}
    own = plan.budgets[0].altered(**month)
    shown = replace(a_shown_past(), plan=plan.altered(budgets=(own,)))

    row = cells(site(shown)[MONEY], ">pools.builders.budget.per_month</th>")

    assert row[7] == "120.02"
    assert "20.02" in row[6]


def test_payers_beyond_table_limit_share_a_row() -> None:
    many = tuple(
        charges()[0].altered(team=f"team{nth:03}", money=(Decimal(0),) * 2 + (nth,))
        for nth in range(150)
    )
    world = a_world(ledger=Ledger(charged_until=ago(minutes=10), charges=many))

    page = site(Shown(a_plan(), money=money_of(a_fleet(), world)))[MONEY]

    assert cells(page, "50 other teams")[0] == "1,225.00"
    assert "team049" not in page


# images


def test_each_version_has_its_state_age_place_and_machines(files: dict[str, str]) -> None:
    page = files[IMAGES]

    current, candidate = versions()[2], versions()[4]
    assert cells(page, current.version) == ["current", "2 d", "2 d 2 h", "6", "hetzner"]
    assert cells(page, candidate.version)[0] == "candidate 20%"
    assert tells(page, "failed", "no such package")


def test_image_page_has_pools_and_due_steps(files: dict[str, str]) -> None:
    sid, trixie = files[IMAGES].split('<h2 id="image-')[1:]

    assert tells(sid, "never-built")
    assert tells(sid, "fleet image build sid", "fleet image test sid")
    assert [name in trixie for name in (">builders</a>", ">arm</a>", ">legacy</a>")] == [
        True,
        True,
        False,
    ]


# names


def test_hostile_names_of_payers_and_failures_are_escaped() -> None:
    verdict: PoolVerdict = a_pool_verdict()
    hostile = charges()[0].altered(team=HOSTILE, scope=HOSTILE)
    world = a_world(
        ledger=Ledger(charged_until=NOW, charges=(hostile,)),
        images=(versions()[2].fact.altered(image=HOSTILE, version=HOSTILE),),
    )
    plan = a_plan(pools=(verdict,))
    failed = an_attempt(result="error", detail=HOSTILE, worker=HOSTILE, type=HOSTILE)
    shown = Shown(
        plan,
        money=money_of(a_fleet(), world),
        images=image_stories(a_fleet(), world, plan),
        attempts=(failed,),
    )

    files = {path: text for path, text in site(shown).items() if path.endswith(".html")}

    for path in (MONEY, IMAGES, BUILDERS):
        assert "&lt;script&gt;" in files[path]
    for text in files.values():
        assert "<script" not in text
        assert not {"\x1b", "\u202e"} & set(text)
        assert SitePage(text).broken == []
