"""On which machine type a run was: its machine is known by a name that others had before."""

import pytest

from fleet.model.facts import Attempt, TaskRuns
from fleet.planner.durations import FinishedRun, by_type
from tests.builders import NOW, ago


def made(kind: str, hours: float, *, worker: str = "m-1", result: str = "registered") -> Attempt:
    return Attempt.model_validate(
        {
            "pool": "builders",
            "worker": worker,
            "type": kind,
            "image": "trixie-1",
            "at": ago(hours=hours),
            "result": result,
        }
    )


def ran(
    hours: float, seconds: int, machine: str = "m-1", package: str = "chromium"
) -> FinishedRun:
    return FinishedRun("sbuild", package, machine, ago(hours=hours), seconds)


def found(*seconds: int, kind: str, package: str = "chromium") -> TaskRuns:
    return TaskRuns(task="sbuild", package=package, machine=kind, seconds=seconds)


def test_run_has_type_of_last_machine_created_before_it() -> None:
    attempts = [made("ccx63", 2), made("ccx33", 9)]

    runs = [ran(8, 700), ran(2, 100), ran(1, 110)]

    assert by_type(runs, attempts) == (found(700, kind="ccx33"), found(100, 110, kind="ccx63"))


@pytest.mark.parametrize("attempts", [[], [made("ccx33", 1)], [made("ccx33", 9, worker="m-2")]])
def test_run_without_known_machine_is_omitted(attempts: list[Attempt]) -> None:
    assert by_type([ran(3, 700)], attempts) == ()


@pytest.mark.parametrize("result", ["out-of-stock", "quota", "error"])
def test_run_is_not_matched_to_uncreated_machine(result: str) -> None:
    attempts = [made("ccx33", 9), made("ccx63", 5, result=result)]

    assert by_type([ran(3, 700)], attempts) == (found(700, kind="ccx33"),)


def test_only_latest_of_many_runs_are_kept() -> None:
    runs = [FinishedRun("sbuild", "hello", "m-1", NOW, 1), *[ran(2, 5, package="hello")] * 1200]

    ((*_, taken),) = (each.seconds for each in by_type(runs, [made("ccx33", 9)]))

    assert taken == 5
    assert [len(each.seconds) for each in by_type(runs, [made("ccx33", 9)])] == [1000]
