"""This module says where a machine's worker is registered; of several, the most active speaks.

So a registration that is idle, draining or dead never hides one that works, and a machine goes
only when every queue that knows its worker has stopped giving it work.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from fleet.facts import Listing, Unknown, Worker, WorkerState, World
from fleet.schema.model import DebusineQueue, Fleet, Pool

_HEARING = timedelta(minutes=10)
DISCONNECTED_GRACE = 75 * 60
"""Seconds that an idle worker may be unheard of before it is replaced: a connected one is heard
within 65 minutes, and one that lost its connection has ten more to come back."""

Registries = Mapping[str, tuple[Worker, ...]]
"""Queue or provider to the workers registered there."""

_CALM = (
    (WorkerState.DISABLED, False),
    (WorkerState.ENROLLED, False),
    (WorkerState.IDLE, True),
    (WorkerState.DISCONNECTED, False),
    (WorkerState.DEAF, False),
    (WorkerState.IDLE, False),
)
"""State and draining of what runs nothing, the surest to stay so first."""


def workers_by_machine(
    registries: Registries, static: frozenset[str]
) -> dict[str, tuple[str, Worker]]:
    """Return machine name to where its worker is registered, and the worker; static ones aside."""
    found: dict[str, tuple[str, Worker]] = {}
    for registry, worker in sorted(_each(registries, static), key=_most_active_first):
        found.setdefault(worker.machine or worker.name, (registry, worker))
    return found


def enrols_at(fleet: Fleet, pool: object, queues: list[str]) -> str | None:
    """Return the first queue by name that a pool's workers register at with a token of ours."""
    if not isinstance(pool, Pool):
        return None
    return next((q for q in queues if isinstance(fleet.queues.get(q), DebusineQueue)), None)


def revokes_at(fleet: Fleet, queues: list[str]) -> str | None:
    """Return the first queue by name that takes the tokens of our workers back when told."""
    declared = ((name, fleet.queues.get(name)) for name in queues)
    return next((n for n, q in declared if isinstance(q, DebusineQueue) and q.admin), None)


def registries_of(
    world: World, queues: list[str], provider: str, listing: Listing
) -> tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return the workers by registry, and what could not be read."""
    if listing.workers is not None:
        return {provider: listing.workers}, ()
    return queue_registries(world, queues)


def queue_registries(
    world: World, queues: list[str]
) -> tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return the workers by queue, and what could not be read."""
    registries = {}
    unreadable = []
    for queue in queues:
        workers = world.queues[queue].workers
        if isinstance(workers, Unknown):
            unreadable.append(f"workers of queue {queue} are unknown: {workers.unknown}")
        elif workers is not None:
            registries[queue] = workers
    return registries, tuple(unreadable)


def seconds_away(world: World, worker: Worker | None) -> int:
    """Return for how long nothing was heard of a worker that is not connected; 0: it is."""
    if worker is None or not (worker.away or worker.state is WorkerState.DISCONNECTED):
        return 0
    heard = worker.last_seen or worker.since
    return int((world.time - heard).total_seconds()) if heard else 0


def hears_others(world: World, queue: str) -> bool:
    """Say whether a queue has heard somebody for long enough to be believed of who is away.

    After it was away itself, its workers come back one by one.
    """
    reading = world.queues.get(queue)
    workers = reading.workers if reading and isinstance(reading.workers, tuple) else ()
    since = world.time - _HEARING
    return any(w.connected_since is not None and w.connected_since <= since for w in workers)


def is_busy(worker: Worker) -> bool:
    """Say whether a worker runs something, by its state or by what it is said to run."""
    return worker.state is WorkerState.BUSY or worker.running is not None


def _each(registries: Registries, static: frozenset[str]) -> Iterable[tuple[str, Worker]]:
    return (
        (registry, worker)
        for registry, workers in registries.items()
        for worker in workers
        if not worker.static and worker.name not in static
    )


def _most_active_first(registered: tuple[str, Worker]) -> tuple[int, str, str, str]:
    registry, worker = registered
    return (-_activity(worker), registry, worker.name, str(worker.since))


def _activity(worker: Worker) -> int:
    if is_busy(worker) and not worker.stranded:
        return len(_CALM)
    return _CALM.index((worker.state, worker.draining and worker.state is WorkerState.IDLE))
