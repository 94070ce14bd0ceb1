"""List, extend and delete the machines of a Hetzner Cloud project, by their labels.

An incomplete listing is Unknown, since missing machines would count as deleted.
"""

import ipaddress
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime

from fleet.clock import utc_now
from fleet.clouds.cloud import label_time, raise_first, read_label_time
from fleet.clouds.hcloud.api import (
    ARCHITECTURES,
    HcloudApi,
    HcloudReply,
    Labels,
    PagedReply,
    Reading,
    RefusesAll,
)
from fleet.errors import SourceUnreachable
from fleet.model.facts import FoundMachine, Listing, Machine, MachineState, Unknown, WorkerInputs
from fleet.model.values import Id, Line, Moment

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


class HcloudMachines:
    """The servers of one project. Implements Provider and MachineApi."""

    def __init__(
        self,
        token: str,
        *,
        base_url: str | None = None,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = HcloudApi(token, base_url=base_url, clock=clock)
        self._now = now

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines with exactly this value of label `fleet`; Unknown after an error."""
        read_at = self._now()
        try:
            with self._api.reading() as reading:
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
        with self._api.reading() as reading:
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
        with self._api.reading() as reading:
            reading.change("DELETE", f"/servers/{machine_id}", None)

    def find(self, key: str, value: str) -> tuple[FoundMachine, ...]:
        """Return the servers on which the label with this key is exactly this value."""
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            return ()  # not valid as a label
        with self._api.reading() as reading:
            return tuple(map(_read_found, _servers(reading, key, value)))

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Add a worker's labels to a server; raises SourceUnreachable if it does not exist."""
        labels = {**inputs.labels, _ARCHITECTURE: inputs.architecture}
        with self._api.reading() as reading:
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


class HcloudShared:
    """The shared resources of one project: networks, firewalls, ssh keys, placement groups."""

    def __init__(self, token: str, *, base_url: str | None = None) -> None:
        self._api = HcloudApi(token, base_url=base_url)

    def list(self, fleet: str) -> Mapping[str, str] | Unknown:
        """Map KIND/NAME to the id of each resource with exactly this value as label `fleet`.

        The key of a network's subnet is KIND/NAME/subnet.
        """
        try:
            return dict(self._ids(fleet))
        except SourceUnreachable as error:
            return Unknown.of(error)

    def _ids(self, fleet: str) -> Iterator[tuple[str, str]]:
        with self._api.reading() as reading:
            for kind in _KINDS:
                for part in _parts(reading, kind, f"fleet=={fleet}"):
                    if part.labels.get("fleet") == fleet:
                        yield f"{kind}/{part.name}", str(part.id)
                        for subnet in part.subnets:
                            yield f"{kind}/{part.name}/subnet", f"{part.id}-{subnet.ip_range}"


def _parts(reading: Reading, kind: str, selector: str) -> Iterator[_SharedReply]:
    for page in reading.pages(f"/{kind}s", {"label_selector": selector}, _Parts):
        yield from getattr(page, f"{kind}s")
