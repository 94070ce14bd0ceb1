"""List and change the machines of a Hetzner Cloud project by their labels, and read prices.

An incomplete listing is Unknown, since missing machines would count as deleted.
"""

import ipaddress
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fleet.clock import utc_now
from fleet.clouds.cloud import label_time, raise_first, read_label_time, trimmed
from fleet.errors import SourceUnreachable
from fleet.model.facts import (
    FoundMachine,
    Listing,
    Machine,
    MachineState,
    PriceList,
    Quote,
    Unknown,
    WorkerInputs,
)
from fleet.model.values import Amount, Count, Id, Line, Moment
from fleet.schema.model import HcloudProvider

if TYPE_CHECKING:
    from fleet.queues.http import Body, Change, Reader, Reply


ENDPOINT = "https://api.hetzner.cloud/v1"
ARCHITECTURES = {"x86": "amd64", "arm": "arm64"}
"""Map of Hetzner's names of architectures to Debian's names."""
_PER_PAGE = 50
MAX_PAGES = 1_000
_SUCCESS_STATUSES = frozenset({200, 201, 204})
_GENERAL_ERROR_STATUSES = frozenset({401, 403, 429})
"""Status codes that affect every request with this token, not only one server."""


class RefusesAll(SourceUnreachable):
    """An error that currently affects all requests with this token."""


class HcloudReply(BaseModel):
    """The fields of a reply of the API that fleet uses."""

    model_config = ConfigDict(strict=True, frozen=True)


class Pagination(HcloudReply):
    """The position in a list: number of the next page (None at the end), and total of entries."""

    next_page: Count | None
    total_entries: Count | None


class Meta(HcloudReply):
    """Metadata of a page of a list."""

    pagination: Pagination


class PagedReply(HcloudReply):
    """A page of a list."""

    meta: Meta

    @property
    def length(self) -> int:
        """Return the number of entries on the page."""
        return sum(len(part) for _, part in self if isinstance(part, tuple))


def check_length(address: str, listed: int, counted: int | None, *, is_last: bool) -> None:
    """Raise SourceUnreachable if the number of listed entries contradicts the server's count."""
    if counted is not None and (listed > counted or (is_last and listed < counted)):
        raise SourceUnreachable(
            f"{address} listed {listed} entries, but counts {counted}: they changed while they "
            "were read, or the list is not whole; the next run tries again"
        )


Labels = Annotated[dict[Line, Line], Field(max_length=1_000)]
Shape = TypeVar("Shape", bound=BaseModel)
Page = TypeVar("Page", bound=PagedReply)


def endpoint() -> str:
    """Return the address of the API, which HCLOUD_ENDPOINT may override."""
    return os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT


class HcloudApi:
    """The API of one Hetzner Cloud project."""

    def __init__(
        self,
        token: str,
        *,
        base_url: str | None = None,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base = base_url or endpoint()
        self._headers = {"Authorization": f"Bearer {token}"}
        self._now = now
        self._clock = clock

    @contextmanager
    def _reading(self) -> "Iterator[Reading]":
        """Yield a reader that has one connection and one time limit."""
        # Import late: the client is slow to load, and most commands do not need it.
        from fleet.queues.http import Reader

        with Reader(self._base, clock=self._clock) as reader:
            yield Reading(reader, self._headers)


class Reading:
    """One connection to the API. Unexpected replies raise SourceUnreachable."""

    def __init__(self, reader: "Reader", headers: Mapping[str, str]) -> None:
        self._reader = reader
        self._headers = headers

    @property
    def clock_ahead(self) -> int | None:
        """Return by how many minutes the server's clock is ahead of ours; None if unknown."""
        return self._reader.clock_ahead

    def get(self, path: str, query: Mapping[str, str], shape: type[Shape]) -> Shape:
        """Return the object at a path, parsed as `shape`."""
        return _require_success(self._reader.get(path, query, self._headers)).parse(shape)

    def find(self, path: str, shape: type[Shape]) -> Shape | None:
        """Return the object at a path, parsed as `shape`; None if it does not exist."""
        reply = self._reader.get(path, {}, self._headers)
        return None if _is_gone(reply) else _require_success(reply).parse(shape)

    def change(self, method: "Change", path: str, body: "Body") -> bool:
        """Change or delete the object at a path; return False if it does not exist."""
        reply = self._reader.change(method, path, self._headers, body)
        return not _is_gone(reply) and bool(_require_success(reply))

    def pages(self, path: str, query: Mapping[str, str], shape: type[Page]) -> Iterator[Page]:
        """Yield all pages of a list; raises SourceUnreachable if the list is incomplete."""
        number, before, listed = 1, 0, 0
        while before < number <= MAX_PAGES:
            asked = {**query, "page": str(number), "per_page": str(_PER_PAGE)}
            page = self.get(path, asked, shape)
            listed += page.length
            counted, following = page.meta.pagination.total_entries, page.meta.pagination.next_page
            address = f"{self._reader.base}{path}"
            check_length(address, listed, counted, is_last=following is None)
            yield page
            if following is None:
                return
            before, number = number, following
        raise endless(f"{self._reader.base}{path}", before, number)


def endless(address: str, page: int, following: int) -> SourceUnreachable:
    """Return the error for a list whose pages loop or never end."""
    return SourceUnreachable(f"{address}: its pages never end (page {page} leads to {following})")


def _is_gone(reply: "Reply") -> bool:
    return reply.status == 404 and "not_found" in reply.body.decode(errors="replace")  # noqa: PLR2004 - HTTP's own


def _require_success(reply: "Reply") -> "Reply":
    """Return the reply if its status means success; raises SourceUnreachable otherwise."""
    if reply.status not in _SUCCESS_STATUSES:
        kind = RefusesAll if reply.status in _GENERAL_ERROR_STATUSES else SourceUnreachable
        raise kind(f"{reply.address} answered with status {reply.status}: {advise(reply.status)}")
    return reply


def advise(status: int) -> str:
    """Return advice about a failed request, by its HTTP status."""
    match status:
        case 401:
            return "the token is wrong or was deleted; make one in the project's settings"
        case 403:
            return "the token has no permission to read servers of this project"
        case 429:
            return "too many requests in this hour; the next run tries again"
        case 404:
            return "is HCLOUD_ENDPOINT the address of the API, with its version (…/v1)?"
        case _:
            return "the provider has a problem; the next run tries again"


# A server with an unclear status exists and costs money, so it counts as running.
_STATES = {
    "initializing": MachineState.STARTING,
    "starting": MachineState.STARTING,
    "rebuilding": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "migrating": MachineState.RUNNING,
    "unknown": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "deleting": MachineState.STOPPING,
    "off": MachineState.STOPPED,
}


class _ServerType(HcloudReply):
    name: Line
    architecture: Line = ""


class _Image(HcloudReply):
    id: Id
    name: Line | None


class _PublicAddress(HcloudReply):
    ip: Line


class _Attached(_PublicAddress):
    network: Id


class _Firewall(HcloudReply):
    id: Id


class _PublicNet(HcloudReply):
    ipv4: _PublicAddress | None
    ipv6: _PublicAddress | None
    firewalls: tuple[_Firewall, ...] = ()


class _Location(HcloudReply):
    name: Line


class _Datacenter(HcloudReply):
    location: _Location


class _Labelled(HcloudReply):
    id: Id
    labels: Labels


class _ServerReply(HcloudReply):
    server: _Labelled


class _Server(HcloudReply):
    id: Id
    name: Line
    status: Line
    created: Moment
    labels: Labels
    server_type: _ServerType
    image: _Image | None = None
    public_net: _PublicNet
    private_net: tuple[_Attached, ...] = ()
    location: _Location | None = None
    datacenter: _Datacenter | None = None


class _ServerPage(PagedReply):
    servers: tuple[_Server, ...]


_ARCHITECTURE = "architecture"
"""Label with Debian's name of the architecture. The data of a server lacks this name."""
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
TEMPORARY = "temporary"
"""Label of a server that only builds or publishes an image. The value is the purpose."""
EXPIRES = "expires"
"""Label with the expiry time of a server. It is not part of the machine's inputs."""


class HcloudMachines(HcloudApi):
    """The servers of one project. Implements Provider and MachineApi."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines with exactly this value of label `fleet`; Unknown after an error."""
        read_at = self._now()
        try:
            with self._reading() as reading:
                servers = _servers(reading, "fleet", fleet)
            machines = [_machine(server, _pool_of(server)) for server in servers]
        except SourceUnreachable as error:
            return Unknown.of(error)
        return Listing(
            read_at=read_at,
            machines=tuple(sorted(machines, key=lambda machine: machine.name)),
            notes_expiry=True,
            clock_ahead=reading.clock_ahead,
        )

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry time of servers into a label. Skip servers that do not exist."""
        noted = {EXPIRES: label_time(until)}
        failed: list[SourceUnreachable] = []
        with self._reading() as reading:
            for machine in sorted(machines):
                try:
                    _set_labels(reading, machine, noted)
                except RefusesAll:
                    raise
                except SourceUnreachable as error:
                    # After a failed server, extend the others, which would expire otherwise.
                    failed.append(error)
        raise_first(failed)

    def delete(self, machine_id: str) -> None:
        """Delete a server; do nothing if it does not exist."""
        with self._reading() as reading:
            reading.change("DELETE", f"/servers/{machine_id}", None)

    def find(self, key: str, value: str) -> tuple[FoundMachine, ...]:
        """Return the servers on which the label with this key is exactly this value."""
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            return ()  # not valid as a label
        with self._reading() as reading:
            return tuple(map(_read_found, _servers(reading, key, value)))

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Add a worker's labels to a server; raises SourceUnreachable if it does not exist."""
        labels = {**inputs.labels, _ARCHITECTURE: inputs.architecture}
        with self._reading() as reading:
            if not _set_labels(reading, machine_id, labels):
                raise SourceUnreachable(f"{inputs.name}: there is no server {machine_id} any more")


def _set_labels(reading: Reading, machine_id: str, labels: Mapping[str, str]) -> bool:
    """Set labels of a server; return False if the server does not exist."""
    path = f"/servers/{machine_id}"
    found = reading.find(path, _ServerReply)
    # The API replaces all labels, so send the other labels back.
    return found is not None and reading.change(
        "PUT", path, {"labels": found.server.labels | dict(labels)}
    )


def _servers(reading: Reading, key: str, value: str) -> tuple[_Server, ...]:
    """Return all servers on which the label with this key is exactly this value."""
    asked = {"label_selector": f"{key}=={value}", "sort": "id:asc"}
    servers: dict[int, _Server] = {}
    listed = 0
    for page in reading.pages("/servers", asked, _ServerPage):
        servers |= {server.id: server for server in page.servers}
        listed += len(page.servers)
    if listed != len(servers):
        raise SourceUnreachable(
            f"the provider listed {listed} servers of {key} {value}, but only {len(servers)} "
            "different ones: they changed while they were read; the next run tries again"
        )
    # Servers that build or publish images are no workers; `machine delete --expired` deletes them.
    return tuple(
        server
        for server in servers.values()
        if server.labels.get(key) == value and TEMPORARY not in server.labels
    )


def _pool_of(server: _Server) -> str:
    pool = server.labels.get("pool")
    if not pool:
        # fleet may neither delete nor count this server, so the whole list is unusable.
        raise SourceUnreachable(
            f"server {server.name!r} (id {server.id}) carries the label fleet but no label pool; "
            "remove the first if fleet did not make it, or give it the second"
        )
    return pool


def _read_found(server: _Server) -> FoundMachine:
    place = server.location or (server.datacenter.location if server.datacenter else None)
    settings = {
        "location": place.name if place else "",
        "network_ids": " ".join(str(each.network) for each in server.private_net),
        "firewall_ids": " ".join(str(each.id) for each in server.public_net.firewalls),
    }
    own = {EXPIRES, _ARCHITECTURE, "commit"}
    return FoundMachine(
        machine=_machine(server, server.labels.get("pool", "")),
        architecture=ARCHITECTURES.get(server.server_type.architecture, ""),
        labels={key: value for key, value in server.labels.items() if key not in own},
        settings={key: value for key, value in settings.items() if value},
    )


def _host_address(address: str) -> str:
    """Return a server's address; the first address if Hetzner reports an IPv6 network."""
    try:
        network = ipaddress.ip_interface(address).network
    except ValueError as error:
        raise SourceUnreachable(
            f"the provider returned the address {address!r}: {error}"
        ) from error
    return address if network.num_addresses == 1 else str(network[1])


def _machine(server: _Server, pool: str) -> Machine:
    state = _STATES.get(server.status)
    if state is None:
        raise SourceUnreachable(
            f"server {server.name!r} is in the state {server.status!r}, which this version of "
            "fleet does not know"
        )
    image = server.image
    public, private = server.public_net, server.private_net
    address = public.ipv4 or (private[0] if private else None) or public.ipv6
    return Machine(
        name=server.name,
        id=str(server.id),
        pool=pool,
        type=server.server_type.name,
        state=state,
        created_at=server.created,
        image=(image.name or str(image.id)) if image else None,
        digest=server.labels.get("digest"),
        expires=read_label_time(server.labels.get(EXPIRES)),
        address=_host_address(address.ip) if address else None,
    )


_KINDS = ("network", "firewall", "ssh_key", "placement_group")


class _Subnet(HcloudReply):
    ip_range: Line


class _SharedReply(HcloudReply):
    id: Id
    name: Line
    labels: Labels
    subnets: tuple[_Subnet, ...] = ()


class _Parts(PagedReply):
    networks: tuple[_SharedReply, ...] = ()
    firewalls: tuple[_SharedReply, ...] = ()
    ssh_keys: tuple[_SharedReply, ...] = ()
    placement_groups: tuple[_SharedReply, ...] = ()


class HcloudShared(HcloudApi):
    """The shared resources of one project: networks, firewalls, ssh keys, placement groups."""

    def list(self, fleet: str) -> Mapping[str, str] | Unknown:
        """Map KIND/NAME to the id of each resource with exactly this value as label `fleet`.

        The key of a network's subnet is KIND/NAME/subnet.
        """
        try:
            return dict(self._ids(fleet))
        except SourceUnreachable as error:
            return Unknown.of(error)

    def _ids(self, fleet: str) -> Iterator[tuple[str, str]]:
        with self._reading() as reading:
            for kind in _KINDS:
                asked = {"label_selector": f"fleet=={fleet}"}
                pages = reading.pages(f"/{kind}s", asked, _Parts)
                for part in (each for page in pages for each in getattr(page, f"{kind}s")):
                    if part.labels.get("fleet") == fleet:
                        yield f"{kind}/{part.name}", str(part.id)
                        for subnet in part.subnets:
                            yield f"{kind}/{part.name}/subnet", f"{part.id}-{subnet.ip_range}"


class _PricingReply(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Net(_PricingReply):
    net: Amount


class _PriceAt(_PricingReply):
    location: Line
    price_hourly: _Net
    price_monthly: _Net


class _AddressPrices(_PricingReply):
    type: Line
    prices: tuple[_PriceAt, ...]


class _Volume(_PricingReply):
    price_per_gb_month: _Net


class _Pricing(_PricingReply):
    currency: Line
    primary_ips: tuple[_AddressPrices, ...]
    volume: _Volume


class _PricingPage(_PricingReply):
    pricing: _Pricing


class _PricedType(_PricingReply):
    name: Line
    cores: Annotated[int, Field(ge=0, le=10_000)]
    memory: Annotated[Decimal, Field(ge=0, le=2**20, description="In GB.")]
    disk: Annotated[int, Field(ge=0, le=2**30, description="In GB.")]
    architecture: Line
    prices: tuple[_PriceAt, ...]


class _TypesPage(PagedReply):
    server_types: tuple[_PricedType, ...]


class HcloudPrices(HcloudApi):
    """The reader of prices of Hetzner Cloud at one location."""

    def __init__(self, provider: HcloudProvider, token: str) -> None:
        super().__init__(token)
        self.location = provider.location

    def read(self, now: datetime) -> PriceList:
        """Return the current net prices; raises SourceUnreachable if prices are invalid."""
        with self._reading() as reading:
            pricing = reading.get("/pricing", {}, _PricingPage).pricing
            pages = list(reading.pages("/server_types", {}, _TypesPage))
        types = [each for page in pages for each in page.server_types]
        ipv4 = [each for each in pricing.primary_ips if each.type == "ipv4"]
        addresses = [at for each in ipv4 for at in _select_location(each.prices, self.location)]
        try:
            quotes = {each.name: _quote(each, self.location) for each in types}
            return PriceList(
                read_at=now,
                location=self.location,
                currency=pricing.currency,
                quotes={name: quote for name, quote in sorted(quotes.items()) if quote},
                address=next((trimmed(at.price_hourly.net) for at in addresses), None),
                disk=trimmed(pricing.volume.price_per_gb_month.net),
            )
        except (ArithmeticError, ValueError) as error:
            said = str(error).splitlines()[-1].strip()
            raise SourceUnreachable(f"{self._base} returned impossible prices: {said}") from error


def _quote(sold: _PricedType, location: str) -> Quote | None:
    """Return the price of a server type at a location; None if the type is not sold there."""
    for at in _select_location(sold.prices, location):
        return Quote(
            price=trimmed(at.price_hourly.net),
            month=trimmed(at.price_monthly.net),
            cores=sold.cores,
            memory=int(sold.memory * 1024),
            disk=sold.disk * 1024,
            architecture=ARCHITECTURES.get(sold.architecture, sold.architecture),
        )
    return None


def _select_location(prices: tuple[_PriceAt, ...], location: str) -> list[_PriceAt]:
    return [each for each in prices if each.location == location]
