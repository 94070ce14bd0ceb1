"""Types of the status pages and of their input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from fleet.explain.given import Responsible
from fleet.explain.history import FleetHistory
from fleet.explain.powerful import PowerfulBuild
from fleet.explain.waiting import WaitingExplanations
from fleet.model.facts import Attempt, Unknown, WorkerFacts
from fleet.model.log import LogEntry
from fleet.model.plan import Plan
from fleet.report.status import Status, status_of
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
    """Worker name to known facts of the worker."""
    responsible: Responsible = field(default_factory=Responsible)
    """The contact of the fleet, and the allow-list rules of waiting requests."""
    history: FleetHistory | Unknown = _NOT_READ
    money: MonthCost | Unknown = _NOT_READ
    images: tuple[ImageStory, ...] | Unknown = _NOT_READ
    log: tuple[LogEntry, ...] | Unknown = _NOT_READ
    """The log of changes in the last days."""
    attempts: tuple[Attempt, ...] = ()
    """The latest attempts to create machines, the oldest first."""
    waits: WaitingExplanations = field(default_factory=WaitingExplanations)
    """The waiting requests, grouped by reason; no groups if they were not computed."""
    queue_pages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Key of an explained request to its URL at the queue's server, if the server has a page."""
    powerful: tuple[PowerfulBuild, ...] = ()
    """Builds to which the allow-list gave powerful machines."""

    @cached_property
    def status(self) -> Status:
        """Return the status as of the plan."""
        return status_of(self.plan, self.facts, self.responsible)

    @cached_property
    def addresses(self) -> Addresses:
        """Return the paths of the pages of workers, pools and explained requests."""
        return addresses_of(self.status, self.waits.explained)


class Sheet(NamedTuple):
    """One page of a long list: its path, and the names of its first and last entries."""

    path: str
    span: str


def in_sheets(
    rows: Sequence[Each], most: int, folder: str, name_of: Callable[[Each], str]
) -> tuple[list[Sheet], list[Sequence[Each]]]:
    """Split a list into pages of `most` entries; return the pages and their entries.

    An empty list has one page.
    """
    parts = [rows[n : n + most] for n in range(0, len(rows), most)] or [rows]
    # No other page has such a name: see path_part.
    folders = (folder, *(f"{folder}/~{number}" for number in range(2, len(parts) + 1)))
    spans = (dict.fromkeys(map(name_of, (*part[:1], *part[-1:]))) for part in parts)
    return [
        Sheet(f"{where}/index.html", " to ".join(span))
        for where, span in zip(folders, spans, strict=True)
    ], parts


@dataclass(frozen=True)
class Page:
    """A page: its path in the site, its template, and the values for the template."""

    path: str
    template: str
    values: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
