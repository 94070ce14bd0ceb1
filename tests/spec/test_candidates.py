"""Which single edits are looked at for a waiting request, from what its plan says."""

from datetime import date

from fleet.explain.unblock import candidates, describe
from fleet.schema.model import Fleet
from tests.builders import (
    a_guard_result,
    a_plan,
    a_request,
    a_signature,
    a_sim_fleet,
    a_sim_world,
    an_unserved,
)

KEY = "debian/101"
ASKING = a_sim_world(requests=(a_request(),))
REFUSED = a_plan(
    signatures=(a_signature(requests=(KEY,)),),
    unserved=(an_unserved(requests=(KEY,), path=("guards", "refuse", "delete")),),
    guards=(a_guard_result(path=("guards", "refuse", "delete")),),
)


def considered(fleet: Fleet) -> list[str]:
    return [describe(fleet, edit) for edit in candidates(fleet, ASKING, REFUSED, KEY)]


def test_what_a_guard_refuses_may_be_approved() -> None:
    assert any(said.startswith("add an approval: {guard:") for said in considered(a_sim_fleet()))


def test_an_approval_that_has_expired_may_be_given_another_day_or_let_more_pass() -> None:
    approval = {
        "guard": "delete",
        "pool": "builders",
        "count": 3,
        "reason": "move",
        "expires": date(2026, 11, 1),
    }

    found = considered(a_sim_fleet(approvals=[approval]))

    assert "move approvals[0].expires from 2026-11-01 to 2026-11-21 or later" in found
    assert "raise approvals[0].count from 3 to 100000" in found
