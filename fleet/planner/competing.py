"""Report on workers without a machine of fleet: static, orphaned or created by others.

If a machine is gone, its worker record keeps a request `running` and a token valid indefinitely.
fleet releases such a worker once neither a stack nor a provider lists the machine.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from fleet.model.facts import MachineState, Unknown, Worker, WorkerState, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Action, Delete, PoolVerdict, Reason, Release, Warning_, WorkerVerdict
from fleet.planner.demand import EqualRequests
from fleet.schema.model import (
    DebusineQueue,
    Fleet,
    Otherwise,
    StaticPool,
    TicketQueue,
    serves_queue,
)
from fleet.tagrules.derive import find_differing_records, queue_context
from fleet.tagrules.offers import find_doubts
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words import lives, notes
from fleet.words.runs import add_reason


def _list_workers(world: World) -> Iterator[tuple[str, Worker]]:
    """Yield each worker that a queue lists, with the queue, sorted by both names."""
    for queue, reading in sorted(world.queues.items()):
        known = reading.workers if isinstance(reading.workers, tuple) else ()
        yield from ((queue, worker) for worker in sorted(known, key=lambda each: each.name))


def _keep(  # noqa: PLR0913 - the facts that differ
    worker: Worker, queue: str, pool: str, reason: Reason, because: str, *, inactive: bool = False
) -> WorkerVerdict:
    return WorkerVerdict(
        worker=worker.name,
        pool=pool,
        registry=queue,
        verdict="keep",
        reason=reason,
        because=because,
        state=worker.state.value,
        running=worker.running,
        since=worker.since,
        inactive=inactive,
    )


def static_pools(fleet: Fleet, world: World) -> Iterator[PoolVerdict]:
    """Yield the plan's entry for each static pool (workers that fleet does not create)."""
    workers = [*static_workers(fleet, world)]
    for name, pool in sorted(fleet.pools.items()):
        if isinstance(pool, StaticPool):
            seen = {each.worker for each in workers if each.pool == name}
            states = Counter(each.state for each in workers if each.pool == name)
            # A registry that may list workers of the pool is unreadable or missing.
            is_silent = any(
                serves_queue(pool, queue) and not isinstance(reading.workers, tuple)
                for queue, reading in world.queues.items()
            )
            yield PoolVerdict(
                pool=name,
                mode="static",
                because=lives.STATIC_POOL,
                busy=states["busy"],
                idle=states["idle"],
                other=states.total() - states["busy"] - states["idle"],
                max=len(pool.static),
                not_known=("machines", "workers") if {*pool.static} - seen and is_silent else (),
            )


def static_workers(fleet: Fleet, world: World) -> Iterator[WorkerVerdict]:
    """Yield the plan's entry for each registered worker of a static pool."""
    for name, pool in sorted(fleet.pools.items()):
        names = pool.static if isinstance(pool, StaticPool) else ()
        for queue, worker in _list_workers(world) if names else ():
            if worker.name in names and serves_queue(pool, queue):
                yield _keep(worker, queue, name, Reason.STATIC, lives.STATIC)


def find_contradictions(
    fleet: Fleet, world: World, images: Mapping[str, tuple[ImageVersion, ...]]
) -> Iterator[Warning_]:
    """Warn if reports of images, workers and queues contradict fleet.yaml.

    `images` maps a pool to its bootable versions. `fleet validate` reports contradictions within
    fleet.yaml.
    """
    for queue, demand in world.demands():
        for differing in find_differing_records(fleet, queue_context(demand)):
            message = add_reason(f"queue {queue}", differing)
            yield Warning_(rule="contradicting-sources", message=message)
    pools = {n: pool for n, pool in fleet.pools.items() if isinstance(pool, StaticPool)}
    static = {worker: name for name, pool in pools.items() for worker in pool.static}
    # Workers of a pool with equal tags have equal contradictions.
    workers: defaultdict[str, dict[tuple[str, ...], Worker]] = defaultdict(dict)
    for _, worker in sorted(world.registered(), key=lambda each: each[1].name):
        pool = static.get(worker.name, worker.pool or "")
        workers[pool].setdefault(worker.provides, worker)
    for name in sorted(fleet.pools):
        published = images.get(name, world.versions)
        doubts = [(f"pool {name}", doubt) for doubt in find_doubts(fleet, name, published)]
        of_pool = {doubt for _, doubt in doubts}
        for worker in (each for tags, each in workers[name].items() if tags):
            doubts += (
                (f"worker {worker.name} of pool {name}", doubt)
                for doubt in find_doubts(fleet, name, published, worker)
                if doubt not in of_pool
            )
        known = find_doubts(fleet, name, ()) if doubts else ()
        for who, doubt in doubts:
            if doubt not in known:
                message = add_reason(who, doubt.because)
                yield Warning_(rule="contradicting-sources", message=message)


def gone_workers(fleet: Fleet, world: World, present: Collection[str]) -> Iterator[WorkerVerdict]:
    """Yield the plan's entry for each registered worker whose machine is gone.

    Only dynamic pools count. A registry lists such workers indefinitely; status pages hide them.
    """
    releases = {each.worker: each.because for each in find_releases(fleet, world, ())}
    for queue, worker in _list_workers(world):
        is_ours = fleet.dynamic_pool(worker.pool or "") is not None and not worker.static
        if is_ours and (worker.machine or worker.name) not in present:
            because = releases.get(worker.name, lives.MACHINE_GONE)
            pool, reason = worker.pool or "", Reason.MACHINE_GONE
            yield _keep(worker, queue, pool, reason, because, inactive=True)


def warn_of_queues(
    fleet: Fleet, world: World, demand: Iterable[EqualRequests]
) -> Iterator[Warning_]:
    """Warn about queues that create machines themselves, and about `otherwise` without effect.

    Requests cannot waive the tags that their queue stored.
    """
    for queue, reading in sorted(world.queues.items()):
        if reading.rivals:
            rivals = notes.describe_rivals(queue, sorted(reading.rivals))
            yield Warning_(rule="own-provisioner", message=rivals)
    vocabulary, waiting = Vocabulary(fleet), Counter[tuple[str, str]]()
    stored = {queue for queue, reading in world.demands() if reading.stored}
    for signed in (each for each in demand if each.queue in stored):
        for name in {name for tag in signed.ask.required for name in vocabulary.names_of(tag)}:
            if isinstance(fleet.tags[name].otherwise, Otherwise):
                waiting[signed.queue, name] += len(signed.requests)
    for (queue, name), count in sorted(waiting.items()):
        message = notes.describe_stored_tags(name, count, queue)
        yield Warning_(rule="otherwise-without-effect", message=message)


def find_releases(fleet: Fleet, world: World, actions: Iterable[Action]) -> Iterator[Release]:
    """Yield the actions that take a request or a token back from workers without a machine.

    Yields nothing if a provider or stack is unreadable, because the machine may exist. Skips the
    workers whose machines the plan deletes, because a deletion does the same.
    """
    machines = known_machines(world)
    if machines is None:
        return
    deleted = {action.worker for action in actions if isinstance(action, Delete)}
    for queue, worker in _list_workers(world):
        declared, pool = fleet.queues.get(queue), fleet.dynamic_pool(worker.pool or "")
        is_ticket = isinstance(declared, TicketQueue)
        may_revoke = isinstance(declared, DebusineQueue) and declared.admin is not None
        if not (worker.running is not None if is_ticket else may_revoke):
            continue
        because = _explain_release(worker, machines, ticket=is_ticket)
        is_left_alone = pool is not None and pool.mode in ("observe", "pause")
        if because and not is_left_alone and worker.machine not in deleted:
            yield Release(
                pool=worker.pool or "",
                worker=worker.name,
                registry=queue,
                because=because,
                # fleet only notifies a ticket that has no machine.
                may_work=worker.machine not in machines
                and not is_ticket
                and worker.state not in (WorkerState.ENROLLED, WorkerState.DISABLED),
            )


def known_machines(world: World) -> Mapping[str, bool] | None:
    """Map each machine to False if stopped, else True; None if a provider or stack is unknown."""
    machines: dict[str, bool] = {}
    for listing in world.providers.values():
        if isinstance(listing, Unknown):
            return None
        for machine in listing.machines:
            is_up = machine.state is not MachineState.STOPPED
            machines[machine.name] = machines.get(machine.name, False) or is_up
    if isinstance(world.stacks, Unknown) or len(world.known_stacks) < len(world.stacks):
        return None
    for stack in world.known_stacks.values():
        machines |= {name: True for name in stack.names if name not in machines}
    return machines


def _explain_release(worker: Worker, machines: Mapping[str, bool], *, ticket: bool) -> str:
    """Return the reason to release a worker from its work; empty if fleet keeps the worker."""
    is_over = worker.state is WorkerState.DISABLED and worker.running is None
    is_up = machines.get(worker.machine or "", False)
    if worker.machine is None or worker.static or is_over or (is_up and not worker.stranded):
        return ""
    is_stopped = not is_up and worker.machine in machines
    is_unused = worker.running is None and not ticket
    if is_unused and worker.state is WorkerState.ENROLLED and not is_stopped:
        return lives.NEVER_USED
    trouble = lives.STOPPED if is_stopped else lives.STRANDED if is_up else lives.GONE
    return lives.explain_release(trouble, worker.running, ticket=ticket)
