"""The map of provider kinds to their classes."""

import os
from collections.abc import Mapping
from pathlib import Path

from fleet.clouds.aws.cloud import Aws
from fleet.clouds.cloud import AnyCloud, Site
from fleet.clouds.hcloud.cloud import Hcloud
from fleet.clouds.hooks.machines import OwnCommands
from fleet.clouds.local.cloud import Local
from fleet.clouds.ready import Slots
from fleet.clouds.sim.cloud import Sim
from fleet.ports import Clock
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from fleet.state.storage import find_storage

KINDS: Mapping[str, type[AnyCloud]] = {
    "aws": Aws,
    "hcloud": Hcloud,
    "hooks": OwnCommands,
    "local": Local,
    "sim": Sim,
}


def clouds_of(
    fleet: Fleet, file: str, clock: Clock, slots: Slots | None = None
) -> dict[str, AnyCloud]:
    """Map the name of each provider in this fleet.yaml to an object of its kind."""
    folder, storage = Path(file).resolve().parent, find_storage(fleet, file)
    secrets = HostSecrets(os.environ, folder)
    return {
        name: KINDS[declared.kind](
            Site(name, fleet, folder, storage, secrets, clock, slots), declared
        )
        for name, declared in fleet.providers.items()
    }
