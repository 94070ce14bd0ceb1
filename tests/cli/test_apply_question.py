"""The question of `fleet apply` at a terminal: what the answer applies, and how it ends."""

from collections.abc import Callable
from contextlib import chdir

import pytest

from fleet.cli import apply
from fleet.errors import StoreMissing, WrongUsage
from fleet.program import build_parser
from tests.rigs.trial import Trial


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


def test_apply_refuses_a_missing_store_before_it_prints_a_plan(trial: Trial) -> None:
    trial.wait_for("1")
    (trial.folder / ".fleet/store.db").unlink()
    happened: list[None] = []

    with pytest.raises(StoreMissing):
        apply_as(trial, happens=lambda: happened.append(None))

    assert not happened
