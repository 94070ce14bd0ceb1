"""Bake an image on a machine at Hetzner: the role or a playbook over ssh, then a snapshot.

The machine is temporary and is always deleted; a label identifies the machine of a killed run. The
result is the snapshot. As the build's folder has no disk, the image is tested before the snapshot
is taken: the jobs run in a copy of the machine's root.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from hcloud.images import BoundImage

from fleet.clouds.hcloud.images import HcloudSite, TemporaryMachine
from fleet.clouds.hcloud.ssh import Ssh
from fleet.errors import BuildFailed, PublicationRefused, SourceUnreachable
from fleet.images.checks import check_machine
from fleet.images.folder import Draft, Tell, drafting, manifest_of
from fleet.images.jobs import judge, prove_on
from fleet.images.packages import read_packages
from fleet.images.programs import root_script
from fleet.images.records import BuildOrder
from fleet.images.role import RoleFailed, role_variables, run_role, ssh_host, why_not
from fleet.model.images import Manifest, Publication, Test
from fleet.schema.pools import ImageRecipe, PlaybookRecipe

_STOCK = {"bookworm": "debian-12", "trixie": "debian-13"}
"""Suite to the Hetzner image from which a build starts. Hetzner has no image of sid."""
Role = Callable[..., object]
"""Function with the parameters of `run_role`."""


@dataclass(frozen=True)
class InstanceBuilder:
    """Builder of images on a machine in a project of Hetzner Cloud."""

    images: Path
    site: HcloudSite
    role: Role = run_role
    beside: Path = Path()
    """The folder of fleet.yaml. Paths of playbooks are relative to this folder."""

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
        with drafting(self.images, order, tell) as draft:
            try:
                manifest, snapshot = self._bake(draft)
                manifest = draft.finish(manifest)
                self.site.api.complete(snapshot)
            except (PublicationRefused, SourceUnreachable, RoleFailed) as error:
                raise BuildFailed(str(error)) from error
        return manifest, Publication(id=str(snapshot.id), at=snapshot.created, verified=False)

    def _bake(self, draft: Draft) -> tuple[Manifest, BoundImage]:
        """Bake on a temporary machine and always delete it. Return manifest and snapshot."""
        site, recipe = self.site, draft.order.recipe
        draft.say("machine")
        stock = recipe.base if isinstance(recipe, PlaybookRecipe) else _STOCK.get(recipe.suite)
        if stock is None:
            raise BuildFailed(
                f"Hetzner has no image of {draft.order.debian.suite} to begin with, only of "
                f"{', '.join(_STOCK)}; build it as a disk"
            )
        machine = TemporaryMachine(
            site=site,
            purpose="build",
            image=draft.order.image,
            version=draft.order.version,
            architecture=recipe.architecture,
            holder=draft.holder,
            stock_image=stock,
        )
        with machine.rented():
            ssh = machine.ssh
            draft.say("ready")
            ssh.run(root_script("prepare_machine"), log=draft.log)
            draft.say("role")
            self._play(draft, ssh)
            draft.say("packages")
            packages = read_packages(ssh.run(root_script("list_packages")).splitlines())
            system = ssh.run(root_script("print_system")).strip()
            manifest = manifest_of(draft.order, "instance", packages, system)
            proven: tuple[Test, ...] = ()
            if isinstance(recipe, ImageRecipe):
                draft.say("jobs")
                prove = partial(prove_on, ssh, recipe, draft.log, partial(draft.say, "jobs"))
                proven = (judge(draft.order.image, recipe, manifest.worker, prove),)
                _require_none(proven[0].problems)
            draft.say("clean")
            ssh.run(root_script("clean_machine"), log=draft.log)
            draft.say("test")
            began = time.monotonic()
            _require_none(check_machine(ssh, recipe))
            test = Test(
                kind="offline",
                at=draft.order.built_at + timedelta(seconds=round(began - draft.began)),
                seconds=round(time.monotonic() - began, 3),
            )
            manifest = manifest.altered(tests=(test, *proven))
            draft.say("snapshot")
            snapshot = machine.snapshot(manifest.digest)
            rental = machine.rental()
        return manifest.altered(rental=rental), snapshot

    def _play(self, draft: Draft, ssh: Ssh) -> None:
        """Run the role, or the playbook of a playbook recipe and its test command."""
        recipe, pair = draft.order.recipe, ssh.pair
        # Use the ssh key and the host key of this connection.
        host = ssh_host(ssh.host, port=ssh.port, key=pair.private, known_hosts=pair.known_hosts)
        play = partial(self.role, host, log=draft.log, told=partial(draft.say, "role"))
        if isinstance(recipe, ImageRecipe):
            play(role_variables(recipe))
            return
        play({}, play=self.beside / recipe.playbook)
        draft.say("role", "test")
        try:
            ssh.run(f"set -e\n{recipe.test}", log=draft.log)
        except PublicationRefused as error:
            raise BuildFailed(
                f"image {draft.order.image} is not usable: its test failed: {error}; all output "
                f"is in {draft.log}; change images.{draft.order.image}.test or the playbook"
            ) from error


def _require_none(problems: Sequence[str]) -> None:
    if problems:
        raise BuildFailed("the baked image is not usable: " + "\n  ".join(problems))
