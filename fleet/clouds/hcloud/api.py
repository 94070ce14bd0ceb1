"""Ask the API of a Hetzner Cloud project; a list is read to its end or is none."""

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
"""Debian's names of architectures, by Hetzner's."""
_PER_PAGE = 50
MAX_PAGES = 1_000
_DONE = frozenset({200, 201, 204})
_ANSWERS_FOR_ALL = frozenset({401, 403, 429})
"""What is answered so about one server would be answered so about every other."""


class RefusesAll(SourceUnreachable):
    """No other request with this token would be answered better now."""


class Answer(BaseModel):
    """A part of what the API answers."""

    model_config = ConfigDict(strict=True, frozen=True)


class Pagination(Answer):
    """Where a list goes on, and how long it is."""

    next_page: Count | None
    total_entries: Count | None


class Meta(Answer):
    """What the API says of a page beside what is on it."""

    pagination: Pagination


class PagedAnswer(Answer):
    """A page of a list."""

    meta: Meta

    @property
    def length(self) -> int:
        """Return how many entries are on the page."""
        return sum(len(part) for _, part in self if isinstance(part, tuple))


def check_length(address: str, listed: int, counted: int | None, *, is_last: bool) -> None:
    """Raise SourceUnreachable if more was listed than the server counts, or less at the end."""
    if counted is not None and (listed > counted or (is_last and listed < counted)):
        raise SourceUnreachable(
            f"{address} listed {listed} entries, but counts {counted}: they changed while they "
            "were read, or the list is not whole; the next run tries again"
        )


Labels = Annotated[dict[Line, Line], Field(max_length=1_000)]
Shape = TypeVar("Shape", bound=BaseModel)
Page = TypeVar("Page", bound=PagedAnswer)


def endpoint() -> str:
    """Return the address of the API; HCLOUD_ENDPOINT names another."""
    return os.environ.get("HCLOUD_ENDPOINT") or ENDPOINT


def authorized(token: str) -> dict[str, str]:
    """Return the header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


class HcloudApi:
    """One project."""

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
        """Ask over one connection, within one time."""
        # It is slow to load, and most commands ask nothing here.
        from fleet.queues.http import Reader

        with Reader(self.base, clock=self._clock) as reader:
            yield Reading(reader, self._headers)


class Reading:
    """One reading of the API; what is not as it should be raises SourceUnreachable."""

    def __init__(self, reader: "Reader", headers: Mapping[str, str]) -> None:
        self._reader = reader
        self._headers = headers

    @property
    def clock_ahead(self) -> int | None:
        """Return by how many minutes the server's clock is ahead; None: unknown."""
        return self._reader.clock_ahead

    def get(self, path: str, query: Mapping[str, str], shape: type[Shape]) -> Shape:
        """Return what is at a path."""
        return _good(self._reader.get(path, query, self._headers)).parse(shape)

    def find(self, path: str, shape: type[Shape]) -> Shape | None:
        """Return what is at a path; None where nothing is any more."""
        reply = self._reader.get(path, {}, self._headers)
        return None if _is_gone(reply) else _good(reply).parse(shape)

    def change(self, method: "Change", path: str, body: "Body") -> bool:
        """Change what is at a path; False where nothing is any more."""
        reply = self._reader.change(method, path, self._headers, body)
        return not _is_gone(reply) and bool(_good(reply))

    def pages(self, path: str, query: Mapping[str, str], shape: type[Page]) -> Iterator[Page]:
        """Yield every page of a list."""
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
    """Return the error for a list that leads back, or on for too long."""
    return SourceUnreachable(f"{address}: its pages never end (page {page} leads to {following})")


def _is_gone(reply: "Reply") -> bool:
    return reply.status == 404 and "not_found" in reply.body.decode(errors="replace")  # noqa: PLR2004 - HTTP's own


def _good(reply: "Reply") -> "Reply":
    """Return an answer that is as it should be."""
    if reply.status not in _DONE:
        kind = RefusesAll if reply.status in _ANSWERS_FOR_ALL else SourceUnreachable
        raise kind(f"{reply.address} answered with status {reply.status}: {advise(reply.status)}")
    return reply


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
