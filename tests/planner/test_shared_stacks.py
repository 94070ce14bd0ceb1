"""What the machines of a provider share: asked for in fleet.yaml, given to new machines."""

from fleet.model.facts import Unknown
from fleet.model.plan import Create
from fleet.planner.shared_stacks import parts_of, shared_settings, wanted_parts
from tests.builders import a_stack, a_world, some_inputs
from tests.builders.sentences import tells
from tests.builders.sharing import (
    IDS,
    NETWORK,
    SHARED,
    a_base,
    a_sharing_fleet,
    a_waiting_world,
    planned,
)


def test_shared_resource_has_name_and_label_of_fleet_and_provider() -> None:
    parts = parts_of(a_sharing_fleet(**SHARED), "hetzner")

    assert [part.key for part in parts] == sorted(IDS)
    assert all(part.inputs["labels"] == {"fleet": "debian-ci"} for part in parts)


def test_provider_without_shared_keys_has_no_base() -> None:
    assert parts_of(a_sharing_fleet(), "hetzner") == ()
    assert shared_settings(a_sharing_fleet(), a_world(), "hetzner") == {}


def test_plan_creates_no_machine_before_its_base() -> None:
    plan = planned(a_sharing_fleet(network=NETWORK), a_waiting_world())

    assert plan.actions == ()
    assert tells(plan.pools[0].because, "1", "provider hetzner")


def test_no_machine_is_created_when_base_is_unreadable() -> None:
    world = a_waiting_world(bases={"hetzner": Unknown(unknown="the backend is down")})

    plan = planned(a_sharing_fleet(network=NETWORK), world)

    assert plan.actions == ()
    assert tells(plan.pools[0].because, "provider hetzner", "unknown")


def test_new_machine_gets_all_shared_resources() -> None:
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


def test_digest_changes_with_network() -> None:
    fleet = a_sharing_fleet(network=NETWORK)
    base = a_base(fleet)
    other = a_base(fleet, ids={"network/debian-ci-hetzner-network": "9"})

    plans = [planned(fleet, a_waiting_world(bases={"hetzner": each})) for each in (base, other)]

    one, two = ([a.inputs for a in plan.actions if isinstance(a, Create)] for plan in plans)
    assert one[0].labels["digest"] != two[0].labels["digest"]


def test_used_base_part_is_kept_when_removed_from_fleet_yaml() -> None:
    base = a_base(a_sharing_fleet(**SHARED))
    inputs = some_inputs(name="debian-ci-builders-0001", settings={"network_ids": "1"})
    stack = a_stack(provider="hetzner", workers=(inputs,))
    world = a_world(bases={"hetzner": base}, stacks={"builders": stack})

    wanted = wanted_parts(a_sharing_fleet(), world, "hetzner")

    assert [part.key for part in wanted] == ["network/debian-ci-hetzner-network"]


def test_all_base_parts_are_wanted_when_usage_is_unknown() -> None:
    base = a_base(a_sharing_fleet(**SHARED))
    world = a_world(bases={"hetzner": base}, stacks={"builders": Unknown(unknown="locked")})

    assert wanted_parts(a_sharing_fleet(), world, "hetzner") == base.parts
