"""This module switches off workers that go; one that took work or registered meanwhile stays."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.errors import FleetError, PlanRefused, WorkerBusy
from fleet.operate.pool_run import PoolRun
from fleet.plan import Action, Delete
from fleet.ports import Registry


def check_registries(run: PoolRun, actions: Sequence[Action]) -> None:
    """Refuse before anything changes when a worker's queue cannot be told to let go of it."""
    named = {action.registry for action in actions}
    deaf = sorted(name for name in named if name and name not in run.sources.registries)
    if deaf:
        raise PlanRefused(
            f"refused, nothing was changed: queue {', '.join(deaf)} can be read, but not be told "
            "to enrol, drain or disable a worker; give it `admin` in fleet.yaml, or set "
            f"`mode: observe` or `pause` on pool {run.ref.pool}"
        )


@dataclass
class Switched:
    """What became of the workers that go."""

    going: list[Delete] = field(default_factory=list)
    """Those that are switched off: their machines can be deleted."""
    kept: list[str] = field(default_factory=list)
    """Why some stay."""
    troubles: list[str] = field(default_factory=list)
    """What failed; what it is about stays too."""


def switch_off(run: PoolRun, deletes: Sequence[Delete]) -> Switched:
    """Switch off the workers that go; one that took work or registered meanwhile stays.

    Where a registry fails, what was switched off before goes all the same.
    """
    switched = Switched()
    failing: set[str] = set()
    for action in deletes:
        if action.registry in failing:
            continue
        try:
            if action.registry is not None:
                let_go(run.sources.registries[action.registry], action)
        except WorkerBusy as busy:
            switched.kept.append(f"{action.worker} stays: {busy}")
        except FleetError as trouble:
            switched.troubles.append(f"{action.worker} stays: {trouble}")
            if not isinstance(trouble, PlanRefused):
                failing.add(action.registry or "")
        else:
            switched.going.append(action)
    return switched


def let_go(registry: Registry, action: Delete) -> None:
    """Have a queue give up a worker whose machine goes; WorkerBusy where it has to stay."""
    if action.releases:
        # It has a ticket in vain: its machine is off.
        registry.release(action.worker)
    elif action.revokes:
        registry.revoke(action.worker)
    else:
        registry.disable(action.worker)
