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

from fleet.clouds.hcloud.machines import (
    ARCHITECTURES,
    MAX_PAGES,
    TEMPORARY,
    advise,
    check_length,
    endless,
    endpoint,
)
from fleet.clouds.hcloud.ssh import KeyPair, Ssh, Writing, new_key, write_disk
from fleet.errors import FleetError, PublicationRefused, SourceUnreachable
from fleet.model.images import ImageDisk, Manifest, Rental, Upload

_MAX_ATTEMPTS = 8
_TIMEOUT_SECONDS = 10, 60
"""Time limits of a connection and of a reply, in seconds."""
_MAX_POLLS = 1200
_POLL_SECONDS = 3
_PER_PAGE = 50
_TAKEN_CODE = "uniqueness_error"
"""Error code if another object has the same name or key, perhaps from a call without reply."""
_RETRIABLE_CODES: frozenset[int | str] = frozenset(
    {
        *(408, 409, 423, 429),
        *("bad_gateway", "conflict", "locked", "maintenance", "rate_limit_exceeded"),
        *("server_error", "service_error", "timeout", "unavailable", _TAKEN_CODE),
    }
)
"""Error codes, or status codes of replies without one, after which a retry can help."""
_CLIENT_ERRORS = range(400, 500)
_OUT_OF_STOCK = frozenset({"placement_error", "resource_unavailable"})
Kind = Literal["servers", "ssh_keys", "images"]
Labels = Mapping[str, str]
T = TypeVar("T")


class OutOfStock(SourceUnreachable):
    """The server type is out of stock."""


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
        self.client = Client(token, self._base, application_name="fleet", timeout=_TIMEOUT_SECONDS)
        # The client would repeat any POST after a 504, and so create duplicate snapshots, whose
        # names are not unique.
        self.client._client._retry_max_retries = 0  # noqa: SLF001 - no setting of it is public
        trusted = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        self.client._client._session.verify = next(filter(None, trusted), True)  # noqa: SLF001 - same
        self._pause = pause
        self._tries = tries

    def labelled(self, kind: Kind, labels: Labels, *also: str) -> list[Any]:
        """Return the objects that have these labels and all label keys in `also`."""
        query: dict[str, object] = {"type": ["snapshot"]} if kind == "images" else {}
        query["label_selector"] = ",".join((*(f"{k}=={v}" for k, v in labels.items()), *also))
        found = self.list_all(kind, **query)
        # Check the server's selection, since the caller may delete these objects.
        with _reading(f"list of {kind}"):
            return [
                each
                for each in found
                if labels.items() <= each.labels.items() and {*also} <= each.labels.keys()
            ]

    def list_all(self, kind: str, **query: object) -> list[Any]:
        """Return all entries of a list; raises an error if some may be missing."""
        address = f"{self._base}/{kind}"
        found: list[Any] = []
        number, before = 1, 0
        while before < number <= MAX_PAGES:
            listed = getattr(self.client, kind).get_list
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

    def image(self, number: int | str) -> BoundImage | None:
        """Return an image; None if it does not exist."""
        call = partial(self.client.images.get_by_id, int(number))
        return self._call_with_retries(f"image {number}", call)

    def relabel(self, image: BoundImage, labels: Labels) -> None:
        """Replace the labels of an image."""
        update = partial(self.client.images.update, image, labels=dict(labels))
        if self._call_with_retries(f"image {image.id}", update) is None:
            raise SourceUnreachable(f"image {image.id} is gone from Hetzner")

    def delete(self, found: BoundServer | BoundSSHKey | BoundImage) -> None:
        """Delete an object; do nothing if it does not exist."""
        self._call_with_retries(f"deletion of {found.id}", found.delete)

    def create(self, kind: Kind, name: str, labels: Labels, make: Callable[[], T]) -> T:
        """Create a server or key, or return one that an unanswered request created.

        Raises OutOfStock if the server type is out of stock.
        """
        listed: Callable[[], list[T]] = partial(self.labelled, kind, labels)
        return self._get_existing(f"{_name_kind(kind)} {name}", make, listed)

    def act(self, server: BoundServer, action: Callable[[], BoundAction], name: str) -> None:
        """Run an idempotent action on a server, and wait until the action ends."""
        what = f"{name} of server {server.name}"
        begun = self._get_existing(what, action)
        if begun.status == "running":
            get = partial(self.client.actions.get_by_id, begun.id)
            begun = self._poll(what, get, "success", "error")
        if begun.status == "error":
            raise SourceUnreachable(f"Hetzner: {what} failed: {begun.error}")

    def rescue(self, server: BoundServer, key: BoundSSHKey) -> None:
        """Boot the rescue system. The owner of the key can log in there."""
        enable = partial(server.enable_rescue, "linux64", [str(key.id)])
        self.act(server, lambda: enable().action, "enable_rescue")
        self.act(server, server.power_on, "poweron")

    def snapshot(
        self, server: BoundServer, fleet: str, manifest: Manifest, sha256: str
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
        self.act(server, server.power_off, "poweroff")
        get = partial(self.client.servers.get_by_id, server.id or 0)
        self._poll(f"poweroff of server {server.name}", get, "off")

        def make() -> BoundImage:
            return server.create_image(said, "snapshot", dict(labels)).image

        what = f"create_image of server {server.name}"
        listed = partial(self.labelled, "images", labels)
        return self.await_image(self._get_existing(what, make, listed))

    def await_image(self, image: BoundImage) -> BoundImage:
        """Wait until an image can boot; raises SourceUnreachable if it never can."""
        what = f"snapshot {image.id}"
        get = partial(self.client.images.get_by_id, image.id or 0)
        now: BoundImage = self._poll(what, get, "available", "unavailable")
        if now.status == "unavailable":
            raise SourceUnreachable(f"{what} never became available at Hetzner")
        return now

    def _poll(self, what: str, get: Callable[[], Any], *final: str) -> Any:  # noqa: ANN401 - any object with a status
        """Return an object when its status is one of `final`; raises an error if it never is."""
        for _ in range(_MAX_POLLS):
            found = self._get_existing(what, get)
            if found.status in final:
                return found
            self._pause(_POLL_SECONDS)
        raise SourceUnreachable(f"Hetzner: {what} does not end")

    def _get_existing(
        self, what: str, call: Callable[[], T], listed: Callable[[], list[T]] | None = None
    ) -> T:
        found = self._call_with_retries(what, call, listed)
        if found is None:
            raise SourceUnreachable(f"{what} is gone from Hetzner")
        return found

    def _call_with_retries(
        self, what: str, call: Callable[[], T], listed: Callable[[], list[T]] | None = None
    ) -> T | None:
        """Repeat a call while a retry can help; None if the object does not exist.

        For a call that creates an object, `listed` returns objects that a call without reply
        created.
        """
        address = f"{self._base}: {what}"
        for attempt in range(self._tries):
            code: int | str = ""
            try:
                with _reading(address):
                    return call()
            except APIException as error:
                code = error.code
                if code == "not_found":
                    return None
                translated = _translate_error(address, error)
                if not isinstance(translated, SourceUnreachable) or (
                    listed and isinstance(translated, OutOfStock)
                ):
                    raise translated from error
                last = translated
            except (HCloudException, RequestException) as error:
                last = SourceUnreachable(f"{address} got no answer: {error}")
            except SourceUnreachable as error:
                last = error
            if listed and (found := listed()):
                return found[0]
            if listed and code == _TAKEN_CODE:
                raise PublicationRefused(
                    f"{what}: at Hetzner another has the same name or key, without fleet's "
                    "labels; rename or delete it"
                ) from last
            self._pause(2**attempt)
        raise SourceUnreachable(f"{last} ({self._tries} times)") from last


def _name_kind(kind: Kind) -> str:
    return kind.rstrip("s").replace("_", " ")


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise SourceUnreachable for a malformed reply, since the client does not check replies."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceUnreachable(f"{what} got an unexpected answer from Hetzner") from error


def _translate_error(what: str, error: APIException) -> FleetError:
    """Return the exception for an error: SourceUnreachable if a retry can help."""
    if error.code in _OUT_OF_STOCK:
        return OutOfStock(f"Hetzner: {error.code}: {error.message}")
    said = f"{what} was refused ({error.code}): "
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
    return tuple(f"{_name_kind(kind)} {each.name}" for kind, each in left)


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
    make_key = partial(api.client.ssh_keys.create, order.name, pair.public, order.labels)
    key = api.create("ssh_keys", order.name, order.labels, make_key)
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
    api: Hetzner, order: MachineOrder, options: Mapping[str, Any], size: int
) -> tuple[BoundServer, str]:
    """Create a server of the smallest type in stock with enough disk; return it and its type.

    `size` is in bytes. A snapshot boots only on a disk that is at least as large as its original.
    """
    sold: list[BoundServerType] = api.list_all("server_types")
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

    def make(kind: ServerType) -> BoundServer:
        create = partial(api.client.servers.create, order.name, kind, labels=order.labels)
        return create(**options).server

    for _, _, name in fitting:
        try:
            call = partial(make, ServerType(name=name))
            return api.create("servers", order.name, order.labels, call), name
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
    sold: list[BoundImage] = api.list_all("images", type=["system"], architecture=[wanted])
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
        of_it = {"image": version[0], "version": version[1]} if version else {}
        marks = {"fleet": self.fleet, **of_it}
        yield from map(_upload, self._api.labelled("images", marks, "image", "version"))

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Publish a disk as a complete snapshot; return it and the rental of a server, if any."""
        rental: Rental | None = None
        if known:
            taken = self._api.image(known.id)
            if taken is None:
                raise SourceUnreachable("a snapshot is gone from Hetzner; publish again")
        else:
            site, manifest = self._site, disk.manifest
            with disk.raw() as path:
                order = MachineOrder(
                    purpose="publish",
                    fleet=site.fleet,
                    image=manifest.image,
                    version=manifest.version,
                    architecture=manifest.architecture,
                    location=site.location,
                    holder=disk.holder,
                    disk_bytes=Path(path).stat().st_size,
                )
                with temporary_machine(self._api, order, site.entry) as rented:
                    write_disk(rented.ssh, Path(path), disk.tell, site.writing)
                    taken = self._api.snapshot(rented.server, site.fleet, manifest, disk.content)
                    rental = rented.rental(site.provider)
        taken = self._api.await_image(taken)
        self._api.relabel(taken, {**(taken.labels or {}), "state": "whole"})
        return _upload(taken), rental

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet in the labels of a snapshot; None if the snapshot does not exist."""
        found = self._api.image(upload_id)
        return None if found is None else (found.labels or {}).get("fleet", "")

    def remove(self, upload_id: str) -> None:
        """Delete a snapshot."""
        if found := self._api.image(upload_id):
            self._api.delete(found)

    def clean_others(self, before: datetime) -> tuple[str, ...]:
        """Delete temporary servers and keys created before a time; return their names."""
        return left_temporary(self._api, self.fleet, before, delete=True)


def _upload(image: BoundImage) -> Upload:
    with _reading(f"image {image.id}"):
        labels = image.labels or {}
        return Upload(
            id=str(image.id),
            image=labels["image"],
            version=labels["version"],
            sha256=labels.get("sha256", ""),
            whole=labels.get("state") == "whole",
            since=image.created,
        )
