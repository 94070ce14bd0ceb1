"""The provider kind `hooks`: machines that an operator's commands create and delete."""

import os
from collections.abc import Iterator

from fleet.clouds.cloud import Cloud
from fleet.clouds.hooks.machines import CommandContext, HookMachines
from fleet.clouds.ready import Slots
from fleet.schema.model import HooksProvider


class OwnCommands(Cloud[HooksProvider]):
    """A provider whose machines an operator's commands create, list and delete."""

    lists_all = False

    def open(self) -> HookMachines:
        """Return the machines that the commands manage."""
        site, pools = self.site, self.site.fleet.dynamic_pools
        around = CommandContext(
            provider=site.name,
            fleet=site.fleet.fleet,
            folder=site.folder,
            state=site.storage.folder / f"hooks-{site.name}",
            environment=site.bare_environment,
            ours=os.environ,
            pools=frozenset(name for name, pool in pools.items() if pool.provider == site.name),
            looks=site.slots is not None,
            slots=site.slots or Slots(),
        )
        return HookMachines(self.declared, around, site.clock)

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Yield quotas as unchecked, because commands do not report quotas."""
        yield "quotas", "only its commands know what they may do"
