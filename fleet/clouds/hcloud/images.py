"""Publish an image at Hetzner: boot a temporary machine, write its disk, take a snapshot.

API calls are repeated if a retry can help. Objects are identified by name and labels, so that an
object whose creation got no reply is found and not created twice.

A temporary machine and its ssh key are always deleted. A killed run may leave them; the next run
or `fleet machine delete --expired` finds them by their labels (owner and `temporary`).

The machine boots the rescue system; its disk is written over ssh and read back. The snapshot is
taken with the machine off, and only of a disk that was read back. So a snapshot with the label
`partial` only needs a new label.
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
from typing import Any, Literal, Self, TypeVar

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
from fleet.clouds.hcloud.ssh import KeyPair, Ssh, new_key, write_disk
from fleet.errors import FleetError, PublicationRefused, SourceUnreachable
from fleet.model.images import ImageDisk, Rental, Tell, Upload

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
_KINDS = {"servers": "server", "ssh_keys": "ssh key"}
"""Lists of objects that a temporary machine needs, with the name of one object."""
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
        pause: Callable[[float], None] = time.sleep,
        tries: int = _MAX_ATTEMPTS,
    ) -> None:
        self._base = base_url or endpoint()
        self.client = Client(token, self._base, application_name="fleet", timeout=_TIMEOUT_SECONDS)
        # The client would repeat any POST after a 504, and so create duplicate snapshots, whose
        # names are not unique.
        self.client._client._retry_max_retries = 0  # noqa: SLF001 - no setting of it is public
        trusted = (os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        self.client._client._session.verify = next(filter(None, trusted), True)  # noqa: SLF001 - same
        self.pause = pause
        self._tries = tries

    def labelled(self, kind: str, labels: Labels, *also: str) -> list[Any]:
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
            page = self.call(f"list of {kind}", call)
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
        return self.find(f"image {number}", partial(self.client.images.get_by_id, int(number)))

    def complete(self, image: BoundImage) -> BoundImage:
        """Change the label of a bootable snapshot to `whole`; return the snapshot."""
        labels = {**(image.labels or {}), "state": "whole"}
        update = partial(self.client.images.update, image, labels=labels)
        return self.call(f"image {image.id}", update)

    def await_image(self, image: BoundImage) -> BoundImage:
        """Wait until an image can boot; raises SourceUnreachable if it never can."""
        get = partial(self.client.images.get_by_id, image.id or 0)
        found: BoundImage = self.poll(f"snapshot {image.id}", get, "available", "unavailable")
        if found.status == "unavailable":
            raise SourceUnreachable(f"snapshot {image.id} never became available at Hetzner")
        return found

    def delete(self, found: BoundServer | BoundSSHKey | BoundImage) -> None:
        """Delete an object; do nothing if it does not exist."""
        self.find(f"deletion of {found.id}", found.delete)

    def act(self, server: BoundServer, action: Callable[[], BoundAction], name: str) -> None:
        """Run an idempotent action on a server, and wait until the action ends."""
        what = f"{name} of server {server.name}"
        get = partial(self.client.actions.get_by_id, self.call(what, action).id)
        if (ended := self.poll(what, get, "success", "error")).status == "error":
            raise SourceUnreachable(f"Hetzner: {what} failed: {ended.error}")

    def poll(self, what: str, get: Callable[[], Any], *final: str) -> Any:  # noqa: ANN401 - any object with a status
        """Return an object when its status is one of `final`; raises an error if it never is."""
        for _ in range(_MAX_POLLS):
            found = self.call(what, get)
            if found.status in final:
                return found
            self.pause(_POLL_SECONDS)
        raise SourceUnreachable(f"Hetzner: {what} does not end")

    def call(
        self, what: str, call: Callable[[], T], listed: Callable[[], list[T]] | None = None
    ) -> T:
        """Return the result of `find`; raises SourceUnreachable if the object does not exist."""
        found = self.find(what, call, listed)
        if found is None:
            raise SourceUnreachable(f"{what} is gone from Hetzner")
        return found

    def find(
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
                code, last = error.code, _translate_error(address, error)
                if code == "not_found":
                    return None
                is_sold_out = bool(listed) and isinstance(last, OutOfStock)
                if is_sold_out or not isinstance(last, SourceUnreachable):
                    raise last from error
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
            self.pause(2**attempt)
        raise SourceUnreachable(f"{last} ({self._tries} times)") from last


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
    is_number = isinstance(error.code, int)
    if error.code in _RETRIABLE_CODES or (is_number and error.code not in _CLIENT_ERRORS):
        return SourceUnreachable(f"{said}{error.message}")
    return PublicationRefused(said + (advise(int(error.code)) if is_number else error.message))


@dataclass(frozen=True)
class HcloudSite:
    """A location in a project at Hetzner, and functions that use a machine there."""

    api: Hetzner
    fleet: str
    location: str
    provider: str = ""
    """Name of the provider in fleet.yaml."""
    connect: Callable[[str, KeyPair], Ssh] = Ssh
    write: Callable[[Ssh, Path, Tell], None] = write_disk


HOLDER = "holder"
_MAX_NAME_LENGTH = 63
_GB = 10**9
_SSH_TRIES = 60
_HETZNER_ARCHITECTURES = {ours: theirs for theirs, ours in ARCHITECTURES.items()}
LABEL_DIGEST_LENGTH = 32
"""Number of hex digits of a checksum in a label. The description has all digits."""


@dataclass(kw_only=True)
class TemporaryMachine:
    """A machine that only builds or publishes an image, with an ssh connection while rented."""

    site: HcloudSite
    purpose: Literal["build", "publish"]
    image: str
    version: str
    architecture: str
    holder: str
    """Word in the run's lock file. Older machines with this word are leftovers of a killed run."""
    stock_image: str | None = None
    """Hetzner's name or id of the image to boot; None for the rescue system."""
    disk_bytes: int = 0
    """Minimum size of the machine's disk in bytes."""
    ssh: Ssh = field(init=False)

    def __post_init__(self) -> None:
        self._api, self._since = self.site.api, time.monotonic()
        self._owner = {"fleet": self.site.fleet, TEMPORARY: self.purpose}
        self._version = {"image": self.image, "version": self.version}
        self.labels = {**self._owner, **self._version, HOLDER: self.holder}
        # The name is the same in every run for the same version.
        name = f"{self.site.fleet}-{self.purpose}-{self.image}-{self.version.lower()}"
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        short = f"{name[: _MAX_NAME_LENGTH - 13].rstrip('-')}-{digest}"
        self.name = name if len(name) <= _MAX_NAME_LENGTH else short

    @contextmanager
    def rented(self) -> Iterator[Self]:
        """Create the machine, yield it connected, and delete it in all cases."""
        # Delete leftovers of a killed run of this computer. Another run may have this version.
        self._delete_all({**self._owner, HOLDER: self.holder})
        for server in self._api.labelled("servers", {**self._owner, **self._version}):
            raise SourceUnreachable(
                f"another run works on this version, or died: server {server.name} was created "
                f"at {server.created}; try again later, or run "
                f"`fleet image publish {self.image} --clean`"
            )
        with new_key(self.holder, self.name) as pair:
            try:
                self._since = time.monotonic()
                server = self._server = self._create(pair)
                if server.public_net is None or server.public_net.ipv4 is None:
                    raise SourceUnreachable(f"server {self.name} was given no address")
                self.ssh = self.site.connect(server.public_net.ipv4.ip, pair)
                self.ssh.wait(self._api.pause, _SSH_TRIES)
                yield self
            finally:
                self._delete_all(self.labels)

    def rental(self) -> Rental:
        """Return the rental until now: provider, machine type, location and seconds."""
        return Rental(
            provider=self.site.provider,
            type=self._type,
            location=self.site.location,
            seconds=max(1, math.ceil(time.monotonic() - self._since)),
        )

    def snapshot(self, sha256: str) -> BoundImage:
        """Power the machine off, and return a snapshot of its disk with the label `partial`."""
        api, server = self._api, self._server
        labels = {
            "fleet": self.site.fleet,
            **self._version,
            "sha256": sha256[:LABEL_DIGEST_LENGTH],
            "state": "partial",
        }
        said = f"{self.site.fleet}: {self.image} {self.version} sha256:{sha256}"
        api.act(server, server.power_off, "poweroff")
        get = partial(api.client.servers.get_by_id, server.id or 0)
        api.poll(f"poweroff of server {server.name}", get, "off")

        def make() -> BoundImage:
            return server.create_image(said, "snapshot", dict(labels)).image

        listed = partial(api.labelled, "images", labels)
        return api.await_image(api.call(f"create_image of server {server.name}", make, listed))

    def _create(self, pair: KeyPair) -> BoundServer:
        """Create the ssh key, and a server of the smallest type in stock with enough disk."""
        api, stock = self._api, self._find_stock_image()
        make_key = partial(api.client.ssh_keys.create, self.name, pair.public, self.labels)
        listed = partial(api.labelled, "ssh_keys", self.labels)
        key: BoundSSHKey = api.call(f"ssh key {self.name}", make_key, listed)

        def make() -> BoundServer:
            return api.client.servers.create(
                self.name,
                ServerType(name=self._type),
                Image(id=stock.id),
                ssh_keys=[key],
                location=Location(name=self.site.location),
                labels=self.labels,
                start_after_create=self.stock_image is not None,
            ).server

        # A snapshot boots only on a disk that is at least as large as its original.
        fitting = self._list_types(max(self.disk_bytes, int((stock.disk_size or 0) * _GB)))
        for self._type in fitting:
            listed = partial(api.labelled, "servers", self.labels)
            try:
                server: BoundServer = api.call(f"server {self.name}", make, listed)
                break
            except OutOfStock as error:
                out = error
        else:
            place = self.site.location
            raise SourceUnreachable(f"{out} (the last of {len(fitting)} types at {place})")
        if self.stock_image is None:
            enable = partial(server.enable_rescue, "linux64", [str(key.id)])
            api.act(server, lambda: enable().action, "enable_rescue")
            api.act(server, server.power_on, "poweron")
        return server

    def _list_types(self, size: int) -> list[str]:
        """Return the server types with a disk of `size` bytes: the smallest, cheapest first."""
        place = self.site.location
        sold: list[BoundServerType] = self._api.list_all("server_types")
        with _reading("the list of server types"):
            fitting = sorted(
                (each.disk or 0, price, each.name or "")
                for each in sold
                if each.architecture == _HETZNER_ARCHITECTURES.get(self.architecture)
                and (each.disk or 0) * _GB >= size
                and (price := _price(each, place)) is not None
            )
        if not fitting:
            raise PublicationRefused(
                f"Hetzner sells no server for {self.architecture} at {place} with a disk of "
                f"{size} bytes"
            )
        return [name for _, _, name in fitting]

    def _find_stock_image(self) -> BoundImage:
        """Return the image to boot, by name or id; any image for the rescue system."""
        named, wanted = self.stock_image, _HETZNER_ARCHITECTURES.get(self.architecture, "")
        if named and named.isdecimal():
            image = self._api.image(named)
            if image is None or image.architecture != wanted:
                raise PublicationRefused(f"Hetzner has no image {named} for {wanted}")
            return image
        sold: list[BoundImage] = self._api.list_all(
            "images", type=["system"], architecture=[wanted]
        )
        found = [each for each in sold if named in (None, each.name)]
        if not found:
            raise PublicationRefused(
                f"Hetzner has no image {named or ''} for {self.architecture}; it has: "
                f"{', '.join(sorted(each.name or '' for each in sold)) or 'none'}"
            )
        return max(found, key=lambda each: ("debian" in (each.name or ""), each.id or 0))

    def _delete_all(self, labels: Labels) -> None:
        """Delete the machines and keys with these labels. An error of one stops no other kind."""
        failed: FleetError | None = None
        for kind in _KINDS:
            try:
                for each in self._api.labelled(kind, labels):
                    self._api.delete(each)
            except FleetError as error:
                failed = failed or error
        if failed:
            raise failed


def left_temporary(api: Hetzner, fleet: str, before: datetime, *, delete: bool) -> tuple[str, ...]:
    """Return temporary machines and keys created before a time; `delete` also deletes them."""
    mark = {"fleet": fleet}
    listed = ((name, api.labelled(kind, mark, TEMPORARY)) for kind, name in _KINDS.items())
    found = [(name, each) for name, objects in listed for each in objects]
    with _reading("the list of temporary machines"):
        left = [(name, each) for name, each in found if each.created < before]
    for _, each in left if delete else ():
        api.delete(each)
    return tuple(f"{name} {each.name}" for name, each in left)


def _price(sold: BoundServerType, location: str) -> float | None:
    """Return the net price per hour at a location; None if the type is no longer sold there."""
    phased_out = {each.location.name for each in sold.locations or () if each.deprecation}
    at = [each for each in sold.prices or () if each["location"] == location]
    if not at or location in phased_out:
        return None
    return float(at[0]["price_hourly"].get("net", "0"))


class HcloudPublisher:
    """The publisher of snapshots in one Hetzner project."""

    kind, place, noun = "hcloud", "Hetzner", "snapshot"

    def __init__(self, site: HcloudSite) -> None:
        self.fleet = site.fleet
        self._site = site
        self._api = site.api

    def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:
        """Yield the snapshots with this fleet's label, of one image version or of all."""
        of_it = {"image": version[0], "version": version[1]} if version else {}
        marks = {"fleet": self.fleet, **of_it}
        yield from map(_upload, self._api.labelled("images", marks, "image", "version"))

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Publish a disk as a complete snapshot; return it and the rental of a server, if any."""
        if known:
            taken = self._api.image(known.id)
            if taken is None:
                raise SourceUnreachable("a snapshot is gone from Hetzner; publish again")
            return _upload(self._api.complete(self._api.await_image(taken))), None
        manifest = disk.manifest
        with disk.raw() as path:
            machine = TemporaryMachine(
                site=self._site,
                purpose="publish",
                image=manifest.image,
                version=manifest.version,
                architecture=manifest.architecture,
                holder=disk.holder,
                disk_bytes=Path(path).stat().st_size,
            )
            with machine.rented():
                self._site.write(machine.ssh, Path(path), disk.tell)
                taken = machine.snapshot(disk.content)
                rental = machine.rental()
        return _upload(self._api.complete(taken)), rental

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
