"""Assign free machines to tickets before a run decides which machines to create or delete.

Only one run at a time assigns machines, under the fleet's lock; the store refuses a ticket that no
longer waits. A machine that a ticket released is cleaned first. If a machine failed its
livechecks, its ticket fails. This module implements the port HandOut.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from fleet.apply.satellites import MachineRecords, SeenRun, TicketSources
from fleet.model.facts import (
    Listing,
    Machine,
    MachineState,
    QueueReading,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.model.plan import Plan
from fleet.model.tickets import UNKNOWN_USER, Given, unknown_ticket
from fleet.planner.competing import known_machines
from fleet.planner.demand import required_of
from fleet.planner.inventory import holds_of
from fleet.planner.turns import Lease
from fleet.ports import EngineTask, MachineCleaner, PoolExecutor, Tell, TicketDesk
from fleet.reconcile import find_leases
from fleet.schema.model import Fleet, TicketQueue, is_named_by_fleet, serves_queue
from fleet.tickets.reasons import find_held, note_lacking
from fleet.tickets.tenancy import Tenancy, keep, worker_of


def hand_out_all(
    fleet: Fleet, world: World, sources: TicketSources, tell: Tell, note: Tell
) -> World:
    """Assign free machines to tickets, and return the observation with these assignments."""
    if not (sources.desks or sources.removed):
        return world
    # A listing may omit a machine once, so do not forget a machine that a stack records.
    known = known_machines(world)
    world = _keep_forgotten(world, sources, tell)
    there = None if known is None else frozenset(known)
    listed = _map_machines(world)
    broken = {name for name, (_, each) in listed.items() if each.state is MachineState.FAILED}
    for desk in (*(desk for _, desk in sorted(sources.desks.items())), *sources.removed):
        desk.settle(world.time, there, broken)
    _clean(world, sources, tell, note)
    if broken or sources.cleaners:
        world = _replace_workers(world, sources)
    given = _give(SeenRun(fleet, world, sources, world.time), tell, note)
    if not given:
        return world
    queues = {queue: _without_tickets(world.queues[queue], got) for queue, got in given.items()}
    world = world.altered(queues={**world.queues, **queues})
    return _replace_workers(world, sources)


def hand_out_again(
    seen: SeenRun, executor: PoolExecutor, now: datetime, tell: Tell, note: Tell
) -> bool:
    """Assign machines that are still free. Return whether a waiting ticket got a machine."""
    sources = seen.sources._replace(executor=executor)
    desks = {queue: desk.read(now) for queue, desk in sorted(sources.desks.items())}
    queues = {**seen.world.queues, **desks}
    orders = sources.store.orders(now)
    world = seen.world.altered(time=now, queues=queues, orders=orders)
    for queue, reading in desks.items():
        if _has_waiting(reading):
            sources.desks[queue].settle(now, None, ())
    return bool(_give(seen._replace(world=world, sources=sources), tell, note))


def _give(seen: SeenRun, tell: Tell, note: Tell) -> dict[str, frozenset[int]]:
    """Assign free machines to tickets. Map each queue to the tickets that got a machine."""
    sources, listed = seen.sources, _map_machines(seen.world)
    if not any(_has_waiting(seen.world.queues[queue]) for queue in sources.desks):
        return {}
    withheld = {*_find_withheld(listed, sources), *seen.besides}
    ready: defaultdict[str, list[Given]] = defaultdict(list)
    for lease in find_leases(seen.fleet, seen.world, withheld):
        queue, _, ticket = lease.ticket.partition("/")
        if lease.machine in listed and queue in sources.desks:
            note(f"queue {queue}: give {lease.machine} to ticket {ticket}")
            ready[queue].append(_build_given(seen, lease, listed[lease.machine]))
    given = {
        queue: _lease(queue, each, seen.world, sources, tell) for queue, each in ready.items()
    }
    return {queue: tickets for queue, tickets in given.items() if tickets}


def _has_waiting(reading: QueueReading) -> bool:
    return not isinstance(reading.demand, Unknown) and bool(reading.demand.requests)


def _keep_forgotten(world: World, sources: TicketSources, tell: Tell) -> World:
    """Open a ticket for each busy machine whose ticket was in a lost store."""
    kept = False
    for queue, desk in sorted(sources.desks.items()):
        forgotten = _find_forgotten(world.queues[queue])
        # With an empty argument, `keep` would drop the cached reading, which is slow to read
        # again.
        numbers = desk.keep(forgotten, world.time) if forgotten else {}
        for machine, number in numbers.items():
            tell(
                f"{machine} is older than the store and counts as busy: an unrecorded ticket may "
                f"use it; when it is no longer used: fleet ticket close {number} "
                f"--queue {queue} --user {UNKNOWN_USER}"
            )
            kept = True
    return _replace_workers(world, sources) if kept else world


def note_waits(fleet: Fleet, plan: Plan, sources: TicketSources) -> None:
    """Store the plan's reasons why tickets wait, so that clients can read them."""
    for queue, desk in sources.desks.items():
        desk.note(find_held(fleet, plan, queue))


_Listed = Mapping[str, tuple[str, Machine]]
"""Map of machine names to (name of the provider, machine)."""


def _map_machines(world: World) -> _Listed:
    return {machine.name: (provider, machine) for provider, machine in world.machines()}


def _clean(world: World, sources: TicketSources, tell: Tell, note: Tell) -> None:
    """Clean the machines that tickets released, except for machines that an operator holds."""
    if not sources.cleaners:
        return
    listed = _map_machines(world)

    def clean(machine: Machine, desk: TicketDesk, cleaner: MachineCleaner) -> None:
        note(f"provider {listed[machine.name][0]}: release {machine.name}")
        trouble, begun = cleaner.clean(machine)
        if begun:
            desk.clean(machine.name, trouble)
        if trouble:
            retry = "" if begun else " (the next run retries)"
            tell(f"{machine.pool}: {machine.name} not reused: cleaning failed: {trouble}{retry}")

    held = holds_of(world)
    dirty = {
        name: desk
        for desk in sources.desks.values()
        for name in desk.released()
        if name not in held
    }
    sources.executor.run(
        [
            EngineTask(
                f"release {name}", at, [name], partial(clean, machine, desk, sources.cleaners[at])
            )
            for name, desk in dirty.items()
            if name in listed
            for at, machine in [listed[name]]
            if at in sources.cleaners and machine.state is MachineState.RUNNING
        ]
    )


def _find_withheld(listed: _Listed, sources: TicketSources) -> Collection[str]:
    """Return the machines that get no ticket now: unresponsive, dirty, or being changed."""
    going = {name for names in sources.executor.under_way.values() for name in names}
    if not sources.cleaners:
        return going
    doubted = {name for cleaner in sources.cleaners.values() for name in cleaner.doubted()}
    dirty = {name for desk in sources.desks.values() for name in desk.released()}
    return going | doubted | {n for n in dirty if n in listed and listed[n][0] in sources.cleaners}


def _replace_workers(world: World, sources: TicketSources) -> World:
    """Return the observation with the current workers of the ticket queues.

    Keep the ended work of each machine, which must still be charged to a budget.
    """
    queues = {}
    for queue, reading in world.queues.items():
        queues[queue] = reading
        if queue in sources.desks:
            known = () if isinstance(reading.workers, Unknown) else reading.workers or ()
            ended = {worker.name: worker.ended for worker in known if worker.ended}
            workers = tuple(
                worker.altered(ended=ended[worker.name])
                if worker.name in ended and not worker.ended
                else worker
                for worker in sources.desks[queue].workers(world.time)
            )
            queues[queue] = reading.altered(workers=workers)
    return world.altered(queues=queues)


def _build_given(seen: SeenRun, lease: Lease, listed: tuple[str, Machine]) -> Given:
    queue, _, ticket = lease.ticket.partition("/")
    ask = lease.signed.ask
    provider, machine = listed
    cleaner = seen.sources.cleaners.get(provider)
    desk = seen.fleet.queues[queue]
    return Given(
        ticket=int(ticket),
        machine=machine.name,
        pool=machine.pool,
        answer=fill(
            desk.answer if isinstance(desk, TicketQueue) else "",
            {
                "name": machine.name,
                "host": machine.address or machine.name,
                "pool": machine.pool,
                **(cleaner.particulars(machine) if cleaner else {}),
            },
        ),
        created_at=machine.created_at,
        tags=tuple(required_of(ask._replace(required=ask.required - lease.lacking))),
        note=note_lacking(lease.signed, lease.lacking),
    )


def _lease(
    queue: str, given: Sequence[Given], world: World, sources: TicketSources, tell: Tell
) -> frozenset[int]:
    """Assign machines to tickets, print the results, and return the successful tickets."""
    leased = sources.desks[queue].lease(given, world.time)
    for each in given:
        if each.ticket in leased.tickets:
            tell(f"{each.pool}: {each.machine} assigned to ticket {each.ticket}")
        elif each.ticket in leased.refused:
            because = leased.refused[each.ticket]
            tell(f"{each.pool}: ticket {each.ticket} keeps waiting: {because}")
    return frozenset(leased.tickets)


def _without_tickets(reading: QueueReading, tickets: Iterable[int]) -> QueueReading:
    """Return a queue's reading without the requests of these tickets."""
    ids = {str(ticket) for ticket in tickets}
    if isinstance(reading.demand, Unknown):
        return reading
    left = tuple(each for each in reading.demand.requests if each.id not in ids)
    return reading.altered(demand=reading.demand.altered(requests=left))


_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SSH_PORT = "22"


def fill(template: str, particulars: Mapping[str, str]) -> str:
    """Fill a template in one pass, so that placeholders inside values stay unchanged."""
    known = {"port": _SSH_PORT, **{key: text for key, text in particulars.items() if text}}
    return _PLACEHOLDER.sub(lambda found: known.get(found[1], ""), template).strip()


_MAX_SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of a provider and of the store's computer."""


def with_forgotten(
    fleet: Fleet,
    queues: Mapping[str, QueueReading],
    listings: Mapping[str, Listing | Unknown],
    since: Mapping[str, datetime | None],
    records: MachineRecords,
) -> Iterator[tuple[str, QueueReading]]:
    """Add machines older than the store as busy; yield name and reading of changed queues.

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
            # An adopted machine is free, because an operator said so.
            is_ours = is_named_by_fleet(fleet.fleet, machine.pool, machine.name)
            if machine.name in known or not (began and is_ours):
                continue
            if machine.created_at is None and machine.name not in records.names:
                continue  # an orphan: no stack records it
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
    """Return the busy worker of a machine with a lost ticket, as the next apply records it.

    A plan before that apply then counts and reserves the same amounts.
    """
    ticket = unknown_ticket(machine.name, now)
    tenancy = keep(Tenancy(machine.name, now), machine.pool, ticket, now)
    return worker_of(tenancy, ticket, draining=False).altered(running=None)


def _is_made_here(machine: Machine, attempts: Mapping[str, datetime]) -> bool:
    """Return whether the latest recorded attempt for this name created the machine."""
    at = attempts.get(machine.name)
    created = machine.created_at
    return at is not None and (created is None or at <= created + _MAX_SKEW)


def _find_forgotten(reading: QueueReading) -> dict[str, str]:
    """Map each busy machine without known work to its pool's name."""
    workers = reading.workers if isinstance(reading.workers, tuple) else ()
    return {
        worker.name: worker.pool or ""
        for worker in workers
        if worker.state is WorkerState.BUSY and worker.running is None
    }
