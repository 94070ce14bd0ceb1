"""Decisions about the workers of one pool: each case of `decisions/` is a sentence and a plan."""

from pathlib import Path

import pytest

from fleet.model.plan import Cause, Create
from fleet.reconcile import reconcile
from tests.builders.decisions import Case, because, decided, read_cases, world_of
from tests.builders.sentences import tells

CASES = [*read_cases(Path(__file__).parent / "decisions")]
OF_CONFIG = {"above-max", "below-min", "outdated", "pool-draining", "pool-removed", "replacement"}
OF_KNOWLEDGE = {"livecheck-failed"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_plan_has_all_decisions_of_its_case(case: Case) -> None:
    plan = reconcile(case.fleet, world_of(case.world))

    assert decided(plan) == case.decisions
    for about, words in case.because:
        assert tells(because(plan, about), *words.split())
    for action in plan.actions:
        if action.reason != "interrupted":
            assert (action.cause is Cause.CONFIG) is (action.reason in OF_CONFIG)
            assert (action.cause is Cause.KNOWLEDGE) is (action.reason in OF_KNOWLEDGE)
            is_at_queue = "at debusine" in case.world or "kind: tickets" in case.pool
            registry = "debian" if is_at_queue else "desk"
            assert isinstance(action, Create) or action.registry == registry


def test_sentences_of_cases_are_unique() -> None:
    assert len({case.sentence for case in CASES}) == len(CASES)
