"""Publish an image at Hetzner: boot a temporary server, write its disk, take a snapshot.

API calls are repeated if a retry can help. Objects are identified by name and labels, so that an
object whose creation got no reply is found and not created twice.

A temporary server and its ssh key are always deleted. A killed run may leave them; the next run or
`fleet machine delete --expired` finds them by their labels (owner and `temporary`).

A temporary server boots the rescue system; its disk is written over ssh and read back. The
snapshot is taken with the server off, and only of a disk that was read back. So a snapshot with
the label `partial` only needs a new label.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from hcloud import APIException, Client, HCloudException
from hcloud.actions import BoundAction
from hcloud.images import BoundImage, Image
from hcloud.locations import Location
from hcloud.server_types import BoundServerType, ServerType
from hcloud.servers import BoundServer
from hcloud.ssh_keys import BoundSSHKey
from requests import RequestException

from fleet.clouds.hcloud.api import (
    ARCHITECTURES,
    MAX_PAGES,
    advise,
    check_length,
    endless,
    endpoint,
)
from fleet.clouds.hcloud.machines import TEMPORARY
from fleet.clouds.hcloud.ssh import KeyPair, Ssh, Writing, new_key, write_disk
from fleet.errors import FleetError, PublicationRefused, SourceUnreachable
from fleet.model.disks import ImageDisk
from fleet.model.images import Manifest, Rental, Upload

_MAX_ATTEMPTS = 8
_TIMEOUT_SECONDS = 10, 60
"""Time limits of a connection and of a reply, in seconds."""
_MAX_POLLS = 1200
_POLL_SECONDS = 3
_PER_PAGE = 50
_RETRIABLE_CODES: frozenset[int | str] = frozenset(
    {
        *(408, 409, 423, 429),
        *("bad_gateway", "conflict", "locked", "maintenance", "rate_limit_exceeded"),
        *("server_error", "service_error", "timeout", "unavailable"),
    }
)
"""Error codes, or status codes of replies without one, after which a retry can help."""
_CLIENT_ERRORS = range(400, 500)
_OUT_OF_STOCK = frozenset({"placement_error", "resource_unavailable"})
Kind = Literal["servers", "ssh_keys"]
Labels = Mapping[str, str]
T = TypeVar("T")


class OutOfStock(SourceUnreachable):
    """The server type is out of stock."""


class _Taken(SourceUnreachable):
    """Another object already has this name or key."""


class _Gone(SourceUnreachable):
    """The server, key or image does not exist."""


class Hetzner:
    """One Hetzner project, accessed with Hetzner's official client."""

    def __init__(
        self,
        token: str,
        *,
        base_url: str | None = None,
        pause: Callable[[float], None],
        tries: int = _MAX_ATTEMPTS,
    ) -> None:
        self._base = base_url or endpoint()
        self._client = Client(
            token, self._base, application_name="fleet", timeout=_TIMEOUT_SECONDS
        )
        # The client would repeat any POST after a 504, and so create duplicate snapshots, whose
        # names are not unique.
        self._client._client._retry_max_retries = 0  # noqa: SLF001 - no setting of it is public
        trusted = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        self._client._client._session.verify = next(filter(None, trusted), True)  # noqa: SLF001 - same
        self._pause = pause
        self._tries = tries

    def images(self, labels: Labels, *also: str) -> list[BoundImage]:
        """Return the snapshots that have these labels and all label keys in `also`."""
        return self._list_labelled("images", labels, also, type=["snapshot"])

    def labelled(self, kind: Kind, labels: Labels, *also: str) -> list[Any]:
        """Return the servers or keys that have these labels and all label keys in `also`."""
        return self._list_labelled(kind, labels, also)

    def _list_labelled(
        self, kind: str, labels: Labels, also: tuple[str, ...], **query: object
    ) -> list[Any]:
        query["label_selector"] = ",".join((*(f"{k}=={v}" for k, v in labels.items()), *also))
        found = self._list_all(kind, getattr(self._client, kind).get_list, query)
        # Check the server's selection, since the caller may delete these objects.
        with _reading(f"list of {kind}"):
            return [
                each
                for each in found
                if labels.items() <= each.labels.items() and {*also} <= each.labels.keys()
            ]

    def system_images(self, architecture: str) -> list[BoundImage]:
        """Return Hetzner's own images for an architecture, given by Hetzner's name."""
        query = {"type": ["system"], "architecture": [architecture]}
        return self._list_all("images", self._client.images.get_list, query)

    def server_types(self) -> list[BoundServerType]:
        """Return the server types that Hetzner sells."""
        return self._list_all("server_types", self._client.server_types.get_list, {})

    def image(self, number: int | str) -> BoundImage | None:
        """Return an image; None if it does not exist."""
        call = partial(self._client.images.get_by_id, int(number))
        return self._call_with_retries(f"image {number}", call)

    def relabel(self, image: BoundImage, labels: Labels) -> None:
        """Replace the labels of an image."""
        update = partial(self._client.images.update, image, labels=dict(labels))
        if self._call_with_retries(f"image {image.id}", update) is None:
            raise SourceUnreachable(f"image {image.id} is gone from Hetzner")

    def delete(self, found: BoundServer | BoundSSHKey) -> None:
        """Delete a server or a key; do nothing if it does not exist."""
        self._call_with_retries(f"deletion of {found.id}", found.delete)

    def delete_image(self, number: str) -> None:
        """Delete an image; do nothing if it does not exist."""
        delete = partial(self._client.images.delete, Image(id=int(number)))
        self._call_with_retries(f"deletion of image {number}", delete)

    def make_key(self, name: str, public_key: str, labels: Labels) -> BoundSSHKey:
        """Create an ssh key, or return the key that an earlier, unanswered request created."""
        make = partial(self._client.ssh_keys.create, name, public_key, dict(labels))
        listed = partial(self.labelled, "ssh_keys", labels)
        made: BoundSSHKey = self._make(f"ssh key {name}", make, listed)
        return made

    def make_server(self, name: str, labels: Labels, **options: Any) -> BoundServer:  # noqa: ANN401 - the client's own
        """Create a server, or return one that an unanswered request created; raises OutOfStock."""

        def make() -> BoundServer:
            return self._client.servers.create(name, labels=dict(labels), **options).server

        listed = partial(self.labelled, "servers", labels)
        made: BoundServer = self._make(f"server {name}", make, listed)
        return made

    def act(self, server: BoundServer, action: Callable[[], BoundAction], name: str) -> None:
        """Run an idempotent action on a server, and wait until the action ends."""
        what = f"{name} of server {server.name}"
        begun = self._get_existing(what, action)
        for _ in range(_MAX_POLLS):
            if begun.status == "error":
                raise SourceUnreachable(f"Hetzner: {what} failed: {begun.error}")
            if begun.status == "success":
                return
            self._pause(_POLL_SECONDS)
            begun = self._get_existing(what, partial(self._client.actions.get_by_id, begun.id))
        raise SourceUnreachable(f"Hetzner: action {begun.id} does not end")

    def rescue(self, server: BoundServer, key: BoundSSHKey) -> None:
        """Boot the rescue system. The owner of the key can log in there."""
        enable = partial(server.enable_rescue, "linux64", [str(key.id)])
        self.act(server, lambda: enable().action, "enable_rescue")
        self.act(server, server.power_on, "poweron")

    def snapshot(self, server: BoundServer, description: str, labels: Labels) -> BoundImage:
        """Power a server off and take a snapshot of its disk; return it when it can boot."""
        self.act(server, server.power_off, "poweroff")
        self._await_off(server)

        def make() -> BoundImage:
            return server.create_image(description, "snapshot", dict(labels)).image

        what = f"create_image of server {server.name}"
        taken = partial(self.images, labels)
        return self.await_image(self._make(what, make, taken))

    def await_image(self, image: BoundImage) -> BoundImage:
        """Wait until an image can boot; raises SourceUnreachable if it never can."""
        for _ in range(_MAX_POLLS):
            now = self.image(image.id or 0)
            if now is None or now.status == "unavailable":
                break
            if now.status == "available":
                return now
            self._pause(_POLL_SECONDS)
        raise SourceUnreachable(f"snapshot {image.id} never became available at Hetzner")

    def _await_off(self, server: BoundServer) -> None:
        get = partial(self._client.servers.get_by_id, server.id or 0)
        for _ in range(_MAX_POLLS):
            if self._get_existing(f"server {server.name}", get).status == "off":
                return
            self._pause(_POLL_SECONDS)
        raise SourceUnreachable(f"server {server.name} never became off")

    def _make(self, what: str, make: Callable[[], T], listed: Callable[[], list[T]]) -> T:
        """Create an object. Return an existing one if a request without reply created it."""
        for attempt in range(self._tries):
            try:
                return self._call_once(what, make)
            except OutOfStock:
                raise
            except SourceUnreachable as error:
                last = error
            # A call without a reply may have created the object.
            if found := listed():
                return found[0]
            if isinstance(last, _Taken):
                raise PublicationRefused(
                    f"{what}: at Hetzner another has the same name or key, without fleet's "
                    "labels; rename or delete it"
                ) from last
            self._pause(2**attempt)
        raise SourceUnreachable(f"{last} ({self._tries} times)") from last

    def _list_all(
        self, kind: str, listed: Callable[..., Any], query: Mapping[str, Any]
    ) -> list[Any]:
        """Return all entries of a list; raises an error if some may be missing."""
        address = f"{self._base}/{kind}"
        found: list[Any] = []
        number, before = 1, 0
        while before < number <= MAX_PAGES:
            call = partial(listed, page=number, per_page=_PER_PAGE, **query)
            page = self._get_existing(f"list of {kind}", call)
            found += page[0]
            pagination = page.meta.pagination
            if pagination is None:
                raise SourceUnreachable(f"Hetzner did not return the pages of {address}")
            is_last = pagination.next_page is None
            check_length(address, len(found), pagination.total_entries, is_last=is_last)
            if pagination.next_page is None:
                return found
            before, number = number, pagination.next_page
        raise endless(address, before, number)

    def _get_existing(self, what: str, call: Callable[[], T]) -> T:
        found = self._call_with_retries(what, call)
        if found is None:
            raise SourceUnreachable(f"{what} is gone from Hetzner")
        return found

    def _call_with_retries(self, what: str, call: Callable[[], T]) -> T | None:
        """Repeat a call while a retry can help; None if the object does not exist."""
        for attempt in range(self._tries):
            try:
                return self._call_once(what, call)
            except _Gone:
                return None
            except SourceUnreachable as error:
                last = error
            self._pause(2**attempt)
        raise SourceUnreachable(f"{last} ({self._tries} times)") from last

    def _call_once(self, what: str, call: Callable[[], T]) -> T:
        """Call the API once; raises PublicationRefused for an error that a retry would repeat."""
        try:
            with _reading(f"{self._base}: {what}"):
                return call()
        except APIException as error:
            raise _translate_error(f"{self._base}: {what}", error) from error
        except (HCloudException, RequestException) as error:
            raise SourceUnreachable(f"{self._base}: {what} got no answer: {error}") from error


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise SourceUnreachable for a malformed reply, since the client does not check replies."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceUnreachable(f"{what} got an unexpected answer from Hetzner") from error


def _translate_error(what: str, error: APIException) -> FleetError:
    """Return the exception of fleet for an error of Hetzner's API."""
    said = f"{what} was refused ({error.code}): "
    if error.code == "not_found":
        return _Gone(f"{said}{error.message}")
    if error.code in _OUT_OF_STOCK:
        return OutOfStock(f"Hetzner: {error.code}: {error.message}")
    if error.code == "uniqueness_error":
        return _Taken(f"{said}{error.message}")
    if error.code in _RETRIABLE_CODES or (
        isinstance(error.code, int) and error.code not in _CLIENT_ERRORS
    ):
        return SourceUnreachable(f"{said}{error.message}")
    why = advise(error.code) if isinstance(error.code, int) else error.message
    return PublicationRefused(f"{said}{why}")


HOLDER = "holder"
_KINDS: tuple[Kind, ...] = ("servers", "ssh_keys")
_MAX_NAME_LENGTH = 63
_GB = 10**9
_SSH_TRIES = 60
_HETZNER_ARCHITECTURES = {ours: theirs for theirs, ours in ARCHITECTURES.items()}


@dataclass(frozen=True)
class SshAccess:
    """Functions that connect to a machine over ssh, and that pause."""

    connect: Callable[[str, KeyPair], Ssh] = Ssh
    pause: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class MachineOrder:
    """A request for a temporary machine that builds or publishes an image."""

    purpose: Literal["build", "publish"]
    fleet: str
    image: str
    version: str
    architecture: str
    location: str
    holder: str
    """Word in the run's lock file. Older machines with this word are leftovers of a killed run."""
    stock_image: str | None = None
    """Hetzner's name or id of the image to boot; None for the rescue system."""
    disk_bytes: int = 0
    """Minimum size of the machine's disk in bytes."""

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels by which fleet finds the machine."""
        return {
            "fleet": self.fleet,
            TEMPORARY: self.purpose,
            "image": self.image,
            "version": self.version,
            HOLDER: self.holder,
        }

    @property
    def name(self) -> str:
        """Return the machine's name, which is the same in every run for the same version."""
        name = f"{self.fleet}-{self.purpose}-{self.image}-{self.version.lower()}"
        if len(name) <= _MAX_NAME_LENGTH:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        return f"{name[: _MAX_NAME_LENGTH - 13].rstrip('-')}-{digest}"


@dataclass(frozen=True)
class Rented:
    """A rented machine with an ssh connection. `since` is the monotonic time of its creation."""

    server: BoundServer
    ssh: Ssh
    type: str
    location: str
    since: float

    def rental(self, provider: str) -> Rental:
        """Return the rental until now: provider, machine type, location and seconds."""
        seconds = math.ceil(time.monotonic() - self.since)
        return Rental(
            provider=provider, type=self.type, location=self.location, seconds=max(1, seconds)
        )


@contextmanager
def temporary_machine(api: Hetzner, order: MachineOrder, entry: SshAccess) -> Iterator[Rented]:
    """Create a temporary machine, yield it connected, and delete it in all cases."""
    _clear(api, order)
    with new_key(order.holder, order.name) as pair:
        try:
            since = time.monotonic()
            server, kind = _make(api, order, pair)
            if server.public_net is None or server.public_net.ipv4 is None:
                raise SourceUnreachable(f"server {order.name} was given no address")
            ssh = entry.connect(server.public_net.ipv4.ip, pair)
            ssh.wait(entry.pause, _SSH_TRIES)
            yield Rented(server, ssh, kind, order.location, since)
        finally:
            _delete_all(api, order.labels)


def left_temporary(api: Hetzner, fleet: str, before: datetime, *, delete: bool) -> tuple[str, ...]:
    """Return temporary machines and keys created before a time; `delete` also deletes them."""
    mark = {"fleet": fleet}
    found = [(kind, each) for kind in _KINDS for each in api.labelled(kind, mark, TEMPORARY)]
    with _reading("the list of temporary machines"):
        left = [(kind, each) for kind, each in found if each.created < before]
    for _, each in left if delete else ():
        api.delete(each)
    return tuple(f"{kind.rstrip('s').replace('_', ' ')} {each.name}" for kind, each in left)


def _clear(api: Hetzner, order: MachineOrder) -> None:
    """Delete leftovers of our killed run; raises an error if another run has this version."""
    ours = {key: order.labels[key] for key in ("fleet", TEMPORARY, HOLDER)}
    _delete_all(api, ours)
    theirs = {key: order.labels[key] for key in ("fleet", TEMPORARY, "image", "version")}
    for server in api.labelled("servers", theirs):
        raise SourceUnreachable(
            f"another run works on this version, or died: server {server.name} was created at "
            f"{server.created}; try again later, or run "
            f"`fleet image publish {theirs['image']} --clean`"
        )


def _delete_all(api: Hetzner, labels: Labels) -> None:
    failed: FleetError | None = None
    for kind in _KINDS:
        try:
            for each in api.labelled(kind, labels):
                api.delete(each)
        except FleetError as error:
            failed = failed or error
    if failed:
        raise failed


def _make(api: Hetzner, order: MachineOrder, pair: KeyPair) -> tuple[BoundServer, str]:
    """Create a server; return the booting server and the name of its type."""
    stock = _stock_image(api, order)
    key = api.make_key(order.name, pair.public, order.labels)
    options = {
        "image": Image(id=stock.id),
        "location": Location(name=order.location),
        "ssh_keys": [key],
        "start_after_create": order.stock_image is not None,
    }
    size = max(order.disk_bytes, int((stock.disk_size or 0) * _GB))
    server, kind = _make_smallest(api, order, options, size)
    if order.stock_image is None:
        api.rescue(server, key)
    return server, kind


def _make_smallest(
    api: Hetzner, order: MachineOrder, options: Mapping[str, object], size: int
) -> tuple[BoundServer, str]:
    """Create a server of the smallest type in stock with enough disk; return it and its type.

    `size` is in bytes. A snapshot boots only on a disk that is at least as large as its original.
    """
    sold = api.server_types()
    with _reading("the list of server types"):
        fitting = sorted(
            (each.disk or 0, price, each.name or "")
            for each in sold
            if each.architecture == _HETZNER_ARCHITECTURES.get(order.architecture)
            and (each.disk or 0) * _GB >= size
            and (price := _price(each, order.location)) is not None
        )
    if not fitting:
        raise PublicationRefused(
            f"Hetzner sells no server for {order.architecture} at {order.location} with a disk of "
            f"{size} bytes"
        )
    for _, _, name in fitting:
        kind = ServerType(name=name)
        try:
            return api.make_server(order.name, order.labels, server_type=kind, **options), name
        except OutOfStock as error:
            out = error
    raise SourceUnreachable(f"{out} (the last of {len(fitting)} types at {order.location})")


def _price(sold: BoundServerType, location: str) -> float | None:
    """Return the net price per hour at a location; None if the type is no longer sold there."""
    phased_out = {each.location.name for each in sold.locations or () if each.deprecation}
    at = [each for each in sold.prices or () if each["location"] == location]
    if not at or location in phased_out:
        return None
    return float(at[0]["price_hourly"].get("net", "0"))


def _stock_image(api: Hetzner, order: MachineOrder) -> BoundImage:
    """Return the image to boot, by name or id; any image for the rescue system."""
    wanted = _HETZNER_ARCHITECTURES.get(order.architecture, "")
    if (order.stock_image or "").isdecimal():
        image = api.image(order.stock_image or "")
        if image is None or image.architecture != wanted:
            raise PublicationRefused(f"Hetzner has no image {order.stock_image} for {wanted}")
        return image
    sold = api.system_images(wanted)
    found = [each for each in sold if order.stock_image in (None, each.name)]
    if not found:
        raise PublicationRefused(
            f"Hetzner has no image {order.stock_image or ''} for {order.architecture}; it has: "
            f"{', '.join(sorted(each.name or '' for each in sold)) or 'none'}"
        )
    return max(found, key=lambda each: ("debian" in (each.name or ""), each.id or 0))


LABEL_DIGEST_LENGTH = 32
"""Number of hex digits of a checksum in a label. The description has all digits."""


@dataclass(frozen=True)
class HcloudSite:
    """A location at Hetzner, and functions that connect to machines there."""

    fleet: str
    location: str
    provider: str = ""
    """Name of the provider in fleet.yaml."""
    entry: SshAccess = field(default_factory=SshAccess)
    writing: Writing = field(default_factory=Writing)


class HcloudPublisher:
    """The publisher of snapshots in one Hetzner project."""

    kind, place, noun = "hcloud", "Hetzner", "snapshot"

    def __init__(self, site: HcloudSite, token: str, *, base_url: str | None = None) -> None:
        self.fleet = site.fleet
        self._site = site
        self._api = Hetzner(token, base_url=base_url, pause=site.entry.pause)

    def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:
        """Yield the snapshots with this fleet's label, of one image version or of all."""
        if version:
            marks = {"fleet": self.fleet, "image": version[0], "version": version[1]}
            yield from map(_upload, self._api.images(marks))
        else:
            marks = {"fleet": self.fleet}
            yield from map(_upload, self._api.images(marks, "image", "version"))

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Publish a disk as a complete snapshot; return it and the rental of a server, if any."""
        if known:
            taken, rental = self._api.image(known.id), None
        else:
            taken, rental = self._take(disk)
        if taken is None:
            raise SourceUnreachable("a snapshot is gone from Hetzner; publish again")
        taken = self._api.await_image(taken)
        self._api.relabel(taken, {**_labels(taken), "state": "whole"})
        return _upload(taken), rental

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet in the labels of a snapshot; None if the snapshot does not exist."""
        found = self._api.image(upload_id)
        return None if found is None else _labels(found).get("fleet", "")

    def remove(self, upload_id: str) -> None:
        """Delete a snapshot."""
        self._api.delete_image(upload_id)

    def clean_others(self, before: datetime) -> tuple[str, ...]:
        """Delete temporary servers and keys created before a time; return their names."""
        return left_temporary(self._api, self.fleet, before, delete=True)

    def _take(self, disk: ImageDisk) -> tuple[BoundImage, Rental]:
        """Write a disk on a temporary server; return its snapshot and the server's rental."""
        site, manifest = self._site, disk.manifest
        with disk.raw() as path:
            raw = Path(path)
            order = MachineOrder(
                purpose="publish",
                fleet=site.fleet,
                image=manifest.image,
                version=manifest.version,
                architecture=manifest.architecture,
                location=site.location,
                holder=disk.holder,
                disk_bytes=raw.stat().st_size,
            )
            with temporary_machine(self._api, order, site.entry) as rented:
                write_disk(rented.ssh, raw, disk.tell, site.writing)
                taken = take_snapshot(
                    *(self._api, rented.server, site.fleet, manifest, disk.content)
                )
                return taken, rented.rental(site.provider)


def take_snapshot(
    api: Hetzner, server: BoundServer, fleet: str, manifest: Manifest, sha256: str
) -> BoundImage:
    """Power a server off, and return a snapshot of its disk with the label `partial`."""
    labels = {
        "fleet": fleet,
        "image": manifest.image,
        "version": manifest.version,
        "sha256": sha256[:LABEL_DIGEST_LENGTH],
        "state": "partial",
    }
    said = f"{fleet}: {manifest.image} {manifest.version} sha256:{sha256}"
    return api.snapshot(server, said, labels)


def _labels(image: BoundImage) -> dict[str, str]:
    return image.labels or {}


def _upload(image: BoundImage) -> Upload:
    with _reading(f"image {image.id}"):
        labels = _labels(image)
        return Upload(
            id=str(image.id),
            image=labels["image"],
            version=labels["version"],
            sha256=labels.get("sha256", ""),
            whole=labels.get("state") == "whole",
            since=image.created,
        )
