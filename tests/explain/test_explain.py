"""Why a request waits, why a worker stays: the reasons in sentences."""

from datetime import date

import pytest

from fleet.explain.case import Case
from fleet.explain.objects import explain_worker
from fleet.explain.values import Explanation
from fleet.model.decisions import Served
from fleet.model.facts import World
from fleet.planner.step import move_time
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker
from tests.builders.deciding import SECOND, fleet_with
from tests.builders.explaining import explain_request
from tests.builders.queue_worlds import planned
from tests.builders.sentences import tells


def of_request(fleet: Fleet, world: World, name: str = "101") -> Explanation:
    found = explain_request(fleet, world, planned(fleet, world), name)
    assert found is not None
    return found


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


def test_explanation_of_withheld_worker_names_guard() -> None:
    fleet = fleet_with(max=1)
    world = a_sim_world(a_worker(), a_worker(name=SECOND, machine=SECOND))
    plan = planned(fleet, world)
    name = next(action.worker for action in plan.withheld)

    found = explain_worker(Case(fleet, world, plan), name)

    assert found is not None
    assert tells(found.headline, "withheld")
    assert ("guards", "refuse", "delete") in [reason.path for reason in found.reasons]
