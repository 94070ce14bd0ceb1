"""Of fleet.yaml it is read which clouds are on this computer, and who registers their workers."""

from pathlib import Path

import pytest

from fleet.apply.wire import engines_of, labels_of_new
from fleet.clouds.cloud import withheld_variables
from fleet.clouds.kinds import clouds_of
from fleet.clouds.local.cloud import LocalMachines
from fleet.model.facts import Listing
from fleet.ports import Registry
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from fleet.state.storage import find_storage
from tests.builders import NOW, a_fleet
from tests.fakes.engine import FixedClock

WORLD = {"trial": {"kind": "world", "path": "world.json"}}


def a_local_fleet(**overrides: object) -> Fleet:
    here = {"kind": "local", "run": ["sleep", "infinity"]}
    return a_fleet(**{"providers": {"here": here}, "pools": {}} | overrides)


def machines_of(fleet: Fleet, folder: Path, name: str = "here") -> LocalMachines:
    machines = clouds_of(fleet, str(folder / "fleet.yaml"), FixedClock(NOW))[name].machines
    assert isinstance(machines, LocalMachines)
    return machines


def workers_listed(machines: LocalMachines) -> object:
    listing = machines.list("debian-ci")
    assert isinstance(listing, Listing)
    return listing.workers


def test_workers_register_only_at_a_queue_with_registry(tmp_path: Path) -> None:
    machines = machines_of(a_local_fleet(), tmp_path)

    assert workers_listed(machines) is None
    assert not isinstance(machines, Registry)


def test_workers_register_at_provider_without_queue_registry(tmp_path: Path) -> None:
    machines = machines_of(a_local_fleet(queues=WORLD), tmp_path)

    assert workers_listed(machines) == ()
    assert isinstance(machines, Registry)


def test_embedded_engine_stores_machines_in_state_folder(tmp_path: Path) -> None:
    fleet = a_local_fleet(state={"backend": "s3://bucket"})
    storage = find_storage(fleet, str(tmp_path / "fleet.yaml"))

    clouds = clouds_of(fleet, str(tmp_path / "fleet.yaml"), FixedClock(NOW))
    engine_of = engines_of(fleet, storage, clouds, HostSecrets({}, tmp_path), NOW)

    assert engine_of("here").name == "embedded"
    assert storage.uses_folder


@pytest.mark.parametrize(
    ("environment", "commit"),
    [
        ({"CI_COMMIT_SHA": "0123456789abcdef0123456789abcdef01234567"}, True),
        ({"CI_COMMIT_SHA": "not a commit"}, False),
        ({}, False),
    ],
)
def test_new_machine_has_expiry_and_commit_of_ci(
    environment: dict[str, str],
    commit: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    labels = labels_of_new(a_fleet(expire_after="1h"), NOW, environment)

    assert labels.pop("expires") == "20261121T091500Z"
    assert labels == ({"commit": environment["CI_COMMIT_SHA"]} if commit else {})


QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "token": {"env": "QUEUE_TOKEN"},
}

PROVIDERS = {"hetzner": {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}}


def test_variable_with_secret_of_another_part_is_emptied() -> None:
    fleet = a_fleet(queues={"debian": QUEUE})

    assert withheld_variables(fleet, {"QUEUE_TOKEN": "made up", "HOME": "/root"}) == {
        "QUEUE_TOKEN": ""
    }


def test_plugins_receive_no_password_of_fleet_yaml() -> None:
    commands = {"new": ["./new"], "delete": ["./delete"], "list": ["./list"]}
    names = ["CLOUD_PASSWORD", "HOME", "https_proxy", "AWS_PROFILE"]
    own = {"kind": "hooks", **commands, "environment": names}
    fleet = a_fleet(providers={**PROVIDERS, "own": own})

    emptied = withheld_variables(fleet, {"HOME": "/root", **dict.fromkeys(names, "made up")})

    assert emptied == {"CLOUD_PASSWORD": ""}
