"""This module reads a list of Hetzner Cloud's API page by page, to its end."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from fleet.errors import SourceUnreachable

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


_Page = TypeVar("_Page", bound=_Paged)


def read_pages(
    ask: Callable[[Mapping[str, str]], _Page], place: str, *, most: int
) -> Iterator[_Page]:
    """Yield each page that `ask` gets with a query; SourceUnreachable where they do not end."""
    number, before = 1, 0
    while before < number <= most:
        page = ask({"page": str(number), "per_page": str(_PER_PAGE)})
        yield page
        following = page.meta.pagination.next_page
        if following is None:
            return
        before, number = number, following
    raise SourceUnreachable(f"{place}: its pages do not end (page {before} leads to {number})")
