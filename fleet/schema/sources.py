"""This module declares where machines come from and where work waits: providers and queues."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Tag

from fleet.schema.base import (
    SPEED,
    Command,
    Cores,
    Count,
    EnvNames,
    SecretRef,
    Section,
    Text,
    Url,
    branch,
)
from fleet.schema.rules import CoprRules, DebusineRules, Limits
from fleet.schema.units import Mebibytes, Name, PricePerHour, Seconds, Speed

VPC_PATTERN = r"^vpc-[0-9a-f]+$"
SUBNET_PATTERN = r"^subnet-[0-9a-f]+$"
CIDR_PATTERN = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$"
Cidr = Annotated[str, Field(pattern=CIDR_PATTERN)]
Engine = Literal["embedded", "pulumi"]
"""What changes a provider's stacks."""
ADDRESSES_PATTERN = r"^[0-9a-fA-F.:]{2,39}/\d{1,3}$"
PORT_PATTERN = r"^(any|\d{1,5}(-\d{1,5})?)$"
ANSWER_PATTERN = r"^([^{}]|\{(name|host|port|pool|data)\})*$"
COUNTER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
CounterNames = list[Annotated[str, Field(pattern=COUNTER_PATTERN)]]
Addresses = Annotated[str, Field(pattern=ADDRESSES_PATTERN)]


class HcloudNetwork(Section):
    """A private network that every new server joins, beside its public address."""

    ip_range: Cidr = Field(description="Its addresses, as in 10.20.0.0/16.")
    zone: Text = Field(description="The network zone of `location`, for instance eu-central.")


class FirewallRule(Section):
    """What a firewall lets through; what no rule of a direction names is stopped."""

    direction: Literal["in", "out"] = Field("in", description="Seen from the server.")
    protocol: Literal["tcp", "udp", "icmp", "esp", "gre"] = Field(description="Protocol.")
    port: Annotated[str, Field(pattern=PORT_PATTERN)] | None = Field(
        None, description="A port, a range as in 8000-9000, or `any`; of tcp and udp only."
    )
    ips: Annotated[list[Addresses], Field(min_length=1)] = Field(
        description="Where it comes from or goes to, as in 192.0.2.0/24."
    )


class ProviderSection(Section):
    """What planning asks of a provider of any kind; a kind says where it is otherwise."""

    has_images: ClassVar[bool] = False
    """Whether machines boot images by ids of the provider's own; else by their name here."""
    has_spot: ClassVar[bool] = False
    """Whether there are machines on the spot market."""

    @property
    def place(self) -> str:
        """The column of the kind's table of prices; empty: there is none."""
        return ""

    @property
    def own_types(self) -> Mapping[str, "SimMachineType | LocalMachineType"]:
        """Machine types that fleet.yaml itself declares, by name."""
        return {}

    @property
    def given_variables(self) -> Sequence[str]:
        """Variables of fleet's environment that the provider's own commands get."""
        return ()


class HcloudProvider(ProviderSection):
    """A Hetzner Cloud project."""

    engine: ClassVar[Engine] = "pulumi"
    has_images = True
    kind: Literal["hcloud"] = Field(description="Hetzner Cloud.")
    location: Text = Field(description="Where servers stand, for instance fsn1, nbg1, hel1.")
    token: SecretRef = Field(description="API token of the project, by reference.")
    network: HcloudNetwork | None = Field(
        None, description="A private network of all new servers; left out: none."
    )
    firewall: list[FirewallRule] | None = Field(
        None, description="Rules of the firewall of all new servers; left out: no firewall."
    )
    ssh_keys: dict[Name, Text] = Field(
        {}, description="Who may log in as root: a name of your choice to a public key."
    )
    placement_group: Literal["spread"] | None = Field(
        None,
        description="`spread` puts each server on a host of its own; Hetzner takes ten at most.",
    )

    @property
    def place(self) -> str:
        """The location."""
        return self.location


class AwsNetwork(Section):
    """A network of AWS where machines stand."""

    vpc: Annotated[str, Field(pattern=VPC_PATTERN)] = Field(description="Id of the VPC.")
    subnet: Annotated[str, Field(pattern=SUBNET_PATTERN)] = Field(
        description="Id of a subnet of it; it decides whether machines have a public address."
    )


class AwsProvider(ProviderSection):
    """An AWS account in one region; credentials come by the usual AWS chain."""

    engine: ClassVar[Engine] = "pulumi"
    has_images = True
    has_spot = True
    kind: Literal["aws"] = Field(description="Amazon EC2.")
    region: Text = Field(description="For instance eu-central-1.")
    network: AwsNetwork | None = Field(
        None, description="Where machines stand; left out: in the region's default VPC."
    )
    key_pair: Text | None = Field(
        None, description="Name of an EC2 key pair that opens machines; left out: none does."
    )
    ssh_from: list[Cidr] = Field(
        [], description="Addresses that may reach machines by ssh; left out: nothing comes in."
    )

    @property
    def place(self) -> str:
        """The region."""
        return self.region


class SimMachineType(Section):
    """A machine type that the simulated provider sells."""

    cores: Cores = Field(description="Processor cores.")
    memory: Mebibytes = Field(description="Main memory.")
    disk: Mebibytes = Field(description="Disk.")
    price: PricePerHour = Field(description="Price of one machine.")
    architecture: Text = Field("amd64", description="Debian's name of the architecture.")
    speed: Speed | None = Field(None, description=SPEED)
    stock: Count | None = Field(
        None, description="How many can exist at once; left out: as many as wanted."
    )
    spot: PricePerHour | None = Field(
        None, description="Price on the spot market; left out: it is not sold there."
    )
    spot_stock: Count | None = Field(
        None, description="How many spot machines can exist at once; left out: as many as wanted."
    )


class Faults(Section):
    """What goes wrong on purpose, at a provider for trials."""

    create: Literal["out-of-stock", "quota", "error"] | None = Field(
        None, description="How every creation fails."
    )
    never_boots: list[Text] = Field(
        [],
        description="Machines of these types, or that boot these images, never register.",
    )


class SimBilling(Section):
    """How the simulated provider counts time, and what it bills beside a machine."""

    increment: Seconds = Field(
        1, description="Time is billed in whole steps of this, from a machine's creation."
    )
    minimum: Seconds | None = Field(
        None, description="Billed at least; left out: one step of `increment`."
    )
    hours_per_month: Annotated[int, Field(ge=1, le=744)] | None = Field(
        None,
        description="Hours of a calendar month that are billed at most; left out: all of them.",
    )
    address: PricePerHour | None = Field(
        None, description="Price of a machine's address; left out: nothing."
    )
    disk: PricePerHour | None = Field(
        None,
        description="Price of one GiB of disk above what the machine type has; left out: nothing.",
    )


class SimProvider(ProviderSection):
    """Simulated machines, for trials, demos and tests."""

    has_spot = True
    kind: Literal["sim"] = Field(description="Simulated machines, kept in a file.")
    path: Text | None = Field(
        None, description="The file that is the simulated cloud; left out: in .fleet/."
    )
    boot: Seconds = Field(60, description="From creation to the worker registering itself.")
    types: dict[Text, SimMachineType] = Field(
        {}, description="Added to the machine types of the catalogue."
    )
    billing: SimBilling = Field(
        default_factory=SimBilling.model_construct,
        description="How time is billed; left out: by the second, and nothing but the machine.",
    )
    faults: Faults = Field(
        default_factory=Faults.model_construct, description="What goes wrong, on purpose."
    )
    engine: Engine = Field(
        "embedded", description="Which engine owns the stacks of this provider."
    )

    @property
    def place(self) -> str:
        """The only place that its table has."""
        return "sim"

    @property
    def own_types(self) -> Mapping[str, "SimMachineType | LocalMachineType"]:
        """The types of this provider."""
        return self.types


class LocalMachineType(Section):
    """What machines of a local provider are planned with; nothing holds a process to it."""

    cores: Cores = Field(description="Processor cores.")
    memory: Mebibytes = Field(description="Main memory.")
    disk: Mebibytes | None = Field(None, description="Disk; left out: none is planned with.")
    architecture: Text = Field("amd64", description="Debian's name of the architecture.")
    speed: Speed | None = Field(None, description=SPEED)


class LocalProvider(ProviderSection):
    """Machines that are processes on this computer, for trials and tests; they cost nothing."""

    engine: ClassVar[Engine] = "embedded"
    kind: Literal["local"] = Field(description="Processes on this computer.")
    run: Command = Field(
        description="What runs on a machine, a program and its arguments: `{name}` stands for the "
        "machine's name, `{home}` for its own folder, which is also HOME."
    )
    path: Text | None = Field(
        None, description="The folder of the machines' folders; left out: in .fleet/."
    )
    types: dict[Text, LocalMachineType] = Field(
        {}, description="Machine types; a pool may state cores and memory instead."
    )
    faults: Faults = Field(
        default_factory=Faults.model_construct, description="What goes wrong, on purpose."
    )

    @property
    def own_types(self) -> Mapping[str, "SimMachineType | LocalMachineType"]:
        """The types of this provider."""
        return self.types


class HookTimeouts(Section):
    """How long each command may take; then it is ended, and all that it started."""

    new: Seconds = Field(1800, description="To make a machine.")
    delete: Seconds = Field(1800, description="To delete one.")
    list: Seconds = Field(120, description="To print all.")
    livecheck: Seconds = Field(60, description="To look at one.")
    release: Seconds = Field(600, description="To clean one that a ticket gave back.")


class Hooks(Section):
    """Commands that make, list and delete machines."""

    new: Command = Field(
        description="Makes a machine, a program and its arguments: gets user data on standard "
        "input and prints the machine's id, or nothing where its name is its id."
    )
    delete: Command = Field(description="Deletes a machine; one that is gone is no failure.")
    list: Command = Field(description="Prints the machines that exist, as a JSON list.")
    livecheck: Command | None = Field(
        None, description="Ends with status 0 where a machine still works; left out: it does."
    )
    release: Command | None = Field(
        None,
        description="Cleans a machine that a ticket gave back, before another ticket gets it; "
        "what it fails for gets no other ticket.",
    )
    timeouts: HookTimeouts = Field(
        default_factory=HookTimeouts.model_construct,
        description="How long each command may take; then it has failed.",
    )
    at_once: Annotated[int, Field(ge=1, le=100)] = Field(
        16,
        description="How many machines are made, deleted, looked at or cleaned at the same time, "
        "at most; 1: one after the other.",
    )
    livecheck_every: Seconds = Field(
        300, description="A machine is looked at again after this, by the next run."
    )
    livecheck_failures: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="A machine has failed when that many livechecks in a row have."
    )
    environment: EnvNames = Field(
        [],
        description="Variables of fleet's own environment that the commands get, beside PATH, "
        "LANG and what they are told of the machine.",
    )

    interface: Literal["fleet", "resalloc"] = Field(
        "fleet",
        description="How the commands are spoken to: as docs/how-to/use-your-own-commands.md "
        "says, or as Resalloc does.",
    )
    list_exit: Literal["believed", "ignored"] = Field(
        "believed",
        description="Whether a `list` that prints nothing and ends with another status than 0 has "
        "failed. `ignored`: it lists no machine, as with Resalloc, unless fleet knows of some.",
    )
    named_counters: CounterNames = Field(
        [],
        description="Counters, shared by all pools: a machine has the smallest number, from 0 "
        "on, that no other has, and its commands are told it. (Resalloc: named_counters)",
    )


class HooksProvider(Hooks, ProviderSection):
    """Machines that your own commands make, list and delete."""

    engine: ClassVar[Engine] = "embedded"
    kind: Literal["hooks"] = Field(description="Machines of your own commands.")

    @property
    def given_variables(self) -> Sequence[str]:
        """What `environment` names."""
        return self.environment


Provider = Annotated[
    HcloudProvider | AwsProvider | SimProvider | LocalProvider | HooksProvider,
    Field(discriminator="kind"),
]


class AdminDsn(Section):
    """Access to a queue's workers by SQL."""

    dsn: SecretRef = Field(description="DSN of a PostgreSQL role that may write, by reference.")


def _admin_form(value: object) -> str | None:
    if isinstance(value, list):
        return "admin-command"
    return "admin-database" if isinstance(value, dict | AdminDsn) else None


Admin = Annotated[
    Annotated[Command, Tag("admin-command")] | Annotated[AdminDsn, Tag("admin-database")],
    branch(_admin_form, "a command as a list, or {dsn: {env: NAME}}"),
]


class DebusineQueue(Section):
    """A Debusine server: where work waits and workers register."""

    kind: Literal["debusine"] = Field(description="Debusine.")
    url: Url = Field(description="Base URL of the server, without credentials.")
    scopes: Annotated[list[Text], Field(min_length=1)] = Field(
        description="Scopes whose work this fleet serves."
    )
    token: SecretRef | None = Field(
        None, description="REST token of a user with the role viewer, by reference."
    )
    read: SecretRef | None = Field(
        None,
        description="DSN of a read-only PostgreSQL role, by reference: exact and fast; without "
        "it REST is sampled when the queue is long.",
    )
    admin: Admin | None = Field(
        None,
        description="How to create, enable, drain and disable workers: `debusine-admin` as a "
        "list of arguments, or `{dsn: …}`.",
    )
    rules: DebusineRules | None = Field(
        None,
        description="Where the server keeps its task configuration; left out: whether it has the "
        "rules of `powerful` and `derive` cannot be seen.",
    )
    deadline: Seconds | None = Field(
        None,
        description="The queue ends what has run for so long: no request goes where it takes "
        "longer; left out: it may run for any time.",
    )


class CoprQueue(Section):
    """A Copr build system: what waits there; machines are given out by tickets."""

    kind: Literal["copr"] = Field(description="Copr.")
    url: Url = Field(
        description="Base URL of the frontend; /backend/pending-jobs/ below it has to answer."
    )
    tickets: Name | None = Field(
        None,
        description="The queue of tickets that Copr's backend takes its machines from: a build "
        "with a ticket there, whether it waits or runs, is counted once.",
    )
    names: Annotated[int, Field(ge=0, le=1000)] = Field(
        100,
        description="For so many builds that wait the package is asked for, one question each, "
        "where `powerful` has rules, and for so many that run with a ticket of `tickets`: Copr's "
        "list does not tell it.",
    )
    rules: CoprRules | None = Field(
        None,
        description="Where its allow-list can be read: `{file: PATH}` or `{url: ADDRESS}`; left "
        "out: whether it has the rules of `powerful` cannot be seen.",
    )
    deadline: Seconds = Field(
        172_800,
        description="Copr ends a build that has run for so long: none goes where it takes longer.",
    )


class TicketQueue(Section):
    """Tickets that fleet itself hands out."""

    kind: Literal["tickets"] = Field(description="Tickets that fleet itself hands out.")
    limits: Limits = Field(
        default_factory=Limits.model_construct,
        description="How many machines its tickets may hold at once, whatever their tags.",
    )
    blocked: list[Text] = Field([], description="Owners whose tickets get no machine.")
    ageing: Annotated[Seconds, Field(ge=1)] = Field(
        600, description="A ticket comes one place before others for each of these it waits."
    )
    prefer: Literal["price", "priority"] = Field(
        "price",
        description="Where machines are made for its tickets: in the cheapest pools, and of equal "
        "ones those that their `priorities` prefer; or first those that these prefer, and of "
        "equal ones the cheapest.",
    )
    prefer_reuse: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        500,
        description="How much a machine that is in a ticket's sandbox already is preferred to "
        "one that is in none, beside `priorities` of pools.",
    )
    answer: Annotated[str, Field(pattern=ANSWER_PATTERN, min_length=1, max_length=1000)] = Field(
        "{host}",
        description="What a ticket's client is told of its machine: `{name}`, `{host}` (its "
        "address, or its name where it has none), `{port}` (22 where its provider tells none), "
        "`{pool}`, and `{data}`, what else its own commands told of it.",
    )
    most_open: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        20_000, description="More tickets are never open at once."
    )
    most_open_per_submitter: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        2_000, description="More tickets nobody may have open at once."
    )
    most_open_per_address: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        2_000,
        description="More tickets the clients of one address may not have open at once, where "
        "`fleet serve` knows none of them by a token: such clients may invent submitters.",
    )
    claim_within: Annotated[Seconds, Field(ge=1)] = Field(
        1800,
        description="A ticket that was taken from `fleet serve`, and that nobody asked for in "
        "this time, expires: the answer with its id was lost.",
    )


class WorldQueue(Section):
    """A queue recorded by `fleet observe`."""

    kind: Literal["world"] = Field(description="A recording made by `fleet observe`.")
    path: Text = Field(description="The recording, relative to this file.")
    queue: Name | None = Field(
        None, description="Which queue of the recording; left out: the only one it holds."
    )
    deadline: Seconds | None = Field(
        None,
        description="The queue ends what has run for so long: no request goes where it takes "
        "longer; left out: it may run for any time.",
    )


Queue = Annotated[
    DebusineQueue | CoprQueue | TicketQueue | WorldQueue, Field(discriminator="kind")
]
