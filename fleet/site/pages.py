"""Values and types of the pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from fleet.explain.history import FleetHistory
from fleet.explain.powerful import PowerfulBuild
from fleet.explain.waiting import WaitingExplanations
from fleet.model.facts import Attempt, Unknown
from fleet.model.log import LogEntry
from fleet.model.machine_facts import WorkerFacts
from fleet.model.plan import Plan
from fleet.report.status import Status, status_of
from fleet.schema.findings import Path
from fleet.site.charges import MonthCost
from fleet.site.links import Addresses, addresses_of
from fleet.site.versions import ImageStory

Each = TypeVar("Each")
MOST_LISTED = 500
_NOT_READ = Unknown(unknown="it was not read")


@dataclass(frozen=True)
class Shown:
    """Input of the pages: a plan, and additional facts."""

    plan: Plan
    facts: Mapping[str, WorkerFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Known facts of each worker, by its name."""
    history: FleetHistory | Unknown = _NOT_READ
    money: MonthCost | Unknown = _NOT_READ
    images: tuple[ImageStory, ...] | Unknown = _NOT_READ
    log: tuple[LogEntry, ...] | Unknown = _NOT_READ
    """The log of changes of the last days."""
    attempts: tuple[Attempt, ...] = ()
    """The latest attempts to create machines, the oldest first."""
    waits: WaitingExplanations = field(default_factory=WaitingExplanations)
    """The waiting requests with reasons; without groups: not computed."""
    queue_pages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Address of each explained request at its queue's server, if it has one."""
    powerful: tuple[PowerfulBuild, ...] = ()
    """Builds that the allow-list gave powerful machines."""
    places: Mapping[Path, str] = field(default_factory=lambda: MappingProxyType({}))
    """Locations of the deciding keys."""

    @cached_property
    def status(self) -> Status:
        """Return the status as of the plan."""
        return status_of(self.plan, self.facts)

    @cached_property
    def addresses(self) -> Addresses:
        """Return the page of each worker, pool and explained request."""
        return addresses_of(self.status, self.waits.explained)


class Sheet(NamedTuple):
    """One page of a long list: its path, and the names of its first and last entries."""

    path: str
    span: str


def in_sheets(
    rows: Sequence[Each], most: int, folder: str, name_of: Callable[[Each], str]
) -> tuple[list[Sheet], list[Sequence[Each]]]:
    """Split a list into pages in this folder; at least one page."""
    parts = [rows[n : n + most] for n in range(0, len(rows), most)] or [rows]
    # No object with its own page has such a name: see path_part.
    folders = (folder, *(f"{folder}/~{number}" for number in range(2, len(parts) + 1)))
    spans = (dict.fromkeys(map(name_of, (*part[:1], *part[-1:]))) for part in parts)
    return [
        Sheet(f"{where}/index.html", " to ".join(span))
        for where, span in zip(folders, spans, strict=True)
    ], parts


@dataclass(frozen=True)
class Page:
    """A page: its path in the site, its template, and its own values."""

    path: str
    template: str
    values: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
