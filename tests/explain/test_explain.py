"""Why a request waits, why a worker stays: the reasons in sentences."""

import re
from datetime import date

import pytest

from fleet.explain.pool import explain_pool
from fleet.explain.request import FIRST_READ
from fleet.explain.values import Explanation
from fleet.explain.worker import explain_worker
from fleet.guard import guard
from fleet.model.decisions import Served
from fleet.model.facts import Unknown, World
from fleet.model.plan import Plan
from fleet.planner.step import move_time
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.deciding import FIRST, SECOND, an_unseen_world, fleet_with
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def of_request(fleet: Fleet, world: World, name: str = "101") -> Explanation:
    found = explain_request(fleet, world, planned(fleet, world), name)
    assert found is not None
    return found


def of_worker(fleet: Fleet, world: World, name: str = FIRST) -> list[str]:
    found = explain_worker(fleet, world, planned(fleet, world), name)
    assert found is not None
    return [reason.because for reason in found.reasons]


ASKING = a_sim_world(requests=(a_request(),))
GPU = a_sim_world(requests=(a_request(required=("gpu",)),))


# a request


def test_explanation_of_served_request_has_start_and_next_step() -> None:
    found = of_request(a_sim_fleet(), ASKING)

    assert any("2026-11-21 08:01 UTC (in 1m 30s)" in fact for fact in found.facts)
    assert len(found.next_steps) == 1
    assert "`fleet apply`" in found.next_steps[0]


@pytest.mark.parametrize(("task", "said"), [("sbuild", ("sbuild debian",)), ("", ())])
def test_explanation_of_ticket_without_task_names_no_task(
    task: str, said: tuple[str, ...]
) -> None:
    ticket = a_request(task=task, scope="debian" if task else None)

    found = of_request(a_sim_fleet(), a_sim_world(requests=(ticket,)))

    assert tells(found.facts[0], *said, "priority 0", "2026-11-21 07:55 UTC")
    assert ("task" in found.facts[0]) == bool(task)


def test_throttled_request_starts_after_the_run_of_its_machine() -> None:
    fleet = a_sim_fleet(guards={"throttle": {"create": {"count": 1}}})
    world = a_sim_world(requests=(a_request(id="1"), a_request(id="2")))

    found = of_request(fleet, world, "2")

    assert found.expected is not None
    assert f"{found.expected:%H:%M:%S}" == "08:11:30"


@pytest.mark.parametrize("has_machine", [False, True])
def test_only_pool_with_machines_serves_other_requests(*, has_machine: bool) -> None:
    """The machine of the request is planned in one pool; the other pool fits it too."""
    other = a_pool(provider="desk", machine="ccx43")
    pools = {"builders": a_pool(provider="desk"), "others": other}
    fleet = a_sim_fleet(pools=pools, guards={"throttle": {"create": {"count": 1}}})
    workers = [a_worker(name="debian-ci-others-0001", pool="others", busy=True)]
    requests = (a_request(id="1"), a_request(id="2"))
    world = a_sim_world(*workers[: int(has_machine)], requests=requests)

    found = of_request(fleet, world, "2")

    codes = {each.code for r in found.reasons for each in r.decisions if "others" in each.subject}
    assert codes == {Served.SERVES_OTHERS if has_machine else Served.FITS}


def test_request_gets_suggestion_when_next_run_would_not_serve_it() -> None:
    fleet = a_sim_fleet(
        pools={"powerful": a_pool(provider="desk", provides=["powerful"])},
        tags={"powerful": {"exclusive": True, "asked_by": ["rules"]}},
        powerful=[{"match": "debian/.*", "ask": ["powerful"], "expires": date(2026, 11, 21)}],
    )
    request = a_request(
        workspace="System", package="chromium", task_data={"host_architecture": "amd64"}
    )
    late = move_time(a_sim_world(requests=(request,)), NOW.replace(hour=23, minute=55))

    found = of_request(fleet, late)

    assert tells(found.headline, "debian-ci-powerful-0001")
    (step,) = found.next_steps
    assert not tells(step, "nothing")
    assert "powerful" in step


def test_worker_of_request_may_be_free_before_next_run() -> None:
    fleet = a_sim_fleet(guards={"throttle": {"create": {"count": 1}}}, durations={"any": "1m"})
    world = a_sim_world(requests=(a_request(id="1"), a_request(id="2")))

    found = of_request(fleet, world, "2")

    assert found.suggestions[0].sentence.endswith("about 08:02 UTC")


def test_missing_store_is_the_reason_of_all_requests() -> None:
    lost = Unknown(unknown="there is no store")

    found = of_request(a_sim_fleet(), ASKING.altered(stacks=lost))

    assert tells(found.reasons[0].because, "stacks", "unknown", "store")
    assert found.reasons[0].by is None
    assert found.next_steps == (FIRST_READ,)


def test_unseen_worker_is_only_possible() -> None:
    found = of_request(a_sim_fleet(), an_unseen_world())

    assert tells(found.headline, FIRST, "may")
    assert not tells(found.next_steps[0], "nothing")


def test_request_next_for_a_busy_worker_waits_until_its_work_ends() -> None:
    work = {"started_at": ago(minutes=4), "expected_seconds": 600}
    request = a_request(expected_seconds=600)
    world = a_sim_world(a_worker(busy=True, work=work), requests=(request,))

    (step,) = of_request(fleet_with(max=1, target_wait="3h"), world).next_steps

    assert tells(step, "nothing", "once", "idle")


@pytest.mark.parametrize(
    ("pool", "words", "by"),
    [
        ({"max": 0}, ("workers.max", "0"), "capacity"),
        ({"mode": "pause"}, ("mode", "pause"), None),
        ({"serves": ["copr"]}, ("queue debian",), "scheduler"),
        ({"requires": ["trusted"]}, ("requires", "trusted"), "scheduler"),
    ],
)
def test_reason_of_pool_names_unmet_requirement(
    pool: dict[str, object], words: tuple[str, ...], by: str | None
) -> None:
    (reason,) = of_request(fleet_with(**pool), ASKING).reasons

    assert "pool builders" in reason.because
    assert tells(reason.because, *words)
    assert reason.by == (by or "capacity")
    assert reason.who


def test_reason_names_no_enforcer_for_a_recording() -> None:
    fleet = a_sim_fleet(queues={"debian": {"kind": "world", "path": "world.json"}})

    (reason,) = of_request(fleet, GPU).reasons

    assert tells(reason.because, "builders", "gpu")
    assert reason.by is None


def test_reason_names_permitted_requesters_of_exclusive_pool() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", provides=["powerful"])},
        tags={"powerful": {"exclusive": True}},
    )

    (reason,) = of_request(fleet, ASKING).reasons

    assert tells(reason.because, "pool builders", "exclusive", "powerful")
    assert reason.who.startswith("requester: ")


def test_unservable_request_names_owner_of_remedy() -> None:
    found = of_request(a_sim_fleet(), GPU)

    assert found.never
    assert "debian/101" in found.headline
    (reason,) = found.reasons
    assert reason.who.endswith(": pools.builders.provides")


def test_request_for_machine_tag_needs_a_new_pool() -> None:
    fleet = a_sim_fleet(tags={"gpu": {"provided_by": ["machine"]}})

    (reason,) = of_request(fleet, GPU).reasons

    assert tells(reason.who, "new pool", "gpu")


def test_request_of_full_pool_is_servable() -> None:
    assert not of_request(fleet_with(max=0), ASKING).never


def test_request_is_not_unservable_when_worker_reports_its_tag() -> None:
    world = a_sim_world(
        a_worker(provides=("gpu",), busy=True), requests=(a_request(required=("gpu",)),)
    )

    assert not of_request(a_sim_fleet(), world).never


def test_request_without_remedy_has_no_suggestions() -> None:
    fleet = a_sim_fleet(images={"trixie": {"existing": {"hetzner": "ami-1"}}})

    found = of_request(fleet, ASKING)

    assert found.suggestions == ()
    assert len(found.next_steps) == 1


# a worker


def test_explanation_of_idle_worker_has_end_of_idle_time() -> None:
    found = of_worker(a_sim_fleet(), a_sim_world(a_worker()))

    assert any(tells(each, "idle_after", "15m", "2026-11-21 08:10 UTC") for each in found)


def test_explanation_of_busy_worker_has_expected_end() -> None:
    work = {"started_at": ago(minutes=10), "expected_seconds": 1200}

    found = of_worker(a_sim_fleet(), a_sim_world(a_worker(busy=True, work=work)))

    assert "2026-11-21 08:10 UTC" in found[-1]


def test_explanation_of_busy_worker_names_its_request() -> None:
    fleet, world = a_sim_fleet(), a_sim_world(a_worker(busy=True))

    found = explain_worker(fleet, world, planned(fleet, world), FIRST)

    assert found is not None
    assert tells(found.headline, FIRST, "request 90")
    assert found.facts[0].endswith(", runs request 90")


def test_explanation_of_busy_worker_names_missing_duration() -> None:
    found = of_worker(a_sim_fleet(), a_sim_world(a_worker(busy=True)))

    assert "`durations`" in found[-1]


def test_explanation_of_booting_worker_has_ready_and_failure_times() -> None:
    world = a_sim_world(requests=(a_request(),), starting=(FIRST,))

    last = of_worker(a_sim_fleet(), world)[-1]

    assert re.findall(r"\d\d:\d\d", last) == ["08:01", "08:09"]


def test_explanation_of_worker_has_age_limit_and_uses() -> None:
    fleet = fleet_with(retire={"max_age": "7d", "max_uses": 50})

    found = of_worker(fleet, a_sim_world(a_worker(uses=12)))

    assert any(tells(each, "max_age", "7d", "2026-11-28 07:00 UTC") for each in found)
    assert re.findall(r"\d+", found[-1]) == ["50", "12"]


def test_explanation_of_withheld_worker_names_guard() -> None:
    fleet = fleet_with(max=1)
    world = a_sim_world(a_worker(), a_worker(name=SECOND, machine=SECOND))
    plan = planned(fleet, world)
    name = next(action.worker for action in plan.withheld)

    found = explain_worker(fleet, world, plan, name)

    assert found is not None
    assert tells(found.headline, "withheld")
    assert ("guards", "refuse", "delete") in [reason.path for reason in found.reasons]


def test_explanation_of_missing_name_is_unknown() -> None:
    fleet, world = a_sim_fleet(), a_sim_world()
    plan = planned(fleet, world)

    assert explain_request(fleet, world, plan, "x") is None
    assert explain_pool(fleet, world, plan, "x") is None
    assert explain_worker(fleet, world, plan, "x") is None
