"""What guards count and say, to the last figure."""

from decimal import Decimal

from fleet.guard import guard
from fleet.model.plan import Cause
from tests.builders import a_delete, a_plan, a_pool_verdict, a_signature, a_sim_fleet
from tests.builders.guarding import creates, drains, with_guards
from tests.builders.sentences import tells


def test_pool_verdict_counts_only_unthrottled_actions() -> None:
    deletes = tuple(a_delete(worker=f"builders-{n}", saves=Decimal("0.1")) for n in range(25))
    pool = a_pool_verdict(idle=24, delete=25, cost_before=Decimal("2.5"), cost_after=Decimal(0))

    (verdict,) = guard(a_sim_fleet(), a_plan(actions=deletes, pools=(pool,))).pools

    assert (verdict.delete, verdict.cost_after) == (20, Decimal("0.5"))


def test_requests_withheld_by_two_guards_are_listed_by_guard() -> None:
    pools = (a_pool_verdict(pool="arm", mode="observe"), a_pool_verdict(busy=1))
    actions = (*creates(1, "arm"), *creates(2))
    names = [action.worker for action in actions]  # type: ignore[attr-defined]  # builders take any action
    signature = a_signature(
        requests=("1", "2", "3"), by_create=dict(zip(("1", "2", "3"), names, strict=True))
    )
    fleet = with_guards(throttle={"create": {"count": 1}})

    guarded = guard(fleet, a_plan(actions=actions, pools=pools, signatures=(signature,)))

    assert [(each.requests, each.path) for each in guarded.unserved] == [
        (("1",), ("pools", "arm", "mode")),
        (("3",), ("guards", "throttle", "create")),
    ]


def test_refusal_across_pools_lists_an_approval_per_pool() -> None:
    names = ("arm", "builders", "ppc", "s390x")
    pools = tuple(a_pool_verdict(pool=name, busy=9) for name in names)
    actions = tuple(drain for name in names for drain in drains(3, Cause.CONFIG, name))
    fleet = with_guards(refuse={"delete": {"share": "40%"}})

    (result,) = guard(fleet, a_plan(actions=actions, pools=pools)).guards

    assert tells(result.because, "12", "36", "33%", "40%", "10")
    assert (result.count, result.of, result.withheld) == (12, 36, 12)
    assert [f"pool: {name}, count: 3" in result.way_out for name in names] == [True] * 4
    assert result.way_out.count(" and - {guard: delete") == 3
