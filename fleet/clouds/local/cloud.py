"""The provider kind `local`, whose machines are processes on this computer."""

from fleet.clouds.cloud import Cloud
from fleet.clouds.local.machines import LocalMachines, LocalWorkers
from fleet.schema.model import DebusineQueue, LocalProvider


class Local(Cloud[LocalProvider]):
    """A folder of machines, each of which is a process."""

    def open(self) -> LocalMachines:
        """Return the machines, which are also workers if the fleet has no Debusine queue."""
        site, path = self.site, self.declared.path
        queues = site.fleet.queues.values()
        kind = (
            LocalMachines
            if any(isinstance(queue, DebusineQueue) for queue in queues)
            else LocalWorkers
        )
        folder = site.folder / path if path else site.storage.folder / f"local-{site.name}"
        return kind(folder, site.clock, self.declared.faults, site.bare_environment)
