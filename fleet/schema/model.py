"""The model of fleet.yaml: `Fleet`; this module exports all its sections.

The sections are in sources.py (providers, queues), rules.py (tags, allow-list) and pools.py
(images, pools); budgets, guards, notices and the rest are here. docs/reference/fleet-yaml.md is
generated from them.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import chain, count
from operator import is_
from typing import Annotated, Literal, Self, TypeVar, get_args
from weakref import finalize

from pydantic import Field, Tag, model_validator
from pydantic.fields import FieldInfo

from fleet.schema.findings import Path, yaml_key
from fleet.schema.pools import (
    PLACE_PATTERN,
    SERVER_PATTERN,
    AnyPool,
    Boot,
    BootFailure,
    ExistingImage,
    HooksPool,
    Image,
    ImageRecipe,
    MachineSettings,
    Market,
    PlaybookRecipe,
    Pool,
    PoolBudget,
    Promote,
    Ready,
    Rebuild,
    Recipe,
    Replace,
    Retire,
    Reuse,
    StaticPool,
    Workers,
)
from fleet.schema.rules import (
    BUILD_TASK,
    MOST_RULES,
    SOURCE_CHROOT,
    SOURCE_TASK,
    Asker,
    Askers,
    CoprRulesFile,
    CoprRulesUrl,
    DebusineRules,
    DeriveRule,
    Duration,
    Durations,
    Limits,
    LimitsPer,
    Otherwise,
    PowerfulRule,
    ProvidedBy,
    Size,
    TagRule,
    default_sizes,
)
from fleet.schema.sources import (
    PROVIDERS,
    AdminDsn,
    AwsProvider,
    CoprQueue,
    DebusineQueue,
    Faults,
    FirewallRule,
    Gone,
    HcloudNetwork,
    HcloudProvider,
    Hooks,
    HooksProvider,
    LocalMachineType,
    LocalProvider,
    Provider,
    ProviderSection,
    Queue,
    SimBilling,
    SimMachineType,
    SimProvider,
    TicketQueue,
    WorldQueue,
)
from fleet.schema.units import (
    RUNS,
    Amount,
    BackendUrl,
    Command,
    CommandSecret,
    ConfigSection,
    Count,
    CurrencyCode,
    Day,
    EnvNames,
    EnvSecret,
    FileSecret,
    FleetName,
    Money,
    Name,
    Percent,
    PoolName,
    PricePerHour,
    Seconds,
    SecretRef,
    StoreUrl,
    Text,
    Url,
    WorkerTag,
    branch,
)

WebhookUrl = Annotated[
    Annotated[Url, Tag("webhook-address")] | Annotated[SecretRef, Tag("webhook-secret")],
    branch(
        {"webhook-address": str, "webhook-secret": (dict, ConfigSection)},
        "a URL, or a reference to one that is secret: {env: NAME}",
    ),
]


class Webhook(ConfigSection):
    """A server that receives notices as JSON."""

    url: WebhookUrl = Field(
        description="Where to POST them; a reference to a secret where the URL itself is one."
    )
    token: SecretRef | None = Field(
        None,
        description="Sent as `Authorization: Bearer TOKEN`; needs https:// off this computer.",
    )


class Notify(ConfigSection):
    """The recipients of notices on objects that expire soon or are outdated, each sent once."""

    webhook: Webhook | None = Field(None, description="A server to tell.")
    command: Command | None = Field(
        None,
        description="A program that gets the notices as text on its standard input, as "
        '`[mail, "-s", fleet, ops@example.org]`.',
    )
    environment: EnvNames = Field(
        [],
        description="Environment variables to pass on to it, in addition to PATH, HOME, USER, "
        "LOGNAME, LANG, TMPDIR and XDG_RUNTIME_DIR.",
    )


class Team(ConfigSection):
    """The members of a team, by the names that queues report."""

    users: list[Text] = Field([], description="User names.")
    groups: list[Text] = Field([], description="Group names, as in `members`.")
    owners: list[Text] = Field([], description="Owners of Copr projects: USER or @GROUP.")
    workspaces: list[Text] = Field([], description="Workspaces: NAME or SCOPE/NAME.")
    scopes: list[Text] = Field([], description="Scope names.")

    def of(self, kind: str) -> list[str]:
        """Return the members that a key of the team, such as `owners`, lists."""
        found: list[str] = getattr(self, kind)
        return found


TEAM_MEMBERS = ("users", "groups", "owners", "workspaces", "scopes")
"""The keys of a team in order of precedence: the first key that matches decides the team."""


class Budget(ConfigSection):
    """A hard limit on the cost or the machine time of several pools."""

    scope: Text | None = Field(None, description="Only work of this scope.")
    team: Text | None = Field(None, description="Only work of this team.")
    owner: Text | None = Field(None, description="Only work of this owner.")
    tags: list[WorkerTag] = Field([], description="Only work that asks for one of these tags.")
    per_hour: Amount | None = Field(None, description="Money per hour.")
    per_day: Amount | None = Field(None, description="Money per calendar day.")
    per_month: Amount | None = Field(None, description="Money per calendar month.")
    machine_hours_per_hour: Count | None = Field(None, description="Machine hours per hour.")
    machine_hours_per_day: Count | None = Field(
        None, description="Machine hours per calendar day."
    )
    machine_hours_per_month: Count | None = Field(
        None, description="Machine hours per calendar month."
    )

    @property
    def is_filtered(self) -> bool:
        """Return whether the budget counts only the work of a scope, team, owner or tag."""
        return bool(self.scope or self.team or self.owner or self.tags)


class RefuseDelete(ConfigSection):
    """Limits above which deletions that demand does not cause are refused."""

    share: Percent = Field(30, description="Share of the machines of a pool or of the fleet.")
    count: Count = Field(10, description="Machines of a pool or of the fleet.")


class Refuse(ConfigSection):
    """Limits on changes that an edit of fleet.yaml, a new image or lost facts cause."""

    delete: RefuseDelete = Field(
        default_factory=RefuseDelete.model_construct, description="Deletions above either limit."
    )
    cost_increase: PricePerHour | None = Field(
        None, description="Increase of cost per hour; default: no limit."
    )


class ThrottleDelete(ConfigSection):
    """Maximum number of machines that a run may delete because of demand."""

    count: Count = Field(20, description="Machines of a pool or of the fleet.")


class ThrottleCreate(ConfigSection):
    """Maximum number of machines that a run may create because of demand."""

    share: Percent = Field(100, description="Share of the machines that exist.")
    free_below: Count = Field(10, description="`share` is of at least this many machines.")
    count: Count = Field(50, description="Machines of a pool or of the fleet.")


class Throttle(ConfigSection):
    """Limits on changes that demand causes. Later runs make the remaining changes."""

    delete: ThrottleDelete = Field(
        default_factory=ThrottleDelete.model_construct, description="Deletions in one run."
    )
    create: ThrottleCreate = Field(
        default_factory=ThrottleCreate.model_construct, description="Creations in one run."
    )


Boots = Annotated[int, Field(ge=1, le=50)]


class BootFailures(ConfigSection):
    """Number of failed boots after which a pool creates no machines."""

    stop_after: Boots = Field(
        3,
        description="Failed boots after which a pool stops a version on a machine type.",
    )
    of_last: Boots = Field(
        5, description="Latest boots of the version on that type to count, within a day."
    )
    fall_back: Literal["previous-image", "nothing"] = Field(
        "nothing",
        description="Reaction of the pool: boot the previous version, or create no machines.",
    )


class Guards(ConfigSection):
    """Limits on the changes of a run, per pool and for the whole fleet."""

    refuse: Refuse = Field(
        default_factory=Refuse.model_construct,
        description="Changes that an edit, a new image or lost knowledge may not cause.",
    )
    throttle: Throttle = Field(
        default_factory=Throttle.model_construct,
        description="How many changes demand may cause in one run.",
    )
    boot_failures: BootFailures = Field(
        default_factory=BootFailures.model_construct,
        description="When a pool stops creating machines because they fail to boot.",
    )
    demand_max_age: Seconds = Field(300, description="Demand older than this counts as unknown.")


class Approval(ConfigSection):
    """Permission to exceed a guard, for a number of machines and a limited time."""

    guard: Literal["boot_failures", "cost_increase", "delete", "rival"] = Field(
        description="The guard to pass; `boot_failures`: machines whose image failed to boot; "
        "`rival`: machines for a queue that also creates its own."
    )
    pool: PoolName = Field(description="The pool whose machines may pass.")
    count: Count = Field(description="How many machines may pass in all, over several runs.")
    reason: Text = Field(description="The reason, for reviewers.")
    expires: Day = Field(description="The last day it is valid.")


_Answer = TypeVar("_Answer")
_cached_answers: dict[int, dict[object, tuple[tuple[object, ...], object]]] = {}
"""Id of a Fleet to the inputs and result of each cached function and name."""


class StateSettings(ConfigSection):
    """Locations of the state: stacks, database and image files."""

    backend: BackendUrl = Field(
        "file",
        description="Pulumi backend for stack state: `file` (in .fleet/ next to fleet.yaml) or a "
        "URL (file://, s3://, gs://, azblob://, postgres://).",
    )
    store: StoreUrl = Field(
        "sqlite",
        description="Database for history, tickets and cost: `sqlite` (in .fleet/ next to "
        "fleet.yaml) or a URL (sqlite:///, postgresql://).",
    )
    images: Text = Field(
        ".fleet/images",
        description="Folder of the images built on this computer, relative to fleet.yaml.",
    )
    passphrase: SecretRef | None = Field(
        None, description="Encrypts secrets in stack state; the Pulumi engine needs it."
    )


class HistorySettings(ConfigSection):
    """Retention of observations in the store."""

    keep: Seconds | None = Field(
        3_024_000,
        description="How long what each run observed is kept, for `fleet simulate` and `fleet "
        "observe --kept`; `null`: nothing is kept.",
    )


class ExchangeRate(ConfigSection):
    """The exchange rate between a foreign currency and the currency of the file."""

    rate: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        description="Price of one unit, in `money.currency`."
    )
    as_of: Day = Field(description="Day of the rate.")


class MoneySettings(ConfigSection):
    """Currency and calendar for all amounts of money."""

    currency: CurrencyCode = Field("EUR", description="Currency of all totals, an ISO 4217 code.")
    exchange: dict[CurrencyCode, ExchangeRate] = Field(
        {}, description="Rates of other currencies, by code."
    )
    time_zone: Text = Field("UTC", description="Time zone of days and months, an IANA name.")


class Members(ConfigSection):
    """The source of the members of groups."""

    file: Text = Field(
        description="A YAML or JSON file, relative to this one: group to list of user names."
    )


class Fleet(ConfigSection):
    """A fleet.yaml after its included files and templates are merged."""

    include: list[Text] = Field(
        [],
        description="Patterns of further files, relative to this one; sections are merged, lists "
        "are joined.",
    )
    fleet: FleetName = Field(
        description="Name of the fleet; everything it owns has the label fleet=NAME."
    )
    contact: Text | None = Field(
        None,
        description="Contact for questions about this fleet: a name, an address or a URL. The "
        "status pages and `fleet explain request` show it.",
    )
    state: StateSettings = Field(
        default_factory=StateSettings.model_construct, description="Where state is stored."
    )
    history: HistorySettings = Field(
        default_factory=HistorySettings.model_construct,
        description="Retention of observations in the store.",
    )
    cadence: Seconds = Field(600, description="How often `fleet apply` runs.")
    expire_after: Seconds = Field(
        86_400,
        description="How long after the last `fleet apply` that renewed it a machine expires "
        "(`fleet machine delete --expired` deletes it).",
    )
    money: MoneySettings = Field(
        default_factory=MoneySettings.model_construct, description="Currency and calendar."
    )
    providers: dict[Name, Provider] = Field(
        {}, description="Cloud accounts and other sources of machines, by name."
    )
    queues: dict[Name, Queue] = Field({}, description="Where work waits, by name.")
    durations: dict[Text, Durations] = Field(
        {},
        description="How long tasks run if history does not say, by task; `any` is for all other "
        "tasks. A list distinguishes packages and machines.",
    )
    sizes: dict[Name, Size] = Field(
        default_factory=default_sizes,
        description="Size classes by name; a machine provides every class that it reaches.",
    )
    tags: dict[WorkerTag, TagRule] = Field(
        {},
        description="Properties of tags, by tag; a trailing `*` matches any ending.",
    )
    members: Members | None = Field(
        None, description="Members of groups, for `asked_by`; default: as the queue says."
    )
    teams: dict[Text, Team] = Field(
        {},
        description="The team of requests whose queue names none, by team. The key that comes "
        "first decides: `users`, `groups`, `owners`, `workspaces`, `scopes`.",
    )
    lookups: dict[Name, dict[Text, dict[Text, Text]]] = Field(
        {}, description="Tables for `derive`: value to a record, for example of an environment."
    )
    derive: list[DeriveRule] = Field([], description="Tags that requests get from their data.")
    powerful: Annotated[list[PowerfulRule], Field(max_length=MOST_RULES)] = Field(
        [],
        description="The allow-list: builds that get powerful machines. All matching rules apply.",
    )
    images: dict[Name, Image] = Field({}, description="Images of machines, by name.")
    pools: dict[PoolName, AnyPool] = Field({}, description="Machines of one kind, by name.")
    budgets: dict[Name, Budget] = Field(
        {}, description="Hard limits on money or machine time across pools, by name."
    )
    notify: Notify = Field(
        default_factory=Notify.model_construct, description="Where notices are sent."
    )
    guards: Guards = Field(
        default_factory=Guards.model_construct, description="Limits on what one run may do."
    )
    approvals: list[Approval] = Field([], description="Permissions to pass a guard.")

    @property
    def dynamic_pools(self) -> dict[str, Pool]:
        """Map name to pool for the pools whose machines fleet creates."""
        return {name: pool for name, pool in self.pools.items() if isinstance(pool, Pool)}

    def dynamic_pool(self, name: str) -> Pool | None:
        """Return the dynamic pool of this name; None if fleet.yaml has no such pool."""
        pool = self.pools.get(name)
        return pool if isinstance(pool, Pool) else None

    @property
    def baked(self) -> dict[str, Recipe]:
        """Map name to recipe for the images that fleet builds."""
        return {n: image for n, image in self.images.items() if isinstance(image, Recipe)}

    @property
    def recipes(self) -> dict[str, ImageRecipe]:
        """Map name to recipe for the Debian images that fleet builds with its own Ansible role."""
        return {n: image for n, image in self.images.items() if isinstance(image, ImageRecipe)}

    def cached(
        self, about: object, parts: tuple[object, ...], find: Callable[[], _Answer]
    ) -> _Answer:
        """Return the cached result of `find`; call it again if one of `parts` is another object.

        `about` names the result, which must depend only on the fleet, on `about` and on `parts`.
        Loops and simulations call the same functions with the same Fleet in each run. Only the
        latest result per name is kept, so that the memory of a loop is limited.
        """
        answers = _cached_answers.get(id(self))
        if answers is None:
            answers = _cached_answers[id(self)] = {}
            finalize(self, _cached_answers.pop, id(self), None).atexit = False
        held = answers.get(about)
        if held and len(held[0]) == len(parts) and all(map(is_, held[0], parts)):
            return held[1]  # type: ignore[return-value]  # stored under the same name
        answer = find()
        answers[about] = (parts, answer)
        return answer

    @model_validator(mode="after")
    def _unfold(self) -> Self:
        """Replace each pool that has commands by a pool with a generated provider and image."""
        for name, pool in self.pools.items():
            if isinstance(pool, HooksPool):
                own = _free_name(name, self.providers)
                written = {"kind", *pool.hooks.model_fields_set}
                hooks = {"kind": "hooks", **dict(pool.hooks)}
                self.providers[own] = HooksProvider.model_construct(written, **hooks)
                image = pool.image or _free_name(name, self.images)
                if not pool.image:
                    self.images[image] = ExistingImage.model_construct(
                        {"existing"}, existing={own: name}
                    )
                kept = {key: getattr(pool, key) for key in Pool.model_fields}
                kept |= {"provider": own, "image": image}
                written = {*pool.model_fields_set, "provider", "image", "workers"} - {"hooks"}
                self.pools[name] = Pool.model_construct(written, **kept)
                # Mark these fields as set, so that a dump includes them.
                self.model_fields_set.update(("providers", "images"))
        return self


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return a pool's name, with a number at the end if the name is taken."""
    numbered = (f"{name[:28]}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def beginning_of(fleet: Fleet, pool: str) -> str:
    """Return the part before the number in the names of a pool's machines.

    Commands written for Resalloc expect names that start with the pool's name; `_f` distinguishes
    these names from Resalloc's, for example POOL_00010001_20261122_181715.
    """
    return f"{pool}_f" if speaks_resalloc(fleet, pool) else f"{fleet.fleet}-{pool}-"


def is_named_by_fleet(fleet: str, pool: str, name: str) -> bool:
    """Return whether a name has a current or older format of machine names in this pool."""
    begins = (each for each in (f"{fleet}-{pool}-", f"{pool}_f") if name.startswith(each))
    return any(name.removeprefix(each).isdecimal() for each in begins)


def speaks_resalloc(fleet: Fleet, pool: str) -> bool:
    """Return whether the commands of a pool are written for Resalloc."""
    declared = fleet.pools.get(pool)
    provider = fleet.providers.get(declared.provider) if isinstance(declared, Pool) else None
    return isinstance(provider, HooksProvider) and provider.interface == "resalloc"


def serves_queue(pool: Pool | StaticPool, queue: str) -> bool:
    """Return whether the workers of a pool register at this queue."""
    return pool.serves is None or queue in pool.serves


def debusine_queues(fleet: Fleet, image: str) -> list[str]:
    """Return the Debusine queues at which machines with this image register, in file order."""
    pools = [pool for pool in fleet.dynamic_pools.values() if pool.image == image]
    return [
        name
        for name, queue in fleet.queues.items()
        if isinstance(queue, DebusineQueue) and any(serves_queue(pool, name) for pool in pools)
    ]


def is_at_cloud(fleet: Fleet, pool: Pool) -> bool:
    """Return whether machines of a pool are cloud servers. Tickets then contain the address."""
    provider = fleet.providers.get(pool.provider)
    return provider is not None and provider.is_cloud


def has_no_usable_queue(fleet: Fleet, pool: object) -> bool:
    """Return whether a pool has cloud machines but no queue that can use them."""
    if not isinstance(pool, Pool):
        return False
    kinds = DebusineQueue | TicketQueue
    return is_at_cloud(fleet, pool) and not any(
        isinstance(queue, kinds) and serves_queue(pool, name)
        for name, queue in fleet.queues.items()
    )


def static_names(fleet: Fleet) -> frozenset[str]:
    """Return the names of the workers in static pools."""
    pools = fleet.pools.values()
    return frozenset(n for pool in pools if isinstance(pool, StaticPool) for n in pool.static)


Secret = EnvSecret | FileSecret | CommandSecret


def programs_and_secrets(fleet: Fleet) -> Iterator[tuple[Path, list[str] | Secret]]:
    """Yield path and value of each key that is a program to run or a reference to a secret."""
    for path, value, field in _keys_in(fleet):
        if isinstance(value, Secret) or (
            field is not None
            and isinstance(value, list)
            and (RUNS in field.metadata or _can_run_program(field.annotation))
        ):
            yield path, value


def commands_in(fleet: Fleet) -> Iterator[str]:
    """Yield the path of each key that is a program to run."""
    found = programs_and_secrets(fleet)
    return (yaml_key(path) for path, value in found if isinstance(value, list))


def secrets_in(fleet: Fleet) -> Iterator[tuple[str, Secret]]:
    """Yield the path of each key that refers to a secret, and the reference."""
    found = programs_and_secrets(fleet)
    return ((yaml_key(path), value) for path, value in found if isinstance(value, Secret))


def money_in(fleet: Fleet) -> Iterator[tuple[Path, Money]]:
    """Yield the path of each key that is an amount of money, and the amount."""
    return ((path, value) for path, value, _ in _keys_in(fleet) if isinstance(value, Money))


def connections_in(fleet: Fleet) -> Iterator[str]:
    """Yield the path of each key that names a server of a queue, a provider or notices."""
    for path, value, _ in _keys_in(fleet):
        match value:
            case DebusineQueue() | CoprQueue() | CoprRulesUrl():
                yield yaml_key((*path, "url"))
            case ProviderSection(is_cloud=True) | Webhook():
                yield yaml_key(path)


def _can_run_program(annotation: object) -> bool:
    """Return whether values of a type can contain programs to run."""
    return RUNS in getattr(annotation, "__metadata__", ()) or any(
        map(_can_run_program, get_args(annotation))
    )


def _keys_in(value: object, path: Path = ()) -> Iterator[tuple[Path, object, FieldInfo | None]]:
    """Yield path, value and field of each key. The field is None if the user chose the key."""
    parts: list[tuple[str | int, object, FieldInfo | None]] = []
    match value:
        case ConfigSection():
            fields = type(value).model_fields.items()
            parts = [(name, getattr(value, name), field) for name, field in fields]
        case dict():
            parts = [(name, part, None) for name, part in value.items()]
        case list():
            parts = [(number, part, None) for number, part in enumerate(value)]
    for name, part, field in parts:
        yield (*path, name), part, field
        yield from _keys_in(part, (*path, name))
