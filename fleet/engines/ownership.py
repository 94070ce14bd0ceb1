"""This module refuses what is not this engine's to change: another's stack, a moved pool.

Nor does an engine make a machine again whose worker's token went to the one that is gone.
"""

from collections.abc import Container, Mapping

from fleet.errors import EngineMismatch, PlanRefused, StackFailed
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


def check_made_before(ref: StackRef, user_data: Mapping[str, str], exists: Container[str]) -> None:
    """Raise StackFailed where a machine that was there when this run looked is gone by now."""
    gone = {
        name: f"{name} was there and is gone; without a token its worker would never register"
        for name, text in user_data.items()
        if not text and name not in exists
    }
    if gone:
        raise StackFailed(
            f"stack {ref.name}: {'; '.join(gone.values())}; the next apply gives it one",
            failed=gone,
        )
