"""How the runs of a store read."""

from fleet.report.outcome import format_begun, run_to_text, run_to_value
from tests.builders import a_stack_outcome, an_outcome
from tests.builders.sentences import tells

_TIMES = {"started": "2026-11-21T08:00:00+00:00", "ended": "2026-11-21T08:00:07+00:00"}


def a_run(outcome: str) -> dict[str, str]:
    return {**_TIMES, "plan": "0123456789abcdef", "outcome": outcome}


def test_run_counts_the_results_of_its_pools_worst_first() -> None:
    outcome = an_outcome(
        a_stack_outcome(),
        a_stack_outcome(pool="b", result="failed", created=()),
        a_stack_outcome(pool="c", result="refused", created=()),
        a_stack_outcome(pool="d", result="unchanged", created=()),
        refused=("guard delete: 9 of 9",),
    )

    text = run_to_text(a_run(outcome.model_dump_json()), running=False)

    counts = ("1 failed", "1 refused", "1 applied", "1 unchanged", "1", "guards")
    assert tells(text, *_TIMES.values(), "plan 0123456789ab", *counts)


def test_forgotten_machine_is_named_without_plan() -> None:
    outcome = an_outcome(a_stack_outcome(created=(), forgotten=("ci-builders-0001",)))
    run = a_run(outcome.model_dump_json()) | {"plan": ""}

    text = run_to_text(run, running=False)

    assert tells(text, *_TIMES.values(), "ci-builders-0001")
    assert "plan" not in text


def test_outcome_of_another_version_is_shown_as_json() -> None:
    run = a_run('{"format": "x"}')

    assert tells(run_to_text(run, running=False), "plan 0123456789ab", "unknown")
    assert run_to_value(run)["outcome"] == {"format": "x"}
    assert run_to_value(run)["results"] is None
    assert run_to_value(a_run("not JSON"))["outcome"] is None


def test_unfinished_run_is_running_while_its_lock_is_held() -> None:
    run = {**_TIMES, "ended": "", "plan": "", "outcome": ""}

    assert tells(run_to_text(run, running=True), _TIMES["started"], "running")


def test_killed_run_names_its_last_step() -> None:
    died = a_run("queue q: drain a\nstack s: delete a\n") | {"ended": ""}

    assert tells(format_begun([died]), "2", "stack s: delete a")


def test_finished_or_empty_run_names_no_step() -> None:
    ended = a_run(an_outcome().model_dump_json())

    assert [format_begun(runs) for runs in ([ended], [a_run("") | {"ended": ""}], [])] == [""] * 3
