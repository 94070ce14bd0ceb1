"""People in a recorded world get other names; what is planned stays the same."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.facts import Demand, QueueReading, World, pseudonymise
from fleet.reconcile import reconcile
from tests.builders import NOW, a_fleet, a_request

KEY = bytes(32)
PEOPLE = ("alice", "bob", "17")


def a_world(requesters: list[str]) -> World:
    requests = tuple(
        a_request(id=str(n), requester=who, sandbox=f"p--{who}", provided=[f"sandbox:p--{who}"])
        for n, who in enumerate(requesters)
    )
    demand = Demand(read_at=NOW, requests=requests)
    return World(
        fleet="debian-ci",
        time=NOW,
        queues={"debian": QueueReading(demand=demand, workers=())},
        members={"kernel": ("alice", "carol"), "toolchain": ("bob",)},
    )


@given(st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=6))
def test_pseudonyms_are_stable_and_hide_names(requesters: list[str]) -> None:
    world = a_world(requesters)

    other = pseudonymise(world, KEY, kept=["17"])

    text = other.model_dump_json()
    assert not any(name in text for name in ("alice", "bob", "carol"))
    demand = other.queues["debian"].demand
    assert isinstance(demand, Demand)
    named = dict(zip(requesters, (each.requester for each in demand.requests), strict=True))
    assert len(set(named.values())) == len(named)
    assert named.get("17", "17") == "17"
    assert isinstance(other.members, dict)
    assert named.get("alice", "") in ("", *other.members["kernel"])
    assert pseudonymise(world, KEY, kept=["17"]) == other
    assert pseudonymise(world, b"x" * 32, kept=["17"]) != other or set(requesters) <= {"17"}


@given(st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=6))
def test_plan_is_equal_with_pseudonyms(requesters: list[str]) -> None:
    fleet = a_fleet(
        members={"file": "members.yaml"},
        tags={"big": {"asked_by": [{"groups": ["kernel"]}], "limits": {"per": {"submitter": 1}}}},
    )
    world = a_world(requesters)

    plans = [reconcile(fleet, each) for each in (world, pseudonymise(world, KEY))]

    made, missed = (
        [{(each.worker, each.reason) for each in plan.actions} for plan in plans],
        [{(each.requests, each.path) for each in plan.unserved} for plan in plans],
    )
    assert plans[0].cost_after == plans[1].cost_after
    assert made[0] == made[1]
    assert missed[0] == missed[1]
