"""Of fleet.yaml it is read which clouds are on this computer, and who registers their workers."""

from pathlib import Path

import pytest

from fleet.apply.wire import engines_of, labels_of_new
from fleet.clouds.kinds import clouds_of
from fleet.clouds.local.cloud import LocalMachines
from fleet.model.facts import Listing
from fleet.ports import Registry
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from fleet.state.storage import find_storage
from tests.builders import NOW, a_fleet
from tests.fakes.engine import FixedClock
from tests.rigs.local_machines import a_worker, end_machines, until

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


def test_machines_path_is_next_to_fleet_yaml_by_default(tmp_path: Path) -> None:
    there = {"kind": "local", "run": ["true"], "path": "there"}
    named = machines_of(a_local_fleet(providers={"there": there}), tmp_path, "there")

    assert machines_of(a_local_fleet(), tmp_path).path == tmp_path / ".fleet/local-here"
    assert named.path == tmp_path / "there"


def test_embedded_engine_stores_machines_in_state_folder(tmp_path: Path) -> None:
    fleet = a_local_fleet(state={"backend": "s3://bucket"})
    storage = find_storage(fleet, str(tmp_path / "fleet.yaml"))

    clouds = clouds_of(fleet, str(tmp_path / "fleet.yaml"), FixedClock(NOW))
    engine_of = engines_of(fleet, storage, clouds, HostSecrets({}, tmp_path), NOW)

    assert engine_of("here").name == "embedded"
    assert storage.uses_folder


def test_process_gets_no_secret_of_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_PASSPHRASE", "of the test")
    here = machines_of(a_local_fleet(), tmp_path)
    inputs = a_worker("sh", "-c", "env; echo ready")

    here.create(inputs)

    log = here.path / inputs.name / "log"
    until(lambda: log.read_text().endswith("ready\n"))
    end_machines(tmp_path)
    assert "LANG=C.UTF-8" in log.read_text()
    assert "FLEET_PASSPHRASE" not in log.read_text()


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
