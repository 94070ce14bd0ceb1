"""A rule of life: one reason for which machines are kept, replaced, drained or deleted.

`table.py` lists the rules in order. A rule alone reads its keys of fleet.yaml: budgets, forecasts,
explanations and simulations ask the table for the limits of a machine.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Literal, NamedTuple

from fleet.model.facts import market_of
from fleet.model.plan import Reason
from fleet.model.prices import Tariff, tariff_of
from fleet.model.tickets import ALONE, SANDBOX
from fleet.planner.pool_plan import PoolPlan, Proposal
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.schema.units import write_duration

Key = tuple[str, ...]
"""A key of fleet.yaml below the pool."""
Clock = Literal["idle", "age", "boot", "uses"]
"""The figure that a limit counts: seconds since an event, or finished requests."""


class MachineLife(NamedTuple):
    """The facts of an existing or future machine that limit its life."""

    fleet: Fleet
    pool: object
    """Its declaration in fleet.yaml; other than a pool of machines: no rule limits it."""
    on_demand: bool = False
    in_sandbox: bool = False
    """Tickets of one sandbox have used it, and only they may use it again."""
    is_drained: bool = False
    """Its worker gets no more work."""
    created_at: datetime | None = None
    boots_since: datetime | None = None
    idle_since: datetime | None = None
    uses: int | None = None
    """Number of its finished requests; None: not reported."""
    tariff: Tariff | None = None


class LifeLimit(NamedTuple):
    """The limit of a rule for one machine."""

    clock: Clock
    most: int
    """Seconds of its clock, or finished requests."""
    key: Key
    value: str = ""
    """The value of the key, if it is no duration."""

    @property
    def stated(self) -> str:
        """Return the value of the key as text."""
        return self.value or write_duration(self.most)

    def until(self, life: MachineLife) -> datetime | None:
        """Return when a machine reaches the limit; None if its clock does not run."""
        starts = {"idle": life.idle_since, "age": life.created_at, "boot": life.boots_since}
        start = starts.get(self.clock)
        return None if start is None else start + timedelta(seconds=self.most)


class LifeRule:
    """One reason for the end of a machine, with its keys."""

    clock: ClassVar[Clock | None] = None
    """The clock of its limit; None: it has no limit."""
    keys: ClassVar[Mapping[Reason, Key]] = {}
    """Reason of a decision to the deciding key below the pool."""

    def propose(self, pool_plan: PoolPlan) -> Iterator[Proposal]:  # noqa: ARG002 - most rules do
        """Yield decisions on machines; each is applied before the rule continues.

        Replacements and warm machines are created here, since each takes its share of all limits.
        """
        return iter(())

    def limit(self, life: MachineLife) -> LifeLimit | None:  # noqa: ARG002 - some rules do
        """Return the limit for one machine; None if the rule does not limit it."""
        return None


def is_in_sandbox(fleet: Fleet, unit: Unit | None) -> bool:
    """Return whether a machine is in a sandbox whose next ticket may use it.

    A machine that a ticket used is in one, also if it is unknown in which, as in a simulation.
    """
    if unit is None or unit.worker is None:
        return False
    worker = unit.worker
    own = [tag.removeprefix(SANDBOX) for tag in worker.requires if tag.startswith(SANDBOX)]
    if not own:
        is_desk = isinstance(fleet.queues.get(unit.registry or ""), TicketQueue)
        return is_desk and bool(worker.uses)
    return any(not sandbox.startswith(ALONE) for sandbox in own)


def life_of(fleet: Fleet, pool: object, unit: Unit, *, on_demand: bool = False) -> MachineLife:
    """Return the facts of an observed machine of a pool."""
    machine, tariff = unit.machine, None
    if machine is not None and isinstance(pool, Pool):
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


def declared(life: MachineLife) -> Pool | None:
    """Return the pool of a machine; None if fleet.yaml declares no such pool of machines."""
    return life.pool if isinstance(life.pool, Pool) else None
