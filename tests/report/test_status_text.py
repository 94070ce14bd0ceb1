"""This module holds how the status reads in a terminal."""

import re
from decimal import Decimal

from fleet.report.status import status_to_text
from tests.builders import (
    a_plan,
    a_pool_verdict,
    a_signature,
    a_worker_verdict,
    ago,
    an_idle_verdict,
    an_unserved,
)
from tests.builders.telling import a_blind_plan, a_half_blind_plan


def test_pools_come_first_and_then_their_workers() -> None:
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

    assert status_to_text(plan, colour=False) == (
        "Fleet debian-ci at 2026-11-21 08:00 UTC\n"
        "0.24 EUR/h; 2 requests wait, 1 with a machine there or coming\n"
        "not known: queue copr: no answer\n"
        "\n"
        "POOL      BUSY  IDLE  STARTING  OTHER  MAX  EUR/h  MODE\n"
        "builders     1     1         0      0    3   0.24  apply\n"
        "powerful     0     0         0      0   12   0.00  pause\n"
        "\n"
        "WORKER                   POOL      STATE           RUNS     SINCE  IMAGE   "
        "  TYPE   EUR/h\n"
        "debian-ci-builders-0001  builders  busy            10341  1 d 2 h  trixie-1"
        "  ccx33   0.12\n"
        "debian-ci-builders-0002  builders  idle, outdated  -         40 s  trixie-1"
        "  ccx33   0.12\n"
    )


def test_inactive_workers_are_only_counted() -> None:
    plan = a_plan(workers=(a_worker_verdict(), a_worker_verdict(worker="lost-one", inactive=True)))

    text = status_to_text(plan, colour=False)

    assert "lost-one" not in text
    assert "1 inactive worker not shown (machine gone or token disabled)\n" in text


def test_workers_that_are_only_planned_are_not_there_yet() -> None:
    plan = a_plan(workers=(a_worker_verdict(worker="new", verdict="create", state="planned"),))

    assert status_to_text(plan, colour=False).endswith("\nNo workers.\n")


def test_no_workers_are_not_none_where_something_could_not_be_read() -> None:
    plan = a_plan(unknown=("stacks are unknown: there is no store",))

    assert status_to_text(plan, colour=False).endswith(
        "\nNo workers are known of; what could not be read may have some.\n"
    )


def test_an_empty_fleet_says_so() -> None:
    assert status_to_text(a_plan(), colour=False) == (
        "Fleet debian-ci at 2026-11-21 08:00 UTC\n"
        "0.00 EUR/h; nothing waits\n"
        "\n"
        "No pools.\n"
        "\n"
        "No workers.\n"
    )


def test_what_could_not_be_read_is_not_known_and_not_nothing() -> None:
    text = status_to_text(a_blind_plan(), colour=False)

    lines = text.splitlines()
    assert lines[1] == "cost not known; what waits is not known"
    assert lines[5:8] == [
        "POOL           BUSY       IDLE   STARTING      OTHER  MAX      EUR/h  MODE",
        "builders  not known  not known  not known  not known    3  not known  apply",
        "legacy    not known  not known  not known  not known    3       0.00  static",
    ]
    assert text.endswith("\n\nThe workers of pools builders, legacy are not known.\n")


def test_what_was_read_is_said_beside_what_was_not() -> None:
    text = status_to_text(a_half_blind_plan(), colour=False)

    assert text.splitlines()[1] == (
        "at least 1.1815 EUR/h; at least 6 requests wait, 3 with a machine there or coming"
    )
    assert "needs a person: debian-ci-builders-0005: its worker did not register in time" in text
    assert re.search(r"debian-ci-rest-0001 +rest +not known +not known .* not known\n", text)
    assert "\nThe workers of pool far are not known.\n" in text


def test_colour_only_adds_to_the_words() -> None:
    plan = a_plan(workers=(a_worker_verdict(state="disconnected"),))

    assert "\x1b[31mdisconnected\x1b[0m" in status_to_text(plan, colour=True)
