"""The provider kind `hcloud`, Hetzner Cloud."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from fleet.clouds.cloud import Cloud
from fleet.clouds.hcloud.machines import HcloudMachines, HcloudShared
from fleet.clouds.hcloud.prices import HcloudPrices
from fleet.errors import SourceUnreachable, needing
from fleet.model.facts import Unknown
from fleet.ports import PriceReader, Publisher
from fleet.schema.model import HcloudProvider

if TYPE_CHECKING:
    from fleet.clouds.hcloud.images import HcloudSite, Hetzner

_MAX_SWEEP_ATTEMPTS = 2
"""Maximum attempts of a sweep to list temporary machines."""


class Hcloud(Cloud[HcloudProvider]):
    """A project of Hetzner Cloud."""

    has_shared_stack = True

    def open(self) -> HcloudMachines:
        """Return the reader of servers, which it finds by their labels."""
        return HcloudMachines(self._token)

    def environment(self) -> Mapping[str, str]:
        """Add the project's token under the name that the Pulumi provider reads."""
        return {**super().environment(), "HCLOUD_TOKEN": self._token}

    def adoptable(self, fleet: str) -> Mapping[str, str] | Unknown:
        """Map the keys of networks, firewalls, keys and placement groups of this fleet to ids."""
        return HcloudShared(self._token).list(fleet)

    def prices(self) -> PriceReader:
        """Return the reader of prices at this project's location."""
        return HcloudPrices(self.declared, self._token)

    # Import late: the client and ssh are slow to load, and few commands build or upload images.
    def publisher(self) -> Publisher:
        """Return the publisher of snapshots."""
        with self._needing_client():
            from fleet.clouds.hcloud.images import HcloudPublisher, HcloudSite

        site = HcloudSite(self.site.fleet.fleet, self.declared.location, self.site.name)
        return HcloudPublisher(site, self._token)

    def temporary_servers(self) -> "tuple[HcloudSite, Hetzner]":
        """Return the location and the API client for temporary servers."""
        with self._needing_client():
            from fleet.clouds.hcloud.images import HcloudSite, Hetzner

        site = HcloudSite(self.site.fleet.fleet, self.declared.location, self.site.name)
        return site, Hetzner(self._token, pause=time.sleep)

    def temporary(self, before: datetime, *, delete: bool) -> Iterable[str]:
        """Yield servers and keys that killed builds and uploads left; delete them if requested."""
        with self._needing_client():
            from fleet.clouds.hcloud.images import Hetzner, left_temporary

        api = Hetzner(self._token, pause=time.sleep, tries=_MAX_SWEEP_ATTEMPTS)
        return left_temporary(api, self.site.fleet.fleet, before, delete=delete)

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Yield facts about tokens and projects that the API does not show."""
        yield "rights", "its API does not show whether the token can write; it needs Read & Write"
        yield "quotas", "its API does not show a project's limits; see Limits in its console"

    def _needing_client(self) -> AbstractContextManager[None]:
        return needing("hcloud", f"an image at provider {self.site.name}", SourceUnreachable)

    @property
    def _token(self) -> str:
        return self.site.secrets.read(self.declared.token)
