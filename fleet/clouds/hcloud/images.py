"""Publish an image at Hetzner: boot a temporary server, write its disk, take a snapshot.

Each call of the API is repeated where that helps.

What it makes is known by its name and its labels, so that what was made while an answer got lost
is found and not made twice.

Each carries the mark and the label `temporary`, so that what a killed run left is found: by the
next run, and by `fleet sweep`. It is deleted whatever happens, with the key that opened it.

A temporary server boots the rescue system, its disk is written over ssh and read back, and a
snapshot is taken of it while it is off. A snapshot is made of a disk that was read back only, so
one that is still labelled as partial needs nothing but its label.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fleet.clouds.hcloud.api import (
    ARCHITECTURES,
    MAX_PAGES,
    Labels,
    Meta,
    advise,
    authorized,
    check_length,
    endless,
    endpoint,
)
from fleet.clouds.hcloud.machines import TEMPORARY
from fleet.errors import FleetError, PublicationRefused, SourceUnreachable
from fleet.images.disk import disk_of, raw_disk
from fleet.images.programs import Tell, held
from fleet.images.ssh import KeyPair, Ssh, Writing, new_key, write_disk
from fleet.model.images import Manifest, Publication, Rental, Upload
from fleet.model.values import Id, Line, LongText

if TYPE_CHECKING:
    from fleet.queues.http import Reader, Reply


_TRIES = 8
_LONGEST_SECONDS = 6 * 3600
_POLLS = 1200
_POLL_SECONDS = 3
_PER_PAGE = "50"
_AGAIN = frozenset({409, 423, 429, 500, 502, 503, 504})
_GONE = 404
_OUT_OF_STOCK = 412
_TAKEN = "uniqueness_error"
Body = Mapping[str, object]
Method = Literal["GET", "POST", "PUT", "DELETE"]
Kind = Literal["servers", "ssh_keys"]
Shape = TypeVar("Shape")


class OutOfStock(SourceUnreachable):
    """There is no server of that type now."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Failure(_Answer):
    """Why the API says no."""

    code: Line = ""
    message: LongText = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.code, self.message)))


class Address(_Answer):
    """A public address."""

    ip: Line


class PublicNet(_Answer):
    """The public addresses of a server."""

    ipv4: Address | None = None


class Found(_Answer):
    """A server, a key or an image: as much of it as publishing looks at."""

    id: Id
    name: Line | None = None
    labels: Labels = Field(default_factory=dict)
    status: Line = ""
    created: Line = ""
    description: Line | None = None
    public_net: PublicNet = PublicNet()


class Price(_Answer):
    """What a server type costs somewhere."""

    location: Line
    price_hourly: Labels


class ServerType(_Answer):
    """What is sold."""

    name: Line
    architecture: Line
    disk: int = Field(ge=0, le=2**30, description="In GB.")
    deprecation: object = None
    prices: tuple[Price, ...] = ()


class _Action(_Answer):
    id: Id
    status: Line
    error: Failure | None = None


class _Reply(_Answer):
    """Any answer of the API; each request looks at one part of it."""

    server: Found | None = None
    image: Found | None = None
    ssh_key: Found | None = None
    servers: tuple[Found, ...] = ()
    images: tuple[Found, ...] = ()
    ssh_keys: tuple[Found, ...] = ()
    server_types: tuple[ServerType, ...] = ()
    action: _Action | None = None
    error: Failure | None = None
    meta: Meta | None = None


class Hetzner:
    """One project."""

    def __init__(
        self,
        token: str,
        *,
        base_url: str | None = None,
        pause: Callable[[float], None],
        tries: int = _TRIES,
    ) -> None:
        self._headers = authorized(token)
        self._base = base_url or endpoint()
        self._pause = pause
        self._tries = tries
        self._reader: Reader | None = None

    @contextmanager
    def session(self) -> "Iterator[Reader]":
        """Keep the connection while in here, however often it is entered."""
        # httpx is slow to load, and most commands publish nothing.
        from fleet.queues.http import Limits, Reader

        if self._reader is not None:
            yield self._reader
            return
        # `_ask` and `_make` repeat requests themselves.
        with Reader(self._base, limits=Limits(total=_LONGEST_SECONDS), tries=1) as reader:
            self._reader = reader
            try:
                yield reader
            finally:
                self._reader = None

    def images(self, selector: str) -> tuple[Found, ...]:
        """Return the snapshots whose labels match."""
        query = {"type": "snapshot", "label_selector": selector}
        return self._listed("/images", query, lambda page: page.images)

    def labelled(self, kind: Kind, selector: str) -> tuple[Found, ...]:
        """Return the servers or keys whose labels match."""
        query = {"label_selector": selector}
        return self._listed(f"/{kind}", query, lambda page: getattr(page, kind))

    def system_images(self, architecture: str) -> tuple[Found, ...]:
        """Return Hetzner's own images, of an architecture as it names them."""
        query = {"type": "system", "architecture": architecture}
        return self._listed("/images", query, lambda page: page.images)

    def server_types(self) -> tuple[ServerType, ...]:
        """Return what is sold."""
        return self._listed("/server_types", {}, lambda page: page.server_types)

    def image(self, number: int | str) -> Found | None:
        """Return an image; None where there is none."""
        return self._ask("GET", f"/images/{number}").image

    def relabel(self, image: Found, labels: Mapping[str, str]) -> None:
        """Give an image other labels."""
        if self._ask("PUT", f"/images/{image.id}", {"labels": dict(labels)}).image is None:
            raise SourceUnreachable(f"image {image.id} is gone from Hetzner")

    def delete(self, kind: str, number: int | str) -> None:
        """Delete a server, a key or an image; one that is gone is fine."""
        self._ask("DELETE", f"/{kind}/{number}")

    def make_key(self, body: Body) -> Found:
        """Make an ssh key, or find the one that was made while its answer got lost."""
        made = self._make("/ssh_keys", body, partial(self.labelled, "ssh_keys")).ssh_key
        return _require(made, "ssh key")

    def make_server(self, body: Body) -> Found:
        """Make a server, or find the one that was made; raises OutOfStock."""
        made = self._make("/servers", body, partial(self.labelled, "servers")).server
        return _require(made, "server")

    def act(self, server: Found, command: str, body: Body | None = None) -> None:
        """Have a server do something that may be done twice, and wait for its end."""
        reply = self._ask("POST", f"/servers/{server.id}/actions/{command}", body or {})
        self._wait(_require(reply.action, command))

    def snapshot(self, server: Found, body: Body) -> Found:
        """Take a snapshot of a server's disk, and wait until it can be booted."""
        path = f"/servers/{server.id}/actions/create_image"
        taken = _require(self._make(path, body, self.images).image, "snapshot")
        return self.await_image(taken)

    def await_image(self, image: Found) -> Found:
        """Wait until an image can be booted."""
        for _ in range(_POLLS):
            now = self.image(image.id)
            if now is None or now.status == "unavailable":
                break
            if now.status == "available":
                return now
            self._pause(_POLL_SECONDS)
        raise SourceUnreachable(f"snapshot {image.id} never became available at Hetzner")

    def await_status(self, server: Found, status: str) -> None:
        """Wait until a server is in a state."""
        for _ in range(_POLLS):
            now = self._ask("GET", f"/servers/{server.id}").server
            if now is None:
                raise SourceUnreachable(f"server {server.name} is gone from Hetzner")
            if now.status == status:
                return
            self._pause(_POLL_SECONDS)
        raise SourceUnreachable(f"server {server.name} never became {status}")

    def _make(self, path: str, body: Body, listed: Callable[[str], tuple[Found, ...]]) -> _Reply:
        """Post what makes something; what has the same name or labels already is it."""
        labels = body["labels"]
        assert isinstance(labels, dict)  # noqa: S101 - all that is made here is labelled
        for attempt in range(self._tries):
            reply = self._once("POST", path, body)
            if reply.error is None:
                return reply
            # Without an answer it may have been made all the same.
            if found := listed(_selector(labels)):
                return _Reply(server=found[0], image=found[0], ssh_key=found[0])
            if reply.error.code == _TAKEN:
                raise PublicationRefused(
                    f"at Hetzner there is another {path.strip('/')} of the same name or key, "
                    f"{body.get('name')}, without fleet's labels; rename or delete it"
                )
            self._pause(2**attempt)
        raise SourceUnreachable(f"{self._base}{path} makes nothing: {reply.error}")

    def _wait(self, action: _Action) -> None:
        for _ in range(_POLLS):
            if action.status == "error":
                raise SourceUnreachable(f"Hetzner: {action.error or Failure()}")
            if action.status == "success":
                return
            self._pause(_POLL_SECONDS)
            action = _require(self._ask("GET", f"/actions/{action.id}").action, "action")
        raise SourceUnreachable(f"Hetzner: action {action.id} does not end")

    def _listed(
        self, path: str, query: Mapping[str, str], part: Callable[[_Reply], tuple[Shape, ...]]
    ) -> tuple[Shape, ...]:
        """Return all pages of a listing, or raise: half of it would read as what is gone."""
        found: list[Shape] = []
        number, before = 1, 0
        while before < number <= MAX_PAGES:
            asked = {**query, "sort": "id:asc", "page": str(number), "per_page": _PER_PAGE}
            page = self._ask("GET", path, query=asked)
            found += part(page)
            pagination = _require(page.meta, "pages").pagination
            check_length(f"{self._base}{path}", len(found), pagination)
            if pagination.next_page is None:
                return tuple(found)
            before, number = number, pagination.next_page
        raise endless(f"{self._base}{path}", before, number)

    def _ask(
        self,
        method: Method,
        path: str,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
    ) -> _Reply:
        """Ask until there is an answer that asking again would not change; empty: it is gone."""
        for attempt in range(self._tries):
            reply = self._once(method, path, body, query)
            if reply.error is None:
                return reply
            self._pause(2**attempt)
        raise SourceUnreachable(f"{self._base}{path}: {reply.error} ({self._tries} times)")

    def _once(
        self,
        method: Method,
        path: str,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
    ) -> _Reply:
        """Return an answer; with an error where there was none, or asking again may help."""
        try:
            with self.session() as reader:
                if method == "GET":
                    return _judged(reader.get(path, query or {}, self._headers))
                return _judged(reader.change(method, path, self._headers, body))
        except OutOfStock:
            raise
        except SourceUnreachable as error:
            return _Reply(error=Failure(message=str(error)))


def _judged(reply: "Reply") -> _Reply:
    """Return an answer; with an error where asking again may help."""
    good = reply.status < 300  # noqa: PLR2004 - HTTP's own
    content = reply.parse(_Reply) if reply.body else _Reply()
    failure = content.error or Failure()
    if good or (reply.status == _GONE and failure.code == "not_found"):
        return content if good else _Reply()
    if reply.status == _OUT_OF_STOCK:
        raise OutOfStock(f"Hetzner: {failure}")
    if reply.status in _AGAIN:
        return _Reply(error=content.error or Failure(code=str(reply.status)))
    why = str(failure) or advise(reply.status)
    raise PublicationRefused(f"{reply.address} refused ({reply.status}): {why}")


def _require(value: Shape | None, what: str) -> Shape:
    if value is None:
        raise SourceUnreachable(f"Hetzner did not return the {what}")
    return value


HOLDER = "holder"
_KINDS: tuple[Kind, ...] = ("servers", "ssh_keys")
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
        """Return its name, the same for the same version in every run."""
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


def left_temporary(api: Hetzner, fleet: str, before: datetime, *, delete: bool) -> tuple[str, ...]:
    """Say which temporary machines and keys were made before a moment, and delete them or not."""
    selector = f"fleet=={fleet},{TEMPORARY}"
    found = [(kind, each) for kind in _KINDS for each in api.labelled(kind, selector)]
    left = [(kind, each) for kind, each in found if datetime.fromisoformat(each.created) < before]
    for kind, each in left if delete else ():
        api.delete(kind, each.id)
    return tuple(f"{kind.rstrip('s').replace('_', ' ')} {each.name}" for kind, each in left)


def _clear(api: Hetzner, order: Order) -> None:
    """Delete what a dead run of ours left; raises where somebody else works on this version."""
    ours = {key: order.labels[key] for key in ("fleet", TEMPORARY, HOLDER)}
    _delete_all(api, _selector(ours))
    theirs = {key: order.labels[key] for key in ("fleet", TEMPORARY, "image", "version")}
    for server in api.labelled("servers", _selector(theirs)):
        raise SourceUnreachable(
            f"another run works on this version, or died: server {server.name} was created at "
            f"{server.created}; try again later, or run "
            f"`fleet image publish {theirs['image']} --clean`"
        )


def _delete_all(api: Hetzner, selector: str) -> None:
    failed: FleetError | None = None
    for kind in _KINDS:
        try:
            for each in api.labelled(kind, selector):
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


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}=={text}" for key, text in labels.items())


SHORT = 32
"""Digits of a checksum that a label has room for; the description holds all."""


@dataclass(frozen=True)
class HcloudSite:
    """Where in Hetzner's cloud, and how its machines are entered."""

    fleet: str
    location: str
    provider: str = ""
    """What fleet.yaml calls it."""
    entry: Entry = field(default_factory=Entry)
    writing: Writing = field(default_factory=Writing)


class HcloudPublisher:
    """One project: Publisher."""

    def __init__(self, site: HcloudSite, token: str, *, base_url: str | None = None) -> None:
        self._site = site
        self._api = Hetzner(token, base_url=base_url, pause=site.entry.pause)

    def uploads(self) -> tuple[Upload, ...]:
        """Return the snapshots with this fleet's mark."""
        found = self._api.images(f"fleet=={self._site.fleet},image,version")
        ours = [each for each in found if each.labels.get("fleet") == self._site.fleet]
        uploads = (_upload(each) for each in ours)
        return tuple(sorted(uploads, key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Have a snapshot hold the disk of a version."""
        # What was baked on a machine there is a snapshot already, and has no disk here.
        is_there = manifest.way == "instance"
        identity = manifest.digest if is_there else disk_of(manifest)[1].sha256
        lock = Path(folder).parent / ".publish-hcloud.lock"
        with held(lock) as holder, self._api.session():
            known = self._found(manifest, identity)
            found, rental = (
                (known, None) if known else self._take(manifest, Path(folder), holder, tell)
            )
            if found.labels.get("state") != "whole":
                found = self._api.await_image(found)
                self._api.relabel(found, {**found.labels, "state": "whole"})
        at = datetime.fromisoformat(found.created)
        return Publication(id=str(found.id), at=at, verified=True, rental=rental)

    def delete(self, upload_id: str) -> None:
        """Delete a snapshot."""
        found = self._api.image(upload_id)
        if found is None:
            return
        if found.labels.get("fleet") != self._site.fleet:
            raise PublicationRefused(
                f"image {upload_id} at Hetzner does not carry the label fleet={self._site.fleet}"
            )
        self._api.delete("images", upload_id)

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Delete snapshots that are not whole, temporary servers and their keys."""
        with self._api.session():
            old = [each for each in self.uploads() if each.was_left(before, but_for)]
            for each in old:
                self.delete(each.id)
            removed = (f"snapshot {each.id} of {each.image} {each.version}" for each in old)
            return (*removed, *left_temporary(self._api, self._site.fleet, before, delete=True))

    def _found(self, manifest: Manifest, sha256: str) -> Found | None:
        marks = {"fleet": self._site.fleet, "image": manifest.image, "version": manifest.version}
        found = self._api.images(_selector(marks))
        for each in found:
            if each.labels.get("sha256") != sha256[:SHORT]:
                raise PublicationRefused(
                    f"snapshot {each.id} at Hetzner has another disk of {manifest.image} "
                    f"{manifest.version}, {each.description}; delete it if nothing uses it"
                )
        return found[0] if found else None

    def _take(
        self, manifest: Manifest, folder: Path, holder: str, tell: Tell
    ) -> tuple[Found, Rental]:
        """Return the snapshot, and the machine that it was made on."""
        _, disk = disk_of(manifest)
        site = self._site
        with raw_disk(manifest, folder) as raw:
            order = Order(
                purpose="publish",
                fleet=site.fleet,
                image=manifest.image,
                version=manifest.version,
                architecture=manifest.architecture,
                location=site.location,
                holder=holder,
                disk_bytes=raw.stat().st_size,
            )
            with temporary_machine(self._api, order, site.entry) as rented:
                write_disk(rented.ssh, raw, tell, site.writing)
                snapshot = take_snapshot(
                    *(self._api, rented.server, site.fleet, manifest, disk.sha256)
                )
                return snapshot, rented.rental(site.provider)


def take_snapshot(
    api: Hetzner, server: Found, fleet: str, manifest: Manifest, sha256: str
) -> Found:
    """Turn a server off and return the snapshot of its disk, labelled as not yet whole."""
    api.act(server, "poweroff")
    api.await_status(server, "off")
    labels = {
        "fleet": fleet,
        "image": manifest.image,
        "version": manifest.version,
        "sha256": sha256[:SHORT],
        "state": "partial",
    }
    said = f"{fleet}: {manifest.image} {manifest.version} sha256:{sha256}"
    return api.snapshot(server, {"type": "snapshot", "description": said, "labels": labels})


def _upload(image: Found) -> Upload:
    labels = image.labels
    return Upload(
        id=str(image.id),
        image=labels["image"],
        version=labels["version"],
        sha256=labels.get("sha256", ""),
        whole=labels.get("state") == "whole",
        since=datetime.fromisoformat(image.created),
    )
