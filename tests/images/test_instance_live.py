"""Baking on a machine for real: the role over ssh in a Debian that is a chroot with an sshd."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.hcloud.images import HcloudSite, Hetzner
from fleet.clouds.hcloud.ssh import Ssh
from fleet.images.due import sources_of
from fleet.images.instance import InstanceBuilder
from fleet.images.records import BuildOrder, BuildStep
from fleet.images.role import Host, run_role
from fleet.images.roots import kept
from fleet.model.values import digest
from fleet.schema.pools import ImageRecipe, PlaybookRecipe
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.builders import NOW
from tests.live import chroot
from tests.walks.test_an_image_baked import newest_worker

pytestmark = pytest.mark.images

SUITE = "trixie"
PACKAGES = "openssh-server,systemd-sysv,udev,ca-certificates,python3"

STOCK = """export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt-get -q -y --no-install-recommends install cloud-init
systemctl enable systemd-networkd
"""


# Only in the root of a mount namespace jobs can map users.
AS_MACHINE = """
mount --bind "$1" "$1"; cd "$1"
mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /dev dev
mkdir -p run/sshd; pivot_root . mnt
exec chroot . sh -euc 'umount -l /mnt; exec "$@"' sh \\
    /usr/sbin/sshd -D -e -o ListenAddress=127.0.0.1 -o UsePAM=no -p "$2"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a Debian that stands for Hetzner's own image."""
    if reason := chroot.why_not():
        pytest.skip(f"baking on a machine is NOT TESTED: {reason}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleet" / "images"
    archive = chroot.archive()
    name = f"machine-{digest([SUITE, archive, PACKAGES])}"
    with kept(cache, name, partial(make, archive)) as tar:
        place = tmp_path / "root"
        place.mkdir()
        subprocess.run(["tar", "-xf", tar, "-C", place, "--exclude=./dev/*"], check=True)
    shutil.copyfile("/etc/resolv.conf", place / "etc/resolv.conf")
    return place


def make(archive: str, tar: Path) -> None:
    options = [f"--aptopt={line}" for line in chroot.apt_configuration()]
    command = [
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--format=tar"),
        *(f"--include={PACKAGES}", '--aptopt=APT::Install-Recommends "false"', *options),
        *(SUITE, str(tar), f"deb {archive} {SUITE} main"),
    ]
    subprocess.run(command, check=True)


@pytest.fixture
def door(root: Path) -> Iterator[int]:
    """Run an sshd in that root, as long as the test lasts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    command = [*chroot.dies_with_us(), "sh", "-euc", AS_MACHINE, "sh", str(root), str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stderr is not None
    line = b" "
    while line and b"listening" not in line:
        line = process.stderr.readline()
    assert line, "sshd ended"
    yield port
    process.kill()
    process.communicate()


def run_role_here(
    root: Path,
    host: Host,
    variables: Mapping[str, object],
    **options: Any,  # noqa: ANN401 - those of run_role
) -> None:
    """Run the role on what Hetzner's own image has besides; no cloud-init ran here before.

    Then goes what only this computer's apt needed to reach its archive.
    """
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    subprocess.run(["chroot", root, "sh", "-ec", STOCK], check=True, stdout=subprocess.DEVNULL)
    policy.unlink()
    run_role(host, variables, **options)
    (root / "etc/apt/apt.conf.d/99mmdebstrap").unlink()


class Machine:
    """The machine of the simulated API: what enters it, and what a snapshot of it holds."""

    def __init__(self, root: Path, api: SimulatedHetzner) -> None:
        self.root = root
        self.api = api
        self.snapshot: set[str] = set()
        api.state.address = "127.0.0.1"
        api.watch = self._watch

    def _watch(self, when: str, request: Request) -> None:
        if when == "done" and (request.method, request.path) == ("POST", "/servers"):
            keys = self.api.state.resources["ssh_keys"].values()
            text = "".join(f"{each['public_key']}\n" for each in keys)
            (self.root / "root/.ssh/authorized_keys").write_text(text)
        if when == "done" and request.path.endswith("/create_image"):
            self.snapshot = {
                str(path.relative_to(self.root))
                for folder in ("etc", "root", "usr/sbin", "var/lib/debusine", "var/lib/apt")
                for path in (self.root / folder).rglob("*")
            }


VERSION = "20261121T203000Z"


class Build:
    """A build on that machine, in a folder, and what it left."""

    def __init__(
        self, root: Path, door: int, folder: Path, recipe: ImageRecipe | PlaybookRecipe
    ) -> None:
        self.steps: list[BuildStep] = []
        with SimulatedHetzner() as api:
            self.machine = Machine(root, api)
            client = Hetzner(api.token, base_url=api.endpoint, pause=lambda _: None)
            connect = partial(Ssh, port=door)
            builder = InstanceBuilder(
                folder / "images",
                HcloudSite(client, "debian-ci", "fsn1", "hetzner", connect),
                partial(run_role_here, root),
                folder,
            )
            order = BuildOrder(
                image="own", version=VERSION, recipe=recipe, built_at=NOW, built_by="ana"
            )
            self.manifest, publication = builder.build(order, self.steps.append)
            kinds = ("servers", "ssh_keys")
            assert [list(api.state.resources[kind]) for kind in kinds] == [[], []]
            self.labels = api.state.resources["images"][int(publication.id)]["labels"]
        self.log = (folder / "images/own" / VERSION / "build.log").read_text(encoding="utf-8")


def test_live_instance_becomes_image_without_build_traces(
    root: Path, door: int, tmp_path: Path
) -> None:
    build = Build(root, door, tmp_path, ImageRecipe(suite=SUITE, architecture="amd64"))

    manifest, machine, labels = build.manifest, build.machine, build.labels
    assert (labels["fleet"], labels["image"], labels["state"]) == ("debian-ci", "own", "whole")
    installed = {each.name: each for each in manifest.packages}
    assert {"debusine-worker", "uidmap", "sbuild"} <= installed.keys()
    assert len(installed["debusine-worker"].sha256) == 64
    # `image due` looks there for what is newer.
    assert SUITE in {source.suite for source in sources_of(manifest)}
    unit = "etc/systemd/system/multi-user.target.wants/debusine-worker.service"
    assert unit in machine.snapshot
    traces = ("ssh_host_", "root/.ssh", "policy-rc.d", "var/lib/apt/lists/", "root/.ansible")
    left = [path for path in machine.snapshot if any(each in path for each in traces)]
    assert left == []
    assert (root / "etc/machine-id").read_text() == ""
    assert [each.task for each in build.steps if each.phase == "role" and each.task] != []
    # Its files were read over ssh when the machine let nobody in any more. No job was run, for its
    # worker is too old to report tags.
    tests = [(each.kind, each.problems) for each in manifest.tests]
    assert tests == [("offline", ()), ("jobs", ())]
    assert "PLAY RECAP" in build.log


@pytest.mark.long
def test_jobs_prove_tags_on_live_instance(root: Path, door: int, tmp_path: Path) -> None:
    recipe = ImageRecipe.model_validate(
        {
            "suite": SUITE,
            "architecture": "amd64",
            "worker_version": newest_worker(),
            "source": (
                f"Types: deb\nURIs: {chroot.archive()}\nSuites: {SUITE}-backports\n"
                "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
            ),
            "enable_backends": ["unshare", "incus-lxc", "qemu"],
            "enable_tasks": ["mmdebstrap", "sbuild"],
        }
    )

    build = Build(root, door, tmp_path, recipe)

    _, test = build.manifest.tests
    executors = {tag for tag in test.provides if tag.startswith("worker:executor:")}
    assert executors == {"worker:executor:unshare", "worker:executor:incus-lxc"}
    assert {"worker:cap:mmdebstrap", "worker:cap:sbuild"} <= {*test.provides}
    assert test.unproven == ("executor:qemu",)
    assert [
        path for path in build.machine.snapshot if "fleet-job" in path or "jobs.py" in path
    ] == []


PLAYBOOK = """
- hosts: all
  tasks:
    - name: Install a tool
      ansible.builtin.apt: {name: hello, install_recommends: false}
    - name: Copy a file that lies beside the playbook
      ansible.builtin.copy: {src: motd, dest: /etc/motd, mode: "0644"}
"""


def test_playbook_builds_an_image_over_real_ssh(root: Path, door: int, tmp_path: Path) -> None:
    (tmp_path / "own/files").mkdir(parents=True)
    (tmp_path / "own/playbook.yml").write_text(PLAYBOOK)
    (tmp_path / "own/files/motd").write_text("made by a playbook\n")
    recipe = PlaybookRecipe(
        kind="playbook",
        provider="hetzner",
        base="debian-13",
        playbook="own/playbook.yml",
        test="hello | grep -q world\ngrep playbook /etc/motd",
    )

    build = Build(root, door, tmp_path, recipe)

    manifest = build.manifest
    assert manifest.suite == "debian-13"
    assert "hello" in {each.name for each in manifest.packages}
    assert [(each.kind, each.problems) for each in manifest.tests] == [("offline", ())]
    assert (root / "etc/motd").read_text() == "made by a playbook\n"
    assert [path for path in build.machine.snapshot if "ssh_host_" in path or ".ssh" in path] == []
    assert "made" in build.log
