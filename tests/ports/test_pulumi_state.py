"""The real engine's records are read from files; a dead owner is told from a live one."""

import gzip
import json
import os
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet.engines.projects import load_project
from fleet.engines.pulumi_state import (
    file_root,
    find_locks,
    read_checkpoint,
    read_deployment,
)
from fleet.errors import EngineMismatch, StoreFailed
from fleet.facts import Stack
from tests.ports.engines import REF, a_sim_worker

ONE, TWO = a_sim_worker("debian-builders-1"), a_sim_worker("debian-builders-2")
URN = "urn:pulumi:s::fleet-sim::sim:index:Machine::"


def a_resource(name: str, **overrides: object) -> dict[str, Any]:
    inputs = a_sim_worker(name).model_dump(mode="json")
    made = {"urn": URN + name, "type": "sim:index:Machine", "id": f"id-{name}", "inputs": inputs}
    return made | overrides


def a_deployment(*resources: object, **overrides: object) -> dict[str, Any]:
    root = {"urn": "urn:x::root", "type": "pulumi:pulumi:Stack", "outputs": {"provider": "desk"}}
    manifest = {"time": "2026-11-21T08:00:00.000001Z"}
    return {"manifest": manifest, "resources": [root, *resources]} | overrides


def stack_of(deployment: dict[str, Any]) -> Stack:
    return read_deployment(deployment, REF, load_project("sim")).stack


def write(root: Path, text: bytes, name: str = "s.json") -> None:
    path = root / "stacks" / "fleet-sim" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def write_lock(root: Path, **overrides: object) -> None:
    folder = root / "locks" / "organization" / "fleet-sim" / "s"
    folder.mkdir(parents=True, exist_ok=True)
    lock = {
        "pid": os.getpid(),
        "username": "ana",
        "hostname": socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    (folder / "1.json").write_text(json.dumps(lock | overrides))


def test_a_stack_without_a_file_does_not_exist(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path, "fleet-sim", "s") is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"checkpoint": null}'])
def test_a_damaged_file_is_an_error_and_not_an_empty_stack(tmp_path: Path, text: bytes) -> None:
    write(tmp_path, text)

    with pytest.raises(StoreFailed, match="not a Pulumi checkpoint"):
        read_checkpoint(tmp_path, "fleet-sim", "s")


def test_a_compressed_file_is_read_too(tmp_path: Path) -> None:
    text = json.dumps({"checkpoint": {"latest": {"manifest": {}}}}).encode()
    write(tmp_path, gzip.compress(text), "s.json.gz")

    assert read_checkpoint(tmp_path, "fleet-sim", "s") == {"manifest": {}}


def test_workers_and_ids_come_from_the_recorded_resources() -> None:
    stack = stack_of(a_deployment(a_resource(TWO.name), a_resource(ONE.name)))

    assert stack.workers == (ONE, TWO)
    assert stack.ids == {ONE.name: f"id-{ONE.name}", TWO.name: f"id-{TWO.name}"}
    assert (stack.provider, stack.interrupted) == ("desk", False)


def test_the_serial_is_the_microsecond_of_the_last_write() -> None:
    assert stack_of(a_deployment()).serial == 1795248000000001


def test_what_was_being_made_is_wanted_and_has_no_id() -> None:
    pending = [{"type": "creating", "resource": a_resource(ONE.name, id="")}]

    stack = stack_of(a_deployment(pending_operations=pending))

    assert (stack.workers, stack.ids, stack.interrupted) == ((ONE,), {}, True)


def test_what_was_being_deleted_is_not_wanted_any_more_and_keeps_its_id() -> None:
    pending = [{"type": "deleting", "resource": a_resource(ONE.name)}]

    stack = stack_of(a_deployment(a_resource(ONE.name), pending_operations=pending))

    assert (stack.workers, stack.interrupted) == ((), True)
    assert stack.ids == {ONE.name: f"id-{ONE.name}"}


def test_an_old_half_of_a_replacement_is_not_a_worker() -> None:
    assert stack_of(a_deployment(a_resource(ONE.name, delete=True))).workers == ()


def test_a_stack_that_says_it_is_anothers_is_refused() -> None:
    root = {"urn": "x", "type": "pulumi:pulumi:Stack", "outputs": {"engine": "embedded"}}

    with pytest.raises(EngineMismatch):
        stack_of({"resources": [root]})


def test_a_stack_that_was_only_begun_is_empty() -> None:
    stack = stack_of({})

    assert (stack.workers, stack.serial, stack.provider) == ((), 0, REF.provider)


def test_a_lock_of_a_running_process_is_alive(tmp_path: Path) -> None:
    write_lock(tmp_path)

    (lock,) = find_locks(tmp_path, "fleet-sim", "s")

    assert lock.alive
    assert lock.owner == f"ana on {socket.gethostname()} (process {os.getpid()})"


def test_a_lock_of_an_ended_process_is_dead(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    write_lock(tmp_path, pid=ended.pid)

    assert not find_locks(tmp_path, "fleet-sim", "s")[0].alive


def test_a_process_that_is_younger_than_the_lock_only_has_its_number(tmp_path: Path) -> None:
    write_lock(tmp_path, timestamp="2020-01-01T00:00:00Z")

    assert not find_locks(tmp_path, "fleet-sim", "s")[0].alive


@pytest.mark.parametrize("overrides", [{"hostname": "elsewhere"}, {"pid": None}])
def test_an_owner_nobody_here_can_see_counts_as_alive(
    tmp_path: Path, overrides: dict[str, object]
) -> None:
    write_lock(tmp_path, **overrides)

    assert find_locks(tmp_path, "fleet-sim", "s")[0].alive


@pytest.mark.parametrize(
    ("backend", "root"),
    [("file:///a/b", "/a/b/.pulumi"), ("file:///a?x=1", "/a/.pulumi"), ("s3://bucket", None)],
)
def test_only_a_file_backend_has_a_folder(backend: str, root: str | None) -> None:
    assert file_root(backend) == (Path(root) if root else None)
