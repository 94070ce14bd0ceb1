"""What the machines of a provider share: asked for in fleet.yaml, given to new machines."""

from fleet.guard import guard
from fleet.model.facts import Base, Unknown, World
from fleet.model.plan import Create, Plan
from fleet.planner.shared_stacks import shared_settings, wanted_parts
from fleet.planner.stack_inputs import parts_of
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_fleet,
    a_reading,
    a_request,
    a_stack,
    a_world,
    some_inputs,
)

NETWORK = {"ip_range": "10.20.0.0/16", "zone": "eu-central"}
RULE = {"protocol": "tcp", "port": "22", "ips": ["192.0.2.0/24"]}
SHARED = {
    "network": NETWORK,
    "firewall": [RULE],
    "ssh_keys": {"ana": "ssh-ed25519 AAAA"},
    "placement_group": "spread",
}
QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "admin": ["debusine-admin"],
}
IDS = {
    "firewall/debian-ci-hetzner-firewall": "2",
    "network/debian-ci-hetzner-network": "1",
    "placement_group/debian-ci-hetzner-spread": "4",
    "ssh_key/debian-ci-hetzner-key-ana": "3",
}


def a_sharing_fleet(**shared: object) -> Fleet:
    """Return a fleet whose servers share these parts."""
    provider = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
    images = {"trixie": {"existing": {"hetzner": "114690387"}}}
    return a_fleet(
        providers={"hetzner": provider | shared}, queues={"debian": QUEUE}, images=images
    )


def a_base(fleet: Fleet, **overrides: object) -> Base:
    """Return the base that holds what a fleet asks for."""
    parts = parts_of(fleet, "hetzner")
    ids = {part.key: IDS[part.key] for part in parts}
    return Base.model_validate({"serial": 1, "parts": parts, "ids": ids} | overrides)


def a_waiting_world(**overrides: object) -> World:
    """Return a world in which one request waits."""
    queues = {"debian": a_reading(a_request(), workers=())}
    return a_world(**({"queues": queues} | overrides))


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def test_each_part_is_named_after_fleet_and_provider_and_carries_the_mark() -> None:
    parts = parts_of(a_sharing_fleet(**SHARED), "hetzner")

    assert [part.key for part in parts] == sorted(IDS)
    assert all(part.inputs["labels"] == {"fleet": "debian-ci"} for part in parts)


def test_a_provider_whose_machines_share_nothing_needs_no_base() -> None:
    assert parts_of(a_sharing_fleet(), "hetzner") == ()
    assert shared_settings(a_sharing_fleet(), a_world(), "hetzner") == {}


def test_before_the_base_is_made_the_plan_says_so_and_makes_no_machine() -> None:
    plan = planned(a_sharing_fleet(network=NETWORK), a_waiting_world())

    assert plan.actions == ()
    assert "1 shared part of provider hetzner" in plan.pools[0].because


def test_of_a_base_that_cannot_be_read_nothing_is_made() -> None:
    world = a_waiting_world(bases={"hetzner": Unknown(unknown="the backend is down")})

    plan = planned(a_sharing_fleet(network=NETWORK), world)

    assert plan.actions == ()
    assert "the base stack of provider hetzner is unknown: the backend is down" in (
        plan.pools[0].because
    )


def test_a_new_machine_is_given_all_that_is_shared() -> None:
    fleet = a_sharing_fleet(**SHARED)

    plan = planned(fleet, a_waiting_world(bases={"hetzner": a_base(fleet)}))

    (create,) = plan.actions
    assert isinstance(create, Create)
    assert create.inputs.settings == {
        "location": "fsn1",
        "network_ids": "1",
        "firewall_ids": "2",
        "ssh_keys": "3",
        "placement_group_id": "4",
    }


def test_another_network_is_another_digest() -> None:
    fleet = a_sharing_fleet(network=NETWORK)
    base = a_base(fleet)
    other = a_base(fleet, ids={"network/debian-ci-hetzner-network": "9"})

    plans = [planned(fleet, a_waiting_world(bases={"hetzner": each})) for each in (base, other)]

    one, two = ([a.inputs for a in plan.actions if isinstance(a, Create)] for plan in plans)
    assert one[0].labels["digest"] != two[0].labels["digest"]


def test_a_part_that_machines_use_is_wanted_after_it_left_fleet_yaml() -> None:
    base = a_base(a_sharing_fleet(**SHARED))
    inputs = some_inputs(name="debian-ci-builders-0001", settings={"network_ids": "1"})
    stack = a_stack(provider="hetzner", workers=(inputs,))
    world = a_world(bases={"hetzner": base}, stacks={"builders": stack})

    wanted = wanted_parts(a_sharing_fleet(), world, "hetzner")

    assert [part.key for part in wanted] == ["network/debian-ci-hetzner-network"]


def test_while_it_is_unknown_what_is_in_use_every_part_is_wanted() -> None:
    base = a_base(a_sharing_fleet(**SHARED))
    world = a_world(bases={"hetzner": base}, stacks={"builders": Unknown(unknown="locked")})

    assert wanted_parts(a_sharing_fleet(), world, "hetzner") == base.parts
