"""List all rules of life in order, in two phases: before and after requests are assigned."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Literal, get_args

from fleet.model.plan import Reason
from fleet.planner.lifecycle.failed import (
    BrokenMachine,
    DeafWorker,
    DisconnectedWorker,
    FailedBoot,
    GoneMachine,
    HeldMachine,
    InterruptedRun,
    OrphanMachine,
    StoppedMachine,
)
from fleet.planner.lifecycle.replace import (
    MaximumAge,
    MaximumUses,
    OutdatedMachine,
    Replacement,
    WarmWorkers,
)
from fleet.planner.lifecycle.rule import Clock, Key, LifeLimit, LifeRule, MachineLife
from fleet.planner.lifecycle.surplus import (
    DrainedWorker,
    ExcessSize,
    IdleTimeout,
    OnDemandIdle,
    ReturnedMachine,
    UnneededBoot,
    UnwantedPool,
)
from fleet.planner.pool_plan import PoolPlan

Phase = Literal["before", "after"]
"""Phase of rules: before or after requests are assigned to workers."""

RULES: Mapping[Phase, tuple[LifeRule, ...]] = {
    # These machines are removed regardless of demand, so they get no new work.
    "before": (
        InterruptedRun(),
        GoneMachine(),
        FailedBoot(),
        DeafWorker(),
        StoppedMachine(),
        DisconnectedWorker(),
        BrokenMachine(),
        OrphanMachine(),
        OutdatedMachine(),
        MaximumAge(),
        MaximumUses(),
        HeldMachine(),
        DrainedWorker(),
        UnwantedPool(),
        ExcessSize(),
    ),
    "after": (
        ReturnedMachine(),
        WarmWorkers(),
        Replacement(),
        OnDemandIdle(),
        IdleTimeout(),
        UnneededBoot(),
    ),
}
_ALL = tuple(chain.from_iterable(RULES.values()))
_BY_CLOCK = {clock: [rule for rule in _ALL if rule.clock == clock] for clock in get_args(Clock)}
_KEYS = {reason: key for rule in _ALL for reason, key in rule.keys.items()}


def apply_rules(pool_plans: Iterable[PoolPlan], phase: Phase) -> None:
    """Add the decisions of all rules of a phase to the plan of each pool."""
    for pool_plan in pool_plans:
        for rule in RULES[phase]:
            rule.apply(pool_plan)


def limits_of(life: MachineLife, clock: Clock) -> list[LifeLimit]:
    """Return all limits on one clock (such as idle time) of a machine, the shortest first."""
    limits = (rule.limit(life) for rule in _BY_CLOCK[clock])
    return sorted((limit for limit in limits if limit), key=lambda limit: limit.most)


def idle_limit(life: MachineLife) -> LifeLimit:
    """Return the shortest limit on a machine's idle time; 0 seconds if its pool is removed."""
    return next(iter(limits_of(life, "idle")), LifeLimit("idle", 0, ()))


def key_of_reason(reason: Reason) -> Key:
    """Return the key below a pool that causes decisions with this reason; empty if none."""
    return _KEYS.get(reason, ())
