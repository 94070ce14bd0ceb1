"""This module makes machines at Hetzner that exist only while an image is built or published.

Each carries the mark and the label `temporary`, so that what a killed run left is found: by the
next run, and by `fleet sweep`. It is deleted whatever happens, with the key that opened it.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fleet.errors import FleetError, PublicationRefused, SourceUnreachable
from fleet.facts.versions import Rental
from fleet.images.hetzner import Found, Hetzner, OutOfStock, ServerType
from fleet.images.keys import KeyPair, new_key
from fleet.images.ssh import Ssh
from fleet.providers.hcloud import ARCHITECTURES, TEMPORARY

HOLDER = "holder"
_KINDS = ("servers", "ssh_keys")
_LONGEST_NAME = 63
_GB = 10**9
_SSH_TRIES = 60
_HETZNERS = {ours: theirs for theirs, ours in ARCHITECTURES.items()}


@dataclass(frozen=True)
class Entry:
    """How machines are entered, and what is done while one boots."""

    connect: Callable[[str, KeyPair], Ssh] = Ssh
    pause: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Order:
    """A machine that is wanted for a while."""

    purpose: Literal["build", "publish"]
    fleet: str
    image: str
    version: str
    architecture: str
    location: str
    holder: str
    """Who works: what carries the same word was left by a run that is dead."""
    stock_image: str | None = None
    """Hetzner's image that it boots; None: it boots the rescue system."""
    disk_bytes: int = 0
    """What its disk must hold at least."""

    @property
    def labels(self) -> dict[str, str]:
        """Return what such a machine is known by."""
        return {
            "fleet": self.fleet,
            TEMPORARY: self.purpose,
            "image": self.image,
            "version": self.version,
            HOLDER: self.holder,
        }

    @property
    def name(self) -> str:
        """Return its name, the same for the same version whoever works on it."""
        name = f"{self.fleet}-{self.purpose}-{self.image}-{self.version.lower()}"
        if len(name) <= _LONGEST_NAME:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        return f"{name[: _LONGEST_NAME - 13].rstrip('-')}-{digest}"


@dataclass(frozen=True)
class Rented:
    """A machine that lets us in, and since when it exists."""

    server: Found
    ssh: Ssh
    type: str
    location: str
    since: float

    def rental(self, provider: str) -> Rental:
        """Return what is to be remembered of it, until now."""
        seconds = math.ceil(time.monotonic() - self.since)
        return Rental(
            provider=provider, type=self.type, location=self.location, seconds=max(1, seconds)
        )


@contextmanager
def temporary_machine(api: Hetzner, order: Order, entry: Entry) -> Iterator[Rented]:
    """Yield a machine that lets us in; it is deleted whatever happens."""
    _clear(api, order)
    with new_key(order.name) as pair:
        try:
            since = time.monotonic()
            server, kind = _make(api, order, pair)
            address = server.public_net.ipv4
            if address is None:
                raise SourceUnreachable(f"server {order.name} was given no address")
            ssh = entry.connect(address.ip, pair)
            ssh.wait(entry.pause, _SSH_TRIES)
            yield Rented(server, ssh, kind, order.location, since)
        finally:
            _delete_all(api, _selector(order.labels))


def clean_temporary(api: Hetzner, fleet: str, before: datetime) -> tuple[str, ...]:
    """Delete temporary machines and keys that were made before a moment; say which."""
    return tuple(_removed(api, kind, each) for kind, each in _stale(api, fleet, before))


def stale_temporary(api: Hetzner, fleet: str, before: datetime) -> tuple[str, ...]:
    """Say which temporary machines and keys were made before a moment."""
    return tuple(_named(kind, each) for kind, each in _stale(api, fleet, before))


def _stale(api: Hetzner, fleet: str, before: datetime) -> list[tuple[str, Found]]:
    selector = f"fleet=={fleet},{TEMPORARY}"
    found = [(kind, each) for kind in _KINDS for each in _listed(api, kind, selector)]
    return [(kind, each) for kind, each in found if datetime.fromisoformat(each.created) < before]


def _removed(api: Hetzner, kind: str, found: Found) -> str:
    api.delete(kind, found.id)
    return _named(kind, found)


def _named(kind: str, found: Found) -> str:
    return f"{kind.rstrip('s').replace('_', ' ')} {found.name}"


def _clear(api: Hetzner, order: Order) -> None:
    """Delete what a dead run of ours left; raises where somebody else works on this version."""
    ours = {key: order.labels[key] for key in ("fleet", TEMPORARY, HOLDER)}
    _delete_all(api, _selector(ours))
    theirs = {key: order.labels[key] for key in ("fleet", TEMPORARY, "image", "version")}
    for server in _listed(api, "servers", _selector(theirs)):
        raise SourceUnreachable(
            f"somebody else is at this version now, or died at it: server {server.name} was made "
            f"at {server.created}; try again later, or see `fleet image publish --clean`"
        )


def _delete_all(api: Hetzner, selector: str) -> None:
    failed: FleetError | None = None
    for kind in _KINDS:
        try:
            for each in _listed(api, kind, selector):
                api.delete(kind, each.id)
        except FleetError as error:
            failed = failed or error
    if failed:
        raise failed


def _make(api: Hetzner, order: Order, pair: KeyPair) -> tuple[Found, str]:
    """Return a server that boots, and its type."""
    key = api.make_key({"name": order.name, "public_key": pair.public, "labels": order.labels})
    body = {
        "name": order.name,
        "image": _stock_image(api, order),
        "location": order.location,
        "ssh_keys": [key.id],
        "labels": order.labels,
        "start_after_create": order.stock_image is not None,
    }
    server, kind = _of_any_type(api, order, body)
    if order.stock_image is None:
        api.act(server, "enable_rescue", {"type": "linux64", "ssh_keys": [key.id]})
        api.act(server, "poweron")
    return server, kind


def _of_any_type(api: Hetzner, order: Order, body: Mapping[str, object]) -> tuple[Found, str]:
    """Make a server of the smallest type that has the disk and is in stock; return which.

    A snapshot boots only where the disk is as large as that of the server it is from.
    """
    fitting = sorted(
        (each.disk, price, each.name)
        for each in api.server_types()
        if each.deprecation is None
        and each.architecture == _HETZNERS.get(order.architecture)
        and each.disk * _GB >= order.disk_bytes
        and (price := _price(each, order.location)) is not None
    )
    if not fitting:
        raise PublicationRefused(
            f"Hetzner sells no server for {order.architecture} at {order.location} with a disk of "
            f"{order.disk_bytes} bytes"
        )
    for _, _, name in fitting:
        try:
            return api.make_server({**body, "server_type": name}), name
        except OutOfStock as error:
            out = error
    raise SourceUnreachable(f"{out} (the last of {len(fitting)} types at {order.location})")


def _price(sold: ServerType, location: str) -> float | None:
    at = [each for each in sold.prices if each.location == location]
    return float(at[0].price_hourly.get("net", "0")) if at else None


def _stock_image(api: Hetzner, order: Order) -> int:
    """Return Hetzner's image to boot; for the rescue system any does, as it is overwritten."""
    sold = api.system_images(_HETZNERS.get(order.architecture, ""))
    found = [each for each in sold if order.stock_image in (None, each.name)]
    if not found:
        raise PublicationRefused(
            f"Hetzner has no image {order.stock_image or ''} for {order.architecture}; it has: "
            f"{', '.join(sorted(each.name or '' for each in sold)) or 'none'}"
        )
    return max(found, key=lambda each: ("debian" in (each.name or ""), each.id)).id


def _listed(api: Hetzner, kind: str, selector: str) -> tuple[Found, ...]:
    return api.servers(selector) if kind == "servers" else api.ssh_keys(selector)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}=={text}" for key, text in labels.items())
