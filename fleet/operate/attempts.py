"""This module writes down every try to make a machine, before it is made and after.

So a run that is killed leaves tries without a result, and the next one says what became of them.
"""

from collections.abc import Collection, Sequence

from fleet.census import take_census
from fleet.census.failures import classify, settle
from fleet.errors import StackFailed
from fleet.facts import Attempt, World
from fleet.making import market_of
from fleet.plan import Create
from fleet.ports.store import Store
from fleet.schema.model import Fleet

_LINE_LIMIT = 300


def settle_attempts(
    fleet: Fleet, world: World, store: Store, *, besides: Collection[str] = ()
) -> None:
    """Write down what became of earlier tries, as far as the world tells.

    Of pools `besides` none has to be over that the world does not tell of.
    """
    if any(attempt.result == "starting" for attempt in world.attempts):
        settled = settle(fleet, world, take_census(fleet, world))
        store.record_attempts([each for each in settled if each.pool not in besides])


def begin_attempts(world: World, creates: Sequence[Create], store: Store) -> tuple[Attempt, ...]:
    """Write down what is about to be made; what an earlier run had begun is written already."""
    begun = {each.worker: each for each in world.attempts if each.result == "starting"}
    attempts = [begun.get(create.worker) or _attempt(world, create) for create in creates]
    store.record_attempts([each for each in attempts if each.worker not in begun])
    return tuple(attempts)


def end_attempts(attempts: Sequence[Attempt], failure: StackFailed, store: Store) -> None:
    """Write down what the provider refused; what it made may still fail to boot."""
    store.record_attempts(
        [
            attempt.model_copy(update={"result": classify(said), "detail": said[:_LINE_LIMIT]})
            for attempt in attempts
            if (said := failure.failed.get(attempt.worker)) is not None
        ]
    )


def _attempt(world: World, create: Create) -> Attempt:
    return Attempt(
        pool=create.pool,
        worker=create.worker,
        type=create.inputs.type,
        market=market_of(create.inputs),
        image=create.inputs.image,
        at=world.time,
        result="starting",
    )
