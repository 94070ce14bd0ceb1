"""The real engine's records are read from files; a dead owner is told from a live one."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from fleet.engines.projects import load_project
from fleet.engines.pulumi_state import (
    FileObjects,
    NotACheckpoint,
    drop_init_errors,
    read_checkpoint,
    read_deployment,
)
from fleet.errors import EngineMismatch, StoreFailed
from fleet.model.facts import Stack, WorkerInputs
from tests.ports.engines import REF, a_sim_worker

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")
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
    path = root / ".pulumi/stacks" / "fleet-sim" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"checkpoint": null}'])
def test_damaged_file_is_an_error(tmp_path: Path, text: bytes) -> None:
    write(tmp_path, text)

    with pytest.raises(NotACheckpoint, match=r"/s\.json"):
        read_checkpoint(FileObjects(tmp_path), "fleet-sim", "s")


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstandard.compress)])
def test_compressed_file_is_read_unless_damaged(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    assert read_checkpoint(FileObjects(tmp_path), "fleet-sim", "s") is None
    text = json.dumps({"checkpoint": {"latest": {"manifest": {}}}}).encode()
    write(tmp_path, pack(text), f"s.json.{suffix}")
    assert read_checkpoint(FileObjects(tmp_path), "fleet-sim", "s") == {"manifest": {}}
    write(tmp_path, b"not packed at all", f"s.json.{suffix}")

    with pytest.raises(StoreFailed, match=rf"/s\.json\.{suffix}: "):
        read_checkpoint(FileObjects(tmp_path), "fleet-sim", "s")


def pending(operation: str, **overrides: object) -> dict[str, object]:
    return {
        "pending_operations": [{"type": operation, "resource": a_resource(ONE.name, **overrides)}]
    }


@pytest.mark.parametrize(
    ("deployment", "workers", "ids", "interrupted"),
    [
        ({}, (), (), False),
        (a_deployment(a_resource(TWO.name), a_resource(ONE.name)), (ONE, TWO), (ONE, TWO), False),
        (a_deployment(**pending("creating", id="")), (ONE,), (), True),
        (a_deployment(a_resource(ONE.name), **pending("deleting")), (), (ONE,), True),
        (a_deployment(a_resource(ONE.name, delete=True)), (), (), False),
    ],
    ids=["initialised", "made", "begun", "being deleted", "replaced"],
)
def test_workers_and_ids_are_from_recorded_resources(
    deployment: dict[str, Any],
    workers: tuple[WorkerInputs, ...],
    ids: tuple[WorkerInputs, ...],
    *,
    interrupted: bool,
) -> None:
    stack = stack_of(deployment)

    assert (stack.workers, stack.interrupted) == (workers, interrupted)
    assert stack.ids.items() >= {each.name: f"id-{each.name}" for each in ids}.items()
    assert workers != (ONE,) or stack.ids == {}
    # The microsecond of the last write.
    written = (1795248000000001, "desk") if deployment else (0, REF.provider)
    assert (stack.serial, stack.provider) == written


def test_stack_of_another_name_is_refused() -> None:
    root = {"urn": "x", "type": "pulumi:pulumi:Stack", "outputs": {"engine": "embedded"}}

    with pytest.raises(EngineMismatch):
        stack_of({"resources": [root]})


def test_init_errors_are_read_and_dropped_for_workers_only() -> None:
    failed = a_resource(ONE.name, initErrors=["it did not start"])
    other = a_resource("net", type="sim:index:Network", inputs={}, initErrors=["no route"])
    deployment = a_deployment(failed, a_resource(TWO.name), other)
    project = load_project("sim")

    assert read_deployment(deployment, REF, project).unready == {ONE.name}
    assert drop_init_errors(deployment, project)
    assert read_deployment(deployment, REF, project).unready == set()
    assert not drop_init_errors(deployment, project)
    assert other["initErrors"] == ["no route"]
