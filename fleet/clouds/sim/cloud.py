"""The provider kind `sim`, with simulated machines."""

from collections.abc import Mapping
from pathlib import Path

from fleet.clouds.cloud import Cloud
from fleet.clouds.sim.machines import SimCloud, menu_of
from fleet.engines.projects import ProviderAccount
from fleet.schema.model import SimProvider


class Sim(Cloud[SimProvider]):
    """A simulated cloud in a file, for the embedded engine and the Pulumi engine."""

    def open(self) -> SimCloud:
        """Return the object that lists simulated machines and their workers."""
        return SimCloud(self._path, self.site.clock)

    def prepare(self) -> None:
        """Write the machine types on sale from fleet.yaml into the cloud's file."""
        self.open().configure(menu_of(self.site.fleet, self.site.name))

    def account(self, labels: Mapping[str, str]) -> ProviderAccount:  # noqa: ARG002 - it has no such labels
        """Return the data for the Pulumi engine, with the path of the cloud's file."""
        config = {"sim:path": str(self._path)}
        return ProviderAccount(self.machines, config=config, environment=self.environment)

    @property
    def image_folder(self) -> Path:
        """Folder of published images. Simulated machines accept any image name."""
        return self.site.storage.folder / f"sim-{self.site.name}-images"

    @property
    def _path(self) -> Path:
        path = self.declared.path
        site = self.site
        return site.folder / path if path else site.storage.folder / f"sim-{site.name}.json"
