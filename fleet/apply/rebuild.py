"""Rebuild lost state from machine labels, list differences, and remove records of lost objects.

A machine is adopted into its pool's stack if the digest in its labels matches fleet.yaml. No
provider creates, changes or deletes a machine. A new ledger charges each machine from its
creation. An approval whose use is unknown counts as used up.

A stack entry without a machine occupies capacity of its pool indefinitely. A provider may fail to
list a machine, so only an operator can confirm that it was deleted. fleet then also disables its
worker, and the queue restarts the worker's build.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from pydantic import Field

from fleet.apply.observe import Concurrently, Sources, stack_ref
from fleet.apply.wire import wire
from fleet.errors import FleetError, PlanRefused, refusal
from fleet.guard.approvals import approval_digest
from fleet.model.facts import (
    LedgerEntry,
    Listing,
    Stack,
    Unknown,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.history import StackOutcome
from fleet.model.plan import Plan, Reason
from fleet.model.values import Moment, Value, later
from fleet.planner.failures import recall
from fleet.planner.images import choose_image
from fleet.planner.inventory import PoolInventory, every_desk, take_inventory
from fleet.planner.ledger import charge_all
from fleet.planner.machine_inputs import NOTHING_SHARED, made_from, options_of
from fleet.planner.shared_stacks import shared_settings
from fleet.planner.units import Unit, UnitState
from fleet.ports import Charging, Engine, StackRecord
from fleet.schema.model import Fleet, Pool
from fleet.state.storage import Storage
from fleet.state.store import Store
from fleet.words import runs
from fleet.words.figures import many
from fleet.words.lives import join

_KINDS: dict[UnitState, Literal["unrecorded", "missing"]] = {
    UnitState.UNRECORDED: "unrecorded",
    UnitState.MISSING: "missing",
}


_DELETION_REASONS = (Reason.ORPHAN, Reason.GONE)


class Orphan(Value):
    """A machine with the fleet's label but no stack, or a stack's entry without a machine."""

    kind: Literal["unrecorded", "missing"] = Field(
        description="`unrecorded`: listed by its provider, but in no stack; `missing`: in its "
        "stack, but not listed."
    )
    name: str
    pool: str
    provider: str
    id: str | None = Field(description="The provider's own id.")
    since: Moment | None = Field(description="Creation time, if the provider reports it.")
    goes: bool = Field(description="`fleet apply` deletes or forgets it; no guard withholds that.")
    ticket: str | None = later(None, "It is kept until this ends.")


class Orphans(Value):
    """All orphans (machines that only one source knows), and all unreadable sources."""

    fleet: str
    orphans: tuple[Orphan, ...] = ()
    unknown: tuple[str, ...] = Field((), description="Unreadable sources, with the reason.")


def find_orphans(fleet: Fleet, world: World, plan: Plan) -> Orphans:
    """Return machines known only to a stack or only to a provider, sorted by pool and name."""
    held = {action.worker for action in plan.withheld}
    leaving = {each.worker: each for each in plan.workers if each.reason in _DELETION_REASONS}
    tickets = {
        name: each.running
        for name, each in leaving.items()
        if each.running and each.verdict == "keep"
    }
    going = leaving.keys() - held - tickets.keys()
    found = []
    for inventory in take_inventory(fleet, world).values():
        ids = inventory.stack.ids if inventory.stack else {}
        found += [
            Orphan(
                kind=kind,
                name=unit.name,
                pool=unit.pool,
                provider=inventory.provider,
                id=unit.machine.id if unit.machine else ids.get(unit.name),
                since=unit.machine.created_at if unit.machine else None,
                goes=unit.name in going,
                ticket=tickets.get(unit.name),
            )
            for unit in inventory.known
            if (kind := _KINDS.get(unit.state))
        ]
    return Orphans(fleet=fleet.fleet, orphans=tuple(found), unknown=tuple(silent(world)))


def silent(world: World) -> Iterator[str]:
    """Yield a sentence with the reason per unreadable source of machines."""
    yield from list_unknown(world.providers)
    yield from unknown_stacks(world)


def unknown_stacks(world: World) -> Iterator[str]:
    """Yield a sentence with the reason per unreadable stack."""
    if isinstance(world.stacks, Unknown):
        yield f"stacks are unknown: {world.stacks.unknown}"
        return
    for pool, stack in sorted(world.stacks.items()):
        if isinstance(stack, Unknown):
            yield f"the stack of pool {pool} is unknown: {stack.unknown}"


class Left(Value):
    """A machine that a rebuild of the state does not adopt, with the reason."""

    name: str
    pool: str
    because: str


class StateRebuild(Value):
    """The machines to adopt into each pool's stack, and the remaining machines."""

    fleet: str
    pools: dict[str, tuple[WorkerInputs, ...]] = Field(
        description="Pool to the existing machines to add to its stack, as they were created."
    )
    left: tuple[Left, ...] = ()
    unknown: tuple[str, ...] = Field((), description="Unreadable sources, with the reason.")


def find_rebuild(fleet: Fleet, world: World) -> StateRebuild:
    """Return the machines to adopt into each pool's stack, to rebuild lost state."""
    pools: defaultdict[str, list[WorkerInputs]] = defaultdict(list)
    left = []
    inventories = take_inventory(fleet, world)
    memory = recall(fleet, world, inventories)
    for name, inventory in inventories.items():
        shared = shared_settings(fleet, world, inventory.provider)
        because = _explain_exclusion(fleet, inventory, shared)
        choice = choose_image(fleet, world, memory, name)
        known = NOTHING_SHARED if isinstance(shared, Unknown) else shared
        options = options_of(fleet, memory, name, choice, known)
        for unit in inventory.having(UnitState.UNRECORDED):
            machine = None if because else unit.machine
            inputs = made_from(fleet, options, choice, machine) if machine else None
            if inputs is not None:
                pools[name].append(inputs)
            else:
                left.append(Left(name=unit.name, pool=name, because=because or runs.OTHER_DIGEST))
    return StateRebuild(
        fleet=fleet.fleet,
        pools={name: tuple(workers) for name, workers in pools.items()},
        left=tuple(left),
        unknown=tuple(silent(world)),
    )


def _explain_exclusion(
    fleet: Fleet, inventory: PoolInventory, shared: Mapping[str, str] | Unknown
) -> str:
    if not isinstance(fleet.pools.get(inventory.pool), Pool):
        return runs.explain_missing_pool(inventory.pool)
    return shared.unknown if isinstance(shared, Unknown) else join(*inventory.blind)


def carry_out(
    fleet: Fleet, world: World, rebuild: StateRebuild, sources: Sources
) -> tuple[StackOutcome, ...]:
    """Adopt machines into stacks, and return the result of each pool.

    Charge a new ledger first, and mark all approvals as used up.
    """
    if rebuild.unknown:
        raise refusal(f"{'; '.join(rebuild.unknown)}")
    if not isinstance(world.ledger, Unknown) and world.ledger.charged_until is None:
        charging = Charging(
            since=None,
            until=world.time,
            currency=fleet.money.currency,
            entries=charged_anew(fleet, world, rebuild),
        )
        sources.store.charge(charging)
        for approval in fleet.approvals:
            unknown = tuple(f"{approval.pool}/unknown-{n}:" for n in range(approval.count))
            sources.store.spend(approval_digest(approval), unknown)
    inventories = take_inventory(fleet, world)
    outcomes = []
    for pool, workers in rebuild.pools.items():
        try:
            _adopt(fleet, inventories[pool], workers, sources)
        except FleetError as error:
            outcomes.append(StackOutcome(pool=pool, result="failed", error=str(error)))
        else:
            names = tuple(worker.name for worker in workers)
            outcomes.append(StackOutcome(pool=pool, result="applied", adopted=names))
    return tuple(outcomes)


_LIST_SECONDS = 30
"""Seconds for listing machines before a store is created; a late provider is unknown."""


def find_predecessor(fleet: Fleet, config: str, storage: Storage) -> tuple[str, bool]:
    """Return a possible trace of an earlier store, and whether it is a machine of this fleet.

    The trace is empty without any sign. The loss of a database cannot be noticed.
    """
    try:
        providers = wire(fleet, config).providers
    except FleetError as error:
        return f"machines are unknown: {error}", False
    asked = {name: partial(each.list, fleet.fleet) for name, each in providers.items()}
    listings = Concurrently(_LIST_SECONDS)("provider", asked)
    if listed := find_listed(listings):
        return listed, True
    if not (storage.store.startswith("sqlite:") and storage.uses_folder):
        return "an earlier store or its stacks may have been on another computer", False
    if storage.folder.exists():
        return f"the folder {storage.folder.name} exists already", False
    return next(list_unknown(listings), ""), False


def find_listed(listings: Mapping[str, Listing | Unknown]) -> str:
    """Return a sentence that names a machine of this fleet; empty without a known machine."""
    for name, listing in sorted(listings.items()):
        if isinstance(listing, Listing) and listing.machines:
            return f"provider {name} lists {listing.machines[0].name}"
    return ""


def list_unknown(listings: Mapping[str, Listing | Unknown]) -> Iterator[str]:
    """Yield a sentence with the reason per unreadable provider."""
    for name, listing in sorted(listings.items()):
        if isinstance(listing, Unknown):
            yield f"machines of provider {name} are unknown: {listing.unknown}"


def forget_lost(sources: Sources) -> tuple[str, ...]:
    """Remove the records of stacks that no longer exist; return the names of these stacks."""
    lost = []
    for record in sources.store.stacks():
        if sources.engine_of(record.provider).read(record.ref) is None:
            sources.store.forget_stack(record.name)
            lost.append(record.name)
    return tuple(lost)


def charged_anew(fleet: Fleet, world: World, rebuild: StateRebuild) -> tuple[LedgerEntry, ...]:
    """Return the entries of a new ledger: the time of each machine since its creation."""
    if isinstance(world.ledger, Unknown) or world.ledger.charged_until is not None:
        return ()
    made_from = {each.name: each for workers in rebuild.pools.values() for each in workers}
    # The inputs of a machine without a stack state its market, which has the price.
    inventories = {
        pool: replace(
            inventory,
            units=tuple(
                replace(unit, inputs=unit.inputs or made_from.get(unit.name))
                for unit in inventory.units
            ),
        )
        for pool, inventory in take_inventory(fleet, world).items()
    }
    return charge_all(fleet, world, inventories).entries


def _adopt(
    fleet: Fleet, inventory: PoolInventory, workers: Sequence[WorkerInputs], sources: Sources
) -> None:
    """Adopt machines into a stack. Raises PlanRefused if the engine would change more."""
    ref = stack_ref(fleet, inventory.pool, inventory.provider, inventory.stack)
    engine = sources.engine_of(inventory.provider)
    recorded = inventory.stack.workers if inventory.stack else ()
    desired = sorted((*recorded, *workers), key=lambda worker: worker.name)
    others = {(step.worker, step.operation) for step in engine.preview(ref, desired)}
    others -= {(worker.name, "create") for worker in workers}
    if others:
        said = ", ".join(f"{operation} {name}" for name, operation in sorted(others))
        raise PlanRefused(f"the engine would also {said}; run `fleet apply` first, then rebuild")
    serial = inventory.stack.serial if inventory.stack else 0
    record = StackRecord.of(ref, engine, serial)
    sources.store.record_stack(record)
    # Without user data, the engine cannot create a machine in place of a deleted one.
    engine.up(ref, desired, lambda _: None, {worker.name: "" for worker in workers})
    after = engine.read(ref)
    if isinstance(after, Stack):
        sources.store.record_stack(record.altered(serial=after.serial))


_CONNECTED = (WorkerState.BUSY, WorkerState.IDLE, WorkerState.DEAF)


def forget_machine(
    fleet: Fleet, world: World, name: str, sources: Sources
) -> tuple[str, str | None]:
    """Forget a missing machine and disable its worker; return its pool and the worker's queue.

    Of a static machine, forget the record of an interrupted step; its worker stays as it is.

    The queue is None if no queue had a worker to disable. Raises PlanRefused if the machine
    perhaps exists.
    """
    holding = (pool for pool, stack in sorted(world.known_stacks.items()) if name in stack.names)
    pool = next(holding, None)
    if pool is None:
        raise refusal("; ".join((f"no readable stack holds {name}", *unknown_stacks(world))))
    inventory = take_inventory(fleet, world)[pool]
    queue = None
    is_static = any(u.name == name and u.state is UnitState.STATIC for u in inventory.units)
    stack = inventory.stack
    is_made = stack and name in stack.ids and any(each.name == name for each in stack.workers)
    if is_made or not is_static:
        queue = _release(_find_missing(fleet, world, inventory, name), sources)
    engine = sources.engine_of(inventory.provider)
    engine.forget(stack_ref(fleet, pool, inventory.provider, inventory.stack), name)
    return pool, queue


def _release(unit: Unit, sources: Sources) -> str | None:
    """Disable the worker of a machine; return its queue, or None if no worker is enabled."""
    worker, registry = unit.worker, sources.registries.get(unit.registry or "")
    if worker is None or registry is None:
        return None
    if worker.state is WorkerState.DISABLED and worker.running is None:
        return None
    registry.release(worker.name)
    return unit.registry


def _find_missing(fleet: Fleet, world: World, inventory: PoolInventory, name: str) -> Unit:
    """Return a missing machine. Raises PlanRefused if the machine possibly exists."""
    for provider, machine in world.machines():
        if machine.name == name:
            raise refusal(
                f"provider {provider} still lists {name} (id {machine.id}); to delete it: `fleet "
                f"machine delete {name} --apply`"
            )
    if inventory.blind:
        raise refusal(
            f"cannot tell whether {name} is gone: {'; '.join(inventory.blind)}; fix that first"
        )
    unit = next(unit for unit in inventory.known if unit.name == name)
    if unit.state is not UnitState.MISSING:
        raise refusal(
            f"an interrupted apply was creating or deleting {name}; `fleet apply` finishes that"
        )
    # A ticket queue records which machines it assigned, but does not observe them.
    seen = None if unit.registry in every_desk(fleet, world) else unit.worker
    if seen is not None and seen.state in _CONNECTED and not seen.away:
        use = f"runs {seen.running}" if seen.running else "is connected"
        raise refusal(
            f"the worker on {name} {use} ({unit.registry}), so its provider's "
            "list may be wrong; retry when it is disconnected"
        )
    return unit


def forget_stack(store: Store, engine_of: Callable[[str], Engine], name: str) -> None:
    """Remove the record of a lost stack. Raises PlanRefused if the stack has machines."""
    records = {record.name: record for record in store.stacks()}
    if name not in records:
        known = ", ".join(records) or "none"
        raise FleetError(f"the store has no stack {name}; known: {known}")
    ref = records[name].ref
    try:
        stack = engine_of(ref.provider).read(ref)
    except FleetError:
        stack = None  # no engine can read the stack, so it is lost
    if isinstance(stack, Stack) and stack.ids:
        held, them = many(len(stack.ids), "machine"), "it" if len(stack.ids) == 1 else "them"
        raise PlanRefused(
            f"refused: stack {name} is not lost, it holds {held}; to delete {them}, remove the "
            "pool from fleet.yaml or set `mode: drain`, then `fleet apply`"
        )
    store.forget_stack(name)
