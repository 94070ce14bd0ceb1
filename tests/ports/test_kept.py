"""A copy of a stack's checkpoint outlives a disk that fills up while the CLI writes the next."""

import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from fleet.engines.projects import load_project
from fleet.engines.pulumi_state import (
    CheckpointCopy,
    FileObjects,
    NotACheckpoint,
    read_checkpoint,
    stack_key,
)
from fleet.errors import Locked
from tests.builders import some_inputs

SIM = load_project("sim")
KEY = stack_key("fleet-sim", "s")
LOCK = ".pulumi/locks/organization/fleet-sim/s/1.json"
CHECKPOINT = '{"checkpoint": {"latest": {"resources": []}}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    file = tmp_path / KEY
    file.parent.mkdir(parents=True)
    file.write_text(CHECKPOINT)
    return file


@pytest.fixture
def kept(tmp_path: Path, checkpoint: Path) -> CheckpointCopy:
    assert checkpoint.exists()
    return CheckpointCopy(tmp_path, "fleet-sim", "s")


@pytest.mark.parametrize("left", ["", '{"checkpoint": {"lat'])
def test_only_truncated_checkpoint_is_replaced_by_its_copy(
    left: str, tmp_path: Path, checkpoint: Path, kept: CheckpointCopy
) -> None:
    folder = FileObjects(tmp_path)
    kept.keep(SIM, None)
    checkpoint.write_text(newer := CHECKPOINT.replace("[]", "[1]"))
    kept.restore()
    kept.drop_cut()
    assert checkpoint.read_text() == newer
    checkpoint.write_text(CHECKPOINT)
    kept.keep(SIM, None)

    checkpoint.write_text(left)

    assert read_checkpoint(folder, "fleet-sim", "s") == {"resources": []}
    assert kept.is_cut()
    kept.restore()
    assert json.loads(checkpoint.read_text()) == json.loads(CHECKPOINT)
    assert not kept.is_cut()


def test_copy_is_not_restored_while_checkpoint_is_locked(
    tmp_path: Path, checkpoint: Path, kept: CheckpointCopy
) -> None:
    kept.keep(SIM, None)
    checkpoint.write_text("")
    lock = {"pid": os.getpid(), "hostname": socket.gethostname(), "username": "ana"}
    FileObjects(tmp_path).create(LOCK, json.dumps(lock).encode())

    with pytest.raises(Locked, match=r"stack s .*ana"):
        kept.restore()

    assert checkpoint.read_text() == ""


def test_copy_has_pending_deletions(
    tmp_path: Path, checkpoint: Path, kept: CheckpointCopy
) -> None:
    kind = "sim:index:Machine"
    resources = [
        {
            "urn": f"urn:pulumi:s::fleet-sim::{kind}::{name}",
            "type": kind,
            "inputs": some_inputs(name=name).model_dump(mode="json"),
        }
        for name in ("going", "staying")
    ]
    checkpoint.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))

    kept.keep(SIM, ["staying"])
    checkpoint.write_text("")

    found = read_checkpoint(FileObjects(tmp_path), "fleet-sim", "s")
    assert found is not None
    assert found["pending_operations"] == [{"resource": resources[0], "type": "deleting"}]


def test_truncated_compressed_checkpoint_is_replaced_by_its_copy(
    checkpoint: Path, kept: CheckpointCopy
) -> None:
    packed = checkpoint.with_name(f"{checkpoint.name}.gz")
    packed.write_bytes(gzip.compress(checkpoint.read_bytes()))
    checkpoint.unlink()
    kept.keep(SIM, None)

    packed.write_bytes(packed.read_bytes()[:9])
    kept.restore()

    assert json.loads(checkpoint.read_text()) == json.loads(CHECKPOINT)
    assert not packed.exists()


def test_cut_checkpoint_and_copy_of_ended_stack_are_dropped(
    tmp_path: Path, checkpoint: Path, kept: CheckpointCopy
) -> None:
    kept.keep(SIM, None)
    checkpoint.unlink()
    kept.keep(SIM, None)
    assert list(checkpoint.parent.iterdir()) == []

    checkpoint.write_text("{")  # of which there is no copy
    kept.keep(SIM, None)
    kept.restore()
    with pytest.raises(NotACheckpoint, match=r"/s\.json"):
        read_checkpoint(FileObjects(tmp_path), "fleet-sim", "s")
    checkpoint.write_text("")
    kept.drop_cut()
    assert not checkpoint.exists()
