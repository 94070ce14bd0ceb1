"""The provider kind `hcloud`, Hetzner Cloud."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from fleet.clouds.cloud import Cloud
from fleet.clouds.hcloud.machines import HcloudMachines, HcloudPrices, HcloudShared
from fleet.errors import SourceUnreachable, needing
from fleet.model.facts import Unknown
from fleet.ports import PriceReader, Publisher
from fleet.schema.model import HcloudProvider

if TYPE_CHECKING:
    from fleet.clouds.hcloud.images import HcloudSite

_MAX_SWEEP_ATTEMPTS = 2
"""Maximum attempts to list leftover machines."""


class Hcloud(Cloud[HcloudProvider]):
    """A project of Hetzner Cloud."""

    has_shared_stack = True

    def open(self) -> HcloudMachines:
        """Return the object that lists servers by labels and changes them."""
        return HcloudMachines(self._token)

    def environment(self) -> Mapping[str, str]:
        """Return the variables for the Pulumi engine, with the project's token."""
        return {**super().environment(), "HCLOUD_TOKEN": self._token}

    def adoptable(self, fleet: str) -> Mapping[str, str] | Unknown:
        """Map keys of this fleet's networks, firewalls, ssh keys and placement groups to ids."""
        return HcloudShared(self._token).list(fleet)

    def prices(self) -> PriceReader:
        """Return the reader of prices at this project's location."""
        return HcloudPrices(self.declared, self._token)

    # Import late: the client and ssh are slow to load, and few commands build or upload images.
    def publisher(self) -> Publisher:
        """Return the publisher of snapshots."""
        site = self.image_site()
        from fleet.clouds.hcloud.images import HcloudPublisher

        return HcloudPublisher(site)

    def image_site(self) -> "HcloudSite":
        """Return the location with the API client, to create temporary machines there."""
        with self._needing_client():
            from fleet.clouds.hcloud.images import HcloudSite, Hetzner

        location, fleet = self.declared.location, self.site.fleet.fleet
        return HcloudSite(Hetzner(self._token), fleet, location, self.site.name)

    def temporary(self, before: datetime, *, delete: bool) -> Iterable[str]:
        """Yield servers and keys that runs killed before a time left; `delete` removes them."""
        with self._needing_client():
            from fleet.clouds.hcloud.images import Hetzner, left_temporary

        api = Hetzner(self._token, tries=_MAX_SWEEP_ATTEMPTS)
        return left_temporary(api, self.site.fleet.fleet, before, delete=delete)

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Yield rights and quotas as unchecked, because the API does not show them."""
        yield "rights", "its API does not show whether the token can write; it needs Read & Write"
        yield "quotas", "its API does not show a project's limits; see Limits in its console"

    def _needing_client(self) -> AbstractContextManager[None]:
        return needing("hcloud", f"an image at provider {self.site.name}", SourceUnreachable)

    @property
    def _token(self) -> str:
        return self.site.secrets.read(self.declared.token)
