"""Machines of a lost store's tickets: they count as busy until an operator frees them."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from fleet.apply.satellites import MachineRecords
from fleet.model.facts import (
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

_MAX_SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of a provider and of the store."""


def with_forgotten(
    fleet: Fleet,
    queues: Mapping[str, QueueReading],
    listings: Mapping[str, Listing | Unknown],
    since: Mapping[str, datetime | None],
    records: MachineRecords,
) -> Iterator[tuple[str, QueueReading]]:
    """Yield the ticket queues, with machines older than the store added as busy.

    The store of their tickets is lost, so they may be in use. This ends with the ticket that
    `keep` opens for each. A machine created about the same time as the store is free only if the
    store recorded its creation. A machine of unknown age counts as older if a stack records it.
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
            # An adopted machine is free: an operator said so.
            is_ours = is_named_by_fleet(fleet.fleet, machine.pool, machine.name)
            if machine.name in known or not (began and is_ours):
                continue
            if machine.created_at is None and machine.name not in records.names:
                continue  # an orphan, unknown to any store
            if machine.created_at is not None and machine.created_at >= began + _MAX_SKEW:
                continue
            if own is None:
                own = {each.worker: each.at for each in records.attempts()}
            if not _is_made_here(machine, own):
                lost.setdefault(queue, []).append(_build_busy_worker(machine, records.now))
    for queue, workers in lost.items():
        reading = queues[queue]
        if isinstance(reading.workers, tuple):
            names = {each.name for each in workers}
            others = [each for each in reading.workers if each.name not in names]
            yield queue, reading.altered(workers=(*others, *workers))


def _build_busy_worker(machine: Machine, now: datetime) -> Worker:
    """Return the worker as the next apply creates it, except for the ticket, which has no id yet.

    So an earlier plan counts and reserves the same as that apply.
    """
    ticket = unknown_ticket(machine.name, now)
    tenancy = keep(Tenancy(machine.name, now), machine.pool, ticket, now)
    return worker_of(tenancy, ticket, draining=False).altered(running=None)


def _is_made_here(machine: Machine, attempts: Mapping[str, datetime]) -> bool:
    """Return whether the latest recorded attempt of its name created the machine."""
    at = attempts.get(machine.name)
    created = machine.created_at
    return at is not None and (created is None or at <= created + _MAX_SKEW)


def find_forgotten(reading: QueueReading) -> dict[str, str]:
    """Return the busy machines without known work, each with its pool."""
    workers = reading.workers if isinstance(reading.workers, tuple) else ()
    return {
        worker.name: worker.pool or ""
        for worker in workers
        if worker.state is WorkerState.BUSY and worker.running is None
    }
