"""The provider kind `local`, whose machines are processes on this computer."""

from fleet.clouds.cloud import Cloud
from fleet.clouds.local.machines import LocalMachines, LocalWorkers
from fleet.schema.model import DebusineQueue, LocalProvider


class Local(Cloud[LocalProvider]):
    """A folder of machines. Each machine is a process on this computer."""

    def open(self) -> LocalMachines:
        """Return the machines. Without a Debusine queue, each machine is also a worker."""
        site, path = self.site, self.declared.path
        queues = site.fleet.queues.values()
        kind = (
            LocalMachines
            if any(isinstance(queue, DebusineQueue) for queue in queues)
            else LocalWorkers
        )
        folder = site.folder / path if path else site.storage.folder / f"local-{site.name}"
        return kind(folder, site.clock, self.declared.faults, site.bare_environment)
