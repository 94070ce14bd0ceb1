"""A request that a limit stops starts when work ends that counts to the same limit: `turns/`."""

from pathlib import Path

import pytest

from fleet.explain.case import Case
from fleet.explain.request import explain_one
from fleet.explain.search import Replans
from fleet.guard import guard
from fleet.reconcile import reconcile
from tests.builders import decisions
from tests.builders.decisions import read_cases, world_of
from tests.builders.sentences import tells

CASES = [*read_cases(Path(__file__).parent / "turns")]
POOL = "max: 5, provides: [powerful], tags: {{powerful: {{on_demand: true, exclusive: true, {}}}}}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_requests_wait_for_the_work_of_their_case(case: decisions.Case) -> None:
    per, _, more = case.pool.partition(";")
    limit = f"limits: {{per: {{submitter: {per or 1}}}}}"
    pool = POOL.format(limit) + (f", {more}" if more else "")
    fleet, world = decisions.Case("", pool, case.world, "", ()).fleet, world_of(case.world)
    found = Case(fleet, world, guard(fleet, reconcile(fleet, world)))

    turns = [
        f"{key[7:]} after {turn.first.work[7:]} in {(turn.first.end or 0) // 60}"
        if turn.first
        else f"{key[7:]} after {' '.join(each.work[7:] or '?' for each in turn.works)} unknown"
        for key, turn in found.turns.items()
    ]
    assert (", ".join(turns) or "nothing") == case.decisions
    for about, words in case.because:
        number, _, kind = about.partition(" ")
        key = f"debian/{number}"
        answer = explain_one(found, key, Replans(0), ())
        plain = " ".join(answer.plain)
        if kind == "starts":
            assert f"{answer.expected:%H:%M} {answer.finish:%H:%M}" == words.strip()
        else:
            assert tells(plain, *words.split()) is (kind != "not"), plain
