"""What the pages are made of, and what a page is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from fleet.explain.history import History
from fleet.explain.money import Money
from fleet.explain.powerful import PowerfulBuild
from fleet.explain.values import WorkerFacts
from fleet.explain.waiting import Waits
from fleet.model.facts import Attempt, Unknown
from fleet.model.plan import Plan
from fleet.report.site.links import Addresses, addresses_of
from fleet.report.site.versions import ImageStory
from fleet.report.status import Status, status_of
from fleet.schema.findings import Path

Each = TypeVar("Each")
MOST_LISTED = 500
_NOT_READ = Unknown(unknown="it was not read")


@dataclass(frozen=True)
class Shown:
    """What the pages show: a plan, and what is known beside it."""

    plan: Plan
    facts: Mapping[str, WorkerFacts] = field(default_factory=lambda: MappingProxyType({}))
    """What is known of each worker, by its name."""
    history: History | Unknown = _NOT_READ
    money: Money | Unknown = _NOT_READ
    images: tuple[ImageStory, ...] | Unknown = _NOT_READ
    attempts: tuple[Attempt, ...] = ()
    """The latest tries to make machines, the oldest first."""
    waits: Waits = field(default_factory=Waits)
    """What waits and why; without groups: not asked."""
    powerful: tuple[PowerfulBuild, ...] = ()
    """Builds that the allow-list gave powerful machines."""
    places: Mapping[Path, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where the keys that decide stand."""

    @cached_property
    def status(self) -> Status:
        """Return the status as of the plan."""
        return status_of(self.plan, self.facts)

    @cached_property
    def addresses(self) -> Addresses:
        """Return where each worker, pool and explained request has its page."""
        return addresses_of(self.status, self.waits.explained)


class Sheet(NamedTuple):
    """One page of a long list: where it is, and what it goes from and to."""

    path: str
    span: str


def in_sheets(
    rows: Sequence[Each], most: int, folder: str, name_of: Callable[[Each], str]
) -> tuple[list[Sheet], list[Sequence[Each]]]:
    """Return the pages of a list in this folder, and what is on each; one at least."""
    parts = [rows[n : n + most] for n in range(0, len(rows), most)] or [rows]
    # Nothing that has a page of its own has one of this name: see path_part.
    folders = (folder, *(f"{folder}/~{number}" for number in range(2, len(parts) + 1)))
    spans = (dict.fromkeys(map(name_of, (*part[:1], *part[-1:]))) for part in parts)
    return [
        Sheet(f"{where}/index.html", " to ".join(span))
        for where, span in zip(folders, spans, strict=True)
    ], parts


@dataclass(frozen=True)
class Page:
    """A page: its path in the site, its template, and what only this one shows."""

    path: str
    template: str
    values: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
