"""Create the adapters of a fleet.yaml: queues, providers, engines and the store."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never

from fleet.apply.observe import Concurrently, Sources, read_or_default, read_store, with_rules
from fleet.apply.satellites import connected
from fleet.clock import SystemClock, utc_now
from fleet.clouds.cloud import AnyCloud, label_time
from fleet.clouds.kinds import clouds_of
from fleet.clouds.ready import ReadyLooks, Slots, TcpProber
from fleet.engines.embedded import EmbeddedEngine, LocalCloud
from fleet.engines.pulumi import PulumiBase, PulumiEngine
from fleet.errors import EngineAbsent, SecretMissing
from fleet.model.facts import QueueReading, Unknown
from fleet.planner.durations import Made, patterns_of
from fleet.planner.inventory import extended
from fleet.ports import (
    Engine,
    MachineApi,
    MachineCleaner,
    Messenger,
    PriceReader,
    Queue,
    Registry,
    RuleReader,
    SharedStackEngine,
)
from fleet.queues.copr import CoprFrontend
from fleet.queues.debusine.database import DebusineDatabase
from fleet.queues.debusine.registry import Channel, CommandChannel, DebusineRegistry, SqlChannel
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.debusine.task_rules import TaskRules
from fleet.queues.recorded import FileMembers, RecordedQueue
from fleet.queues.webhook import CommandMessenger, WebhookMessenger
from fleet.schema.model import CoprQueue, CoprRulesFile, DebusineQueue, Fleet, TicketQueue
from fleet.schema.model import Queue as QueueModel
from fleet.schema.model import WorldQueue as WorldQueueModel
from fleet.state.database import name_process
from fleet.state.files import LocalFiles
from fleet.state.secrets import HostSecrets
from fleet.state.storage import Storage, find_storage
from fleet.state.store import Store
from fleet.tagrules.export import entries_path, places_of

if TYPE_CHECKING:
    from fleet.apply.satellites import OpenDesk


def wire(
    fleet: Fleet,
    config: str,
    *,
    looks: bool = False,
    slots: Slots | None = None,
    store: Store | None = None,
) -> Sources:
    """Create the adapters of this configuration.

    With `looks`, livechecks and port probes run, as in `apply`; otherwise their stored results are
    used. All runs of a loop use the same `slots` and `store`.
    """
    base = Path(config).resolve().parent
    secrets = HostSecrets(os.environ, base)
    storage = find_storage(fleet, config)
    clouds = clouds_of(fleet, config, SystemClock(), (slots or Slots()) if looks else None)
    enrollers = registries_of(fleet, secrets)
    store = store or Store(storage.store, fleet.fleet)
    # Without a store, the attributes of created machines are unknown.
    made = partial(read_or_default, (), partial(store.attempts, _MAX_KNOWN_MACHINES))
    declared = [name for name, each in fleet.queues.items() if isinstance(each, TicketQueue)]
    in_use = read_store(store.ticket_queues_in_use, ())
    opened = {
        name: connected().open_desk(fleet, name, store.begin, made)
        for name in sorted({*declared, *(() if isinstance(in_use, Unknown) else in_use)})
    }
    desks = {name: opened[name] for name in declared}
    removed = {
        f"{name} (tickets)" if name in fleet.queues else name: desk
        for name, desk in opened.items()
        if name not in desks
    }

    def prepare() -> None:
        for cloud in clouds.values():
            cloud.prepare()

    providers = {name: cloud.machines for name, cloud in clouds.items()}
    registering = {name: each for name, each in providers.items() if isinstance(each, Registry)}
    return Sources(
        queues={
            name: desks.get(name)
            or _queue(fleet, _resolve_path(queue, base), secrets, desks, made)
            for name, queue in fleet.queues.items()
        },
        providers=providers,
        registries={**registering, **enrollers, **removed, **desks},
        enrollers=enrollers,
        engine_of=engines_of(fleet, storage, clouds, secrets, utc_now()),
        machine_apis={
            name: each for name, each in providers.items() if isinstance(each, MachineApi)
        },
        bases=_shared_stacks(fleet, storage, clouds, secrets),
        store=store,
        desks=desks,
        removed_desks=in_use if isinstance(in_use, Unknown) else removed,
        cleaners={
            name: each for name, each in providers.items() if isinstance(each, MachineCleaner)
        },
        rules=dict(_rules(fleet, base, secrets)),
        prices=dict(_prices(clouds)),
        messengers=dict(_messengers(fleet, base, secrets)),
        prepare=prepare,
        probe_ports=ReadyLooks(fleet, store.looks, TcpProber() if looks else None, SystemClock()),
        asking=Concurrently,
        members=_members(fleet, base),
    )


def _messengers(fleet: Fleet, base: Path, secrets: HostSecrets) -> Iterator[tuple[str, Messenger]]:
    if fleet.notify.webhook is not None:
        yield "webhook", WebhookMessenger(fleet.notify.webhook, secrets)
    if fleet.notify.command is not None:
        command = CommandMessenger(fleet.notify.command, fleet.notify.environment, base)
        yield "command", command


def read_rules(fleet: Fleet, config: str) -> dict[str, QueueReading]:
    """Map each queue with readable tag rules to a reading that has only these rules."""
    base = Path(config).resolve().parent
    readers = dict(_rules(fleet, base, HostSecrets(os.environ, base)))
    store = Store(find_storage(fleet, config).store, fleet.fleet)
    nothing = Unknown(unknown="only its rules were read")
    unread = {name: QueueReading(demand=nothing) for name in readers}
    return with_rules(fleet, unread, readers, store, Concurrently())


def registries_of(fleet: Fleet, secrets: HostSecrets) -> dict[str, DebusineRegistry]:
    """Map each queue with an `admin` setting to its registry."""
    return {
        name: DebusineRegistry(name, fleet.fleet, _channel(queue, secrets))
        for name, queue in fleet.queues.items()
        if isinstance(queue, DebusineQueue) and queue.admin
    }


def _channel(queue: DebusineQueue, secrets: HostSecrets) -> Channel:
    if isinstance(queue.admin, list):
        return CommandChannel(queue.admin)
    # Read it late, since only changes need this secret.
    dsn = queue.admin.dsn if queue.admin else None
    return SqlChannel(cache(partial(secrets.read, dsn)))


def engines_of(
    fleet: Fleet,
    storage: Storage,
    clouds: Mapping[str, AnyCloud],
    secrets: HostSecrets,
    now: datetime,
) -> Callable[[str], Engine]:
    """Return a function from provider to engine, which may raise EngineAbsent.

    The expiry of machines that this run creates is computed from `now`.
    """

    @cache
    def engine(name: str) -> Engine:
        own = {key: each for key, each in clouds.items() if each.declared.engine == name}
        if name == "embedded":
            made = {key: each.machines for key, each in own.items()}
            return EmbeddedEngine(
                storage.embedded,
                {key: each for key, each in made.items() if isinstance(each, LocalCloud)},
                unreliable_listings={key for key, each in own.items() if not each.lists_all},
            )
        labels = labels_of_new(fleet, now, os.environ)
        return PulumiEngine(
            storage.backend,
            storage.folder / "pulumi",
            _passphrase(fleet, secrets),
            {key: each.account(labels) for key, each in own.items()},
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


def _shared_stacks(
    fleet: Fleet, storage: Storage, clouds: Mapping[str, AnyCloud], secrets: HostSecrets
) -> Mapping[str, SharedStackEngine]:
    """Map each provider with shared resources to the engine of their stack."""
    sharing = {name: each for name, each in clouds.items() if each.has_shared_stack}
    if not sharing:
        return {}
    return {
        name: PulumiBase(
            storage.backend,
            storage.folder / "pulumi",
            _passphrase(fleet, secrets),
            each.account({}),
            each.adoptable,
        )
        for name, each in sharing.items()
    }


def _passphrase(fleet: Fleet, secrets: HostSecrets) -> Callable[[], str] | None:
    passphrase = fleet.state.passphrase
    return partial(secrets.read, passphrase) if passphrase else None


def labels_of_new(fleet: Fleet, now: datetime, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a new machine that are not part of its inputs."""
    labels = {"expires": label_time(extended(fleet, now))}
    commit = environment.get("CI_COMMIT_SHA", "")
    return labels | {"commit": commit} if re.fullmatch(r"[0-9a-f]{7,63}", commit) else labels


def _prices(clouds: Mapping[str, AnyCloud]) -> Iterator[tuple[str, PriceReader]]:
    """Yield (provider, price reader), except for providers without a token."""
    for name, cloud in clouds.items():
        with suppress(SecretMissing):
            if reader := cloud.prices():
                yield name, reader


_MAX_KNOWN_MACHINES = 10_000
"""Maximum recorded machines per pool, type and market whose names are known."""


lock_owner = name_process
"""Returns the name by which this process owns the lock."""
T = TypeVar("T")


class _UnreadableSource(Generic[T]):
    """A queue or its tag rules that cannot be read. `told` is the Unknown reading."""

    def __init__(self, told: T) -> None:
        self._told = told

    def read(self, now: datetime | None = None) -> T:  # noqa: ARG002 - the port's own argument
        """Return the Unknown reading, which has the reason."""
        return self._told


def _queue(
    fleet: Fleet,
    queue: QueueModel,
    secrets: HostSecrets,
    desks: Mapping[str, "OpenDesk"],
    made: Made,
) -> Queue:
    match queue:
        case DebusineQueue():
            try:
                if queue.read is not None:
                    return DebusineDatabase(fleet, queue, secrets.read(queue.read), made)
                token = secrets.read(queue.token) if queue.token else None
                paths = [rule.from_ for rule in fleet.derive if rule.from_ is not None]
                return DebusineRest(queue, token, paths=paths, max_age=fleet.guards.demand_max_age)
            except SecretMissing as error:
                unknown = Unknown.of(error)
                return _UnreadableSource(QueueReading(demand=unknown, workers=unknown))
        case WorldQueueModel():
            return RecordedQueue(queue, LocalFiles())
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


def _rules(fleet: Fleet, base: Path, secrets: HostSecrets) -> Iterator[tuple[str, RuleReader]]:
    """Yield (queue, reader of its tag rules), if fleet.yaml has the location of the rules."""
    for name, queue in fleet.queues.items():
        match queue:
            case CoprQueue(rules=place) if place is not None:
                file = str(base / place.file) if isinstance(place, CoprRulesFile) else ""
                yield name, connected().copr_rules(place, file, LocalFiles())
            case DebusineQueue(rules=rules) if rules is not None:
                reference = queue.token
                try:
                    token = secrets.read(reference) if reference else None
                except SecretMissing as error:
                    unknown = Unknown.of(error)
                    yield name, _UnreadableSource(dict.fromkeys(places_of(fleet, name), unknown))
                else:
                    path = entries_path(fleet)
                    seconds = fleet.guards.demand_max_age
                    yield name, TaskRules(queue, rules, token, path=path, seconds=seconds)
            case _:
                continue


def _resolve_path(queue: QueueModel, base: Path) -> QueueModel:
    """Return the queue, with the path of a recording relative to the folder of fleet.yaml."""
    if isinstance(queue, WorldQueueModel):
        return queue.model_copy(update={"path": str(base / queue.path)})
    return queue


def read_members(fleet: Fleet, file: str) -> Mapping[str, tuple[str, ...]] | Unknown:
    """Map group to members, from the key `members`; Unknown if its file is unreadable."""
    members = _members(fleet, Path(file).resolve().parent)
    return members.read() if members else {}


def _members(fleet: Fleet, base: Path) -> FileMembers | None:
    return FileMembers(str(base / fleet.members.file), LocalFiles()) if fleet.members else None
