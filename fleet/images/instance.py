"""Bake an image on a machine at Hetzner: the role or a playbook over ssh, then a snapshot.

The machine is temporary and is always deleted; a label identifies the machine of a killed run. The
result is the snapshot. As the build's folder has no disk, the image is tested before the snapshot
is taken: the jobs run in a copy of the machine's root.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from hcloud.images import BoundImage

from fleet.clouds.hcloud.images import (
    HcloudSite,
    Hetzner,
    MachineOrder,
    take_snapshot,
    temporary_machine,
)
from fleet.clouds.hcloud.ssh import Ssh
from fleet.errors import BuildFailed, PublicationRefused, SourceUnreachable
from fleet.images.checks import Tree, check_image
from fleet.images.folder import Draft, Tell, drafting, manifest_of
from fleet.images.jobs import judge, prove_on
from fleet.images.packages import LIST_INSTALLED, read_packages
from fleet.images.programs import held
from fleet.images.remote_tree import RemoteTree
from fleet.images.role import Host, RoleFailed, run_role, ssh_host, why_not
from fleet.images.roots import FORGET
from fleet.model.images import BuildOrder, Manifest, Publication, Test, role_variables
from fleet.schema.pools import ImageRecipe, PlaybookRecipe

_STOCK = {"bookworm": "debian-12", "trixie": "debian-13"}
"""Suite to the Hetzner image from which a build starts. Hetzner has no image of sid."""
READY = """set -e
export DEBIAN_FRONTEND=noninteractive
if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null || true; fi
if command -v apt-get >/dev/null; then
apt-get -q -y update
apt-get -q -y -o Dpkg::Options::=--force-confold dist-upgrade
apt-get -q -y --no-install-recommends install python3 python3-apt python3-debian ca-certificates
else
dnf -q -y upgrade
dnf -q -y install python3
dnf -q -y install python3-libdnf5 || dnf -q -y install python3-dnf
fi
"""
"""Script that installs pending updates and Ansible's requirements on a machine."""
CLEAN = f"""set -e
export DEBIAN_FRONTEND=noninteractive
if command -v apt-get >/dev/null; then
apt-get -q -y --purge autoremove
apt-get clean
else
dnf -q clean all
fi
if command -v cloud-init >/dev/null; then cloud-init clean --logs --seed; fi
[ -L /etc/resolv.conf ] || : > /etc/resolv.conf
usermod --password '*' root
cd /
{FORGET}sync
"""
"""Script that removes the identity, credentials and logs of a machine."""
SYSTEM = '. /etc/os-release; echo "$ID-$VERSION_ID"'
"""Script that prints the operating system of a machine, such as fedora-43."""
Role = Callable[..., object]
"""Function with the parameters of `run_role`."""


@dataclass(frozen=True)
class InstanceBuilder:
    """Builder of images on a machine in a project of Hetzner Cloud."""

    images: Path
    site: HcloudSite
    api: Hetzner
    role: Role = run_role
    beside: Path = Path()
    """The folder of fleet.yaml. Paths of playbooks are relative to this folder."""
    tree: Callable[[Ssh], Tree] = RemoteTree
    """Function that opens the files of a machine, in order to check them."""

    def check_ready(self, order: BuildOrder) -> None:
        """Raise BuildFailed if Ansible or the playbook is missing."""
        if lacking := why_not():
            raise BuildFailed(lacking)
        recipe = order.recipe
        if isinstance(recipe, PlaybookRecipe) and not (self.beside / recipe.playbook).is_file():
            raise BuildFailed(
                f"image {order.image} is not built: {recipe.playbook} is missing in "
                f"the folder of fleet.yaml (images.{order.image}.playbook)"
            )

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, Publication]:
        """Bake a version; return its manifest and snapshot. The build folder gets no disk."""
        self.check_ready(order)
        lock = self.images / order.image / ".build-hcloud.lock"
        with (
            drafting(self.images, order, tell) as draft,
            held(lock) as holder,
        ):
            try:
                manifest, snapshot = _InstanceBuild(self, draft).bake(holder)
                manifest = draft.finish(manifest)
                self.api.relabel(snapshot, {**(snapshot.labels or {}), "state": "whole"})
            except (PublicationRefused, SourceUnreachable, RoleFailed) as error:
                raise BuildFailed(str(error)) from error
        return manifest, Publication(id=str(snapshot.id), at=snapshot.created, verified=False)


@dataclass(frozen=True)
class _InstanceBuild:
    """A single image build on a temporary machine."""

    builder: InstanceBuilder
    draft: Draft

    def bake(self, holder: str) -> tuple[Manifest, BoundImage]:
        """Bake on a temporary machine and always delete it. Return manifest and snapshot."""
        site, api, draft = self.builder.site, self.builder.api, self.draft
        draft.say("machine")
        with temporary_machine(api, self._machine(holder), site.entry) as rented:
            server, ssh = rented.server, rented.ssh
            draft.seconds["machine"] = round(time.monotonic() - draft.began, 3)
            with draft.phase("ready"):
                self._run(ssh, READY)
            with draft.phase("role"):
                self._play(ssh)
            with draft.phase("packages"):
                packages = read_packages(ssh.run(LIST_INSTALLED).splitlines())
                system = ssh.run(SYSTEM).strip()
            manifest = manifest_of(draft.order, "instance", packages, draft.seconds, system)
            proven = tuple(self._jobs(ssh, manifest.worker))
            with draft.phase("clean"):
                self._run(ssh, CLEAN)
            tests = (self._test(self.builder.tree(ssh)), *proven)
            manifest = manifest.altered(tests=tests)
            with draft.phase("snapshot"):
                snapshot = take_snapshot(api, server, site.fleet, manifest, manifest.digest)
            rental = rented.rental(site.provider)
        return manifest.altered(seconds=draft.seconds, rental=rental), snapshot

    def _play(self, ssh: Ssh) -> None:
        """Run the role, or the playbook of a playbook recipe and its test command."""
        draft, recipe = self.draft, self.draft.order.recipe
        told = partial(draft.say, "role")
        play = partial(self.builder.role, ssh_host_of(ssh), log=draft.log, told=told)
        if isinstance(recipe, ImageRecipe):
            play(role_variables(recipe))
            return
        play({}, play=self.builder.beside / recipe.playbook)
        draft.say("role", "test")
        try:
            self._run(ssh, f"set -e\n{recipe.test}")
        except PublicationRefused as error:
            raise BuildFailed(
                f"image {draft.order.image} is not usable: its test failed: {error}; all output "
                f"is in {draft.log}; change images.{draft.order.image}.test or the playbook"
            ) from error

    def _jobs(self, ssh: Ssh, worker: str) -> Iterator[Test]:
        """Yield the test with the results of the jobs; raises BuildFailed if a job failed."""
        draft, recipe = self.draft, self.draft.order.recipe
        if not isinstance(recipe, ImageRecipe):
            return
        told = partial(draft.say, "jobs")
        with draft.phase("jobs"):
            test = judge(
                draft.order.image, recipe, worker, lambda: prove_on(ssh, recipe, draft.log, told)
            )
        self._require_none(test.problems)
        yield test

    def _test(self, tree: Tree) -> Test:
        """Check the machine's files before the snapshot; raises BuildFailed if any is wrong."""
        at = self.draft.order.built_at + timedelta(
            seconds=round(time.monotonic() - self.draft.began)
        )
        with self.draft.phase("test"):
            problems = check_image(tree, self.draft.order.recipe)
        self._require_none(problems)
        return Test(kind="offline", at=at, seconds=self.draft.seconds["test"])

    def _require_none(self, problems: Sequence[str]) -> None:
        if problems:
            raise BuildFailed("the baked image is not usable: " + "\n  ".join(problems))

    def _machine(self, holder: str) -> MachineOrder:
        recipe = self.draft.order.recipe
        if isinstance(recipe, PlaybookRecipe):
            stock = recipe.base
        elif recipe.suite in _STOCK:
            stock = _STOCK[recipe.suite]
        else:
            raise BuildFailed(
                f"Hetzner has no image of {recipe.suite} to begin with, only of "
                f"{', '.join(_STOCK)}; build it as a disk"
            )
        return MachineOrder(
            purpose="build",
            fleet=self.builder.site.fleet,
            image=self.draft.order.image,
            version=self.draft.order.version,
            architecture=recipe.architecture,
            location=self.builder.site.location,
            holder=holder,
            stock_image=stock,
        )

    def _run(self, ssh: Ssh, script: str) -> None:
        ssh.run(script, log=self.draft.log)


def ssh_host_of(ssh: Ssh) -> Host:
    """Return Ansible's host for a machine, with the ssh key and host key of this connection."""
    pair = ssh.pair
    return ssh_host(ssh.host, port=ssh.door.port, key=pair.private, known_hosts=pair.known_hosts)
