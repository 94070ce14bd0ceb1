"""Define the plan of a command, together with the inputs of that plan."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.apply.config import Config
from fleet.model.facts import World
from fleet.model.plan import Plan

if TYPE_CHECKING:
    from fleet.state.store import Store


@dataclass(frozen=True)
class PlanResult:
    """A plan with the configuration and the world on which it is based."""

    config: Config
    world: World
    plan: Plan
    recorded: str = ""
    """File of the recorded world; empty if the world was observed."""
    unread: str = ""
    """Reason why the file in `recorded` is unusable; the world is then unknown."""
    store: "Store | None" = None
    """Store with earlier worlds; None if `world` is a recording."""
