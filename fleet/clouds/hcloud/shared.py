"""List what the servers of a Hetzner Cloud project share, by its mark."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from fleet.clouds.hcloud.machines import ENDPOINT, Meta, read_pages
from fleet.errors import SourceUnreachable
from fleet.model.facts import Unknown

if TYPE_CHECKING:
    from fleet.queues.http import Reader

_KINDS = ("network", "firewall", "ssh_key", "placement_group")
_MOST_PAGES = 100


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Subnet(_Answer):
    ip_range: str


class _Part(_Answer):
    id: int
    name: str
    labels: dict[str, str]
    subnets: tuple[_Subnet, ...] = ()


class _Parts(_Answer):
    meta: Meta
    networks: tuple[_Part, ...] = ()
    firewalls: tuple[_Part, ...] = ()
    ssh_keys: tuple[_Part, ...] = ()
    placement_groups: tuple[_Part, ...] = ()


class HcloudShared:
    """What exists in one project beside servers."""

    def __init__(self, token: str, *, base_url: str | None = None) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}
        self._base = base_url or os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT

    def list(self, fleet: str) -> Mapping[str, str] | Unknown:
        """Return the ids of the parts whose label `fleet` is exactly this name, by KIND/NAME.

        A network's subnet is KIND/NAME/subnet.
        """
        try:
            return dict(self._ids(fleet))
        except SourceUnreachable as error:
            return Unknown(unknown=str(error))

    def _ids(self, fleet: str) -> Iterator[tuple[str, str]]:
        # httpx is slow to load, and most commands list nothing.
        from fleet.queues.http import Reader

        with Reader(self._base) as reader:
            for kind in _KINDS:
                for part in self._parts(reader, kind, f"fleet=={fleet}"):
                    if part.labels.get("fleet") == fleet:
                        yield f"{kind}/{part.name}", str(part.id)
                        for subnet in part.subnets:
                            yield f"{kind}/{part.name}/subnet", f"{part.id}-{subnet.ip_range}"

    def _parts(self, reader: "Reader", kind: str, selector: str) -> Iterator[_Part]:
        def ask(query: Mapping[str, str]) -> _Parts:
            selected = {"label_selector": selector, **query}
            reply = reader.get(f"/{kind}s", selected, self._headers)
            if reply.status != 200:  # noqa: PLR2004 - HTTP's OK
                raise SourceUnreachable(f"{reply.place} answered with status {reply.status}")
            return reply.parse(_Parts)

        for page in read_pages(ask, f"{reader.base}/{kind}s", most=_MOST_PAGES):
            yield from getattr(page, f"{kind}s")
