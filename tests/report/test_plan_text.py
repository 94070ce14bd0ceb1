"""This module holds how a plan reads in a terminal and in a log."""

from decimal import Decimal

from fleet.report.plan_text import plan_to_text
from tests.builders import (
    a_create,
    a_drain,
    a_guard_result,
    a_plan,
    a_pool_verdict,
    a_warning,
    an_unserved,
)
from tests.builders.telling import a_blind_plan, a_half_blind_plan, a_telling_plan

TELLING = """\
Fleet debian-ci at 2026-11-21 08:00 UTC
Plan: 2 to create, 1 to drain, 1 to delete; 0.8215 -> 0.4800 EUR/h
2 requests wait, 0 with a machine there or coming
Guards keep back: 1 to delete

Not known, and unknown is not zero
  ? queue copr: no answer; pools that serve it delete nothing

Pools               busy  idle  starting  other  max   EUR/h   after
  builders             1     1         0      0   20  0.2400  0.4800
      2 of 4 waiting requests fit no worker that exists
  powerful (drain)     0     0         0      1    2  0.5815  0.0000
      its pool has mode: drain

Changes
  builders
    + create  debian-ci-builders-0003  ccx33  +0.1200 EUR/h  for 101
    + create  debian-ci-builders-0004  ccx33  +0.1200 EUR/h  for 102, 103, 104
        1 request waits and no idle worker fits it [requests-wait]
    ~ drain   debian-ci-builders-0002  ccx33
        idle for 20 min; 15 min are allowed [idle-too-long]
  powerful
    - delete  debian-ci-powerful-0001  ccx63  -0.5815 EUR/h
        drained, and idle for 25 min; 15 min are allowed [idle-too-long]

Not served in this run: 2 requests
  ! 2 requests: 107, 108
      no pool provides worker:build-arch:riscv64
      queue debian, asks for worker:build-arch:riscv64
      see pools in fleet.yaml

Guards
  refused, pool old: 12 of 14 workers would be deleted (86 %); at most 30 % and 10 are allowed [delete]
      limit: guards.refuse.delete.share in fleet.yaml
      way out: add an approval for guard delete, pool builders, count 12

Warnings
  fleet.yaml:18:5: warning[expires-soon] this rule expires in 7 days

Digests: plan eeeeeeeeeeee, config cccccccccccc, world dddddddddddd
"""  # noqa: E501 - a sentence of the plan is one line


def test_a_plan_says_what_changes_why_and_what_not() -> None:
    assert plan_to_text(a_telling_plan(), colour=False) == TELLING


def test_a_quiet_plan_is_short() -> None:
    assert plan_to_text(a_plan(cost_before=Decimal(1), cost_after=Decimal(1)), colour=False) == (
        "Fleet debian-ci at 2026-11-21 08:00 UTC\n"
        "Plan: nothing to change; 1.00 EUR/h\n"
        "\n"
        "Digests: plan eeeeeeeeeeee, config cccccccccccc, world dddddddddddd\n"
    )


def test_two_hundred_alike_are_three_and_a_count() -> None:
    creates = [a_create(worker=f"debian-ci-builders-{number:04}") for number in range(1, 201)]

    text = plan_to_text(a_plan(actions=creates), colour=False)

    assert (
        "  builders\n"
        "    + create  debian-ci-builders-0001  ccx33  +0.12 EUR/h  for 101\n"
        "    + create  debian-ci-builders-0002  ccx33  +0.12 EUR/h  for 101\n"
        "    + create  debian-ci-builders-0003  ccx33  +0.12 EUR/h  for 101\n"
        "    + … and 197 more to create alike, +23.64 EUR/h\n"
        "        1 request waits and no idle worker fits it [requests-wait]\n"
    ) in text


def test_alike_for_different_figures_each_say_their_own() -> None:
    drains = [
        a_drain(worker=f"debian-ci-builders-{number:04}", because=f"idle for {number} h")
        for number in range(2, 9)
    ]

    text = plan_to_text(a_plan(actions=drains), colour=False)

    assert (
        "    ~ drain  debian-ci-builders-0002\n"
        "        idle for 2 h [idle-too-long]\n"
        "    ~ drain  debian-ci-builders-0003\n"
        "        idle for 3 h [idle-too-long]\n"
        "    ~ drain  debian-ci-builders-0004\n"
        "        idle for 4 h [idle-too-long]\n"
        "    ~ … and 4 more to drain alike [idle-too-long]\n"
    ) in text


def test_a_request_is_named_once() -> None:
    create = a_create(because="request 101 waits and no free worker fits it")

    text = plan_to_text(a_plan(actions=(create,)), colour=False)

    assert "for 101" not in text


def test_many_pools_that_hold_nothing_are_a_count() -> None:
    quiet = [a_pool_verdict(pool=f"quiet-{number}", busy=0) for number in range(30)]

    text = plan_to_text(a_plan(pools=(a_pool_verdict(), *quiet)), colour=False)

    assert "quiet-" not in text
    assert "  … and 30 pools without machines or changes\n" in text


def test_what_was_not_read_is_not_known_and_never_zero() -> None:
    text = plan_to_text(a_blind_plan(), colour=False)

    assert "; cost not known\n" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("  builders ")]
    assert row == ["builders", *["not", "known"] * 3, "3", *["not", "known"] * 2]


def test_what_was_read_is_the_least_of_what_it_costs() -> None:
    text = plan_to_text(a_half_blind_plan(), colour=False)

    assert "; at least 1.1815 -> 1.3015 EUR/h\n" in text


def test_many_pools_that_were_not_read_are_counted() -> None:
    pools = tuple(
        a_pool_verdict(pool=f"pool-{n:02}", busy=0, not_known=("machines", "workers", "cost"))
        for n in range(20)
    )

    text = plan_to_text(a_plan(pools=pools), colour=False)

    assert (
        "  … and 20 pools without machines or changes, as far as is known (20 could not be read)"
    ) in text


def test_many_kinds_of_unserved_requests_are_a_count() -> None:
    unserved = [an_unserved(requests=(f"r{number}", "x")) for number in range(15)]

    text = plan_to_text(a_plan(unserved=unserved), colour=False)

    assert "Not served in this run: 30 requests\n" in text
    assert "  … and 10 requests of 5 other kinds\n" in text


def test_many_warnings_are_a_count() -> None:
    warnings = [a_warning(message=f"number {number}") for number in range(12)]

    text = plan_to_text(a_plan(warnings=warnings), colour=False)

    assert "number 9\n  … and 2 more warnings\n" in text


def test_a_guard_of_the_whole_fleet_says_so() -> None:
    guard = a_guard_result(pool=None, result="throttled", path=(), way_out="", because="too many")

    text = plan_to_text(a_plan(guards=(guard,)), colour=False)

    assert "Guards\n  throttled, whole fleet: too many [delete]\n\n" in text


def test_colour_marks_what_is_made_and_what_goes() -> None:
    text = plan_to_text(a_telling_plan(), colour=True)

    assert "\x1b[32m+ create\x1b[0m" in text
    assert "\x1b[31m- delete\x1b[0m" in text


def test_without_colour_there_is_no_escape() -> None:
    assert "\x1b" not in plan_to_text(a_telling_plan(), colour=False)


def test_a_hostile_request_cannot_move_the_cursor() -> None:
    plan = a_plan(actions=(a_create(serves=("\x1b[2J\n9",)),))

    text = plan_to_text(plan, colour=False)

    assert "for \\x1b[2J\\n9\n" in text
