"""Declare the functions of optional parts of fleet (satellites) that the core calls.

The core imports no satellite: `fleet/program.py` connects them when it starts. Each function
imports its satellite when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

# The program imports this module to print its help, so it must load quickly.
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from fleet.apply.config import PlanResult
    from fleet.model.facts import Attempt, Listing, QueueReading, Unknown, Work, World
    from fleet.model.images import DueReport, Version
    from fleet.model.plan import Plan
    from fleet.planner.durations import Made
    from fleet.ports import (
        MachineCleaner,
        PoolExecutor,
        Registry,
        RuleReader,
        Tell,
        TicketDesk,
        WebPage,
    )
    from fleet.report.document import Block
    from fleet.schema.model import CoprRulesFile, CoprRulesUrl, Fleet
    from fleet.schema.source import Files
    from fleet.state.store import Store

    Begin = Callable[[], AbstractContextManager[Any]]

    class OpenDesk(TicketDesk, Registry, Protocol):
        """A ticket queue that fleet serves itself, and the registry of its workers."""

        def closed(self, since: datetime) -> tuple[Work, ...]:
            """Return the work of tickets that clients have closed since a time."""


class TicketSources(NamedTuple):
    """The adapters of a run that assign machines to tickets."""

    desks: Mapping[str, TicketDesk]
    cleaners: Mapping[str, MachineCleaner]
    """Provider to the adapter that cleans its machines between tickets."""
    store: Store
    executor: PoolExecutor
    removed: Collection[TicketDesk] = ()
    """The desks of queues that are no longer in fleet.yaml: their tickets still expire."""


class SeenRun(NamedTuple):
    """The observation of a run, used by the next run to assign machines while it observes."""

    fleet: Fleet
    world: World
    sources: TicketSources
    started: datetime
    besides: Collection[str] = ()
    """Machines that get no ticket, because the run has deleted or is changing them."""


class MachineRecords(NamedTuple):
    """Records of machines from the store and the stacks."""

    attempts: Callable[[], Iterable[Attempt]]
    """Returns the attempts to create machines, oldest first."""
    names: Collection[str]
    """Names of the machines that stacks contain."""
    now: datetime


class HandOut(Protocol):
    """Assignment of machines to tickets in a run, under the fleet's lock."""

    def hand_out_all(
        self, fleet: Fleet, world: World, sources: TicketSources, tell: Tell, note: Tell
    ) -> World:
        """Assign idle machines to tickets; return the new world. `note` writes the journal."""

    def hand_out_again(
        self, seen: SeenRun, executor: PoolExecutor, now: datetime, tell: Tell, note: Tell
    ) -> bool:
        """Assign machines that are still idle; return True if any ticket got a machine."""

    def note_waits(self, fleet: Fleet, plan: Plan, sources: TicketSources) -> None:
        """Record why tickets wait according to the plan, so that clients can query the reasons."""

    def with_forgotten(
        self,
        fleet: Fleet,
        queues: Mapping[str, QueueReading],
        listings: Mapping[str, Listing | Unknown],
        since: Mapping[str, datetime | None],
        records: MachineRecords,
    ) -> Iterable[tuple[str, QueueReading]]:
        """Yield (name, reading) per ticket queue, adding machines older than the queue's store.

        These machines are added as busy, because the store cannot know their tickets. `since` maps
        a queue to the creation time of its store.
        """


class Promoter(Protocol):
    """The part that carries out a plan's promotions of image versions."""

    def promote_all(
        self, plan: Plan, store: Store, now: datetime, note: Tell, tell: Tell
    ) -> tuple[str, ...]:
        """Promote image versions as planned; return the promoted versions.

        The next run retries failures. `note` writes the journal.
        """


class SimulationReport(NamedTuple):
    """The data model of a saved simulation, and its renderers."""

    model: type[Any]
    to_document: Callable[[Any], Iterable[Block]]
    to_markdown: Callable[[Any], str]
    """Renders a simulation for the text below a plan: one line and a folded part."""


class ServedPages(Protocol):
    """Thread-safe status pages of the last run, for a web server."""

    def show(self, decision: PlanResult) -> None:
        """Use the world and plan of this run for the pages."""

    def read(self, path: str) -> WebPage | None:
        """Return the page at this path of a URL; None if no such page exists."""


class Satellites(NamedTuple):
    """The functions of optional parts that `fleet/program.py` connects."""

    copr_rules: Callable[[CoprRulesFile | CoprRulesUrl, str, Files], RuleReader]
    """Opens the tag rules of a Copr; the text is the path of the file, if they are in a file."""
    due_images: Callable[[Fleet, Sequence[Version], Path, datetime], DueReport]
    """Returns the due builds of images, without newer packages, from fleet.yaml and its folder."""
    hand_out: Callable[[], HandOut]
    open_desk: Callable[[Fleet, str, Begin, Made], OpenDesk]
    """Opens a queue of tickets by name; `Made` returns the attempts to create machines."""
    promoter: Callable[[], Promoter]
    served_pages: Callable[[Store], ServedPages]
    simulation: Callable[[], SimulationReport]
    write_site: Callable[[PlanResult, Store | None, str], int]
    """Writes the status pages to a folder and returns the number of pages."""


_connected: list[Satellites] = []


def connect(satellites: Satellites) -> None:
    """Make these satellites available to the whole process."""
    _connected[:] = [satellites]


def connected() -> Satellites:
    """Return the connected satellites. Raises RuntimeError before `connect`."""
    if not _connected:
        raise RuntimeError("no satellite is connected; call fleet.program.connect_satellites")
    return _connected[0]
