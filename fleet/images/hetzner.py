"""This module asks Hetzner's API for what publishing needs, and asks again where that helps.

What it makes is known by its name and its labels, so that what was made while an answer got lost
is found and not made twice.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.providers.hcloud import ENDPOINT, advise

if TYPE_CHECKING:
    from fleet.web.reader import Reader, Reply

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
Shape = TypeVar("Shape")


class OutOfStock(SourceUnreachable):
    """There is no server of that type now."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Failure(_Answer):
    """Why the API says no."""

    code: str = ""
    message: str = ""


class Address(_Answer):
    """A public address."""

    ip: str


class PublicNet(_Answer):
    """The public addresses of a server."""

    ipv4: Address | None = None


class Found(_Answer):
    """A server, a key or an image: as much of it as publishing looks at."""

    id: int
    name: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    status: str = ""
    created: str = ""
    description: str | None = None
    public_net: PublicNet = PublicNet()


class Price(_Answer):
    """What a server type costs somewhere."""

    location: str
    price_hourly: dict[str, str]


class ServerType(_Answer):
    """What is sold."""

    name: str
    architecture: str
    disk: int = Field(description="In GB.")
    deprecation: object = None
    prices: tuple[Price, ...] = ()


class _Action(_Answer):
    id: int
    status: str
    error: Failure | None = None


class _Pagination(_Answer):
    next_page: int | None
    total_entries: int | None


class _Meta(_Answer):
    pagination: _Pagination


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
    meta: _Meta | None = None


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
        self._headers = {"Authorization": f"Bearer {token}"}
        self._base = base_url or os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT
        self._pause = pause
        self._tries = tries
        self._reader: Reader | None = None

    @contextmanager
    def session(self) -> "Iterator[Reader]":
        """Keep the connection while in here, however often it is entered."""
        # httpx is slow to load, and most commands publish nothing.
        from fleet.web.reader import Limits, Reader

        if self._reader is not None:
            yield self._reader
            return
        with Reader(self._base, limits=Limits(total=_LONGEST_SECONDS)) as reader:
            self._reader = reader
            try:
                yield reader
            finally:
                self._reader = None

    def images(self, selector: str) -> tuple[Found, ...]:
        """Return the snapshots whose labels match."""
        query = {"type": "snapshot", "label_selector": selector}
        return self._listed("/images", query, lambda page: page.images)

    def servers(self, selector: str) -> tuple[Found, ...]:
        """Return the servers whose labels match."""
        query = {"label_selector": selector}
        return self._listed("/servers", query, lambda page: page.servers)

    def ssh_keys(self, selector: str) -> tuple[Found, ...]:
        """Return the keys whose labels match."""
        query = {"label_selector": selector}
        return self._listed("/ssh_keys", query, lambda page: page.ssh_keys)

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
        made = self._make("/ssh_keys", body, self.ssh_keys).ssh_key
        return _told(made, "ssh key")

    def make_server(self, body: Body) -> Found:
        """Make a server, or find the one that was made; raises OutOfStock."""
        made = self._make("/servers", body, self.servers).server
        return _told(made, "server")

    def act(self, server: Found, command: str, body: Body | None = None) -> None:
        """Have a server do something that may be done twice, and wait for its end."""
        reply = self._ask("POST", f"/servers/{server.id}/actions/{command}", body or {})
        self._wait(_told(reply.action, command))

    def snapshot(self, server: Found, body: Body) -> Found:
        """Take a snapshot of a server's disk, and wait until it can be booted."""
        path = f"/servers/{server.id}/actions/create_image"
        taken = _told(self._make(path, body, self.images).image, "snapshot")
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
        selector = ",".join(f"{key}=={value}" for key, value in labels.items())
        for attempt in range(self._tries):
            reply = self._once("POST", path, body)
            if reply.error is None:
                return reply
            # Without an answer it may have been made all the same.
            if found := listed(selector):
                return _Reply(server=found[0], image=found[0], ssh_key=found[0])
            if reply.error.code == _TAKEN:
                raise PublicationRefused(
                    f"at Hetzner there is another {path.strip('/')} of the same name or key, "
                    f"{body.get('name')}, without fleet's labels; rename or delete it"
                )
            self._pause(2**attempt)
        raise SourceUnreachable(f"{self._base}{path} makes nothing: {_said(reply)}")

    def _wait(self, action: _Action) -> None:
        for _ in range(_POLLS):
            if action.status == "error":
                failure = action.error or Failure()
                raise SourceUnreachable(f"Hetzner: {failure.code}: {failure.message}")
            if action.status == "success":
                return
            self._pause(_POLL_SECONDS)
            action = _told(self._ask("GET", f"/actions/{action.id}").action, "action")
        raise SourceUnreachable(f"Hetzner: action {action.id} does not end")

    def _listed(
        self, path: str, query: Mapping[str, str], part: Callable[[_Reply], tuple[Shape, ...]]
    ) -> tuple[Shape, ...]:
        """Return all pages of a listing, or raise: half of it would read as what is gone."""
        found: list[Shape] = []
        number: int | None = 1
        while number:
            asked = {**query, "sort": "id:asc", "page": str(number), "per_page": _PER_PAGE}
            page = self._ask("GET", path, query=asked)
            found += part(page)
            pagination = _told(page.meta, "pages").pagination
            number = pagination.next_page
        if pagination.total_entries not in (None, len(found)):
            raise SourceUnreachable(f"{self._base}{path} changed while it was read; try again")
        return tuple(found)

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
        raise SourceUnreachable(f"{self._base}{path}: {_said(reply)} ({self._tries} times)")

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
    if good or (reply.status == _GONE and _code(content) == "not_found"):
        return content if good else _Reply()
    if reply.status == _OUT_OF_STOCK:
        raise OutOfStock(f"Hetzner: {_said(content)}")
    if reply.status in _AGAIN:
        return _Reply(error=content.error or Failure(code=str(reply.status)))
    raise PublicationRefused(
        f"{reply.place} refused it ({reply.status}): {_said(content) or advise(reply.status)}"
    )


def _code(reply: _Reply) -> str:
    return reply.error.code if reply.error else ""


def _said(reply: _Reply) -> str:
    parts = (reply.error.code, reply.error.message) if reply.error else ()
    return ": ".join(filter(None, parts))


def _told(value: Shape | None, what: str) -> Shape:
    if value is None:
        raise SourceUnreachable(f"Hetzner did not tell of the {what}")
    return value
