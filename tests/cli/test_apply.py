"""`fleet apply`: makes it so, says what it did, and the second time has nothing to do."""

import json
import os
import pty
import subprocess
from collections.abc import Callable
from contextlib import chdir

import pytest

from fleet.cli import apply
from fleet.errors import WrongUsage
from fleet.program import build_parser
from tests.builders.sentences import tells
from tests.rigs.process import clean_environment
from tests.rigs.terminal import (
    answer_at_terminal,
    read_until_closed,
)
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm

# who watches


def watched(trial: Trial, warm: Warm, **env: str) -> tuple[str, str]:
    """Apply with a terminal behind standard error; return standard output, and what that shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*warm.command(), "apply", "--json"],
        cwd=trial.folder,
        env=clean_environment(trial.folder, env),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        written = process.stdout.read()
        shown = b"".join(read_until_closed(ours)).decode()
        os.close(ours)
    assert process.returncode == 0
    return written, shown


def test_terminal_shows_each_step_and_progress(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1", big=["2"])

    written, shown = watched(trial, warm, NO_COLOR="1")

    assert [stack["result"] for stack in json.loads(written)["stacks"]] == ["applied", "applied"]
    *_, first, second, last = shown.split("\r\x1b[K")
    step, bar = first.split("\r\n")
    assert step == "big: create trial-big-0001"
    assert tells(bar, "[##########..........]", "1 of 2", "builders 0/1")
    step, bar = second.split("\r\n")
    assert step == "builders: create trial-builders-0001"
    assert tells(bar, "[####################]", "2 of 2")
    assert not last, "the bar stays after the end"


@pytest.mark.parametrize(
    ("answer", "words", "result"),
    [
        (b"yes\n", (), (0, 1)),
        (b"no\n", (), (1, 0)),
        (b"\n", (), (1, 0)),
        (b"", ("--yes",), (0, 1)),
        (b"", ("--json",), (0, 1)),
    ],
)
def test_apply_asks_a_user_at_a_terminal(
    trial: Trial, warm: Warm, answer: bytes, words: tuple[str, ...], result: tuple[int, int]
) -> None:
    trial.wait_for("1")

    code, shown = answer_at_terminal(trial, warm, answer, "apply", *words)

    assert (code, len(trial.machines())) == result
    assert tells(shown, "trial-builders-0001")
    assert shown.count("1 to create") == ("--json" not in words)


def test_apply_of_a_quiet_plan_does_not_ask(trial: Trial, warm: Warm) -> None:
    code, _ = answer_at_terminal(trial, warm, b"", "apply")

    assert (code, trial.machines()) == (0, [])


class User:
    """A console with a user, who waits until the plan is printed."""

    colour = watched = False
    can_ask = True

    def __init__(self, answer: Callable[[], str], happens: Callable[[], object]) -> None:
        self.texts: list[str] = []
        self.is_asked = False
        self._answer, self._happens = answer, happens

    def columns(self, piped: int | None) -> int | None:
        return piped or 80

    def out(self, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) == 1:
            self._happens()

    def note(self, text: str) -> None:
        self.texts.append(text)

    def ask(self, question: str) -> str:
        self.texts.append(question)
        self.is_asked = True
        return self._answer()

    def progress(self, text: str) -> None:
        """Show nothing."""


def apply_as(
    trial: Trial,
    *words: str,
    answer: Callable[[], str] = lambda: "yes",
    happens: Callable[[], object] = lambda: None,
) -> tuple[int, User]:
    user = User(answer, happens)
    with chdir(trial.folder):
        return apply.run(build_parser().parse_args(["apply", *words]), user), user


def interrupt() -> str:
    raise KeyboardInterrupt


def test_apply_refuses_if_a_quiet_plan_changes_after_it_is_printed(trial: Trial) -> None:
    code, user = apply_as(trial, happens=lambda: trial.wait_for("1"))

    assert (code, trial.machines(), user.is_asked) == (4, [], False)


def test_apply_prints_the_current_plan_if_the_plan_has_changed(trial: Trial) -> None:
    trial.wait_for("1")

    code, user = apply_as(trial, happens=lambda: trial.wait_for("1", "2"))

    shown = "\n".join(user.texts)
    assert (code, trial.machines()) == (4, [])
    assert shown.count("1 to create") == shown.count("2 to create") == 1
    assert "run `fleet apply` again" in shown


def test_apply_changes_nothing_when_the_question_is_interrupted(trial: Trial) -> None:
    trial.wait_for("1")

    code, user = apply_as(trial, answer=interrupt)

    assert (code, trial.machines()) == (130, [])
    assert user.texts[-1] == "fleet: interrupted: nothing was changed"


def test_apply_refuses_an_unknown_pool_before_it_prints_a_plan(trial: Trial) -> None:
    happened: list[None] = []

    with pytest.raises(WrongUsage):
        apply_as(trial, "--pool", "other", happens=lambda: happened.append(None))

    assert not happened
