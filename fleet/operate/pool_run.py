"""This module holds one pool's part of a run: its actions, and what carrying them out needs."""

from dataclasses import dataclass

from fleet.errors import FleetError
from fleet.facts import Stack, Unknown, World
from fleet.operate.enrolment import Enrolling
from fleet.operate.observe import Sources
from fleet.plan import Action, Delete, Plan, Reason
from fleet.plan.guard_results import ApprovalVerdict
from fleet.ports import Engine, StackRef, Tell
from fleet.ports.store import StackRecord
from fleet.schema.model import Fleet


@dataclass(frozen=True)
class PoolRun:
    """What carrying out one pool's actions needs."""

    fleet: Fleet
    world: World
    plan: Plan
    ref: StackRef
    sources: Sources
    tell: Tell
    enrolling: Enrolling

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the pool's actions, but for what no stack holds."""
        own = (each for each in self.plan.actions if each.pool == self.ref.pool)
        return tuple(each for each in own if not is_orphan(each))

    @property
    def approvals(self) -> tuple[ApprovalVerdict, ...]:
        """Return the approvals that let some of the pool's actions pass."""
        own = (each for each in self.plan.approvals if each.pool == self.ref.pool)
        return tuple(each for each in own if each.passes)

    @property
    def stack(self) -> Stack | None:
        """Return the pool's stack as it was observed."""
        return observed_stack(self.world, self.ref.pool)

    @property
    def engine(self) -> Engine:
        """Return what changes the pool's stack."""
        return self.sources.engine_of(self.ref.provider)

    @property
    def blind(self) -> str:
        """Return why the pool's stack or machines are unknown; nothing may be done then."""
        if isinstance(self.world.stacks, Unknown):
            return self.world.stacks.unknown
        listing = self.world.providers.get(self.ref.provider)
        for reading in (self.world.stacks.get(self.ref.pool), listing):
            if isinstance(reading, Unknown):
                return reading.unknown
        return ""

    def read_stack(self) -> Stack | Unknown | None:
        """Return the pool's stack as it is now."""
        try:
            return self.engine.read(self.ref)
        except FleetError as failure:
            return Unknown(unknown=str(failure))

    def record_stack(self, *, serial: int) -> None:
        """Have the store remember the pool's stack, so that its loss would be noticed."""
        self.sources.store.record_stack(
            StackRecord(
                name=self.ref.name,
                pool=self.ref.pool,
                provider=self.ref.provider,
                project=self.ref.project,
                engine=self.engine.name,
                serial=serial,
            )
        )


def is_orphan(action: Action) -> bool:
    """Say whether an action deletes what no stack holds; any apply does that, not only a sweep."""
    return isinstance(action, Delete) and action.reason is Reason.ORPHAN


def observed_stack(world: World, pool: str) -> Stack | None:
    """Return a pool's stack as it was observed; None where none was."""
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    stack = stacks.get(pool)
    return stack if isinstance(stack, Stack) else None


def is_empty(stack: Stack | Unknown | None) -> bool:
    """Say whether a stack surely holds nothing, not even something half deleted."""
    return isinstance(stack, Stack) and not (stack.workers or stack.ids or stack.interrupted)
