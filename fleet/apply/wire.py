"""This module wires the registries of queues whose workers fleet makes."""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from fleet.apply.clocks import SystemClock
from fleet.apply.config import Config, check_file, load_config
from fleet.apply.observe import Sources, observe, with_rules
from fleet.apply.parallel import Background, Concurrently
from fleet.checks import rule_of
from fleet.checks.machines import missing_price, unknown_machine_type
from fleet.clouds.aws.machines import AwsMachines, AwsShared
from fleet.clouds.hcloud.machines import HcloudMachines, write_moment
from fleet.clouds.hcloud.prices import HcloudPrices
from fleet.clouds.hcloud.shared import HcloudShared
from fleet.clouds.hooks.machines import HookMachines, Surroundings
from fleet.clouds.local.machines import LocalMachines, LocalWorkers
from fleet.clouds.ready import ReadyLooks, Slots, TcpProber
from fleet.clouds.sim.machines import SimCloud, menu_of
from fleet.errors import EngineAbsent, SecretMissing, StoreFailed, StoreMissing, WrongUsage
from fleet.guard import guard
from fleet.migrate.copr_rules import CoprAllowList
from fleet.migrate.delivery import path_of
from fleet.model.facts import Attempt, HeldRules, Listing, QueueReading, Unknown, World
from fleet.model.plan import Plan
from fleet.model.prices import with_price_lists
from fleet.planner.durations import Made, patterns_of
from fleet.planner.inventory import extended
from fleet.ports import (
    Clock,
    Console,
    Engine,
    MachineApi,
    PriceReader,
    Provider,
    Queue,
    Registry,
    RuleReader,
    SharedStackEngine,
    Store,
)
from fleet.queues.copr import CoprFrontend
from fleet.queues.debusine.database import DebusineDatabase
from fleet.queues.debusine.registry import Channel, CommandChannel, DebusineRegistry, SqlChannel
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.debusine.task_rules import TaskRules
from fleet.queues.recorded import WorldQueue, read_world
from fleet.reconcile import reconcile
from fleet.report import words
from fleet.schema.base import EnvSecret
from fleet.schema.model import (
    AwsProvider,
    CoprQueue,
    CoprRulesFile,
    DebusineQueue,
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    Pool,
    SimProvider,
    TicketQueue,
    secrets_in,
)
from fleet.schema.model import Provider as ProviderModel
from fleet.schema.model import Queue as QueueModel
from fleet.schema.model import WorldQueue as WorldQueueModel
from fleet.state.connecting import name_process
from fleet.state.files import FileMembers, LocalFiles
from fleet.state.history import RecordedFiles
from fleet.state.places import Places, find_places
from fleet.state.secrets import HostSecrets
from fleet.state.store import DatabaseStore
from fleet.tagrules.export import places_of
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.tables import DatabaseTickets

if TYPE_CHECKING:
    from fleet.engines.pulumi import Account


def registries_of(fleet: Fleet, secrets: HostSecrets) -> dict[str, DebusineRegistry]:
    """Return queue name to its registry, where `admin` says how it is told anything."""
    return {
        name: DebusineRegistry(name, fleet.fleet, _channel(queue, secrets))
        for name, queue in fleet.queues.items()
        if isinstance(queue, DebusineQueue) and queue.admin
    }


def _channel(queue: DebusineQueue, secrets: HostSecrets) -> Channel:
    if isinstance(queue.admin, list):
        return CommandChannel(queue.admin)
    # Asked for only when something is written: read commands need no such secret.
    dsn = queue.admin.dsn if queue.admin else None
    return SqlChannel(cache(partial(secrets.read, dsn)))


_OF_ENGINES = re.compile(r"(AWS|AZURE|GOOGLE|PULUMI)_.*")
"""Credentials that providers, backends and engines look for by themselves."""
_OF_ALL = re.compile(
    r"HOME|LANG|LANGUAGE|LC_.*|LOGNAME|PATH|SHELL|SSL_CERT_.*|TMPDIR|TZ|USER|XDG_.*"
    r"|(?i:(all|ftp|http|https|no)_proxy)"
)
"""What any program may need to run at all."""


def withheld(fleet: Fleet, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this environment that are secret and no engine's own, emptied.

    They are those that hold a secret of fleet.yaml, and those that a provider's commands get:
    nobody says which of these are secret. A child of fleet inherits the others; a provider's own
    token is added by its own name.
    """
    names = {secret.env for _, secret in secrets_in(fleet) if isinstance(secret, EnvSecret)}
    for provider in fleet.providers.values():
        if isinstance(provider, HooksProvider):
            names |= {name for name in provider.environment if not _OF_ALL.fullmatch(name)}
    return {
        name: "" for name in sorted(names & environment.keys()) if not _OF_ENGINES.fullmatch(name)
    }


@dataclass(frozen=True)
class Clouds:
    """The providers that the embedded engine can change, by name."""

    simulated: Mapping[str, SimCloud]
    processes: Mapping[str, LocalMachines]
    hooked: Mapping[str, HookMachines]

    @property
    def registries(self) -> dict[str, Registry]:
        """Return those at which workers register, and nowhere else."""
        own = {k: each for k, each in self.processes.items() if isinstance(each, LocalWorkers)}
        return {**self.simulated, **own}

    @property
    def here(self) -> dict[str, SimCloud | LocalMachines | HookMachines]:
        """Return all of them: what the embedded engine can change."""
        return {**self.simulated, **self.processes, **self.hooked}


def find_clouds(
    fleet: Fleet,
    places: Places,
    base: Path,
    clock: Clock,
    slots: Slots | None = None,
) -> Clouds:
    """Return the clouds on this computer; relative paths are relative to fleet.yaml's folder.

    `slots` bound what is done at once; without them machines are only read, and no livecheck is
    run.
    """
    at_queue = any(isinstance(queue, DebusineQueue) for queue in fleet.queues.values())
    kind = LocalMachines if at_queue else LocalWorkers
    # Of our own environment, which holds secrets, processes get nothing else.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    return Clouds(
        simulated={
            name: SimCloud(_sim_path(provider, name, places, base), clock)
            for name, provider in fleet.providers.items()
            if isinstance(provider, SimProvider)
        },
        processes={
            name: kind(
                _local_path(provider, name, places, base), clock, provider.faults, environment
            )
            for name, provider in fleet.providers.items()
            if isinstance(provider, LocalProvider)
        },
        hooked={
            name: HookMachines(
                provider,
                Surroundings(
                    provider=name,
                    fleet=fleet.fleet,
                    folder=base,
                    state=places.folder / f"hooks-{name}",
                    environment=environment,
                    ours=os.environ,
                    pools=_pools_at(fleet, name),
                    looks=slots is not None,
                    slots=slots or Slots(),
                ),
                clock,
            )
            for name, provider in fleet.providers.items()
            if isinstance(provider, HooksProvider)
        },
    )


def provider_of(provider: ProviderModel, secrets: HostSecrets) -> Provider:
    """Return what lists a provider's machines, where they are not on this computer."""
    match provider:
        case HcloudProvider():
            try:
                return HcloudMachines(provider, secrets.read(provider.token))
            except SecretMissing as error:
                return _UnreadableProvider(str(error))
        case AwsProvider():
            return AwsMachines(provider)
        case LocalProvider() | HooksProvider() | SimProvider():
            return _UnreadableProvider(f"providers of kind {provider.kind} cannot be listed yet")
    assert_never(provider)


def prices_of(fleet: Fleet, secrets: HostSecrets) -> dict[str, PriceReader]:
    """Return what asks providers for their prices; one without a token is not asked."""
    readers: dict[str, PriceReader] = {}
    for name, provider in fleet.providers.items():
        if isinstance(provider, HcloudProvider):
            with suppress(SecretMissing):
                readers[name] = HcloudPrices(provider, secrets.read(provider.token))
    return readers


def keepers_of(providers: Mapping[str, Provider]) -> dict[str, MachineApi]:
    """Return those whose machines can be looked after without their stack."""
    kinds = (AwsMachines, HcloudMachines, HookMachines, LocalMachines, SimCloud)
    return {name: each for name, each in providers.items() if isinstance(each, kinds)}


def engines_of(
    fleet: Fleet, places: Places, clouds: Clouds, secrets: HostSecrets, now: datetime
) -> Callable[[str], Engine]:
    """Return what tells which engine changes a provider's stacks; EngineAbsent where none does.

    A machine that is made in this run is vouched for from `now` on.
    """

    @cache
    def engine(name: str) -> Engine:
        if name == "embedded":
            from fleet.engines.embedded import EmbeddedEngine

            return EmbeddedEngine(places.embedded, clouds.here, unreliable_listings=clouds.hooked)
        from fleet.engines.pulumi import PulumiEngine

        passphrase = fleet.state.passphrase
        return PulumiEngine(
            places.backend,
            places.folder / "pulumi",
            (lambda: secrets.read(passphrase)) if passphrase else None,
            _accounts(fleet, clouds.simulated, secrets, notes_of(fleet, now, os.environ)),
        )

    def engine_of(provider: str) -> Engine:
        declared = fleet.providers.get(provider)
        if declared is None:
            raise EngineAbsent(
                f"provider {provider} is no longer in fleet.yaml; keep it until its machines are "
                "gone"
            )
        return engine(declared.engine)

    return engine_of


def bases_of(
    fleet: Fleet, places: Places, secrets: HostSecrets
) -> Mapping[str, SharedStackEngine]:
    """Return what changes the base stacks of providers whose machines share something."""
    kinds = AwsProvider | HcloudProvider
    declared = {name: each for name, each in fleet.providers.items() if isinstance(each, kinds)}
    if not declared:
        return {}
    from fleet.engines.pulumi import Account
    from fleet.engines.pulumi_base import PulumiBase

    passphrase = fleet.state.passphrase
    bases = {}
    for name, provider in declared.items():
        listed, marked = provider_of(provider, secrets), partial(_shared_parts, provider, secrets)
        if isinstance(provider, AwsProvider):
            account = Account(
                listed,
                config={"aws:region": provider.region},
                environment=partial(_environment, fleet),
                clear=AwsShared(provider.region).clear,
            )
        else:
            own = partial(_hcloud_environment, fleet, provider, secrets)
            account = Account(listed, environment=own)
        bases[name] = PulumiBase(
            places.backend,
            places.folder / "pulumi",
            (lambda: secrets.read(passphrase)) if passphrase else None,
            account,
            marked,
        )
    return bases


def notes_of(fleet: Fleet, now: datetime, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a new machine that say nothing of what it is made from."""
    notes = {"expires": write_moment(extended(fleet, now))}
    commit = environment.get("CI_COMMIT_SHA", "")
    return notes | {"commit": commit} if re.fullmatch(r"[0-9a-f]{7,63}", commit) else notes


def _accounts(
    fleet: Fleet,
    simulated: Mapping[str, SimCloud],
    secrets: HostSecrets,
    notes: Mapping[str, str],
) -> dict[str, "Account"]:
    """Return what the real engine needs of each provider; tokens go to it by environment."""
    from fleet.engines.pulumi import Account

    accounts = {
        name: Account(
            cloud, config={"sim:path": str(cloud.path)}, environment=partial(_environment, fleet)
        )
        for name, cloud in simulated.items()
    }
    for name, declared in fleet.providers.items():
        if isinstance(declared, HcloudProvider):
            environment = partial(_hcloud_environment, fleet, declared, secrets)
            accounts[name] = Account(
                provider_of(declared, secrets), environment=environment, inputs={"notes": notes}
            )
        elif isinstance(declared, AwsProvider):
            accounts[name] = Account(
                AwsMachines(declared),
                config={"aws:region": declared.region},
                environment=partial(_environment, fleet),
                inputs={"notes": notes},
            )
    return accounts


def _shared_parts(
    provider: AwsProvider | HcloudProvider, secrets: HostSecrets, fleet: str
) -> Mapping[str, str] | Unknown:
    """Return what of a base can be adopted; at AWS it is cleared away instead."""
    if isinstance(provider, AwsProvider):
        return {}
    return HcloudShared(secrets.read(provider.token)).list(fleet)


def _environment(fleet: Fleet) -> dict[str, str]:
    return withheld(fleet, os.environ)


def _hcloud_environment(
    fleet: Fleet, provider: HcloudProvider, secrets: HostSecrets
) -> dict[str, str]:
    return {**_environment(fleet), "HCLOUD_TOKEN": secrets.read(provider.token)}


def _pools_at(fleet: Fleet, provider: str) -> frozenset[str]:
    pools = fleet.pools.items()
    return frozenset(k for k, p in pools if isinstance(p, Pool) and p.provider == provider)


def _sim_path(provider: SimProvider, name: str, places: Places, base: Path) -> Path:
    return base / provider.path if provider.path else places.folder / f"sim-{name}.json"


def _local_path(provider: LocalProvider, name: str, places: Places, base: Path) -> Path:
    return base / provider.path if provider.path else places.folder / f"local-{name}"


class _UnreadableProvider:
    """A provider that cannot be listed, and why."""

    def __init__(self, reason: str) -> None:
        self._reason = Unknown(unknown=reason)

    def list(self, fleet: str) -> Listing | Unknown:  # noqa: ARG002 - the port's own argument
        """Return that nothing is known."""
        return self._reason


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
        name: StoredTicketDesk(fleet, DatabaseTickets(store.begin, name), SystemClock(), made)
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
        asking=Concurrently,
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
    return with_rules(fleet, unread, readers, store, Concurrently())


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
    desks: Mapping[str, StoredTicketDesk],
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


def find_desk(fleet: Fleet, asked: str | None) -> tuple[str, TicketQueue]:
    """Return the queue of tickets that is named, or the only one; WrongUsage where none is it."""
    desks = {name: q for name, q in fleet.queues.items() if isinstance(q, TicketQueue)}
    said = ", ".join(desks) or "none"
    if asked is None:
        if not desks:
            raise WrongUsage("fleet.yaml has no queue of kind tickets: declare one under queues")
        if len(desks) != 1:
            raise WrongUsage(f"say with --queue which queue of fleet.yaml is meant: {said}")
        (asked,) = desks
    if asked in desks:
        return asked, desks[asked]
    if asked not in fleet.queues:
        raise WrongUsage(f"fleet.yaml has no queue {asked}; of kind tickets: {said}")
    raise WrongUsage(
        f"queue {asked} is of kind {fleet.queues[asked].kind}: it has no tickets of fleet's"
    )


def read_members(fleet: Fleet, file: str) -> Mapping[str, tuple[str, ...]] | Unknown:
    """Return who is in which group, from the file that `members` names beside fleet.yaml."""
    if fleet.members is None:
        return {}
    return FileMembers(str(Path(file).resolve().parent / fleet.members.file), LocalFiles()).read()
