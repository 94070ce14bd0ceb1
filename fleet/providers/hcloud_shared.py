"""This module lists what the servers of a Hetzner Cloud project share, by its mark."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from fleet.errors import SourceUnreachable
from fleet.facts import Unknown
from fleet.providers.hcloud import ENDPOINT

if TYPE_CHECKING:
    from fleet.web.reader import Reader

_KINDS = ("network", "firewall", "ssh_key", "placement_group")
_PER_PAGE = 50
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


class _Pagination(_Answer):
    next_page: int | None


class _Meta(_Answer):
    pagination: _Pagination


class _Parts(_Answer):
    meta: _Meta
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
        from fleet.web.reader import Reader

        with Reader(self._base) as reader:
            for kind in _KINDS:
                for part in self._parts(reader, kind, f"fleet=={fleet}"):
                    if part.labels.get("fleet") == fleet:
                        yield f"{kind}/{part.name}", str(part.id)
                        for subnet in part.subnets:
                            yield f"{kind}/{part.name}/subnet", f"{part.id}-{subnet.ip_range}"

    def _parts(self, reader: "Reader", kind: str, selector: str) -> Iterator[_Part]:
        page: int | None = 1
        for _ in range(_MOST_PAGES):
            query = {
                "label_selector": selector,
                "page": str(page),
                "per_page": str(_PER_PAGE),
            }
            reply = reader.get(f"/{kind}s", query, self._headers)
            if reply.status != 200:  # noqa: PLR2004 - HTTP's OK
                raise SourceUnreachable(f"{reply.place} answered with status {reply.status}")
            parts = reply.parse(_Parts)
            yield from getattr(parts, f"{kind}s")
            page = parts.meta.pagination.next_page
            if page is None:
                return
        raise SourceUnreachable(f"{reader.base}/{kind}s: its pages do not end (page {page})")
