"""The machines of a Hetzner Cloud project, by their labels: list all pages, extend, delete.

A listing is whole or it is Unknown: half a list would read as machines that are gone.
"""

import ipaddress
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from fleet.errors import SourceUnreachable
from fleet.model.facts import Found, Listing, Machine, MachineState, Unknown, WorkerInputs
from fleet.schema.model import HcloudProvider

if TYPE_CHECKING:
    from fleet.queues.http import Reader, Reply
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.queues.http import Reader


_PER_PAGE = 50


class Pagination(BaseModel):
    """Where a list goes on."""

    model_config = ConfigDict(strict=True, frozen=True)

    next_page: int | None


class Meta(BaseModel):
    """What the API says of a page beside what is on it."""

    model_config = ConfigDict(strict=True, frozen=True)

    pagination: Pagination


class _Paged(Protocol):
    @property
    def meta(self) -> Meta: ...


_Pages = TypeVar("_Pages", bound=_Paged)


def read_pages(
    ask: Callable[[Mapping[str, str]], _Pages], place: str, *, most: int
) -> Iterator[_Pages]:
    """Yield each page that `ask` gets with a query; SourceUnreachable where they do not end."""
    number, before = 1, 0
    while before < number <= most:
        page = ask({"page": str(number), "per_page": str(_PER_PAGE)})
        yield page
        following = page.meta.pagination.next_page
        if following is None:
            return
        before, number = number, following
    raise SourceUnreachable(f"{place}: its pages never end (page {before} leads to {number})")


ENDPOINT = "https://api.hetzner.cloud/v1"
_MAX_PAGES = 1_000
_DONE = frozenset({200, 201, 204})
_ANSWERS_FOR_ALL = frozenset({401, 403, 429})
"""What is answered so about one server would be answered so about every other."""
_MOMENT = "%Y%m%dT%H%M%SZ"
# A server in a state that says nothing still exists and costs money, so it counts as running.
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


class _RefusesAll(SourceUnreachable):
    """No other request with this token would be answered better now."""


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Type(_Answer):
    name: str
    architecture: str = ""


class _Image(_Answer):
    id: int
    name: str | None


class _Address(_Answer):
    ip: str


class _Attached(_Address):
    network: int


class _Firewall(_Answer):
    id: int


class _PublicNet(_Answer):
    ipv4: _Address | None
    ipv6: _Address | None
    firewalls: tuple[_Firewall, ...] = ()


class _Location(_Answer):
    name: str


class _Datacenter(_Answer):
    location: _Location


class _Labelled(_Answer):
    id: int
    labels: dict[str, str]


class _One(_Answer):
    server: _Labelled


class _Server(_Answer):
    id: int
    name: str
    status: str
    created: AwareDatetime
    labels: dict[str, str]
    server_type: _Type
    image: _Image | None = None
    public_net: _PublicNet
    private_net: tuple[_Attached, ...] = ()
    location: _Location | None = None
    datacenter: _Datacenter | None = None


class _Pagination(Pagination):
    total_entries: int | None


class _Meta(Meta):
    pagination: _Pagination


class _Page(_Answer):
    servers: tuple[_Server, ...]
    meta: _Meta


_ARCHITECTURE = "architecture"
"""The label that says what a server does not: Debian's name of its architecture."""
ARCHITECTURES = {"x86": "amd64", "arm": "arm64"}
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
TEMPORARY = "temporary"
"""The label of a server that exists only while an image is built or published, and for what."""
EXPIRES = "expires"
"""The label with the expiry of a server; not part of what it is made from."""


def write_moment(moment: datetime) -> str:
    """Return a moment as the value of a label, which may hold no colon."""
    return moment.astimezone(UTC).strftime(_MOMENT)


def _read_moment(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None  # none, or a person's: the next run writes its own


def _utc_now() -> datetime:
    return datetime.now(UTC)


class HcloudMachines:
    """What exists in one project, by the provider's own listing: Provider and MachineApi."""

    def __init__(
        self,
        provider: HcloudProvider,  # noqa: ARG002 - a machine elsewhere is still this fleet's
        token: str,
        *,
        base_url: str | None = None,
        now: Callable[[], datetime] = _utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._base = base_url or os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT
        self._now = now
        self._clock = clock

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose label `fleet` is exactly this name."""
        # httpx is slow to load, and most commands list nothing.
        from fleet.queues.http import Reader

        read_at = self._now()
        try:
            with Reader(self._base, clock=self._clock) as reader:
                servers = self._servers(reader, "fleet", fleet)
            machines = [_machine(server, _pool_of(server)) for server in servers]
        except SourceUnreachable as error:
            return Unknown(unknown=str(error))
        return Listing(
            read_at=read_at,
            machines=tuple(sorted(machines, key=lambda machine: machine.name)),
            notes_expiry=True,
            clock_ahead=reader.clock_ahead,
        )

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry of servers into a label; one that is gone is fine."""
        from fleet.queues.http import Reader

        noted = {EXPIRES: write_moment(until)}
        failed: list[SourceUnreachable] = []
        with Reader(self._base, clock=self._clock) as reader:
            for machine in sorted(machines):
                try:
                    self._label(reader, machine, noted)
                except _RefusesAll:
                    raise
                except SourceUnreachable as error:
                    # One that is locked or broken must not let those behind it expire.
                    failed.append(error)
        if failed:
            others = f" (and {len(failed) - 1} more failed)" if failed[1:] else ""
            raise SourceUnreachable(f"{failed[0]}{others}") from failed[0]

    def delete(self, machine_id: str) -> None:
        """Delete a server; one that is already gone is fine."""
        from fleet.queues.http import Reader

        with Reader(self._base, clock=self._clock) as reader:
            self._present(reader.change("DELETE", f"/servers/{machine_id}", self._headers, None))

    def find(self, key: str, value: str) -> tuple[Found, ...]:
        """Return the servers whose label of this key is exactly this value."""
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            return ()  # no server can carry it
        from fleet.queues.http import Reader

        with Reader(self._base, clock=self._clock) as reader:
            return tuple(map(_found, self._servers(reader, key, value)))

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Give a server the labels of a worker beside its own."""
        from fleet.queues.http import Reader

        labels = {**inputs.labels, _ARCHITECTURE: inputs.architecture}
        with Reader(self._base, clock=self._clock) as reader:
            if not self._label(reader, machine_id, labels):
                raise SourceUnreachable(f"{inputs.name}: there is no server {machine_id} any more")

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _label(self, reader: "Reader", machine_id: str, labels: Mapping[str, str]) -> bool:
        """Set labels of a server; False where it is gone."""
        path = f"/servers/{machine_id}"
        reply = self._present(reader.get(path, {}, self._headers))
        if reply is None:
            return False
        # Labels are set all at once: what else stands there is sent back.
        body = {"labels": reply.parse(_One).server.labels | dict(labels)}
        return self._present(reader.change("PUT", path, self._headers, body)) is not None

    def _present(self, reply: "Reply") -> "Reply | None":
        """Return an answer that is as it should be; None where the server is gone."""
        if reply.status == 404 and "not_found" in reply.body.decode(errors="replace"):  # noqa: PLR2004 - HTTP's own
            return None
        return self._good(reply)

    def _good(self, reply: "Reply") -> "Reply":
        """Return an answer that is as it should be."""
        if reply.status not in _DONE:
            kind = _RefusesAll if reply.status in _ANSWERS_FOR_ALL else SourceUnreachable
            raise kind(
                f"{reply.place} answered with status {reply.status}: {advise(reply.status)}"
            )
        return reply

    def _servers(self, reader: "Reader", key: str, value: str) -> tuple[_Server, ...]:
        asked = {"label_selector": f"{key}=={value}", "sort": "id:asc"}

        def ask(query: Mapping[str, str]) -> _Page:
            reply = reader.get("/servers", {**asked, **query}, self._headers)
            return self._good(reply).parse(_Page)

        pages = list(read_pages(ask, f"{reader.base}/servers", most=_MAX_PAGES))
        servers = {server.id: server for page in pages for server in page.servers}
        return _whole(servers, pages[-1].meta.pagination.total_entries, key, value)


def _whole(
    servers: dict[int, _Server], total: int | None, key: str, value: str
) -> tuple[_Server, ...]:
    if total is not None and total != len(servers):
        raise SourceUnreachable(
            f"the provider listed {len(servers)} servers of {key} {value}, but counts {total}: "
            "they changed while they were read, or the list is not whole; the next run tries again"
        )
    # Where an image is built or published, no worker ever is: others look after that machine.
    return tuple(
        server
        for server in servers.values()
        if server.labels.get(key) == value and TEMPORARY not in server.labels
    )


def advise(status: int) -> str:
    """Return what a person can do about an answer that is none."""
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


def _pool_of(server: _Server) -> str:
    pool = server.labels.get("pool")
    if not pool:
        # It is neither ours to delete nor to be counted, so nothing may rest on this list.
        raise SourceUnreachable(
            f"server {server.name!r} (id {server.id}) carries the label fleet but no label pool; "
            "remove the first if fleet did not make it, or give it the second"
        )
    return pool


def _found(server: _Server) -> Found:
    place = server.location or (server.datacenter.location if server.datacenter else None)
    settings = {
        "location": place.name if place else "",
        "network_ids": " ".join(str(each.network) for each in server.private_net),
        "firewall_ids": " ".join(str(each.id) for each in server.public_net.firewalls),
    }
    own = {EXPIRES, _ARCHITECTURE, "commit"}
    return Found(
        machine=_machine(server, server.labels.get("pool", "")),
        architecture=ARCHITECTURES.get(server.server_type.architecture, ""),
        labels={key: value for key, value in server.labels.items() if key not in own},
        settings={key: value for key, value in settings.items() if value},
    )


def _host(address: str) -> str:
    """Return an address; of a network, as a server has by IPv6, the one that its system takes."""
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
        expires=_read_moment(server.labels.get(EXPIRES)),
        address=_host(address.ip) if address else None,
    )


_KINDS = ("network", "firewall", "ssh_key", "placement_group")
_MOST_PAGES = 100


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
