"""How a plan reads in a terminal and in a log."""

import re
from pathlib import Path

from tests.builders import a_create, a_plan, a_pool_verdict, an_unserved
from tests.builders.sentences import tells
from tests.builders.telling import a_telling_plan
from tests.report.conftest import Golden
from tests.rigs.shown import plan_to_text

PLANS = sorted((Path(__file__).parents[1] / "plans").glob("*/plan.txt"))


def test_plan_text_matches_golden_file(golden: Golden) -> None:
    golden("plan.txt", plan_to_text(a_telling_plan(), colour=False))


def test_lines_of_a_plan_fit_100_columns() -> None:
    lines = [line for plan in PLANS for line in plan.read_text(encoding="utf-8").splitlines()]

    assert lines
    assert [line for line in lines if len(line) > 100] == []


def test_first_screen_has_changes_cost_and_waiting_requests() -> None:
    for plan in PLANS:
        assert_first_screen(plan.read_text(encoding="utf-8"))


def assert_first_screen(text: str) -> None:
    screen = text.splitlines()[:25]

    changes = text.partition("\nChanges\n")[2].partition("\n\n")[0]
    pools = set(re.findall(r"^  ([\w-]+)$", changes, re.MULTILINE))
    assert pools <= set(re.findall(r"[\w-]+", "\n".join(screen)))
    assert screen[1].startswith("Plan: ")
    assert re.search(r"[0-9.]+ [A-Z]{3}/h$|cost unknown$", screen[1])
    assert ("\nNot served" in text) == any(line.startswith("Not served") for line in screen)


def test_equal_creations_are_three_lines_and_a_count() -> None:
    creates = [a_create(worker=f"debian-ci-builders-{number:04}") for number in range(1, 201)]

    text = plan_to_text(a_plan(actions=creates), colour=False)

    shown = [line for line in text.splitlines() if line.startswith("    + ")]
    for number, line in enumerate(shown[:3], 1):
        assert line.startswith(
            f"    + create  debian-ci-builders-000{number}  ccx33  +0.1200 EUR/h"
        )
    assert [tells(line, "197", "+23.6400 EUR/h") for line in shown[3:]] == [True]
    assert text.count("[requests-wait]") == 4


def test_empty_pools_are_counted() -> None:
    quiet = [a_pool_verdict(pool=f"quiet-{number}", busy=0) for number in range(30)]

    text = plan_to_text(a_plan(pools=(a_pool_verdict(), *quiet)), colour=False)

    assert "quiet-" not in text
    assert tells(text, "  … ", "30 pools")


def test_pools_without_price_are_not_counted_as_unread() -> None:
    pools = tuple(
        a_pool_verdict(pool=f"pool-{n:02}", busy=0, not_known=("price",)) for n in range(20)
    )

    text = plan_to_text(a_plan(pools=pools), colour=False)

    assert re.search(r"^  … and 20 pools [^(]*$", text, re.MULTILINE)


def test_many_kinds_of_unserved_requests_are_counted() -> None:
    unserved = [
        an_unserved(requests=(f"r{number}", "x"), because=f"reason {number}")
        for number in range(15)
    ]

    text = plan_to_text(a_plan(unserved=unserved), colour=False)

    assert tells(text, "Not served", "30 requests")
    assert tells(text, "  … ", "20 requests", "10")


def test_requests_with_same_reason_are_one_entry() -> None:
    unserved = [an_unserved(requests=(f"r{number}",)) for number in range(3)]

    text = plan_to_text(a_plan(unserved=unserved), colour=False)

    assert "  ! 3 requests: r0, r1, r2\n" in text
    assert text.count(unserved[0].because) == 1
