"""The parts of satellites that the core calls.

The core imports no satellite: `fleet/program.py` connects them when it starts. Each is a function
that imports its satellite when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

# The program imports this module to print its help.
if TYPE_CHECKING:
    from fleet.ports import RuleReader
    from fleet.report.document import Block
    from fleet.schema.model import CoprRulesFile, CoprRulesUrl
    from fleet.schema.source import Files


class SimulationReport(NamedTuple):
    """The form of a saved simulation, and its renderers."""

    model: type[Any]
    to_document: Callable[[Any], Iterable[Block]]
    to_markdown: Callable[[Any], str]
    """Render it below a plan: one line, and a folded part."""


@dataclass(frozen=True)
class Satellites:
    """The parts that `fleet/program.py` connects."""

    copr_rules: Callable[[CoprRulesFile | CoprRulesUrl, str, Files], RuleReader]
    """Open the rules of a Copr at their place in fleet.yaml; the text is the path of its file."""
    simulation: Callable[[], SimulationReport]


_connected: list[Satellites] = []


def connect(satellites: Satellites) -> None:
    """Use these satellites from now on."""
    _connected[:] = [satellites]


def connected() -> Satellites:
    """Return the connected satellites; raises RuntimeError without `connect`."""
    if not _connected:
        raise RuntimeError("no satellite is connected; call fleet.program.connect_satellites")
    return _connected[0]
