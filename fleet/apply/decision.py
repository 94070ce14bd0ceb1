"""The plan of a command, and its inputs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.apply.config import Config
from fleet.model.facts import World
from fleet.model.plan import Plan

if TYPE_CHECKING:
    from fleet.state.store import Store


@dataclass(frozen=True)
class PlanResult:
    """The result of a read command: the plan and its inputs."""

    config: Config
    world: World
    plan: Plan
    recorded: str = ""
    """File of the recorded world; empty: it was observed."""
    unread: str = ""
    """Why that file is unusable; then the world is unknown."""
    store: "Store | None" = None
    """The store with earlier worlds, if this one was observed."""
