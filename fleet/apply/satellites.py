"""The parts of satellites that the core calls.

The core imports no satellite: `fleet/program.py` connects them when it starts. Each is a function
that imports its satellite when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

# The program imports this module to print its help.
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from fleet.apply.decision import PlanResult
    from fleet.model.due import DueReport
    from fleet.model.facts import Attempt, Listing, QueueReading, Unknown, Work, World
    from fleet.model.images import Version
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
        """A queue of tickets."""

        def closed(self, since: datetime) -> tuple[Work, ...]:
            """Return the work of tickets that clients closed since a time."""


class TicketSources(NamedTuple):
    """The parts of a run that give machines to tickets."""

    desks: Mapping[str, TicketDesk]
    cleaners: Mapping[str, MachineCleaner]
    """Providers that clean machines between tickets."""
    store: Store
    executor: PoolExecutor


class SeenRun(NamedTuple):
    """The observation of a run, used to assign machines while the next run observes."""

    fleet: Fleet
    world: World
    sources: TicketSources
    started: datetime
    besides: Collection[str] = ()
    """Machines that get no ticket: the run deleted or is changing them."""


class MachineRecords(NamedTuple):
    """Records of the store and of the stacks about machines."""

    attempts: Callable[[], Iterable[Attempt]]
    """Returns the attempts to create machines, oldest first."""
    names: Collection[str]
    """The machines recorded in stacks."""
    now: datetime


class HandOut(Protocol):
    """Gives machines to tickets in a run, under the fleet's lock."""

    def hand_out_all(
        self, fleet: Fleet, world: World, sources: TicketSources, tell: Tell, note: Tell
    ) -> World:
        """Assign free machines and return the new world; `note` writes the journal."""

    def hand_out_again(
        self, seen: SeenRun, executor: PoolExecutor, now: datetime, tell: Tell, note: Tell
    ) -> bool:
        """Give machines that are still free to waiting tickets; return whether any got one."""

    def note_waits(self, fleet: Fleet, world: World, plan: Plan, sources: TicketSources) -> None:
        """Record why tickets wait according to the plan, for clients that ask."""

    def with_forgotten(
        self,
        fleet: Fleet,
        queues: Mapping[str, QueueReading],
        listings: Mapping[str, Listing | Unknown],
        since: Mapping[str, datetime | None],
        records: MachineRecords,
    ) -> Iterable[tuple[str, QueueReading]]:
        """Yield the ticket queues, with machines older than the store added as busy.

        `since` maps queue to the creation time of its store.
        """


class Promoter(Protocol):
    """Moves versions of images as a plan says."""

    def promote_all(
        self, plan: Plan, store: Store, now: datetime, note: Tell, tell: Tell
    ) -> tuple[str, ...]:
        """Apply promotions and return the applied ones; the next run retries failures.

        `note` writes the journal.
        """


class SimulationReport(NamedTuple):
    """The form of a saved simulation, and its renderers."""

    model: type[Any]
    to_document: Callable[[Any], Iterable[Block]]
    to_markdown: Callable[[Any], str]
    """Render it below a plan: one line, and a folded part."""


class ServedPages(Protocol):
    """The status pages of the last run, for a web server; thread-safe."""

    def show(self, decision: PlanResult) -> None:
        """Use the world and plan of this run from now on."""

    def read(self, path: str) -> WebPage | None:
        """Return the page at a URL's path; None if it does not exist."""


class Satellites(NamedTuple):
    """The parts that `fleet/program.py` connects."""

    copr_rules: Callable[[CoprRulesFile | CoprRulesUrl, str, Files], RuleReader]
    """Open the rules of a Copr at their place in fleet.yaml; the text is the path of its file."""
    due_images: Callable[[Fleet, Sequence[Version], Path, datetime], DueReport]
    """Return due builds of images, without newer packages; the path is fleet.yaml's folder."""
    hand_out: Callable[[], HandOut]
    open_desk: Callable[[Fleet, str, Begin, Made], OpenDesk]
    """Open a queue of tickets by its name; `Made` returns the attempts to create machines."""
    promoter: Callable[[], Promoter]
    served_pages: Callable[[Store], ServedPages]
    simulation: Callable[[], SimulationReport]
    write_site: Callable[[PlanResult, Store | None, str], int]
    """Write the status pages to a folder and return their number."""


_connected: list[Satellites] = []


def connect(satellites: Satellites) -> None:
    """Use these satellites from now on."""
    _connected[:] = [satellites]


def connected() -> Satellites:
    """Return the connected satellites; raises RuntimeError without `connect`."""
    if not _connected:
        raise RuntimeError("no satellite is connected; call fleet.program.connect_satellites")
    return _connected[0]
