"""This module refuses what is not this engine's to change: another's stack, a moved pool."""

from collections.abc import Container

from fleet.errors import EngineMismatch, PlanRefused
from fleet.ports import StackRef


def check_owner(ref: StackRef, *, mine: str, owner: str | None) -> None:
    """Raise EngineMismatch when a stack is recorded as another engine's."""
    if owner not in (None, mine):
        raise EngineMismatch(
            f"stack {ref.name} belongs to the engine {owner!r}, not to {mine!r}; say "
            f"`engine: {owner}` for provider {ref.provider}, or drain the pool first"
        )


def check_provider(ref: StackRef, recorded: str, *, holds_machines: bool) -> None:
    """Raise PlanRefused when a stack's machines are at another provider than its pool now is."""
    if holds_machines and recorded != ref.provider:
        raise PlanRefused(
            f"stack {ref.name} holds machines at provider {recorded!r}, but the pool now says "
            f"{ref.provider!r}; drain the pool before it moves"
        )


def check_holds(ref: StackRef, worker: str, held: Container[str]) -> None:
    """Raise PlanRefused when a stack does not hold the worker that it is to forget."""
    if worker not in held:
        raise PlanRefused(
            f"stack {ref.name} does not hold {worker}, so there is nothing to forget"
        )
