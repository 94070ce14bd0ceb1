"""The parts of satellites that the core calls.

The core imports no satellite: `fleet/program.py` connects them when it starts. Each is a function
that imports its satellite when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

# The program imports this module to print its help.
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from fleet.apply.decision import Decision
    from fleet.model.due import DueReport
    from fleet.model.facts import Work
    from fleet.model.images import Version
    from fleet.planner.durations import Made
    from fleet.ports import HandOut, Promoter, Registry, RuleReader, Store, TicketDesk, WebPage
    from fleet.report.document import Block
    from fleet.schema.model import CoprRulesFile, CoprRulesUrl, Fleet
    from fleet.schema.source import Files

    Begin = Callable[[], AbstractContextManager[Any]]

    class OpenDesk(TicketDesk, Registry, Protocol):
        """A queue of tickets."""

        def closed(self, since: datetime) -> tuple[Work, ...]:
            """Return the work of tickets that clients closed since a time."""


class SimulationReport(NamedTuple):
    """The form of a saved simulation, and its renderers."""

    model: type[Any]
    to_document: Callable[[Any], Iterable[Block]]
    to_markdown: Callable[[Any], str]
    """Render it below a plan: one line, and a folded part."""


class ServedPages(Protocol):
    """The status pages of the last run, for a web server; thread-safe."""

    def show(self, decision: Decision) -> None:
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
    write_site: Callable[[Decision, Store | None, str], int]
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
