"""Baking on a machine at Hetzner: the role over ssh, a snapshot, and nothing left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.hcloud.images import HcloudPublisher
from fleet.errors import BuildFailed
from fleet.images import folder
from fleet.images.packages import read_packages
from fleet.images.publish import Pipeline
from fleet.images.role import RoleFailed
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.rigs.machines import (
    CLEAN,
    COPY_ROOT,
    PACKAGES,
    READY,
    SYSTEM,
    TOLD,
    VERSION,
    MachineRig,
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[MachineRig]:
    with SimulatedHetzner(now=lambda: NOW) as api:
        yield MachineRig(tmp_path / "images", api)


def test_instance_build_has_labelled_snapshot_and_manifest(rig: MachineRig) -> None:
    rig.role = lambda: rig.asked.append("the role")

    rig.build()

    publisher = Pipeline(HcloudPublisher(rig.hetzner.site()))
    (upload,) = publisher.uploads()
    assert (upload.id, upload.whole) == (rig.publication.id, True)
    assert (upload.image, upload.version) == ("trixie", VERSION)
    place, manifest = folder.find_build(rig.images, "trixie", VERSION)
    assert manifest == rig.manifest
    assert (manifest.way, sorted(manifest.files)) == ("instance", ["build.log", "sbom.spdx.json"])
    (made,) = servers_made(rig)
    rental = manifest.rental
    assert rental is not None
    assert (rental.provider, rental.type) == ("hetzner", made["server_type"])
    assert (rental.location, rental.seconds >= 1) == ("fsn1", True)
    assert rig.asked[-5:] == [READY, "the role", PACKAGES, SYSTEM, CLEAN]
    assert rig.host is not None
    assert rig.host.variables["ansible_connection"] == "ssh"
    assert rig.variables["debusine_worker_enable_backends"] == ["unshare"]
    phases = ["machine", "ready", "role", "packages", "jobs", "clean", "test", "snapshot"]
    said = [(each.phase, each.task) for each in rig.steps]
    assert said == [
        *((each, "") for each in phases[:3]),
        ("role", "Install packages"),
        *((each, "") for each in phases[3:]),
    ]
    assert list(manifest.seconds) == phases
    test, _ = manifest.tests
    assert (test.kind, test.problems, test.at >= NOW) == ("offline", (), True)
    again = rig.hetzner.publisher().publish(manifest, str(place), lambda _: None)
    assert again.id == rig.publication.id
    assert len(publisher.uploads()) == 1


def servers_made(rig: MachineRig) -> list[Any]:
    """Return what each order of a server had said."""
    orders = (
        each for each in rig.api.requests if (each.method, each.path) == ("POST", "/servers")
    )
    return [each.body for each in orders]


def test_build_machine_boots_hetzner_image_of_the_suite(rig: MachineRig) -> None:
    rig.build(suite="bookworm")

    (made,) = servers_made(rig)
    image = rig.api.state.resources["images"][made["image"]]
    assert (image["name"], made["start_after_create"]) == ("debian-12", True)


def test_impossible_instance_build_is_refused_before_creation(
    rig: MachineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BuildFailed, match="sid"):
        rig.build(suite="sid")
    monkeypatch.setattr("fleet.images.role.shutil.which", lambda *_, **__: None)
    with pytest.raises(BuildFailed, match=r"fleet-reconciler\[images\]"):
        rig.build()

    assert rig.left() == []
    assert [each for each in rig.api.requests if each.method == "POST"] == []


def test_packages_have_origin_when_known() -> None:
    bash, worker = read_packages(TOLD)

    assert (bash.name, bash.version, bash.sha256) == ("bash", "5.2.37-2", "abc")
    assert bash.origin == "trixie/main at http://deb.example.org/debian"
    assert (worker.name, worker.source, worker.sha256) == ("debusine-worker", "debusine", "")


TAGS = ("worker:cap:sbuild", "worker:task:worker:sbuild:version:1", "worker:type:external")
NEW_WORKER = "debusine-worker\t0.16.2~bpo13+1\tall\tdebusine\t0.16.2~bpo13+1\t\t\n"


def all_jobs(**errors: str) -> list[dict[str, object]]:
    """Return what jobs tell that prove sbuild in unshare, or fail with these errors."""
    jobs = {"mmdebstrap": "task:mmdebstrap", "unshare": "executor:unshare"}
    jobs |= {"sbuild": "task:sbuild"}
    ended = [
        {"name": name, "seconds": 2.0, "problem": errors.get(each, "")}
        for each, name in jobs.items()
    ]
    return [{"tags": TAGS}, *ended]


def test_instance_version_provides_tags_proven_by_jobs(rig: MachineRig) -> None:
    rig.packages, rig.told = (NEW_WORKER,), all_jobs()

    rig.build(enable_backends=["unshare", "qemu"], enable_tasks=["sbuild"])

    _, test = rig.manifest.tests
    assert test.problems == ()
    assert test.provides == tuple(sorted((*TAGS, "worker:executor:unshare")))
    assert test.unproven == ("executor:qemu",)
    removed = "rm -rf --one-file-system /srv/fleet-jobs-1"
    assert rig.asked.index(removed) < rig.asked.index(CLEAN)


@pytest.mark.parametrize(
    ("told", "claimed", "named"),
    [
        (all_jobs(sbuild="the task ended with failure"), [], "task:sbuild"),
        (all_jobs()[:3], [], "task:sbuild"),
        ([], [], "executor:unshare"),
        (all_jobs(), ["worker:cap:autopkgtest"], "worker:cap:autopkgtest"),
    ],
)
def test_no_snapshot_is_taken_when_a_job_failed(
    rig: MachineRig, told: list[dict[str, object]], claimed: list[str], named: str
) -> None:
    rig.packages, rig.told = (NEW_WORKER,), told

    with pytest.raises(BuildFailed, match=named):
        rig.build(enable_tasks=["sbuild"], provides=claimed)

    assert rig.left() == []
    assert not any(each.path.endswith("/create_image") for each in rig.api.requests)


def test_no_snapshot_is_taken_when_test_fails(rig: MachineRig) -> None:
    rig.files.put("/etc/machine-id", "0123456789abcdef\n")
    rig.files.put("/etc/hostname", "builder-7\n")

    with pytest.raises(BuildFailed) as failed:
        rig.build()

    first, second = str(failed.value).splitlines()
    assert tells(first, "/etc/machine-id", "empty")
    assert tells(second, "/etc/hostname", "builder-7")
    assert rig.left() == []
    assert not any(each.path.endswith("/create_image") for each in rig.api.requests)


def test_only_log_is_left_when_role_fails(rig: MachineRig) -> None:
    def fail() -> None:
        raise RoleFailed("the role failed at task “Install packages”")

    rig.role = fail

    with pytest.raises(BuildFailed, match="Install packages"):
        rig.build()

    assert rig.left() == []
    assert "the role was here" in (rig.images / "trixie" / f"{VERSION}.log").read_text()


@pytest.mark.parametrize(
    ("script", "packages"),
    [(READY, TOLD), (PACKAGES, TOLD), (COPY_ROOT, (NEW_WORKER,)), (CLEAN, TOLD)],
)
def test_no_resource_is_left_when_machine_is_lost(
    rig: MachineRig, script: str, packages: tuple[str, ...]
) -> None:
    rig.packages, rig.fails_at = packages, script

    with pytest.raises(BuildFailed, match="the connection is lost"):
        rig.build()

    assert rig.left() == []


def test_no_resource_is_left_after_interrupt(rig: MachineRig) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    rig.role = interrupt

    with pytest.raises(KeyboardInterrupt):
        rig.build()

    assert rig.left() == []


def test_no_resource_is_left_when_snapshot_fails(rig: MachineRig) -> None:
    rig.api.fail(Fault(method="POST", path="/servers/*/actions/create_image", status=403, count=1))

    with pytest.raises(BuildFailed, match="create_image"):
        rig.build()

    assert rig.left() == []


def test_next_build_deletes_server_that_failed_to_delete(rig: MachineRig) -> None:
    rig.api.fail(Fault(method="DELETE", path="/servers/*", status=403, count=1))
    with pytest.raises(BuildFailed):
        rig.build()
    left = rig.hetzner.left()

    rig.version = "20261121T204000Z"
    rig.build()

    assert len(left) == 1
    assert rig.hetzner.left() == []


@pytest.mark.slow
def test_next_build_deletes_servers_of_a_killed_one(
    rig: MachineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = rig.images.parent
    arguments = [rig.api.endpoint, str(rig.images), "20261121T202000Z"]
    killed = subprocess.run(
        [sys.executable, "-m", "tests.images.killed", "build", *arguments],
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    left, keys = rig.left(), list(temporary.glob("*/key"))

    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    rig.build()

    assert killed.returncode == -signal.SIGKILL
    assert (len(left), len(keys)) == (3, 1)  # server, key and folder; the private key
    assert (rig.left(), list(temporary.glob("*/key"))) == ([VERSION], [])
