"""What machines at AWS are made from follows from fleet.yaml, by names alone."""

from typing import Any

import pytest

from fleet.model.facts import Base, Unknown
from fleet.planner.shared_stacks import (
    made_without,
    parts_of,
    settings_of,
    shared_settings,
    wanted_parts,
)
from fleet.schema.model import Fleet, Pool
from tests.builders import a_fleet, a_listing, a_pool, a_stack, a_world, some_inputs
from tests.builders.sentences import tells


def at_aws(machine: Any = "c7a.8xlarge", **keys: object) -> Fleet:  # noqa: ANN401 - as in fleet.yaml
    provider = {"kind": "aws", "region": "eu-central-1", **keys}
    pool = a_pool(provider="amazon", machine=machine)
    return a_fleet(providers={"amazon": provider}, pools={"builders": pool})


def settings(fleet: Fleet) -> dict[str, str]:
    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)
    return settings_of(fleet, pool, None)


def test_machine_gets_template_once_its_base_has_it() -> None:
    fleet = at_aws()
    (part,) = parts_of(fleet, "amazon")
    base = Base(serial=1, parts=(part,), ids={part.key: "lt-0a1b"})

    before = shared_settings(fleet, a_world(), "amazon")
    after = shared_settings(fleet, a_world(bases={"amazon": base}), "amazon")

    assert isinstance(before, Unknown)
    assert tells(before.unknown, "1", "provider amazon")
    assert after == {"template": part.name}


def test_launch_template_is_kept_while_its_machines_exist() -> None:
    (old,) = parts_of(at_aws(), "amazon")
    base = Base(serial=1, parts=(old,), ids={old.key: "lt-0a1b"})
    worker = some_inputs(name="debian-ci-builders-0001", settings={"template": old.name})
    stack = a_stack(provider="amazon", workers=(worker,))
    edited = at_aws(key_pair="ops")

    world = a_world(bases={"amazon": base}, providers={"amazon": a_listing()})

    kept = wanted_parts(edited, world.altered(stacks={"builders": stack}), "amazon")
    gone = wanted_parts(edited, world, "amazon")

    assert {part.key for part in kept} == {part.key for part in (old, *parts_of(edited, "amazon"))}
    assert gone == parts_of(edited, "amazon")


def test_new_launch_template_outdates_only_machines_of_older_ones() -> None:
    fleet = at_aws()
    (part,) = parts_of(fleet, "amazon")
    named = {"debian-ci-builders-0001": part.name, "debian-ci-builders-0002": "of-before"}
    workers = tuple(some_inputs(name=k, settings={"template": v}) for k, v in named.items())
    stack = a_stack(provider="amazon", workers=workers, ids={name: name for name in named})

    world = a_world(stacks={"builders": stack})

    assert made_without(world, "amazon", [part.key]) == 1
    assert made_without(world, "amazon", []) == 0


@pytest.mark.parametrize(
    ("machine", "disk"),
    [
        ({"type": "c7a.8xlarge", "disk": "280GiB"}, "280"),
        ({"type": "c7a.8xlarge", "disk": "280GiB", "swap": "64GiB"}, "344"),
        ({"type": "c7a.8xlarge", "disk": "100MiB"}, "1"),
        ({"type": "c7a.8xlarge"}, None),
    ],
)
def test_disk_holds_required_size_and_swap(machine: dict[str, str], disk: str | None) -> None:
    assert settings(at_aws(machine)).get("disk") == disk
