"""`fleet image build --at QUEUE` against a real Debusine: its own task for images.

Once a real worker, which fleet makes for the request, carries out the task. What does not happen
there (a worker that is lost, a build that is given up) is tried without one: that a worker makes
the disk is played then, its artifact goes in by the server's own API, and the request is ended in
its database.
"""

import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import LiteralString

import pytest

from fleet.images.debusine_build import RequestBuilder
from fleet.images.folder import find_build, list_versions, verify
from fleet.images.records import BuildOrder, BuildStep
from fleet.schema.model import ImageRecipe
from tests.live.chroot import archive
from tests.live.journal import Journal
from tests.live.project import SID, Project
from tests.live.workspace import Workspace
from tests.rigs import image_disks

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
BUILDERS = {"workers": {"max": 1}, "retire": {"idle_after": "5s"}, "boot": {"deadline": "2m"}}
BAKED = {
    "suite": "trixie",
    "architecture": "amd64",
    "api_url": "https://debusine.example.org",
    "enable_tasks": [],
}
MOST = "15m"
"""What fleet's loop may take: on two cores the worker needs a minute and a half."""
SECONDS = 16 * 60
# Prints what keeps a worker from this archive: no task can be told a proxy, or to take lists that
# have expired.
REACH = r"""
import datetime, email.utils, re, sys, urllib.request
for place in sys.argv[1:]:
    try:
        text = urllib.request.urlopen(f"{place}/InRelease", timeout=60).read().decode()
    except OSError as error:
        sys.exit(f"{place} is out of reach without apt's own settings: {error}")
    until = re.search("^Valid-Until: (.+)$", text, re.M)
    now = datetime.datetime.now(datetime.UTC)
    if until and email.utils.parsedate_to_datetime(until[1]) < now:
        sys.exit(f"the lists of {place} expired at {until[1]}")
"""
RETRY = """
from debusine.db.context import context
from debusine.db.models import WorkRequest
from debusine.db.models.work_requests import WorkRequestRetryReason
with context.disable_permission_checks():
    WorkRequest.objects.get(pk={number}).retry(
        reason=WorkRequestRetryReason.WORKER_FAILED, force_status=True
    )

"""
"""What Debusine does itself where a worker asks for work and has not ended what it was given."""
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
    return make_artifact(workspace, "debian:system-image", data, {NAME: DISK})


def make_artifact(
    workspace: Workspace, category: str, data: dict[str, object], files: Mapping[str, bytes]
) -> int:
    """Upload an artifact, and return its number."""
    server, asked = workspace.server, {"token": workspace.builder, "scope": workspace.scope}
    body = {
        "category": category,
        "workspace": workspace.name,
        "data": data,
        "files": {name: _describe(content) for name, content in files.items()},
        "expire_at": None,
    }
    number = int(server.rest("POST", "artifact/", body=body, **asked)["id"])
    for name, content in files.items():
        server.upload(f"artifact/{number}/files/{name}/", content, **asked)
    return number


def _describe(content: bytes) -> dict[str, object]:
    checksums = {"sha256": hashlib.sha256(content).hexdigest()}
    return {"type": "file", "size": len(content), "checksums": checksums, "content_type": "x/any"}


def complete(workspace: Workspace, number: int) -> None:
    """Give a request a disk and a log as a worker would, and end it."""
    server = workspace.server
    category = "debusine:work-request-debug-logs"
    logs = make_artifact(workspace, category, {}, {"cmd-output.log": LOG})
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


def require_archive(workspace: Workspace) -> None:
    """Skip where a worker cannot bake from the archive of this machine's apt."""
    mirror = archive().rstrip("/")
    suites = ("trixie", "trixie-updates")
    places = [f"{mirror}/dists/{each}" for each in suites]
    reach = ("python3", "-c", REACH, *places, f"{mirror}-security/dists/trixie-security")
    done = subprocess.run(
        workspace.server.inside.command("root", *reach),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no worker can bake from this machine's archive: {done.stderr.strip()}")


@pytest.mark.long
@image_disks.needs_programs
def test_created_worker_builds_the_image_and_fleet_imports_it(
    workspace: Workspace, project: Project, journal: Journal
) -> None:
    require_archive(workspace)
    images = {"sid": SID, "trixie": BAKED}
    pools = {"builders": BUILDERS}
    project.write(name="bakes", pools=pools, images=images, asks_as="DEBUSINE_OWNER")
    place = ("--at", "debian", "--workspace", workspace.name, "--mirror", archive().rstrip("/"))

    building = project.start("image", "build", "trixie", *place)
    building.wait_for("pending")
    project.fleet("apply", "--every", "5s", "--until-quiet", "--for", MOST, timeout=SECONDS)
    said = building.end(seconds=120)

    number = workspace.server.sql(NEWEST)[0][0]
    assert journal.retried([number]) == {}, project.machine_logs()
    built = project.folder / ".fleet/images"
    versions = list_versions(built, "trixie")
    assert len(versions) == 1, said
    folder, manifest = find_build(built, "trixie", versions[0])
    verify(folder, manifest)
    assert {"build.log", "disk.qcow2", "sbom.spdx.json"} <= set(manifest.files)
    assert {"debusine-worker", "cloud-init"} <= {each.name for each in manifest.packages}
    assert manifest.seconds["running"] > 0
    assert f"image trixie {versions[0]}: tested" in project.fleet("image", "test", "trixie")
    (remembered,) = json.loads(project.fleet("image", "show", "trixie", "--json"))["versions"]
    assert (remembered["state"], remembered["way"]) == ("tested", "debusine")
    assert project.worker_processes() == []


def a_builder(workspace: Workspace, images: Path, wait: Callable[[float], None]) -> RequestBuilder:
    """Return what builds at the real server; `wait` is what happens while it waits."""
    return RequestBuilder(
        images=images,
        url=workspace.server.url,
        scope=workspace.scope,
        token=workspace.builder,
        workspace=workspace.name,
        mirror="http://deb.example.org/debian",
        wait=wait,
    )


def test_retried_request_of_real_server_is_followed(workspace: Workspace, tmp_path: Path) -> None:
    server = workspace.server
    lost: list[int] = []

    def work(_: float) -> None:
        number = server.sql(NEWEST)[0][0]
        if lost:
            complete(workspace, number)
        else:
            lost.append(number)
            server.admin("shell", "-v0", stdin=RETRY.format(number=number))

    steps: list[BuildStep] = []
    a_builder(workspace, tmp_path, work).build(ORDER, steps.append)

    (version,) = list_versions(tmp_path, "trixie")
    assert (tmp_path / "trixie" / version / "disk.qcow2").read_bytes() == DISK
    phases = [step.phase for step in steps]
    assert phases[2:6] == ["pending", "aborted", "again", "pending"]


def test_real_server_accepts_request_and_returns_disk(
    workspace: Workspace, tmp_path: Path
) -> None:
    server = workspace.server
    required: list[list[str]] = []

    def work(_: float) -> None:
        (number, status, tags) = server.sql(NEWEST)[0]
        assert status == "pending"
        required.append(tags)
        complete(workspace, number)

    steps: list[BuildStep] = []
    manifest, _ = a_builder(workspace, tmp_path, work).build(ORDER, steps.append)

    (version,) = list_versions(tmp_path, "trixie")
    folder = tmp_path / "trixie" / version
    verify(folder, manifest)
    assert (folder / "disk.qcow2").read_bytes() == DISK
    assert b"== cmd-output.log\n" + LOG in (folder / "build.log").read_bytes()
    assert [step.phase for step in steps][2:4] == ["pending", "completed"]
    assert {"worker:cap:mmdebstrap", "worker:build-arch:amd64"} & set(required[0])


def test_cancelled_build_is_aborted_by_real_server(workspace: Workspace, tmp_path: Path) -> None:
    class GaveUp(Exception):
        """Somebody presses Ctrl-C."""

    def give_up(_: float) -> None:
        raise GaveUp

    with pytest.raises(GaveUp):
        a_builder(workspace, tmp_path, give_up).build(ORDER, lambda _: None)

    assert workspace.server.sql(NEWEST)[0][1] == "aborted"
    assert list_versions(tmp_path, "trixie") == ()
