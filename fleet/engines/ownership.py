"""This module refuses what is not this engine's to change: another's stack, a moved pool.

Nor does an engine make a machine again whose worker's token went to the one that is gone.

A provider in trouble may leave a machine out of a listing. Taken for gone it would run on, known
to nobody; so it has to be out of two listings, some seconds apart.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

from fleet.errors import EngineMismatch, PlanRefused, StackFailed
from fleet.model.facts import Unknown, WorkerInputs
from fleet.ports import Change, Engine, Provider, StackRef


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
        name: f"{name} is gone; without a token its worker would never register"
        for name, text in user_data.items()
        if not text and name not in exists
    }
    if gone:
        raise StackFailed(
            f"stack {ref.name}: {'; '.join(gone.values())}; the next apply gives it one",
            failed=gone,
        )


_SECONDS_APART = 10


class Absences:
    """Looks for machines; what was surely gone once is looked for again, but not waited for."""

    def __init__(self) -> None:
        self._sure: set[tuple[str, str]] = set()

    def surely_gone(
        self,
        provider: Provider,
        going: Sequence[WorkerInputs],
        ids: Mapping[str, str],
        pause: Callable[[float], None],
    ) -> tuple[str, ...]:
        """Return those that their provider lists no more, neither at once nor a while later."""
        gone = _unlisted(provider, [each for each in going if each.name in ids], ids)
        if not self._sure.issuperset(_machines(gone, ids)):
            pause(_SECONDS_APART)
            gone = _unlisted(provider, gone, ids)
            self._sure.update(_machines(gone, ids))
        return tuple(each.name for each in gone)


def _machines(
    workers: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[tuple[str, str]]:
    return [(each.name, ids[each.name]) for each in workers]


def _unlisted(
    provider: Provider, going: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[WorkerInputs]:
    listed: set[str] = set()
    for fleet in {each.labels.get("fleet", "") for each in going}:
        listing = provider.list(fleet)
        if isinstance(listing, Unknown):
            return ()
        listed |= {text for machine in listing.machines for text in (machine.name, machine.id)}
    return [each for each in going if not listed & {each.name, ids[each.name]}]


def previewed(engine: Engine, ref: StackRef, workers: Sequence[WorkerInputs]) -> Change:
    """Return a change that is previewed and made in two operations."""
    return Change(engine.preview(ref, workers), partial(engine.up, ref, workers))
