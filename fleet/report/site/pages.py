"""What the pages are made of, and what a page is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from fleet.explain.values import WorkerFacts
from fleet.model.plan import Plan
from fleet.report.site.links import Addresses, addresses_of
from fleet.report.status import Status, status_of

MOST_LISTED = 500


@dataclass(frozen=True)
class Shown:
    """What the pages show: a plan, and what is known beside it."""

    plan: Plan
    facts: Mapping[str, WorkerFacts] = field(default_factory=lambda: MappingProxyType({}))
    """What is known of each worker, by its name."""

    @cached_property
    def status(self) -> Status:
        """Return the status as of the plan."""
        return status_of(self.plan, self.facts)

    @cached_property
    def addresses(self) -> Addresses:
        """Return where each worker and pool has its page."""
        return addresses_of(self.status)


@dataclass(frozen=True)
class Page:
    """A page: its path in the site, its template, and what only this one shows."""

    path: str
    template: str
    values: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
