"""One amount of money or time is one figure, whichever command or page shows it."""

import json
import re
from pathlib import Path

import pytest

from tests.rigs.clocked import Clocked
from tests.rigs.repeats import slow_after
from tests.rigs.trial import Trial

FLEET = """\
fleet: trial
cadence: 10m
providers:
  desk: {kind: sim, boot: 30s, billing: {increment: STEP}}
queues:
  work: {kind: world, path: world.json}
durations: {any: 3h}
images:
  trixie: {suite: trixie, architecture: amd64}
pools:
  builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 9}}
  second: {provider: desk, machine: ccx63, image: trixie, provides: [big], workers: {max: 9}}
  third: {provider: desk, machine: ccx13, image: trixie, provides: [small], workers: {max: 9}}
budgets:
  all: {per_month: 900 EUR, per_day: 60 EUR}
"""


def let_wait(**tags: str) -> None:
    """Write the waiting requests: name to the required tag; empty: none."""
    requests = [
        {"id": name, "task": "sbuild", "scope": name[0], "required": [tag] if tag else []}
        for name, tag in tags.items()
    ]
    Trial(Path()).queue(*requests)


def money_page(story: Clocked) -> str:
    story.run("status", "--site", "site")
    return Path("site/-/status/money/index.html").read_text()


def figures_of(page: str) -> list[str]:
    """Return the figures at the top of the page of money."""
    return re.findall(r"<li><strong[^>]*>([^<]*)</strong>", page)


@pytest.mark.parametrize(
    ("step", "minutes"), slow_after(2, [("1s", 3), ("1h", 70), ("1h", 3), ("1m", 700)])
)
def test_money_page_equals_budget_when_time_passed_since_a_run(
    story: Clocked, step: str, minutes: int
) -> None:
    story.write(FLEET, step=step)
    let_wait(a1="", b2="", c3="big")
    for _ in range(2):
        story.run("apply")
        story.later(minutes)

        page = money_page(story)

        status = json.loads(story.run("status", "--json"))
        spent = {
            each["period"]: f"{float(each['spent']):,.2f}"
            for each in status["budgets"]
            if not each["coming"]
        }
        month, _, lately, today = figures_of(page)
        assert (month, today) == (spent["month"], spent["day"])
        assert lately == month != "0.00"  # the fleet is younger than a week


HOURS = """\
fleet: trial
cadence: 10m
providers:
  desk: {kind: sim, boot: 30s, billing: {increment: 1h}}
queues:
  work: {kind: world, path: world.json}
durations: {any: 2h}
images:
  trixie: {suite: trixie, architecture: amd64}
pools:
  builders:
    provider: desk
    machine: ccx33
    image: trixie
    workers: {max: 2}
    boot: {expected: 30s}
    retire: {idle_after: 15m, at: AT}
budgets:
  all: {machine_hours_per_month: 900}
  mine: {scope: a, machine_hours_per_month: 900}
"""


@pytest.mark.parametrize("budget", ["all", "mine"])
@pytest.mark.parametrize(
    ("at", "planned", "reserved"), [("once", 2.59, 0.51), ("paid-end", 3, 0.92)]
)
def test_budget_of_hours_ends_when_the_machine_is_deleted(
    story: Clocked, at: str, planned: float, reserved: float, budget: str
) -> None:
    def hours() -> tuple[float, float]:
        """Return the planned and the reserved machine hours of this month."""
        budgets = json.loads(story.run("plan", "--json"))["budgets"]
        own = next(b for b in budgets if b["budget"] == budget and not b["coming"])
        return float(own["planned"]), float(own["reserved"])

    story.write(HOURS, at=at)
    let_wait(a1="")
    assert hours() == pytest.approx((planned, 0), abs=0.01)
    story.run("apply")
    let_wait()
    story.later(5)

    assert hours() == pytest.approx((0, reserved), abs=0.01)
