"""An image of three executors and four tasks, from its recipe to work done at a real server.

`nox -s images-boot` runs this. Without KVM the machine is emulated: it takes most of an hour.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from fleet.images.boot import HOST, booted, choose_accelerator
from fleet.images.folder import list_versions
from fleet.images.jobs_inside import SOURCE, pack_source
from fleet.images.roots import kept
from fleet.model.user_data import write_user_data
from fleet.model.values import digest
from tests.live.chroot import apt_configuration, archive
from tests.live.debusine import Server
from tests.live.project import Project
from tests.live.test_image_requests import make_artifact
from tests.live.workspace import Workspace
from tests.walks.test_an_image_baked import newest_worker

pytestmark = [pytest.mark.images_boot, pytest.mark.long]
IMAGE = "trixie"
EXECUTORS = ["unshare", "incus-lxc", "qemu"]
TASKS = ["autopkgtest", "mmdebstrap", "sbuild", "simplesystemimagebuild"]
BUILD_SECONDS = 3600
WORK_SECONDS = 7200
POLL_SECONDS = 5
NAME = "chain-image"
EXECUTOR = "worker:executor:"
PACKAGES = "dbus,python3-minimal,systemd-sysv"
"""They start a container as a machine, and let autopkgtest in."""


def test_image_runs_a_request_of_each_executor(
    project: Project, workspace: Workspace, server: Server, tmp_path: Path
) -> None:
    project.write(
        name="chain",
        pools={},
        images={IMAGE: recipe(newest_worker(), tmp_path / "published")},
    )
    images = project.folder / ".fleet/images"

    project.fleet("image", "build", IMAGE, timeout=BUILD_SECONDS)
    (version,) = list_versions(images, IMAGE)
    project.fleet("image", "test", IMAGE, timeout=BUILD_SECONDS)
    project.fleet("image", "publish", IMAGE, timeout=BUILD_SECONDS)
    project.fleet("image", "promote", IMAGE, version)

    (image,) = json.loads(project.fleet("image", "list", "--json"))["images"]
    assert [each["state"] for each in image["versions"]] == ["current"]
    proven = [tag for tag in image["versions"][0]["provides"] if tag.startswith(EXECUTOR)]
    assert {f"{EXECUTOR}unshare", f"{EXECUTOR}incus-lxc"} <= {*proven}
    disk = tmp_path / "published" / IMAGE / version / "disk.qcow2"
    root, source = upload_root(workspace), upload_source(workspace, tmp_path / "source")
    requests = [
        workspace.post(
            "autopkgtest",
            input={"source_artifact": source, "binary_artifacts": []},
            build_architecture="amd64",
            environment=root,
            backend=tag.removeprefix(EXECUTOR),
        )
        for tag in proven
    ]
    with machine(disk, server, tmp_path / "console.log"):
        wait_until_done(server, requests)


def recipe(worker: str, store: Path) -> dict[str, object]:
    """Return a recipe that bakes from the archive of this machine's apt."""
    mirror = archive().rstrip("/")
    return {
        "suite": IMAGE,
        "architecture": "amd64",
        "mirror": mirror,
        "snapshot": True,
        "worker_version": worker,
        "source": (
            f"Types: deb\nURIs: {mirror}\nSuites: {IMAGE}-backports\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        ),
        "enable_backends": EXECUTORS,
        "enable_tasks": TASKS,
        "publish": [f"file://{store}"],
    }


def upload_root(workspace: Workspace) -> int:
    """Make a root as the task mmdebstrap does, and return the number of its artifact."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleet" / "images"
    name = f"environment-{digest([IMAGE, archive(), PACKAGES])}"
    data: dict[str, object] = {
        "filename": "system.tar.xz",
        "vendor": "debian",
        "codename": IMAGE,
        "components": ["main"],
        "mirror": archive(),
        "variant": "minbase",
        "pkglist": {},
        "architecture": "amd64",
        "with_dev": False,
        "with_init": True,
    }
    with kept(cache, name, partial(make_root, archive())) as tar:
        content = tar.read_bytes()
    return make_artifact(workspace, "debian:system-tarball", data, {"system.tar.xz": content})


def make_root(mirror: str, tar: Path) -> None:
    """Write a root that is small, and quick to read, as a tarball."""
    options = [f"--aptopt={line}" for line in apt_configuration()]
    command = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar"),
        *(f"--include={PACKAGES}", *options, IMAGE, "-", f"deb {mirror} {IMAGE} main"),
    ]
    with tar.open("wb") as file:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as made:
            subprocess.run(["xz", "-0", "-T0"], stdin=made.stdout, stdout=file, check=True)
        assert made.returncode == 0


def upload_source(workspace: Workspace, folder: Path) -> int:
    """Upload a source package of a few lines, and return the number of its artifact."""
    folder.mkdir()
    files = {name: path.read_bytes() for name, path in pack_source(folder).items()}
    data: dict[str, object] = {"name": SOURCE, "version": "1", "type": "dpkg", "dsc_fields": {}}
    return make_artifact(workspace, "debian:source-package", data, files)


@contextmanager
def machine(disk: Path, server: Server, console: Path) -> Iterator[None]:
    """Boot a disk with a token of the server, as `fleet apply` boots it."""
    (token,) = server.admin_all(("worker", "create", "--worker-type", "external", NAME))
    user_data = write_user_data(f"http://{HOST}:{server.http_port}", token)
    with booted(disk, console, choose_accelerator(), user_data):
        yield


def wait_until_done(server: Server, requests: list[int]) -> None:
    """Wait until every request has succeeded."""
    until = time.monotonic() + WORK_SECONDS
    while True:
        rows = server.sql(
            "SELECT id, status, result FROM db_workrequest WHERE id = ANY(%s)", (requests,)
        )
        if all(status == "completed" for _, status, _ in rows):
            break
        assert time.monotonic() < until, rows
        time.sleep(POLL_SECONDS)
    assert {number: result for number, _, result in rows} == dict.fromkeys(requests, "success")
