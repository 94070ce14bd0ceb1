"""Define the base class of rules that keep, replace, drain or delete machines.

`table.py` lists the rules in order. Only the rule reads its keys of fleet.yaml. Budgets,
forecasts, explanations and simulations get the limits of a machine from `table.py`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Literal, NamedTuple

from fleet.model.facts import market_of
from fleet.model.plan import Reason
from fleet.model.prices import Tariff, tariff_of
from fleet.model.tickets import ALONE, SANDBOX
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.schema.units import write_duration

Key = tuple[str, ...]
"""The path of a key below a pool in fleet.yaml."""
Clock = Literal["idle", "age", "boot", "uses"]
"""The quantity that a limit restricts: seconds idle, since creation or of boot, or requests."""


class MachineLife(NamedTuple):
    """The facts of an existing or future machine that decide how long it is kept."""

    fleet: Fleet
    pool: Pool | None
    """The pool's declaration in fleet.yaml; None if the pool was removed: no rule applies."""
    on_demand: bool = False
    in_sandbox: bool = False
    """Tickets of one sandbox used the machine, and only tickets of this sandbox may use it."""
    is_drained: bool = False
    """The worker of the machine gets no new work."""
    created_at: datetime | None = None
    boots_since: datetime | None = None
    idle_since: datetime | None = None
    uses: int | None = None
    """Number of finished requests; None: not reported."""
    tariff: Tariff | None = None


class LifeLimit(NamedTuple):
    """The limit that a rule sets on the time or uses of one machine."""

    clock: Clock
    most: int
    """Maximum seconds, or maximum finished requests."""
    key: Key
    value: str = ""
    """The value of the key as text; empty if it is a duration."""

    @property
    def stated(self) -> str:
        """Return the value of the limit's key as text."""
        return self.value or write_duration(self.most)

    def until(self, life: MachineLife) -> datetime | None:
        """Return the time when a machine reaches the limit; None if the clock does not run."""
        starts = {"idle": life.idle_since, "age": life.created_at, "boot": life.boots_since}
        start = starts.get(self.clock)
        return None if start is None else start + timedelta(seconds=self.most)


class LifeRule:
    """A rule with one reason to keep, replace, drain or delete machines, and its keys."""

    clock: ClassVar[Clock | None] = None
    """The clock of the rule's limit; None if the rule has no limit."""
    keys: ClassVar[Mapping[Reason, Key]] = {}
    """Reason of a decision to the key below the pool that causes the decision."""

    def apply(self, pool_plan: PoolPlan) -> None:
        """Add the decisions of the rule to the plan of a pool; by default, no decision."""

    def limit(self, life: MachineLife) -> LifeLimit | None:  # noqa: ARG002 - some rules do
        """Return the limit for one machine; None if the rule does not limit it."""
        return None


def is_in_sandbox(fleet: Fleet, unit: Unit | None) -> bool:
    """Return True if a machine is in a sandbox whose next ticket may use the machine.

    If the sandbox is unknown, as in a simulation, return True if any ticket has used the machine.
    """
    if unit is None or unit.worker is None:
        return False
    worker = unit.worker
    own = [tag.removeprefix(SANDBOX) for tag in worker.requires if tag.startswith(SANDBOX)]
    if not own:
        return isinstance(fleet.queues.get(unit.registry or ""), TicketQueue) and bool(worker.uses)
    return any(not sandbox.startswith(ALONE) for sandbox in own)


def life_of(
    fleet: Fleet, pool: Pool | None, unit: Unit, *, on_demand: bool = False
) -> MachineLife:
    """Return the facts of an observed machine that decide how long it is kept."""
    machine, tariff = unit.machine, None
    if machine is not None and pool is not None:
        tariff = tariff_of(fleet, pool, machine.type, market_of(unit.inputs))
    created = machine.created_at if machine else None
    return MachineLife(
        fleet,
        pool,
        on_demand=on_demand,
        in_sandbox=is_in_sandbox(fleet, unit),
        created_at=created,
        boots_since=created if unit.state is UnitState.STARTING else None,
        idle_since=unit.since if unit.state is UnitState.IDLE else None,
        uses=unit.worker.uses if unit.worker else None,
        tariff=tariff,
    )
