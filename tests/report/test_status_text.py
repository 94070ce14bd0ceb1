"""How the status reads in a terminal."""

import re
from decimal import Decimal

from tests.builders import (
    a_plan,
    a_pool_verdict,
    a_signature,
    a_worker_verdict,
    ago,
    an_idle_verdict,
    an_unserved,
)
from tests.builders.sentences import tells
from tests.builders.telling import a_half_blind_plan
from tests.report.conftest import Golden
from tests.rigs.shown import status_to_text


def test_status_lists_pools_before_workers(golden: Golden) -> None:
    plan = a_plan(
        pools=(
            a_pool_verdict(pool="powerful", busy=0, cost_before=Decimal(0), mode="pause", max=12),
            a_pool_verdict(idle=1, cost_before=Decimal("0.24")),
        ),
        workers=(
            an_idle_verdict(
                worker="debian-ci-builders-0002", since=ago(seconds=40), outdated=True
            ),
            a_worker_verdict(since=ago(hours=26), running="10341"),
        ),
        signatures=(a_signature(requests=("101", "102")),),
        unserved=(an_unserved(requests=("102",)),),
        unknown=("queue copr: no answer",),
        cost_before=Decimal("0.24"),
    )

    golden("status.txt", status_to_text(plan, colour=False))


def test_inactive_workers_are_only_counted() -> None:
    plan = a_plan(workers=(a_worker_verdict(), a_worker_verdict(worker="lost-one", inactive=True)))

    text = status_to_text(plan, colour=False)

    assert "lost-one" not in text
    assert tells(text, "1 inactive worker")


def test_unread_workers_are_not_shown_as_none() -> None:
    plan = a_plan(unknown=("stacks are unknown: there is no store",))

    assert not status_to_text(plan, colour=False).endswith("\nNo workers.\n")


def test_empty_fleet_is_reported(golden: Golden) -> None:
    golden("status-empty.txt", status_to_text(a_plan(), colour=False))


def test_status_hides_empty_pools_but_no_unread_pool() -> None:
    empty = [a_pool_verdict(pool=f"empty-{n}", busy=0) for n in range(13)]
    unread = a_pool_verdict(pool="lost", busy=0, not_known=("machines", "workers"))

    text = status_to_text(a_plan(pools=(*empty, unread)), colour=False)

    (row,) = [line.split() for line in text.splitlines() if line.startswith("  lost ")]
    assert row[:3] == ["lost", "unknown", "unknown"]
    assert tells(text, "13 pools without machines")
    assert "empty-" not in text


def test_partly_read_figures_are_shown_in_status_text(golden: Golden) -> None:
    text = status_to_text(a_half_blind_plan(), colour=False)

    golden("status-partly-unknown.txt", text)
    assert "at least 1.1815 EUR/h" in text
    assert re.search(r"\nrest\n +debian-ci-rest-0001 +unknown +unknown .* unknown\n", text)
