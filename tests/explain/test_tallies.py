"""What a run counts for its month: waits, limits that bound, rules that matched, the bound."""

from datetime import timedelta

from fleet.explain.tallies import bucket_of, limit_paths, most_of, tallies_of, waiting_of
from fleet.model.facts import Unknown, World
from fleet.model.history import Tally
from fleet.reconcile import reconcile
from tests.builders import NOW, a_pool, a_reading, a_request, a_sim_fleet, a_worker, a_world, ago

RULE = {"match": "chromium", "ask": ["big"], "reason": "it is large"}
FLEET = a_sim_fleet(
    powerful=[RULE],
    tags={"big": {}},
    pools={"builders": a_pool(provider="desk", provides=["big"])},
)


def running(**work: object) -> World:
    worker = a_worker(busy=True, work={"started_at": ago(minutes=1)} | work)
    return a_world(queues={"debian": a_reading(workers=(worker,))}, providers={})


def found(world: World, **waited: object) -> dict[str, Tally]:
    before = {key.replace("_", "/"): at for key, at in waited.items()}
    plan = reconcile(FLEET, world)
    tallies = tallies_of(FLEET, world, plan, before)  # type: ignore[arg-type]
    return {f"{each.kind} {each.name}".strip(): each for each in tallies}


def test_wait_lasts_from_submission_to_start() -> None:
    seen = found(running(), debian_90=ago(minutes=11))

    assert f"wait ordinary {bucket_of(600)}" in seen
    assert "unseen" not in seen


def test_build_of_allow_list_is_in_powerful_class() -> None:
    seen = found(running(required=("big",), names=("chromium",)), debian_90=ago(minutes=11))

    assert f"wait powerful {bucket_of(600)}" in seen
    assert "rule chromium" in seen


def test_request_first_seen_running_has_no_wait() -> None:
    assert not [key for key in found(running()) if key.startswith(("wait", "unseen"))]


def test_request_ended_between_runs_has_unknown_wait() -> None:
    seen = found(running(), debian_7=ago(minutes=3), debian_8=ago(minutes=3))

    assert seen["unseen"].count == 2


def test_wait_is_counted_when_request_starts() -> None:
    world = a_world(queues={"debian": a_reading(a_request(id="7"))}, providers={})

    assert "unseen" not in found(world, debian_7=ago(minutes=5))
    assert waiting_of(world, {}) == {"debian/7": ago(minutes=5)}


def test_waits_continue_while_queue_is_unreadable() -> None:
    silent = a_reading().altered(demand=Unknown(unknown="down"))
    world = a_world(queues={"debian": silent}, providers={})
    before = {"debian/7": ago(minutes=5), "gone/1": NOW}

    assert waiting_of(world, before) == {"debian/7": ago(minutes=5)}
    assert "unseen" not in found(world, debian_7=ago(minutes=5))


def test_wait_bucket_is_at_most_a_tenth_wide() -> None:
    for seconds in (0, 1, 59, 600, 86_400, 10**7):
        most = most_of(bucket_of(seconds))
        assert seconds <= most <= (seconds + 1) * 1.1
    assert bucket_of(timedelta(hours=-1).total_seconds()) == 0


def test_limits_of_a_month_are_those_of_pools_budgets_tags_and_queues() -> None:
    fleet = a_sim_fleet(
        pools={"small": a_pool(provider="desk", budget={"per_day": "3 EUR"})},
        budgets={"x": {"per_day": "4 EUR", "machine_hours_per_day": 4}},
        tags={"big": {"limits": {"total": 2, "per": {"owner": 1}}}},
        queues={"tickets": {"kind": "tickets", "limits": {"per": {"submitter": 1}}}},
    )

    assert limit_paths(fleet) == {
        "pools.small.workers.max",
        "pools.small.budget.per_day",
        "budgets.x.per_day",
        "budgets.x.machine_hours_per_day",
        "tags.big.limits.total",
        "tags.big.limits.per.owner",
        "queues.tickets.limits.per.submitter",
    }
