"""How the outcome of an apply reads."""

from tests.builders import a_create, a_guard_result, a_plan, a_stack_outcome, an_outcome
from tests.builders.sentences import tells
from tests.report.conftest import Golden
from tests.rigs.shown import outcome_to_text


def test_partial_outcome_shows_done_failed_and_next(golden: Golden) -> None:
    outcome = an_outcome(
        a_stack_outcome(
            created=("ci-builders-0001", "ci-builders-0002"), drained=("ci-builders-0007",)
        ),
        a_stack_outcome(pool="arm", result="failed", created=(), error="out of stock\ncax41"),
        a_stack_outcome(pool="big", result="unchanged", created=()),
    )

    golden("outcome-partly-applied.txt", outcome_to_text(outcome, a_plan(), colour=False))


def test_refused_outcome_names_remedy(golden: Golden) -> None:
    outcome = an_outcome(refused=("guards.refuse.delete: 12 of 14",))
    plan = a_plan(guards=(a_guard_result(),))

    golden("outcome-refused.txt", outcome_to_text(outcome, plan, colour=False))


def test_quiet_outcome_is_one_line(golden: Golden) -> None:
    golden("outcome-quiet.txt", outcome_to_text(an_outcome(), a_plan(), colour=False))


def test_outcome_leaves_throttled_actions_to_next_apply() -> None:
    text = outcome_to_text(an_outcome(), a_plan(withheld=(a_create(),)), colour=False)

    assert tells(text, "1 to create", "`fleet apply`")


def test_many_names_are_counted() -> None:
    names = tuple(f"w{number}" for number in range(40))

    text = outcome_to_text(an_outcome(a_stack_outcome(created=names)), a_plan(), colour=False)

    assert tells(text, "    + ", "40", "w0, w1, w2, w3, w4", "35")
    assert "w5" not in text


def test_long_error_is_truncated_with_count() -> None:
    failed = a_stack_outcome(result="failed", created=(), error="no\n" * 300)

    text = outcome_to_text(an_outcome(failed), a_plan(), colour=False)

    assert text.count("| no\n") == 20
    assert tells(text, "    | … ", "280")


def test_control_characters_in_error_are_escaped() -> None:
    failed = a_stack_outcome(result="failed", created=(), error="\x1b[2Jgone")

    assert "\x1b" not in outcome_to_text(an_outcome(failed), a_plan(), colour=False)
