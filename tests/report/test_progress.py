"""How far an apply is: a bar over all steps, and the pools that have some left."""

from fleet.report.outcome import Progress
from tests.builders import a_create, a_drain, a_plan
from tests.builders.sentences import tells

PLAN = a_plan(
    actions=(
        a_create(worker="a"),
        a_create(worker="b"),
        a_create(worker="c"),
        a_drain(worker="d", pool="old"),
    )
)


def test_bar_grows_with_the_reported_steps() -> None:
    progress = Progress(PLAN)
    begun = str(progress)

    progress.report("builders: create a")
    progress.report("old: drain d")

    assert tells(begun, "[....................]", "0", "4", "builders 0/3", "old 0/1")
    assert tells(str(progress), "[##########..........]", "2", "4", "builders 1/3")
    assert "old" not in str(progress)


def test_progress_counts_each_planned_step_once() -> None:
    progress = Progress(PLAN)

    for told in ("builders: create a", "builders: create a", "old: release z", "a note"):
        progress.report(told)

    assert str(progress).startswith("[#####...............] 1 of 4 steps")


def test_progress_shows_recording_after_last_step() -> None:
    progress = Progress(a_plan(actions=(a_create(worker="a"),)))

    progress.report("builders: create a")

    assert tells(str(progress), "[####################]", "1", "1", "recording")


def test_empty_plan_has_no_progress_bar() -> None:
    assert not str(Progress(a_plan()))
