"""This module declares every key of fleet.yaml; a key that is not here is refused.

Meaning of each key: docs/reference/fleet-yaml.md, generated from the descriptions below.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fleet.schema.units import Amount as MoneyAmount
from fleet.schema.units import Day, Mebibytes, Money, Name, Percent, PricePerHour, Seconds

Text = Annotated[str, Field(min_length=1, max_length=1000)]
Tag = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s]+$")]
Command = Annotated[list[Text], Field(min_length=1, description="A program and its arguments.")]
Count = Annotated[int, Field(ge=0, le=100_000)]
CurrencyCode = Annotated[str, Field(pattern=r"^[A-Z]{3}$", description="ISO 4217 code.")]


class Section(BaseModel):
    """What every part of fleet.yaml has in common: no extra keys, no conversions, no changes."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, defer_build=True, validate_default=False
    )


class EnvSecret(Section):
    """A secret read from an environment variable."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class FileSecret(Section):
    """A secret read from a file; white space around it is dropped."""

    file: Text


class CommandSecret(Section):
    """A secret that a command prints."""

    command: Command


SecretRef = EnvSecret | FileSecret | CommandSecret


class State(Section):
    """Where stacks and the store live."""

    backend: Text = Field(
        "file",
        description="Pulumi backend for stack state: `file` (beside fleet.yaml, in .fleet/), or a "
        "URL (file://, s3://, gs://, azblob://, postgres://).",
    )
    store: Text = Field(
        "sqlite",
        description="What must outlive a run: `sqlite` (beside fleet.yaml, in .fleet/), or a URL "
        "(sqlite:///, postgresql://).",
    )
    passphrase: SecretRef | None = Field(
        None, description="Encrypts secrets in stack state (the real engine needs it)."
    )


class ExchangeRate(Section):
    """What one unit of a foreign currency costs in the currency of the file."""

    rate: Annotated[float, Field(gt=0, le=1_000_000, strict=False)]
    as_of: Day


class MoneySettings(Section):
    """Currency and calendar of every figure of money."""

    currency: CurrencyCode = "EUR"
    exchange: dict[CurrencyCode, ExchangeRate] = Field(default_factory=dict)
    time_zone: Text = Field("UTC", description="Calendar of days and months, an IANA name.")
    net: bool = Field(True, description="Whether prices are without value-added tax.")


class HcloudProvider(Section):
    """A Hetzner Cloud project."""

    kind: Literal["hcloud"]
    location: Text = Field(description="For instance fsn1, nbg1, hel1.")
    token: SecretRef


class AwsProvider(Section):
    """An AWS account; credentials come by the usual AWS chain."""

    kind: Literal["aws"]
    region: Text


class SimMachineType(Section):
    """A machine type that the simulated provider sells."""

    cores: Annotated[int, Field(ge=1, le=10_000)]
    memory: Mebibytes
    disk: Mebibytes
    price: PricePerHour
    architecture: Text = "amd64"
    stock: Count | None = Field(None, description="How many can exist at once; left out: no end.")


class SimFaults(Section):
    """What goes wrong at the simulated provider, on purpose."""

    create: Literal["out-of-stock", "quota", "error"] | None = Field(
        None, description="How every creation fails."
    )
    never_boots: list[Text] = Field(
        default_factory=list, description="Machines of these types never register."
    )


class SimProvider(Section):
    """Simulated machines, for trials, demos and tests."""

    kind: Literal["sim"]
    path: Text | None = Field(
        None, description="The file that is the simulated cloud; left out: in .fleet/."
    )
    boot: Seconds = Field(60, description="From creation to the worker registering itself.")
    types: dict[Text, SimMachineType] = Field(
        default_factory=dict, description="Added to the machine types of the catalogue."
    )
    faults: SimFaults = Field(default_factory=SimFaults)
    engine: Literal["embedded", "pulumi"] = Field(
        "embedded", description="Which engine owns the stacks of this provider."
    )


class LocalProvider(Section):
    """Processes on this computer."""

    kind: Literal["local"]


class HooksProvider(Section):
    """Machines that your own commands make, list and delete."""

    kind: Literal["hooks"]
    new: Command
    delete: Command
    list: Command
    livecheck: Command | None = None


Provider = Annotated[
    HcloudProvider | AwsProvider | SimProvider | LocalProvider | HooksProvider,
    Field(discriminator="kind"),
]


class DebusineQueue(Section):
    """A Debusine server: where work waits and workers register."""

    kind: Literal["debusine"]
    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=1000)]
    scopes: Annotated[list[Text], Field(min_length=1)]
    token: SecretRef | None = Field(None, description="REST token of a user with role viewer.")
    read: SecretRef | None = Field(None, description="DSN of a read-only PostgreSQL role.")
    admin: Command | SecretRef | None = Field(
        None, description="debusine-admin as an argument list, or a DSN that may write."
    )


class CoprQueue(Section):
    """A Copr build system."""

    kind: Literal["copr"]
    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=1000)]


class TicketQueue(Section):
    """Tickets that fleet itself hands out."""

    kind: Literal["tickets"]


class WorldQueue(Section):
    """A queue recorded by `fleet observe`."""

    kind: Literal["world"]
    path: Text
    queue: Name | None = Field(
        None, description="Which queue of the recording; left out: the only one it holds."
    )


Queue = Annotated[
    DebusineQueue | CoprQueue | TicketQueue | WorldQueue, Field(discriminator="kind")
]


class Size(Section):
    """A documented size class; a machine provides every class that it reaches."""

    cores: Annotated[int, Field(ge=1, le=10_000)]
    memory: Mebibytes
    disk: Mebibytes
    swap: Mebibytes | None = None


class Askers(Section):
    """Who may ask for a tag, by name."""

    users: list[Text] = Field(default_factory=list)
    groups: list[Text] = Field(default_factory=list)
    workspaces: list[Text] = Field(default_factory=list)
    scopes: list[Text] = Field(default_factory=list)


class LimitsPer(Section):
    """How many machines one of each may hold at once."""

    submitter: Count | None = None
    owner: Count | None = None
    scope: Count | None = None
    team: Count | None = None


class Limits(Section):
    """How many machines requests with this tag may hold at once."""

    per: LimitsPer = Field(default_factory=LimitsPer)
    total: Count | None = None


class Otherwise(Section):
    """What happens to a request whose on-demand tag cannot be had."""

    after: Seconds
    drop: Literal[True]


Backend = Literal["unshare", "qemu", "incus"]
Task = Literal["autopkgtest", "sbuild", "mmdebstrap", "simplesystemimagebuild"]
Market = Literal["spot", "on-demand"]
AskedBy = Literal["user", "task", "rules", "tickets", "system"]
ProvidedBy = Literal["pool", "machine", "image", "worker"]


class TagRule(Section):
    """What a tag is, who may ask for it, who may provide it."""

    kind: Literal["plain", "number"] = Field(
        "plain", description="`number`: requests state a minimum, as in memory_gib>=64."
    )
    on_demand: bool = Field(
        False, description="Pools that provide it hold no machine while nothing asks for it."
    )
    exclusive: bool = Field(
        False, description="A worker that provides it runs only requests that ask for it."
    )
    asked_by: list[AskedBy | Askers] | None = Field(None, description="Left out: anyone.")
    provided_by: list[ProvidedBy] | None = Field(None, description="Left out: any source.")
    limits: Limits = Field(default_factory=Limits)
    priority: Literal["low", "normal", "high"] = "normal"
    otherwise: Otherwise | Literal["wait"] = "wait"


class DeriveRule(Section):
    """A tag that a request gets from its own task data."""

    task: Text | None = Field(None, description="Only for this task; left out: for every task.")
    from_: Text | None = Field(None, alias="from", description="A dotted path into the task data.")
    lookup: Text | None = Field(None, description="A table that turns the value into a record.")
    source_build: bool | None = None
    ask: Text


class PowerfulRule(Section):
    """Builds that get powerful machines: the allow-list."""

    match: Text = Field(
        description="Full match on owner/project[:dir]/chroot/package (Copr) or "
        "scope/workspace/architecture/source (Debusine)."
    )
    ask: Annotated[list[Tag], Field(min_length=1)]
    dirs: bool = Field(False, description="Also the pull-request directories of the project.")
    contact: Text | None = None
    reason: Text | None = None
    expires: Day | None = None
    matches: list[Text] = Field(default_factory=list)
    rejects: list[Text] = Field(default_factory=list)


class Rebuild(Section):
    """When a new version of an image is baked."""

    every: Seconds
    keep: Annotated[int, Field(ge=1, le=100)] = 2


class ImageRecipe(Section):
    """An image that fleet bakes."""

    suite: Text
    architecture: Text
    provides: list[Tag] = Field(
        default_factory=list,
        description="Tags that its worker reports, until a boot test has recorded them.",
    )
    source: Text | None = Field(None, description="A deb822 APT source.")
    enable_backends: list[Backend] = ["unshare"]
    enable_tasks: list[Task] = ["autopkgtest", "sbuild"]
    api_url: Text | None = None
    rebuild: Rebuild | None = None
    publish: list[Name] = Field(default_factory=list)


class ExistingImage(Section):
    """An image that was baked elsewhere."""

    existing: Annotated[dict[Name, Text], Field(min_length=1)] = Field(
        description="Provider name to the provider's own image id."
    )
    architecture: Text = "amd64"
    provides: list[Tag] = Field(default_factory=list)


Image = ImageRecipe | ExistingImage


class Machine(Section):
    """What a pool's machines are; figures override the catalogue's."""

    type: Text | None = Field(None, description="The provider's own name of the type.")
    cores: Annotated[int, Field(ge=1, le=10_000)] | None = None
    memory: Mebibytes | None = None
    disk: Mebibytes | None = None
    swap: Mebibytes | None = None
    price: PricePerHour | None = None
    market: list[Market] = ["on-demand"]
    slots: Annotated[int, Field(ge=1, le=1000)] = 1


class Workers(Section):
    """How many workers a pool may hold."""

    max: Count
    min: Count = 0
    spare: Count = Field(0, description="Idle workers kept ready beyond what waits.")
    max_starting: Count | None = Field(None, description="Machines booting at the same time.")


class Boot(Section):
    """How long a machine takes from its creation to its worker."""

    expected: Seconds = 90
    deadline: Seconds = 600


class Retire(Section):
    """When a worker is let go although nothing is wrong with it."""

    idle_after: Seconds = 900
    max_age: Seconds | None = None
    max_uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class PoolBudget(Section):
    """Money as a hard limit of one pool."""

    per_hour: MoneyAmount | None = None
    per_day: MoneyAmount | None = None
    per_month: MoneyAmount | None = None


class Replace(Section):
    """How outdated workers are replaced."""

    at_a_time: Percent | None = None
    windows: list[Text] = Field(default_factory=list)


class Pool(Section):
    """Machines of one kind."""

    provider: Name
    machine: Text | Machine = Field(description="A machine type, or its figures.")
    image: Name
    serves: list[Name] | None = Field(None, description="Queues; left out: every queue.")
    provides: list[Tag] = Field(default_factory=list)
    requires: list[Tag] = Field(
        default_factory=list, description="Tags a request must bring to run here."
    )
    workers: Workers
    boot: Boot = Field(default_factory=Boot)
    retire: Retire = Field(default_factory=Retire)
    target_wait: Seconds | None = None
    budget: PoolBudget | None = None
    replace: Replace | None = None
    mode: Literal["apply", "observe", "drain", "pause"] = "apply"
    previously: Name | None = Field(None, description="The name this pool had before.")


class StaticPool(Section):
    """Machines that exist already: counted as capacity, never touched."""

    static: Annotated[list[Text], Field(min_length=1)]
    provides: list[Tag] = Field(default_factory=list)
    serves: list[Name] | None = None


AnyPool = Pool | StaticPool


class Budget(Section):
    """Money or machine time as a hard limit across pools."""

    scope: Text | None = None
    team: Text | None = None
    owner: Text | None = None
    tags: list[Tag] = Field(default_factory=list)
    per_hour: MoneyAmount | None = None
    per_day: MoneyAmount | None = None
    per_month: MoneyAmount | None = None
    machine_hours_per_hour: Count | None = None
    machine_hours_per_day: Count | None = None
    machine_hours_per_month: Count | None = None


class RefuseDelete(Section):
    """Above either figure, deletions that demand did not cause are refused."""

    share: Percent = 30
    count: Count = 10


class Refuse(Section):
    """What a change of config, image or knowledge may not cause."""

    delete: RefuseDelete = Field(default_factory=RefuseDelete)
    cost_increase: PricePerHour | None = None


class ThrottleDelete(Section):
    """How many deletions one run may make because of demand."""

    count: Count = 20


class ThrottleCreate(Section):
    """How many creations one run may make because of demand."""

    share: Percent = 100
    free_below: Count = Field(10, description="Growth is measured from at least this many.")
    count: Count = 50


class Throttle(Section):
    """What demand causes: the first N now, the rest next run."""

    delete: ThrottleDelete = Field(default_factory=ThrottleDelete)
    create: ThrottleCreate = Field(default_factory=ThrottleCreate)


class BootFailures(Section):
    """When a pool stops creating machines that do not come up."""

    stop_after: Count = 3
    of_last: Count = 5
    fall_back: Literal["previous-image", "nothing"] = "nothing"


class Guards(Section):
    """Limits on what one run may do, counted per pool and fleet-wide."""

    refuse: Refuse = Field(default_factory=Refuse)
    throttle: Throttle = Field(default_factory=Throttle)
    boot_failures: BootFailures | None = None
    demand_max_age: Seconds = 300


class Approval(Section):
    """The narrow way past a guard: reviewed, spent as it is used, gone by itself."""

    guard: Literal["delete", "cost_increase"]
    pool: Name
    count: Count
    reason: Text
    expires: Day


def default_sizes() -> dict[str, Size]:
    """Return the documented size classes (MiB)."""
    gib = 1024
    return {
        "small": Size.model_construct(cores=2, memory=4 * gib, disk=40 * gib, swap=None),
        "medium": Size.model_construct(cores=8, memory=16 * gib, disk=160 * gib, swap=None),
        "big": Size.model_construct(cores=32, memory=64 * gib, disk=280 * gib, swap=None),
    }


class Fleet(Section):
    """A whole fleet.yaml, its included files merged into it."""

    include: list[Text] = Field(default_factory=list, description="Patterns of further files.")
    fleet: Annotated[Name, Field(max_length=20)] = Field(
        description="Ownership mark: everything this file owns carries the label fleet=NAME."
    )
    state: State = Field(default_factory=State)
    cadence: Seconds = Field(600, description="How often somebody runs `fleet apply`.")
    money: MoneySettings = Field(default_factory=MoneySettings)
    providers: dict[Name, Provider] = Field(default_factory=dict)
    queues: dict[Name, Queue] = Field(default_factory=dict)
    sizes: dict[Name, Size] = Field(default_factory=default_sizes)
    tags: dict[Tag, TagRule] = Field(default_factory=dict)
    derive: list[DeriveRule] = Field(default_factory=list)
    powerful: list[PowerfulRule] = Field(default_factory=list)
    images: dict[Name, Image] = Field(default_factory=dict)
    pools: dict[Name, AnyPool] = Field(default_factory=dict)
    budgets: dict[Name, Budget] = Field(default_factory=dict)
    guards: Guards = Field(default_factory=Guards)
    approvals: list[Approval] = Field(default_factory=list)


__all__ = ["Fleet", "Money", "Section"]
