"""`fleet image build --on QUEUE` against a real Debusine, as far as its task goes without workers.

The server takes the request and schedules it. That a worker makes the disk is played: its artifact
goes in by the server's own API, and the request is ended in its database.
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import LiteralString

import pytest

from fleet.images.folder import list_builds, verify
from fleet.images.requests import RequestBuilder
from fleet.manifest import BuildOrder, BuildStep
from fleet.schema.model import ImageRecipe
from tests.live.workspace import Workspace

DISK = b"QFI\xfb" + b"a disk" * 1000
NAME = "image.qcow2"
ORDER = BuildOrder(
    image="trixie",
    version="20261121T080000Z",
    recipe=ImageRecipe(suite="trixie", architecture="amd64"),
    built_at=datetime(2026, 11, 21, 8, 0, tzinfo=UTC),
    built_by="a test",
)
NEWEST: LiteralString = (
    "SELECT id, status, scheduler_tags_required FROM db_workrequest"
    " WHERE task_name = 'simplesystemimagebuild' ORDER BY id DESC LIMIT 1"
)


def make_artifact(workspace: Workspace) -> int:
    """Upload a disk as a worker does, and return the artifact's number."""
    server, asked = workspace.server, {"token": workspace.builder, "scope": workspace.scope}
    data = {
        "filename": NAME,
        "vendor": "debian",
        "codename": "trixie",
        "components": ["main"],
        "mirror": "http://deb.example.org/debian",
        "variant": "minbase",
        "pkglist": {"debusine-worker": "0.11.3"},
        "architecture": "amd64",
        "with_dev": True,
        "with_init": True,
        "image_format": "qcow2",
        "filesystem": "ext4",
        "size": 1,
        "boot_mechanism": "efi",
    }
    checksums = {"sha256": hashlib.sha256(DISK).hexdigest()}
    file = {"type": "file", "size": len(DISK), "checksums": checksums, "content_type": "x/disk"}
    body = {
        "category": "debian:system-image",
        "workspace": workspace.name,
        "data": data,
        "files": {NAME: file},
        "expire_at": None,
    }
    number = int(server.rest("POST", "artifact/", body=body, **asked)["id"])
    server.upload(f"artifact/{number}/files/{NAME}/", DISK, **asked)
    return number


def test_a_real_server_takes_the_request_and_gives_the_disk(
    workspace: Workspace, tmp_path: Path
) -> None:
    server = workspace.server
    required: list[list[str]] = []

    def work(_: float) -> None:
        (number, status, tags) = server.sql(NEWEST)[0]
        assert status == "pending"
        required.append(tags)
        artifact = make_artifact(workspace)
        server.sql(
            "UPDATE db_artifact SET created_by_work_request_id = %s WHERE id = %s",
            (number, artifact),
        )
        server.sql(
            "UPDATE db_workrequest SET status = 'completed', result = 'success',"
            " started_at = now(), completed_at = now() WHERE id = %s",
            (number,),
        )

    steps: list[BuildStep] = []
    builder = RequestBuilder(
        images=tmp_path,
        url=server.url,
        scope=workspace.scope,
        token=workspace.builder,
        workspace=workspace.name,
        mirror="http://deb.example.org/debian",
        wait=work,
    )
    manifest = builder.build(ORDER, steps.append)

    (build,) = list_builds(tmp_path, "trixie")
    verify(build.folder, manifest)
    assert (build.folder / "disk.qcow2").read_bytes() == DISK
    assert [step.phase for step in steps][2:4] == ["pending", "completed"]
    assert {"worker:cap:mmdebstrap", "worker:build-arch:amd64"} & set(required[0])


def test_a_build_that_is_given_up_is_aborted_by_a_real_server(
    workspace: Workspace, tmp_path: Path
) -> None:
    class GaveUp(Exception):
        """Somebody presses Ctrl-C."""

    def give_up(_: float) -> None:
        raise GaveUp

    builder = RequestBuilder(
        images=tmp_path,
        url=workspace.server.url,
        scope=workspace.scope,
        token=workspace.builder,
        workspace=workspace.name,
        mirror="http://deb.example.org/debian",
        wait=give_up,
    )
    with pytest.raises(GaveUp):
        builder.build(ORDER, lambda _: None)

    assert workspace.server.sql(NEWEST)[0][1] == "aborted"
    assert list_builds(tmp_path, "trixie") == ()
