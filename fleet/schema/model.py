"""This module declares a whole fleet.yaml; a key that is not declared is refused.

The parts live beside it: sources (providers, queues), rules (tags and who may ask), pools
(images, machines), limits (budgets, guards). Every name is importable from here.
Meaning of each key: docs/reference/fleet-yaml.md, generated from the descriptions.
"""

from collections.abc import Collection, Iterator
from itertools import chain, count
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.schema.base import (
    Command,
    CommandSecret,
    Count,
    CurrencyCode,
    EnvSecret,
    FileSecret,
    SecretRef,
    Section,
    Text,
    WorkerTag,
)
from fleet.schema.limits import (
    Approval,
    BootFailures,
    Budget,
    Guards,
    Refuse,
    RefuseDelete,
    Throttle,
    ThrottleCreate,
    ThrottleDelete,
)
from fleet.schema.pools import (
    AnyPool,
    Boot,
    ExistingImage,
    HooksPool,
    Image,
    ImageRecipe,
    Machine,
    Pool,
    PoolBudget,
    Ready,
    Rebuild,
    Replace,
    Retire,
    Reuse,
    StaticPool,
    Workers,
)
from fleet.schema.rules import (
    MOST_RULES,
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
    Size,
    TagRule,
    default_sizes,
)
from fleet.schema.sources import (
    AdminDsn,
    AwsProvider,
    CoprQueue,
    DebusineQueue,
    Faults,
    HcloudProvider,
    Hooks,
    HooksProvider,
    LocalMachineType,
    LocalProvider,
    Provider,
    Queue,
    SimBilling,
    SimMachineType,
    SimProvider,
    TicketQueue,
    WorldQueue,
)
from fleet.schema.units import Day, FleetName, Money, Name, PoolName, Seconds


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
    images: Text = Field(
        ".fleet/images",
        description="The folder of the images built on this computer, seen from fleet.yaml.",
    )
    passphrase: SecretRef | None = Field(
        None, description="Encrypts secrets in stack state (the real engine needs it)."
    )


class ExchangeRate(Section):
    """What one unit of a foreign currency costs in the currency of the file."""

    rate: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        description="Price of one unit of it, in the currency of the file."
    )
    as_of: Day = Field(description="The day of the rate.")


class MoneySettings(Section):
    """Currency and calendar of every figure of money."""

    currency: CurrencyCode = Field("EUR", description="ISO 4217 code of every total.")
    exchange: dict[CurrencyCode, ExchangeRate] = Field(
        {}, description="Rates of the other currencies, by their code."
    )
    time_zone: Text = Field("UTC", description="Calendar of days and months, an IANA name.")


class Members(Section):
    """Who is in which group."""

    file: Text = Field(
        description="A YAML or JSON file, relative to this one: group to a list of user names."
    )


class Fleet(Section):
    """A whole fleet.yaml, its included files merged into it."""

    include: list[Text] = Field(
        [],
        description="Patterns of further files, relative to this one; sections merge, "
        "lists append.",
    )
    fleet: FleetName = Field(
        description="Ownership mark: everything this file owns carries the label fleet=NAME."
    )
    state: State = Field(
        default_factory=State.model_construct, description="Where stacks and the store live."
    )
    cadence: Seconds = Field(600, description="How often somebody runs `fleet apply`.")
    expire_after: Seconds = Field(
        86_400,
        description="How long after the last run that vouched for it a machine may be swept "
        "(`fleet sweep --expired`).",
    )
    money: MoneySettings = Field(
        default_factory=MoneySettings.model_construct, description="Currency and calendar."
    )
    providers: dict[Name, Provider] = Field(
        {}, description="Cloud accounts, by a name of your choice."
    )
    queues: dict[Name, Queue] = Field(
        {}, description="Where work waits, by a name of your choice."
    )
    durations: dict[Text, Durations] = Field(
        {},
        description="How long a task is expected to run where its history does not say, by its "
        "name; `any` stands for every other. A list says it by package and machine.",
    )
    sizes: dict[Name, Size] = Field(
        default_factory=default_sizes,
        description="Size classes; a machine provides every class that it reaches.",
    )
    tags: dict[WorkerTag, TagRule] = Field(
        {},
        description="What a tag is, by the tag; a trailing `*` stands for any rest.",
    )
    members: Members | None = Field(
        None, description="Who is in which group, for `asked_by`; left out: what the queue tells."
    )
    lookups: dict[Name, dict[Text, dict[Text, Text]]] = Field(
        {}, description="Tables for `derive`: value to a record, for instance of an environment."
    )
    derive: list[DeriveRule] = Field([], description="Tags a request gets from its own task data.")
    powerful: Annotated[list[PowerfulRule], Field(max_length=MOST_RULES)] = Field(
        [],
        description="Builds that get powerful machines; all rules that match apply.",
    )
    images: dict[Name, Image] = Field(
        {}, description="What machines boot, by a name of your choice."
    )
    pools: dict[PoolName, AnyPool] = Field(
        {}, description="Machines of one kind, by a name of your choice."
    )
    budgets: dict[Name, Budget] = Field(
        {}, description="Money or machine time as hard limits across pools."
    )
    guards: Guards = Field(
        default_factory=Guards.model_construct, description="Limits on what one run may do."
    )
    approvals: list[Approval] = Field([], description="The narrow way past a guard.")

    @model_validator(mode="after")
    def _unfold(self) -> Self:
        """Give each pool with commands of its own a provider, and an image, of its own."""
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
                self.pools[name] = _at_provider(pool, own, image)
                # So that what was written says them too.
                self.model_fields_set.update(("providers", "images"))
        return self


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return a pool's name, or one like it where that is taken."""
    numbered = (f"{name[:28]}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def _at_provider(pool: HooksPool, provider: str, image: str) -> Pool:
    """Return a pool as it would be written with a provider and an image of their own."""
    kept = {key: getattr(pool, key) for key in Pool.model_fields}
    written = {*pool.model_fields_set, "provider", "image", "workers"} - {"hooks"}
    return Pool.model_construct(written, **{**kept, "provider": provider, "image": image})


__all__ = [
    "AdminDsn",
    "AnyPool",
    "Approval",
    "Askers",
    "AwsProvider",
    "Boot",
    "BootFailures",
    "Budget",
    "Command",
    "CommandSecret",
    "CoprQueue",
    "CoprRulesFile",
    "CoprRulesUrl",
    "Count",
    "DebusineQueue",
    "DebusineRules",
    "DeriveRule",
    "Duration",
    "EnvSecret",
    "ExchangeRate",
    "ExistingImage",
    "Faults",
    "FileSecret",
    "Fleet",
    "Guards",
    "HcloudProvider",
    "Hooks",
    "HooksPool",
    "HooksProvider",
    "Image",
    "ImageRecipe",
    "Limits",
    "LimitsPer",
    "LocalMachineType",
    "LocalProvider",
    "Machine",
    "Members",
    "Money",
    "MoneySettings",
    "Otherwise",
    "Pool",
    "PoolBudget",
    "PowerfulRule",
    "Provider",
    "Queue",
    "Ready",
    "Rebuild",
    "Refuse",
    "RefuseDelete",
    "Replace",
    "Retire",
    "Reuse",
    "SecretRef",
    "Section",
    "SimBilling",
    "SimMachineType",
    "SimProvider",
    "Size",
    "State",
    "StaticPool",
    "TagRule",
    "Text",
    "Throttle",
    "ThrottleCreate",
    "ThrottleDelete",
    "TicketQueue",
    "WorkerTag",
    "Workers",
    "WorldQueue",
    "default_sizes",
]


def beginning_of(fleet: Fleet, pool: str) -> str:
    """Return how the names of a pool's machines begin, before their number.

    Commands that were written for Resalloc look for machines that begin with their pool's name;
    the `f` keeps them apart from Resalloc's own, as in POOL_00010001_20261122_181715.
    """
    return f"{pool}_f" if speaks_resalloc(fleet, pool) else f"{fleet.fleet}-{pool}-"


def is_named_by_fleet(fleet: str, pool: str, name: str) -> bool:
    """Say whether a machine is called as fleet calls, or once called, those of its pool."""
    begins = (each for each in (f"{fleet}-{pool}-", f"{pool}_f") if name.startswith(each))
    return any(name.removeprefix(each).isdecimal() for each in begins)


def speaks_resalloc(fleet: Fleet, pool: str) -> bool:
    """Say whether a pool's machines are made by commands that were written for Resalloc."""
    declared = fleet.pools.get(pool)
    provider = fleet.providers.get(declared.provider) if isinstance(declared, Pool) else None
    return isinstance(provider, HooksProvider) and provider.interface == "resalloc"


Secret = EnvSecret | FileSecret | CommandSecret


def secrets_in(value: object, path: str = "") -> Iterator[tuple[str, Secret]]:
    """Yield every secret that is named, with the path of its key."""
    match value:
        case EnvSecret() | FileSecret() | CommandSecret():
            yield path, value
        case Section():
            for name in type(value).model_fields:
                yield from secrets_in(getattr(value, name), f"{path}.{name}".lstrip("."))
        case dict():
            for name, part in value.items():
                yield from secrets_in(part, f"{path}.{name}")
