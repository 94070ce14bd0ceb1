"""Machines whose tickets a lost store knew: they count as busy until a person says otherwise."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.model.facts import (
    Attempt,
    Listing,
    Machine,
    QueueReading,
    Unknown,
    Worker,
    WorkerState,
)
from fleet.model.tickets import unknown_ticket
from fleet.schema.model import Fleet, is_named_by_fleet, serves_queue
from fleet.tickets.assignment import Tenancy, keep, worker_of

_SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of a provider and of the store."""


class Records(NamedTuple):
    """The records of the store and of the stacks about machines."""

    attempts: Callable[[], Iterable[Attempt]]
    """Returns the attempts to create machines, the oldest first."""
    names: Collection[str]
    """The machines that stacks know."""
    now: datetime


def with_forgotten(
    fleet: Fleet,
    queues: Mapping[str, QueueReading],
    listings: Mapping[str, Listing | Unknown],
    since: Mapping[str, datetime | None],
    records: Records,
) -> Iterator[tuple[str, QueueReading]]:
    """Yield the queues of tickets with machines busy that are older than what is remembered.

    The store in which their tickets were is lost; nothing tells that nobody uses them. That ends
    with the ticket that `keep` opens for each. A machine that was created near the time of the
    store is free only if the store recorded its creation. One of unknown age counts as older if a
    stack knows it.
    """
    known = {
        worker.name
        for reading in queues.values()
        if isinstance(reading.workers, tuple)
        for worker in reading.workers
        if worker.running is not None or worker.uses != 0
    }
    own: dict[str, datetime] | None = None
    lost: dict[str, list[Worker]] = {}
    for listing in listings.values():
        for machine in listing.machines if isinstance(listing, Listing) else ():
            pool = fleet.pools.get(machine.pool)
            queue = next((q for q in since if pool is None or serves_queue(pool, q)), "")
            began = since.get(queue)
            # One that was adopted is free by the word of a person.
            is_ours = is_named_by_fleet(fleet.fleet, machine.pool, machine.name)
            if machine.name in known or not (began and is_ours):
                continue
            if machine.created_at is None and machine.name not in records.names:
                continue  # an orphan, of which no store knew anything
            if machine.created_at is not None and machine.created_at >= began + _SKEW:
                continue
            if own is None:
                own = {each.worker: each.at for each in records.attempts()}
            if not _is_made_here(machine, own):
                lost.setdefault(queue, []).append(_kept(machine, records.now))
    for queue, workers in lost.items():
        reading = queues[queue]
        if isinstance(reading.workers, tuple):
            names = {each.name for each in workers}
            others = [each for each in reading.workers if each.name not in names]
            yield queue, reading.altered(workers=(*others, *workers))


def _kept(machine: Machine, now: datetime) -> Worker:
    """Return the worker as the next apply makes it, but for the ticket, which has no id yet.

    A plan before that counts and reserves for it what the apply does.
    """
    ticket = unknown_ticket(machine.name, now)
    tenancy = keep(Tenancy(machine.name, now), machine.pool, ticket, now)
    return worker_of(tenancy, ticket, draining=False).altered(running=None)


def _is_made_here(machine: Machine, attempts: Mapping[str, datetime]) -> bool:
    """Say whether the latest recorded attempt of its name created a machine."""
    at = attempts.get(machine.name)
    created = machine.created_at
    return at is not None and (created is None or at <= created + _SKEW)


def find_forgotten(reading: QueueReading) -> dict[str, str]:
    """Return the machines of a reading that are busy with nothing known, each with its pool."""
    workers = reading.workers if isinstance(reading.workers, tuple) else ()
    return {
        worker.name: worker.pool or ""
        for worker in workers
        if worker.state is WorkerState.BUSY and worker.running is None
    }
