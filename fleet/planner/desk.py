"""The workers of machines that a queue of tickets gives out."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime

from fleet.model.facts import Listing, Machine, Unknown, Worker, WorkerState, World
from fleet.schema.model import Fleet, TicketQueue


def desks_of(fleet: Fleet, queues: Iterable[str]) -> tuple[str, ...]:
    """Return the queues of tickets among these."""
    return tuple(q for q in queues if isinstance(fleet.queues.get(q), TicketQueue))


def attend(
    world: World,
    desks: Collection[str],
    listing: Listing,
    is_up: Callable[[Machine], bool],
) -> dict[str, tuple[Worker, ...]] | Unknown:
    """Return the workers of a provider's machines by the queue of tickets that gives them out.

    A machine that is up and registers nowhere else can be given out; Unknown where a queue is.
    """
    known: dict[str, tuple[str, Worker]] = {}
    for desk in desks:
        workers = world.queues[desk].workers
        if isinstance(workers, Unknown):
            return Unknown(unknown=f"workers of queue {desk} are unknown: {workers.unknown}")
        for worker in workers or ():
            other = known.get(worker.name)
            if other is None or worker.state is WorkerState.BUSY:
                known[worker.name] = (desk, worker)
    created = {machine.name: machine.created_at for machine in listing.machines}
    found: dict[str, list[Worker]] = {desk: [] for desk in desks}
    first = next(iter(found))
    for worker in _running(listing, is_up):
        desk, own = known.pop(worker.name, (first, None))
        is_new = own is None or _is_of_older(own, created.get(worker.name))
        found[desk].append(worker if own is None or is_new else _joined(worker, own))
    for desk, own in known.values():
        # A record of a machine that is gone says nothing about a new one of the same name.
        if not _is_of_older(own, created.get(own.name)):
            found[desk].append(own)
    return {desk: tuple(workers) for desk, workers in found.items()}


def _is_of_older(own: Worker, created_at: datetime | None) -> bool:
    """Say whether a queue's record is of an older machine of the same name."""
    if own.state is WorkerState.BUSY or own.since is None or created_at is None:
        return False
    return own.since < created_at


def _running(listing: Listing, is_up: Callable[[Machine], bool]) -> Iterator[Worker]:
    if listing.workers is not None:
        yield from listing.workers
        return
    for machine in listing.machines:
        if is_up(machine):
            yield Worker(
                name=machine.name,
                machine=machine.name,
                pool=machine.pool,
                state=WorkerState.IDLE,
                since=machine.created_at,
            )


def _joined(seen: Worker, own: Worker) -> Worker:
    """Return a worker as its machine and its queue report it; the busier report wins."""
    if seen.state is not WorkerState.IDLE:
        return seen
    update: Mapping[str, object] = {
        "state": own.state,
        "running": own.running,
        "work": own.work,
        "ended": own.ended,
        "uses": own.uses,
        "since": own.since,
        "draining": seen.draining or own.draining,
        "requires": tuple(sorted({*seen.requires, *own.requires})),
    }
    return seen.model_copy(update=dict(update))
