"""`fleet image build --on QUEUE` against a real Debusine, as far as its task goes without workers.

The server takes the request and schedules it. That a worker makes the disk is played: its artifact
goes in by the server's own API, and the request is ended in its database.
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import LiteralString

import pytest

from fleet.facts.manifest import BuildOrder, BuildStep
from fleet.images.folder import list_builds, verify
from fleet.images.requests import RequestBuilder
from fleet.schema.model import ImageRecipe
from tests.live.workspace import Workspace

DISK = b"QFI\xfb" + b"a disk" * 1000
NAME = "image.qcow2"
LOG = b"cmd: debefivm-create\n"
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


def make_disk(workspace: Workspace) -> int:
    """Upload a disk as a worker does, and return the artifact's number."""
    data: dict[str, object] = {
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
    return make_artifact(workspace, "debian:system-image", data, NAME, DISK)


def make_artifact(
    workspace: Workspace, category: str, data: dict[str, object], name: str, content: bytes
) -> int:
    """Upload an artifact of one file, and return its number."""
    server, asked = workspace.server, {"token": workspace.builder, "scope": workspace.scope}
    checksums = {"sha256": hashlib.sha256(content).hexdigest()}
    file = {"type": "file", "size": len(content), "checksums": checksums, "content_type": "x/any"}
    body = {
        "category": category,
        "workspace": workspace.name,
        "data": data,
        "files": {name: file},
        "expire_at": None,
    }
    number = int(server.rest("POST", "artifact/", body=body, **asked)["id"])
    server.upload(f"artifact/{number}/files/{name}/", content, **asked)
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
        category = "debusine:work-request-debug-logs"
        logs = make_artifact(workspace, category, {}, "cmd-output.log", LOG)
        for artifact in (logs, make_disk(workspace)):
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
    assert b"== cmd-output.log\n" + LOG in (build.folder / "build.log").read_bytes()
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
