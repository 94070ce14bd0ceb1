"""`fleet adopt`: add existing machines to a pool, by a change of only the machines' labels.

Each machine is recorded with its real inputs, so that no later plan replaces it. An obstacle for
one machine prevents the adoption of all machines.

Neither step starts, stops, renames or replaces a machine. Machines are marked only after the
engine's preview has shown that it can record them. A run that was killed in between leaves marked
machines without a stack. No run deletes them, and the same command completes the adoption.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from fleet.apply.config import load_config
from fleet.apply.observe import Sources, stack_ref
from fleet.apply.plan import observe_with_progress
from fleet.apply.record import RunLog
from fleet.apply.wire import lock_owner, wire
from fleet.checks.pools import LONGEST
from fleet.cli.arguments import FILE, JSON, argument, flag
from fleet.clock import utc_now
from fleet.errors import PlanRefused, SourceUnreachable, StackFailed, WrongUsage, refusal
from fleet.model.facts import (
    FoundMachine,
    Listing,
    Machine,
    MachineState,
    Stack,
    Unknown,
    WorkerInputs,
    World,
    market_of,
)
from fleet.model.history import Outcome, StackOutcome
from fleet.model.pool_limits import size_of
from fleet.model.prices import type_names
from fleet.model.values import Value, digest
from fleet.planner.failures import recall
from fleet.planner.images import ImageChoice, choose_image
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.machine_inputs import Option, new_inputs
from fleet.planner.units import UnitState
from fleet.ports import Adopter, Console, Engine, StackRecord, StackRef, StackStep, Tell
from fleet.reconcile import reconcile
from fleet.report.document import Line, Style, StyledText, line
from fleet.report.json import value_to_json
from fleet.report.terminal import text_for
from fleet.schema.model import Fleet, Pool, serves_queue, static_names
from fleet.schema.units import write_count
from fleet.words.figures import many
from fleet.words.runs import add_code, add_reason

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9.-]{{0,{LONGEST - 1}}}")
_CAPACITY = (UnitState.IDLE, UnitState.BUSY, UnitState.ASSUMED, UnitState.DISCONNECTED)
_WORKER_OBSTACLES = {
    UnitState.STARTING: (
        "no queue of the pool has a worker of its name, so fleet would treat it as "
        "failed to boot; register its worker under the machine's name first"
    ),
    UnitState.DISABLED: "its worker is disabled, so the next apply would delete it",
    UnitState.DRAINING: "its worker is drained, so the next apply would delete it",
    UnitState.DEAF: "its worker has not reported its tags, so the next apply would delete it",
    UnitState.FAILED: "its provider reports it as failed",
}


class Adopted(Value):
    """A machine that a pool adopts unchanged, with its differences from a new machine."""

    machine: Machine
    inputs: WorkerInputs
    differs: tuple[str, ...] = ()
    """Differences from a new machine of the pool; any difference makes the machine outdated."""
    next: str = ""
    """Decision of the next apply about the machine, with the reason."""


class Adoption(Value):
    """The machines to adopt into a pool, and the machines that the pool adopted earlier."""

    fleet: str
    pool: str
    provider: str
    machines: tuple[Adopted, ...] = ()
    already: tuple[str, ...] = ()


@dataclass
class _AdoptionState:
    """Machines and obstacles found so far, while machines are checked for adoption."""

    fleet: Fleet
    world: World
    pool: str
    declared: Pool
    choice: ImageChoice
    stack: Stack | None
    outdated_too: bool
    taken: list[tuple[FoundMachine, Adopted]] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)


def judge_adoption(
    fleet: Fleet, world: World, pool: str, found: Sequence[FoundMachine], *, outdated_too: bool
) -> Adoption:
    """Return how a pool adopts these machines. Raises PlanRefused unless it can adopt all."""
    declared = pool_to_adopt(fleet, pool)
    inventories = take_inventory(fleet, world)
    inventory = inventories[pool]
    listing = world.providers.get(declared.provider)
    at_provider = isinstance(listing, Listing) and listing.workers is not None
    unheard = [
        *inventory.blind,
        *(
            f"workers of queue {queue} are unknown: {reading.workers.unknown}"
            for queue, reading in sorted(world.queues.items())
            if isinstance(reading.workers, Unknown)
            and serves_queue(declared, queue)
            and not at_provider
        ),
    ]
    if unheard:
        raise refusal(f"the machines of pool {pool} are unknown: {'; '.join(unheard)}")
    choice = choose_image(fleet, world, recall(fleet, world, inventories), pool)
    case = _AdoptionState(fleet, world, pool, declared, choice, inventory.stack, outdated_too)
    for each in sorted(found, key=lambda one: one.machine.name):
        _consider(case, each)
    names = {taken.machine.name for _, taken in case.taken}
    others = sum(unit.name not in names for unit in inventory.units)
    most = size_of(declared).max
    if others + len(names) > most:
        case.against.append(
            f"pool {pool} has {others} of workers.max {most}: "
            f"{write_count(len(names), 'more machine')} would exceed it; raise it first"
        )
    after = _world_after(case)
    inventories = take_inventory(fleet, after)
    if not case.against:
        _refuse_lost_workers(case, inventories[pool])
    if case.against:
        raise refusal("; ".join(case.against))
    plan = reconcile(fleet, after, inventories)
    next_actions = {
        each.worker: add_code(add_reason(each.verdict, each.because), each.reason)
        for each in plan.workers
    }
    return Adoption(
        fleet=fleet.fleet,
        pool=pool,
        provider=declared.provider,
        machines=tuple(
            each.altered(next=next_actions[each.machine.name]) for _, each in case.taken
        ),
        already=tuple(case.already),
    )


def pool_to_adopt(fleet: Fleet, pool: str) -> Pool:
    """Return the pool with this name. Raises PlanRefused if it cannot adopt machines."""
    declared = fleet.pools.get(pool)
    if isinstance(declared, Pool):
        if declared.mode == "apply":
            return declared
        raise refusal(f"pool {pool} has mode: {declared.mode}; it adopts no machine")
    known = ", ".join(sorted(fleet.dynamic_pools))
    what = (
        "is not in fleet.yaml"
        if declared is None
        else ("is not a pool whose machines fleet creates")
    )
    raise refusal(f"pool {pool} {what}; such pools: {known or 'none'}")


def _consider(case: _AdoptionState, found: FoundMachine) -> None:
    machine, stack = found.machine, case.stack
    if stack is not None and stack.ids.get(machine.name) == machine.id:
        case.already.append(machine.name)
        return
    differs = tuple(_differences(case, found))
    why = next(_obstacles(case, found), "")
    if not why and differs and not case.outdated_too:
        why = (
            f"{'; '.join(differs)}: it would be outdated and replaced later; add --outdated to "
            "adopt it anyway"
        )
    if why:
        case.against.append(f"{machine.name}: {why}")
    else:
        made = _new_inputs(case, found)
        is_alike = made.architecture == found.architecture and all(
            found.settings.get(key) == value for key, value in made.settings.items()
        )
        really = {"type": made.type, "image": made.image, "architecture": found.architecture}
        known = digest({**really, "settings": found.settings})[:16]
        marks = made.labels if is_alike else {**made.labels, "digest": known}
        inputs = made.altered(
            architecture=found.architecture,
            settings=found.settings,
            labels={**found.labels, **marks},
        )
        case.taken.append((found, Adopted(machine=machine, inputs=inputs, differs=differs)))


def _obstacles(case: _AdoptionState, found: FoundMachine) -> Iterator[str]:
    """Yield the obstacles, for one machine, that no option of the command overrides."""
    machine, owner = found.machine, found.labels.get("fleet")
    if owner not in (None, case.fleet.fleet):
        yield f"its label says fleet {owner}"
    if owner is not None and found.labels.get("pool") != case.pool:
        yield f"its label says pool {found.labels.get('pool')} of this fleet"
    if not _NAME.fullmatch(machine.name):
        yield f"a worker's name has at most {LONGEST} letters, digits, hyphens and dots"
    if machine.name in static_names(case.fleet):
        yield "it is a static worker; remove it from `static` first"
    if machine.name in {each.machine.name for _, each in case.taken}:
        yield "two machines have this name"
    if machine.state is not MachineState.RUNNING:
        yield f"it does not run: its provider reports {machine.state}"
    if not machine.image:
        yield "its provider does not report which image it booted"
    yield from _other_records(case, machine)


def _other_records(case: _AdoptionState, machine: Machine) -> Iterator[str]:
    """Yield an obstacle for each other stack or provider that may have a machine of this name."""
    stacks = {} if isinstance(case.world.stacks, Unknown) else case.world.stacks
    for pool, stack in sorted(stacks.items()):
        if isinstance(stack, Unknown):
            yield f"the stack of pool {pool} is unknown and may hold it: {stack.unknown}"
        elif machine.name in stack.names:
            yield f"the stack of pool {pool} holds a machine of this name; see `fleet status`"
    for provider, other in case.world.machines():
        if provider != case.declared.provider and other.name == machine.name:
            yield f"provider {provider} has a machine of this name"


def _differences(case: _AdoptionState, found: FoundMachine) -> Iterator[str]:
    """Yield the differences between a machine and a new machine of its pool."""
    machine, today = found.machine, _new_inputs(case, found)
    types, images = type_names(case.declared) or ("own",), case.choice.ids
    if machine.type not in types:
        yield f"its machine type is {machine.type}, the pool creates {' or '.join(types)}"
    if machine.image not in images:
        yield f"it boots image {machine.image}, the pool's is {case.choice.id or 'not published'}"
    if found.architecture != today.architecture:
        yield f"its architecture is {found.architecture}, the pool's is {today.architecture}"
    for key, value in sorted(today.settings.items()):
        if found.settings.get(key) != value:
            yield f"its {key} is {found.settings.get(key) or 'unknown'}, the pool's is {value}"


def _new_inputs(case: _AdoptionState, found: FoundMachine) -> WorkerInputs:
    """Return the inputs that a new machine would have with this machine's type and image."""
    machine = found.machine
    known = WorkerInputs(name="", type="", image="", settings=found.settings)
    image = machine.image or ""
    option = Option(case.pool, machine.type, market_of(known), image, price=None)
    return new_inputs(case.fleet, option, machine.name)


def _world_after(case: _AdoptionState) -> World:
    """Return the expected world once these machines are marked and in the pool's stack."""
    provider, world = case.declared.provider, case.world
    listing, stacks = world.providers[provider], world.stacks
    if isinstance(listing, Unknown) or isinstance(stacks, Unknown):
        raise TypeError(provider)  # a pool with these unknown is blind
    taken = [each for _, each in case.taken]
    names = {each.machine.name for each in taken}
    before = case.stack or Stack(engine="embedded", provider=provider, serial=0)
    after = before.altered(
        workers=(*before.workers, *(each.inputs for each in taken)),
        ids={**before.ids, **{each.machine.name: each.machine.id for each in taken}},
    )
    marked = [
        each.machine.altered(pool=case.pool, digest=each.inputs.labels["digest"]) for each in taken
    ]
    others = [each for each in listing.machines if each.name not in names]
    workers = listing.workers
    if workers is not None:
        known = {each.name for each in workers}
        brought = [each.worker for each, _ in case.taken if each.worker is not None]
        workers = (*workers, *(each for each in brought if each.name not in known))
    listed = listing.altered(machines=(*others, *marked), workers=workers)
    return world.altered(
        providers={**world.providers, provider: listed}, stacks={**stacks, case.pool: after}
    )


def _refuse_lost_workers(case: _AdoptionState, after: PoolInventory) -> None:
    """Add an obstacle per machine that the next apply would delete because of its worker."""
    units = {unit.name: unit for unit in after.units}
    for _, each in case.taken:
        state = units[each.machine.name].state
        if state not in _CAPACITY:
            why = _WORKER_OBSTACLES.get(state, _WORKER_OBSTACLES[UnitState.STARTING])
            case.against.append(f"{each.machine.name}: {why}")


def adopt_machines(
    ref: StackRef, adoption: Adoption, adopter: Adopter, sources: Sources, tell: Tell
) -> StackOutcome:
    """Mark and record machines. Raises PlanRefused if the engine would make other changes."""
    engine = sources.engine_of(adoption.provider)
    before = _read(engine, ref)
    sources.store.record_stack(StackRecord.of(ref, engine, before.serial if before else 0))
    if before is None:
        # Engines search for existing machines only if the stack exists.
        engine.up(ref, (), lambda _: None)
    recorded = before.workers if before else ()
    workers = sorted((*recorded, *(a.inputs for a in adoption.machines)), key=lambda w: w.name)
    names = tuple(each.machine.name for each in adoption.machines)
    _check_preview(engine.preview(ref, workers), names, "no label was changed")
    for each in adoption.machines:
        adopter.mark(each.machine.id, each.inputs)
        tell(f"{adoption.pool}: labelled {each.machine.name}")
    listing = sources.providers[adoption.provider].list(adoption.fleet)
    listed = listing.machines if isinstance(listing, Listing) else ()
    marks = {(each.name, each.id, each.pool, each.digest) for each in listed}
    for adopted in adoption.machines:
        machine, digest = adopted.machine, adopted.inputs.labels["digest"]
        if (machine.name, machine.id, adoption.pool, digest) not in marks:
            said = f": {listing.unknown}" if isinstance(listing, Unknown) else ""
            raise PlanRefused(
                f"provider {adoption.provider} does not list {machine.name} with its new "
                f"labels{said}; it was not recorded; run the same command again"
            )
    # Without user data, the engine cannot create a machine in place of a deleted one.
    given = dict.fromkeys(names, "")
    with engine.prepare(ref, workers) as change:
        _check_preview(change.steps, names, "the labels are changed, the machines not recorded")
        change.make(lambda step: tell(f"{adoption.pool}: recorded {step.worker}"), given)
    after = _read(engine, ref)
    sources.store.record_stack(StackRecord.of(ref, engine, after.serial if after else 0))
    ids = after.ids if after else {}
    for machine in (each.machine for each in adoption.machines):
        # The stack must have these machines by id, not only by name.
        if ids.get(machine.name) != machine.id:
            raise StackFailed(
                f"{machine.name}: the stack holds {ids.get(machine.name) or 'none'}, not "
                f"{machine.id}; check both at the provider"
            )
    return StackOutcome(pool=adoption.pool, result="applied", adopted=names)


def _read(engine: Engine, ref: StackRef) -> Stack | None:
    stack = engine.read(ref)
    if isinstance(stack, Unknown):
        raise refusal(f"stack {ref.name}: {stack.unknown}")
    return stack


def _check_preview(steps: Sequence[StackStep], names: Sequence[str], left: str) -> None:
    """Raise PlanRefused unless the engine would record exactly these machines."""
    planned = {(name, "create") for name in names}
    previewed = {(step.worker, step.operation) for step in steps}
    if previewed != planned:
        said = ", ".join(f"{what} {name}" for name, what in sorted(previewed - planned))
        lacking = ", ".join(name for name, _ in sorted(planned - previewed))
        raise PlanRefused(
            "the engine would "
            f"{said or 'do nothing'}{f' and not record {lacking}' if lacking else ''}; {left}; "
            "run `fleet apply`, then the same command again"
        )


def adoption_to_lines(adoption: Adoption, *, applies: bool) -> Iterator[Line]:
    """Yield lines with the adopted machines, their differences and the next apply's decision."""
    count = many(len(adoption.machines), "machine")
    what = f"{'Adopting' if applies else 'Would adopt'} {count} of {adoption.provider}"
    headline = f"{what} into pool {adoption.pool}" if adoption.machines else "Nothing to adopt"
    yield line(StyledText(headline, Style.BOLD))
    for each in adoption.machines:
        machine = each.machine
        yield line(
            "  ",
            StyledText("+ adopt", Style.GREEN),
            f"  {machine.name}  {machine.type}, image {machine.image}, id {machine.id}",
        )
        for difference in each.differs:
            yield line("      ", StyledText(f"! outdated: {difference}", Style.YELLOW))
        yield line(f"      next apply: {each.next}")
    if adoption.already:
        yield line(f"  in the pool already: {', '.join(adoption.already)}")


ARGUMENTS = (
    FILE,
    argument(
        "--select",
        required=True,
        metavar="KEY=VALUE",
        help="adopt the machines whose label KEY at the provider equals VALUE",
    ),
    argument("--pool", required=True, metavar="NAME", help="add them to this pool"),
    flag(
        "--outdated",
        "also adopt machines that differ from new machines of the pool; later runs replace them",
    ),
    flag("--dry-run", "list the machines without adopting them"),
    JSON,
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Adopt machines, or list them with --dry-run; return 0."""
    key, equals, value = args.select.partition("=")
    if not (key and equals and value):
        raise WrongUsage(f"--select {args.select}: expected KEY=VALUE, the label to look for")
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    provider = pool_to_adopt(config.fleet, args.pool).provider
    adopter = sources.providers.get(provider)
    if not isinstance(adopter, Adopter):
        raise refusal(
            f"provider {provider} of kind {config.fleet.providers[provider].kind} cannot find and "
            "label machines, or lacks its secret"
        )
    started = utc_now()
    with nullcontext() if args.dry_run else sources.store.lock(lock_owner(), started):
        world = observe_with_progress(config, sources, console)
        try:
            found = tuple(adopter.find(key, value))
        except SourceUnreachable as error:
            raise refusal(f"the machines of {provider} are unknown: {error}") from error
        if not found:
            raise refusal(f"no machine has the label {args.select}")
        adoption = judge_adoption(
            config.fleet, world, args.pool, found, outdated_too=args.outdated
        )
        if not args.json:
            lines = adoption_to_lines(adoption, applies=not args.dry_run)
            console.out(text_for(console, lines, piped=None))
        if adoption.machines and not args.dry_run:
            ref = stack_ref(config.fleet, args.pool, provider, world.stack_of(args.pool))
            outcome = adopt_machines(ref, adoption, adopter, sources, console.note)
            log = RunLog(sources.store, started, "adopt")
            log.record(Outcome(plan="", stacks=(outcome,)))
    if args.json:
        console.out(value_to_json(adoption))
    elif adoption.machines and not args.dry_run:
        console.out(f"Adopted {many(len(adoption.machines), 'machine')} into pool {args.pool}")
    return 0
