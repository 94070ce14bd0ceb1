"""Emptying a pool: a freeze of its creates, then `machine delete --pool NAME --all`."""

import os

import pytest

from tests.builders.sentences import tells
from tests.cli.test_freeze import WHY
from tests.cli.test_machine import ONE, TWO
from tests.rigs.terminal import answer_at_terminal, read_until_closed, run_at_terminal
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm

EMPTY = ("machine", "delete", "--pool", "builders", "--all", "--apply")


def test_pool_keeps_only_busy_machine_when_emptied(idle: Trial) -> None:
    idle.cloud.assign(ONE, "1")
    idle.told("freeze", "--creates", "--pool", "builders", *WHY)

    for _ in range(2):
        idle.do(*EMPTY)

    assert idle.machines() == [ONE]
    idle.wait_for("2", "3")
    idle.apply()
    assert idle.machines() == [ONE]
    idle.cloud.assign(ONE, None)
    idle.apply()
    assert idle.machines() == []


@pytest.mark.parametrize(
    "selectors",
    [
        (),
        (ONE, "--expired"),
        (ONE, "--pool", "builders"),
        ("--pool", "builders"),
        ("--all",),
        ("--unused",),
        (ONE, "--all"),
        ("--pool", "builders", "--expired"),
        (ONE, "--since", "1h"),
    ],
    ids=" ".join,
)
def test_delete_is_refused_when_selectors_contradict(
    idle: Trial, selectors: tuple[str, ...]
) -> None:
    before = idle.files()

    said = idle.told("machine", "delete", *selectors, "--apply", code=2)

    assert tells(said, "--pool", "NAME", "--expired")
    assert idle.files() == before


@pytest.mark.parametrize(
    ("answer", "result"), [(b"yes\n", (0, [TWO])), (b"no\n", (1, [ONE, TWO]))]
)
def test_delete_asks_a_user_at_a_terminal(
    idle: Trial, warm: Warm, answer: bytes, result: tuple[int, list[str]]
) -> None:
    idle.do("machine", "delete", ONE, "--apply")

    code, shown = answer_at_terminal(idle, warm, answer, "machine", "delete", ONE)

    assert (code, idle.machines()) == result
    assert shown.count("1 to delete") == 1
    assert "dry run" not in shown


def test_delete_is_refused_when_plan_changes_during_the_question(idle: Trial, warm: Warm) -> None:
    idle.do("machine", "delete", ONE, "--apply")

    with run_at_terminal(idle, warm, "machine", "delete", ONE) as (process, terminal):
        while b"yes/no" not in os.read(terminal, 65536):
            pass
        idle.told("freeze", *WHY)
        os.write(terminal, b"yes\n")
        b"".join(read_until_closed(terminal))

    assert (process.returncode, idle.machines()) == (4, [ONE, TWO])


@pytest.mark.parametrize(
    "order",
    [("freeze",), ("hold", ONE), ("approve", "delete", "--pool", "builders", "--count", "1")],
    ids=lambda order: order[0],
)
def test_end_of_an_order_is_wrong_usage_when_terms_are_given(
    idle: Trial, order: tuple[str, ...]
) -> None:
    before = idle.files()

    idle.told(*order, "--end", "--for", "2h", code=2)

    assert idle.files() == before
