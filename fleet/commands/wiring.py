"""This module wires the edges that a fleet.yaml names to the ports that a command needs."""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import assert_never

from fleet.catalogue.listed import with_price_lists
from fleet.checks import rule_of
from fleet.checks.missing_price import missing_price
from fleet.checks.unknown_machine_type import unknown_machine_type
from fleet.commands.asking import Together
from fleet.commands.background import Background
from fleet.commands.clock import SystemClock
from fleet.commands.clouds import (
    bases_of,
    engines_of,
    find_clouds,
    keepers_of,
    prices_of,
    provider_of,
)
from fleet.commands.config import Config, load_config
from fleet.commands.loading import check_file
from fleet.commands.registries import registries_of
from fleet.demand.durations import patterns_of
from fleet.demand.runs import Made
from fleet.errors import SecretMissing, StoreFailed, StoreMissing, WrongUsage
from fleet.exports.delivering import path_of
from fleet.exports.in_force import places_of
from fleet.facts import Attempt, QueueReading, Unknown, World
from fleet.facts.rules import HeldRules
from fleet.guard import guard
from fleet.operate.observe import Sources, observe, with_rules
from fleet.plan import Plan
from fleet.ports import Console, Queue, Registry, RuleReader
from fleet.ports.store import Store
from fleet.providers.ready import ReadyLooks, TcpProber
from fleet.providers.sim import SimCloud, menu_of
from fleet.providers.slots import Slots
from fleet.queues.copr import CoprFrontend
from fleet.queues.copr_rules import CoprAllowList
from fleet.queues.debusine.database import DebusineDatabase
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.debusine.task_rules import TaskRules
from fleet.queues.tickets import TicketDesk
from fleet.queues.world import WorldQueue, read_world
from fleet.reconcile import reconcile
from fleet.render import words
from fleet.schema.model import (
    CoprQueue,
    CoprRulesFile,
    DebusineQueue,
    Fleet,
    TicketQueue,
)
from fleet.schema.model import Queue as QueueModel
from fleet.schema.model import WorldQueue as WorldQueueModel
from fleet.store.database import DatabaseStore
from fleet.store.files import LocalFiles
from fleet.store.history import RecordedFiles
from fleet.store.holders import name_process
from fleet.store.members import FileMembers
from fleet.store.places import find_places
from fleet.store.secrets import HostSecrets
from fleet.store.tickets import DatabaseTickets

_MADE = 10_000
"""So many of the latest machines of each pool, type and market are known by their names."""


@dataclass(frozen=True)
class Decision:
    """What a read command shows: the plan, and what it rests on."""

    config: Config
    world: World
    plan: Plan


def load_base(name: str) -> Config | Unknown:
    """Return the fleet.yaml that another is compared with, or why it cannot be."""
    checked = check_file(name, SystemClock().now().date())
    if checked.fleet is not None:
        return Config(checked.fleet, checked.document, ())
    errors = [finding for finding in checked.findings if finding.severity == "error"]
    is_read = errors[0].rule != "unreadable-file"
    place = errors[0].span if is_read and errors[0].span else name
    more = f" (and {words.many(len(errors) - 1, 'more error')})" if errors[1:] else ""
    return Unknown(unknown=f"{place}: {errors[0].message}{more}")


def decide(args: argparse.Namespace, console: Console) -> Decision:
    """Load fleet.yaml, look at the world or read it from `--world`, and plan."""
    config = load_config(args, console)
    if args.world:
        world = load_world(args, config.fleet, console)
    else:
        world = look(config, wire(config.fleet, args.file), console)
    config = priced(config, world)
    return Decision(config, world, plan_for(config, world))


def load_world(args: argparse.Namespace, fleet: Fleet, console: Console) -> World:
    """Return the recorded world of this fleet; raises WrongUsage where it is another fleet's."""
    world = read_world(args.world, RecordedFiles(console.note))
    if world.fleet != fleet.fleet:
        raise WrongUsage(
            f"{args.world} was recorded by fleet {world.fleet}, and {args.file} is fleet "
            f"{fleet.fleet}: its machines are not theirs; record one with "
            f"`fleet observe --file {args.file} --out FILE`"
        )
    return world


def look(config: Config, sources: Sources, console: Console) -> World:
    """Observe the world, saying so to a person who waits."""
    console.progress(f"reading queues, providers and stacks of fleet {config.fleet.fleet}")
    return observe(config.fleet, sources, SystemClock().now())


def priced(config: Config, world: World) -> Config:
    """Return a configuration at the prices of the world, which may answer what it warns of."""
    fleet = with_price_lists(config.fleet, world)
    if fleet is config.fleet:
        return config
    still = {
        each.message for check in (unknown_machine_type, missing_price) for each in check(fleet)
    }
    answered = {rule_of(unknown_machine_type), rule_of(missing_price)}
    kept = [w for w in config.warnings if w.rule not in answered or w.message in still]
    return replace(config, fleet=fleet, warnings=tuple(kept))


def plan_for(config: Config, world: World) -> Plan:
    """Return the guarded plan for a world, with what fleet.yaml warns of."""
    config = priced(config, world)
    plan = guard(config.fleet, reconcile(config.fleet, world))
    included = dict(_included(config, {path[:2] for path in plan.cited if path}))
    more = {"warnings": (*config.warnings, *plan.warnings), "included": included}
    return plan.model_copy(update=more)


def _included(config: Config, keys: Iterable[tuple[str | int, ...]]) -> Iterator[tuple[str, str]]:
    """Yield the keys that stand in an included file, each with that file."""
    for key in sorted(keys, key=str):
        file = config.document.span(key).file
        if file != config.document.name:
            yield words.place(key), file


def wire(
    fleet: Fleet, config: str, *, looks: bool = False, beside: Background | None = None
) -> Sources:
    """Return the edges that this configuration names.

    With `looks`, livechecks are run and ports tried, as `apply` does; who only reads goes by what
    the last looks found. What goes on `beside` shares its store and its bounds.
    """
    base = Path(config).resolve().parent
    secrets = HostSecrets(os.environ, base)
    places = find_places(fleet, config)
    slots = (beside.slots if beside else Slots()) if looks else None
    clouds = find_clouds(fleet, places, base, SystemClock(), slots)
    enrollers = registries_of(fleet, secrets)
    shared = beside.store if beside else None
    store = shared or DatabaseStore(places.store, fleet.fleet)
    made = partial(_made_of, store)
    desks = {
        name: TicketDesk(fleet, DatabaseTickets(store.begin, name), SystemClock(), made)
        for name, queue in fleet.queues.items()
        if isinstance(queue, TicketQueue)
    }
    registries: dict[str, Registry] = {**clouds.registries, **enrollers, **desks}
    providers = {
        name: clouds.here.get(name) or provider_of(provider, secrets)
        for name, provider in fleet.providers.items()
    }
    return Sources(
        queues={
            name: desks.get(name) or _queue(fleet, _beside(queue, base), secrets, desks, made)
            for name, queue in fleet.queues.items()
        },
        providers=providers,
        registries=registries,
        enrollers=enrollers,
        engine_of=engines_of(fleet, places, clouds, secrets, SystemClock().now()),
        keepers=keepers_of(providers),
        bases=bases_of(fleet, places, secrets),
        store=store,
        desks=desks,
        lenders=clouds.hooked,
        rules=dict(_rules(fleet, base, secrets)),
        prices=prices_of(fleet, secrets),
        look=ReadyLooks(fleet, store.looks, TcpProber() if looks else None, SystemClock()),
        asking=Together,
        members=FileMembers(str(base / fleet.members.file), LocalFiles())
        if fleet.members
        else None,
    )


def read_rules(fleet: Fleet, config: str) -> dict[str, QueueReading]:
    """Return a reading of each queue whose rules can be read, with nothing but these."""
    base = Path(config).resolve().parent
    readers = dict(_rules(fleet, base, HostSecrets(os.environ, base)))
    store = DatabaseStore(find_places(fleet, config).store, fleet.fleet)
    nothing = Unknown(unknown="only its rules were read")
    unread = {name: QueueReading(demand=nothing) for name in readers}
    return with_rules(fleet, unread, readers, store, Together())


def lock_owner() -> str:
    """Return how this process is named in the lock."""
    return name_process()


def configure_sims(fleet: Fleet, sources: Sources) -> None:
    """Tell each simulated cloud what fleet.yaml says it sells; only `apply` may."""
    for name, provider in sources.providers.items():
        if isinstance(provider, SimCloud):
            provider.configure(menu_of(fleet, name))


class _UnreadableQueue:
    """A queue that cannot be read, and why."""

    def __init__(self, reason: str) -> None:
        self._reason = Unknown(unknown=reason)

    def read(self, now: datetime) -> QueueReading:  # noqa: ARG002 - the port's own argument
        """Return that nothing is known."""
        return QueueReading(demand=self._reason, workers=self._reason)


def _made_of(store: Store) -> tuple[Attempt, ...]:
    """Return the machines that are remembered; without a store it is of none known what it is."""
    try:
        return store.attempts(_MADE)
    except (StoreMissing, StoreFailed):
        return ()


def _queue(
    fleet: Fleet,
    queue: QueueModel,
    secrets: HostSecrets,
    desks: Mapping[str, TicketDesk],
    made: Made,
) -> Queue:
    match queue:
        case DebusineQueue():
            try:
                return _debusine(fleet, queue, secrets, made)
            except SecretMissing as error:
                return _UnreadableQueue(str(error))
        case WorldQueueModel():
            return WorldQueue(queue, LocalFiles())
        case CoprQueue():
            desk = desks.get(queue.tickets or "")
            return CoprFrontend(
                queue,
                ticketed=desk.read if desk else None,
                closed=desk.closed if desk else lambda _: (),
                with_names=bool(fleet.powerful or patterns_of(fleet)),
                max_age=fleet.guards.demand_max_age,
            )
        case TicketQueue():
            raise TypeError("a queue of tickets is its desk")
    assert_never(queue)


class _UnreadableRules:
    """Rules that cannot be read, and why."""

    def __init__(self, places: tuple[str, ...], reason: str) -> None:
        self._read = dict.fromkeys(places, Unknown(unknown=reason))

    def read(self) -> Mapping[str, HeldRules | Unknown]:
        """Return that nothing is known."""
        return self._read


def _rules(fleet: Fleet, base: Path, secrets: HostSecrets) -> Iterator[tuple[str, RuleReader]]:
    """Yield what reads the rules of queues, where fleet.yaml says where they are."""
    for name, queue in fleet.queues.items():
        match queue:
            case CoprQueue(rules=place) if place is not None:
                file = str(base / place.file) if isinstance(place, CoprRulesFile) else ""
                yield name, CoprAllowList(place, file, LocalFiles())
            case DebusineQueue(rules=rules) if rules is not None:
                reference = queue.token
                try:
                    token = secrets.read(reference) if reference else None
                except SecretMissing as error:
                    yield name, _UnreadableRules(places_of(fleet, name), str(error))
                else:
                    path = path_of(fleet)
                    seconds = fleet.guards.demand_max_age
                    yield name, TaskRules(queue, rules, token, path=path, seconds=seconds)
            case _:
                continue


def _debusine(fleet: Fleet, queue: DebusineQueue, secrets: HostSecrets, made: Made) -> Queue:
    """Return how a server is read: over SQL where that may be, exact and fast, else over REST."""
    if queue.read is not None:
        return DebusineDatabase(fleet, queue, secrets.read(queue.read), made)
    token = secrets.read(queue.token) if queue.token else None
    paths = [rule.from_ for rule in fleet.derive if rule.from_ is not None]
    return DebusineRest(queue, token, paths=paths, max_age=fleet.guards.demand_max_age)


def _beside(queue: QueueModel, base: Path) -> QueueModel:
    """Return a queue whose recording is found from fleet.yaml's folder."""
    if isinstance(queue, WorldQueueModel):
        return queue.model_copy(update={"path": str(base / queue.path)})
    return queue
