"""This program works at the simulated Hetzner and is killed while it uploads or bakes.

The token is no argument: tests of leaks that run beside it look at those of all processes.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from fleet.clouds.hcloud.images import HcloudPublisher, HcloudSite, Hetzner
from fleet.clouds.hcloud.ssh import Ssh, write_disk
from fleet.images.folder import read_manifest
from fleet.images.instance import InstanceBuilder
from fleet.images.publish import Pipeline
from fleet.images.records import BuildOrder, BuildStep
from fleet.model.images import Transfer
from fleet.schema.pools import ImageRecipe
from simulators.hetzner.server import TOKEN
from tests.builders import NOW
from tests.rigs.rescue import Shell


class Idle(Ssh):
    """A machine that does nothing."""

    def run(self, script: str, sent: bytes = b"", log: Path | None = None) -> str:
        del script, sent, log
        return ""


def _do_not_wait(_: float) -> None:
    """Nothing here takes time to come up."""


def publish(endpoint: str, folder: str, device: str) -> None:
    """Publish until the first bytes are uploaded."""
    write = partial(write_disk, device=device, piece_mib=1, pause=_do_not_wait)
    api = Hetzner(TOKEN, base_url=endpoint, pause=_do_not_wait)
    site = HcloudSite(api, "debian-ci", "fsn1", connect=Shell, write=write)
    publisher = Pipeline(HcloudPublisher(site))
    publisher.publish(read_manifest(Path(folder)), folder, _die_of_transfer)


def build(endpoint: str, images: str, version: str) -> None:
    """Bake until the role would run."""
    api = Hetzner(TOKEN, base_url=endpoint, pause=_never)
    site = HcloudSite(api, "debian-ci", "fsn1", connect=Idle)
    recipe = ImageRecipe(suite="trixie", architecture="amd64")
    order = BuildOrder(
        image="trixie", version=version, recipe=recipe, built_at=NOW, built_by="ana"
    )
    InstanceBuilder(Path(images), site).build(order, _die_of_step)


def _never(_: float) -> None:
    raise AssertionError


def _die_of_transfer(transfer: Transfer) -> None:
    if transfer.phase == "upload":
        os.kill(os.getpid(), signal.SIGKILL)


def _die_of_step(step: BuildStep) -> None:
    if step.phase == "role":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    {"publish": publish, "build": build}[sys.argv[1]](*sys.argv[2:])
