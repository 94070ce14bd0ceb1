"""Call the API of a Hetzner Cloud project. An incomplete list raises an error."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fleet.errors import SourceUnreachable
from fleet.model.values import Count, Line

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


def authorized(token: str) -> dict[str, str]:
    """Return the HTTP header with the token."""
    return {"Authorization": f"Bearer {token}"}


class HcloudApi:
    """The API of one Hetzner Cloud project."""

    def __init__(
        self,
        token: str,
        *,
        base_url: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base = base_url or endpoint()
        self._headers = authorized(token)
        self._clock = clock

    @contextmanager
    def reading(self) -> "Iterator[Reading]":
        """Yield a reader that has one connection and one time limit."""
        # Import late: the client is slow to load, and most commands do not need it.
        from fleet.queues.http import Reader

        with Reader(self.base, clock=self._clock) as reader:
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
