"""Bake an image on a machine at Hetzner: the role over ssh, then a snapshot.

The machine is temporary: it is deleted whatever happens, and what a killed run left is found by
its mark. The snapshot is what comes of it; as there is no disk in the folder of the build, it is
tested before the snapshot is taken.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from fleet.clouds.hcloud.images import (
    Found,
    HcloudSite,
    Hetzner,
    Order,
    take_snapshot,
    temporary_machine,
)
from fleet.errors import BuildFailed, PublicationRefused, SourceUnreachable
from fleet.images import folder
from fleet.images.checks import Tree, check_image
from fleet.images.debusine_build import LIST_PACKAGES, read_packages
from fleet.images.disk import locked
from fleet.images.folder import manifest_of, sbom_of
from fleet.images.programs import held
from fleet.images.role import Host, RoleFailed, RoleRun, run_role, ssh_host, why_not
from fleet.images.ssh import Ssh, open_tree
from fleet.model.images import BuildOrder, BuildStep, Manifest, Publication, Test, role_variables

_STOCK = {"bookworm": "debian-12", "trixie": "debian-13"}
"""Suite to the image of Hetzner's that it is made from; it has none of sid."""
READY = """set -e
export DEBIAN_FRONTEND=noninteractive
if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null || true; fi
apt-get -q -y update
apt-get -q -y -o Dpkg::Options::=--force-confold dist-upgrade
apt-get -q -y --no-install-recommends install python3 python3-apt python3-debian ca-certificates
"""
"""What the role needs of a machine, with the updates that its image lacks."""
CLEAN = """set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -q -y --purge autoremove
apt-get clean
if command -v cloud-init >/dev/null; then cloud-init clean --logs --seed; fi
rm -rf /var/lib/apt/lists/* /var/lib/cloud/* /var/log/apt /var/log/journal/* /var/log/*.log
rm -rf ~root/.ansible ~root/.cache ~root/.bash_history /tmp/.ansible /usr/sbin/policy-rc.d
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id
rm -f /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
[ -L /etc/resolv.conf ] || : > /etc/resolv.conf
usermod --password '*' root
: > /etc/machine-id
echo localhost > /etc/hostname
rm -rf ~root/.ssh
sync
"""
"""What no image may hold: whose machine it was, who could enter it, what it logged."""
Tell = Callable[[BuildStep], None]
Role = Callable[[Host, Mapping[str, object], Path, Callable[[str], None]], RoleRun]


def _run_role(
    host: Host, variables: Mapping[str, object], log: Path, told: Callable[[str], None]
) -> RoleRun:
    return run_role(host, variables, log=log, told=told)


@dataclass(frozen=True)
class InstanceBuilder:
    """Bakes on a machine of one project of Hetzner Cloud: ImageBuilder."""

    images: Path
    site: HcloudSite
    api: Hetzner
    role: Role = _run_role

    def build(self, order: BuildOrder, tell: Tell) -> Manifest:
        """Bake a version; its folder holds everything but a disk."""
        return self.bake(order, tell)[0]

    def bake(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, Publication]:
        """Bake a version, and say which snapshot it is."""
        if lacking := why_not():
            raise BuildFailed(lacking)
        place = self.images / order.image
        with locked(place), held(place / ".build-hcloud.lock") as holder, self.api.session():
            partial = folder.open_build(self.images, order.image, order.version)
            log = place / f"{order.version}.log"
            try:
                run = _Run(self, order, log, tell)
                manifest, snapshot = run.bake(holder)
                (partial / folder.SBOM).write_text(sbom_of(manifest), encoding="utf-8")
                log.rename(partial / folder.LOG)
                _, manifest = folder.finish_build(partial, manifest)
                self.api.relabel(snapshot, {**snapshot.labels, "state": "whole"})
            except (PublicationRefused, SourceUnreachable, RoleFailed) as error:
                raise BuildFailed(str(error)) from error
            finally:
                folder.drop_build(partial)
        at = datetime.fromisoformat(snapshot.created)
        return manifest, Publication(id=str(snapshot.id), at=at, verified=False)


@dataclass
class _Run:
    """One build."""

    builder: InstanceBuilder
    order: BuildOrder
    log: Path
    tell: Tell
    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    def bake(self, holder: str) -> tuple[Manifest, Found]:
        """Return what came of it; the machine is gone then."""
        site, api = self.builder.site, self.builder.api
        self._say("machine")
        with temporary_machine(api, self._machine(holder), site.entry) as rented:
            server, ssh = rented.server, rented.ssh
            self.seconds["machine"] = round(time.monotonic() - self.began, 3)
            with self._phase("ready"):
                self._run(ssh, READY)
            with self._phase("role"):
                variables = role_variables(self.order.recipe)
                self.builder.role(ssh_host_of(ssh), variables, self.log, self._task)
            with self._phase("packages"):
                packages = read_packages(ssh.lines(LIST_PACKAGES))
            # Once it is clean no login works, so the reader connects before that.
            with open_tree(ssh) as tree:
                with self._phase("clean"):
                    self._run(ssh, CLEAN)
                test = self._test(tree)
            manifest = manifest_of(self.order, "instance", packages, self.seconds)
            manifest = manifest.model_copy(update={"tests": (test,)})
            with self._phase("snapshot"):
                snapshot = take_snapshot(api, server, site.fleet, manifest, manifest.digest)
            rental = rented.rental(site.provider)
        return manifest.model_copy(update={"seconds": self.seconds, "rental": rental}), snapshot

    def _test(self, tree: Tree) -> Test:
        """Look into what the snapshot will hold; BuildFailed where that is not fit for use."""
        at = self.order.built_at + timedelta(seconds=round(time.monotonic() - self.began))
        with self._phase("test"):
            problems = check_image(tree, self.order.recipe)
        if problems:
            raise BuildFailed("the baked image is not usable: " + "\n  ".join(problems))
        return Test(kind="offline", at=at, seconds=self.seconds["test"])

    def _machine(self, holder: str) -> Order:
        recipe = self.order.recipe
        if recipe.suite not in _STOCK:
            raise BuildFailed(
                f"Hetzner has no image of {recipe.suite} to begin with, only of "
                f"{', '.join(_STOCK)}; build it as a disk"
            )
        return Order(
            purpose="build",
            fleet=self.builder.site.fleet,
            image=self.order.image,
            version=self.order.version,
            architecture=recipe.architecture,
            location=self.builder.site.location,
            holder=holder,
            stock_image=_STOCK[recipe.suite],
        )

    def _run(self, ssh: Ssh, script: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            for line in ssh.lines(script):
                log.write(line)

    def _task(self, task: str) -> None:
        self._say("role", task)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        self._say(name)
        yield
        self.seconds[name] = round(time.monotonic() - began, 3)

    def _say(self, phase: str, task: str = "") -> None:
        seconds = time.monotonic() - self.began
        self.tell(BuildStep(phase=phase, task=task, seconds=seconds))


def ssh_host_of(ssh: Ssh) -> Host:
    """Return a machine as Ansible enters it: with the same key, and the host key that was met."""
    known_hosts = ssh.pair.folder / "known_hosts"
    return ssh_host(ssh.host, port=ssh.door.port, key=ssh.pair.private, known_hosts=known_hosts)
