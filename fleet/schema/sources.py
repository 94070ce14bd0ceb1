"""Sections of fleet.yaml on providers of machines and on queues of work."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, PrivateAttr, Tag

from fleet.schema.rules import CoprRules, DebusineRules, Limits
from fleet.schema.units import (
    SPEED,
    Command,
    ConfigSection,
    Cores,
    Count,
    EnvNames,
    Mebibytes,
    Name,
    PricePerHour,
    Seconds,
    SecretRef,
    Speed,
    Text,
    Url,
    branch,
)

VPC_PATTERN = r"^vpc-[0-9a-f]+$"
SUBNET_PATTERN = r"^subnet-[0-9a-f]+$"
CIDR_PATTERN = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$"
Cidr = Annotated[str, Field(pattern=CIDR_PATTERN)]
Engine = Literal["embedded", "pulumi"]
"""The engine that creates and deletes a provider's machines."""
ADDRESSES_PATTERN = r"^[0-9a-fA-F.:]{2,39}/[0-9]{1,3}$"
PORT_PATTERN = r"^(any|[0-9]{1,5}(-[0-9]{1,5})?)$"
ANSWER_PATTERN = r"^([^{}]|\{(name|host|port|pool|data)\})*$"
COUNTER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
CounterNames = list[Annotated[str, Field(pattern=COUNTER_PATTERN)]]
Addresses = Annotated[str, Field(pattern=ADDRESSES_PATTERN)]


class HcloudNetwork(ConfigSection):
    """A private network of all new servers, in addition to their public address."""

    ip_range: Cidr = Field(description="Its addresses, for example 10.20.0.0/16.")
    zone: Text = Field(description="Network zone of `location`, for example eu-central.")


class FirewallRule(ConfigSection):
    """Traffic that a firewall permits. A direction with rules permits no other traffic."""

    direction: Literal["in", "out"] = Field("in", description="Direction, from the server.")
    protocol: Literal["tcp", "udp", "icmp", "esp", "gre"] = Field(description="Protocol.")
    port: Annotated[str, Field(pattern=PORT_PATTERN)] | None = Field(
        None, description="A port, a range such as 8000-9000, or `any`; for tcp and udp only."
    )
    ips: Annotated[list[Addresses], Field(min_length=1)] = Field(
        description="Source or target addresses, for example 192.0.2.0/24."
    )


class Gone(ConfigSection):
    """Conditions under which a machine that its provider no longer lists counts as deleted."""

    lists: Annotated[int, Field(ge=1, le=1000)] = Field(
        3, description="Complete lists without it in a row, at least."
    )
    after: Seconds = Field(600, description="Minimum time since the first of them.")


class ProviderSection(ConfigSection):
    """Base class of the sections of providers, with the properties that planning needs."""

    extra: ClassVar[str] = "pulumi"
    """Optional extra of fleet that installs the Pulumi packages for this provider."""
    is_cloud: ClassVar[bool] = False
    """True if machines are cloud servers. Tickets then contain the address of the machine."""
    has_images: ClassVar[bool] = False
    """True if machines boot images by the provider's ids, False if by names in fleet.yaml."""
    bakes_images: ClassVar[bool] = False
    """True if fleet can bake an image on a machine rented from this provider."""
    has_spot: ClassVar[bool] = False
    """True if the provider sells machines on a spot market."""
    listed_types: ClassVar[str] = ""
    """Format of the names of machine types in the provider's price list; empty without a list."""
    has_fixed_disks: ClassVar[bool] = False
    """True if the machine type fixes the size of the disk."""
    is_free: ClassVar[bool] = False
    """True if machines cost no money."""
    gone: Gone = Field(
        default_factory=Gone.model_construct,
        description="When a machine of a stack that the provider no longer lists is gone: its "
        "ticket fails, and its place is free.",
    )
    _listed: object = PrivateAttr(None)

    @property
    def listed(self) -> object:
        """Return the price list that the provider reported; None if unknown."""
        return self._listed

    def with_list(self, listed: object) -> Self:
        """Return a copy of the section with a price list that the provider reported."""
        copied = self.model_copy()
        copied._listed = listed  # noqa: SLF001 - the copy is not shared
        return copied

    @property
    def price_location(self) -> str:
        """Return the location whose prices apply in the shipped table; empty without a table."""
        return ""

    @property
    def own_types(self) -> Mapping[str, "SimMachineType | LocalMachineType"]:
        """Map name to machine type for the types that fleet.yaml declares."""
        return {}

    @property
    def own_billing(self) -> "SimBilling | None":
        """Return the billing rules in fleet.yaml; None if those of this kind of provider apply."""
        return None

    @property
    def given_variables(self) -> Sequence[str]:
        """Return the names of environment variables that the provider's commands receive."""
        return ()

    def blocked_by(self, port: int) -> str:  # noqa: ARG002 - for kinds with a firewall
        """Return the key that blocks a port from all addresses; empty if the port may be open."""
        return ""


class HcloudProvider(ProviderSection):
    """A project in Hetzner Cloud."""

    engine: ClassVar[Engine] = "pulumi"
    extra = "hcloud"
    is_cloud = True
    has_images = True
    bakes_images = True
    listed_types = r"c[a-z]{1,3}\d{2}"
    has_fixed_disks = True
    kind: Literal["hcloud"] = Field(description="Hetzner Cloud.")
    location: Text = Field(description="Location of servers, for example fsn1, nbg1 or hel1.")
    token: SecretRef = Field(description="API token of the project.")
    network: HcloudNetwork | None = Field(
        None, description="A private network of all new servers; default: none."
    )
    firewall: list[FirewallRule] | None = Field(
        None, description="Firewall rules of all new servers; default: no firewall."
    )
    ssh_keys: dict[Name, Text] = Field(
        {}, description="Public keys that may log in as root, by name."
    )
    placement_group: Literal["spread"] | None = Field(
        None,
        description="`spread`: each server on a different host; Hetzner allows at most ten.",
    )

    @property
    def price_location(self) -> str:
        """Return the location in fleet.yaml."""
        return self.location

    def blocked_by(self, port: int) -> str:
        """Return `firewall` if the firewall rules do not open the port; otherwise empty."""
        is_open = self.firewall is None or any(
            rule.direction == "in" and rule.protocol == "tcp" and _covers(rule.port or "any", port)
            for rule in self.firewall
        )
        return "" if is_open else "firewall"


def _covers(ports: str, port: int) -> bool:
    if ports == "any":
        return True
    first, _, last = ports.partition("-")
    return int(first) <= port <= int(last or first)


_SSH = 22


class AwsNetwork(ConfigSection):
    """The network of the machines at AWS."""

    vpc: Annotated[str, Field(pattern=VPC_PATTERN)] = Field(description="Id of the VPC.")
    subnet: Annotated[str, Field(pattern=SUBNET_PATTERN)] = Field(
        description="Id of a subnet; it decides whether machines have a public address."
    )


class AwsProvider(ProviderSection):
    """An AWS account in one region. Credentials come from AWS's default chain."""

    engine: ClassVar[Engine] = "pulumi"
    extra = "aws"
    is_cloud = True
    has_images = True
    has_spot = True
    kind: Literal["aws"] = Field(description="Amazon EC2.")
    region: Text = Field(description="Region, for example eu-central-1.")
    network: AwsNetwork | None = Field(
        None, description="Network of machines; default: the region's default VPC."
    )
    key_pair: Text | None = Field(
        None, description="Name of an EC2 key pair for ssh; default: none."
    )
    ssh_from: list[Cidr] = Field(
        [], description="Addresses that may connect by ssh; default: none."
    )

    @property
    def price_location(self) -> str:
        """Return the region in fleet.yaml."""
        return self.region

    def blocked_by(self, port: int) -> str:
        """Return `ssh_from` if this key does not open the port; otherwise empty."""
        return "" if port == _SSH and self.ssh_from else "ssh_from"


class SimMachineType(ConfigSection):
    """A machine type that the simulated provider sells."""

    cores: Cores = Field(description="Processor cores.")
    memory: Mebibytes = Field(description="Main memory.")
    disk: Mebibytes = Field(description="Disk.")
    price: PricePerHour = Field(description="Price of one machine.")
    architecture: Text = Field("amd64", description="Debian architecture.")
    speed: Speed | None = Field(None, description=SPEED)
    stock: Count | None = Field(
        None, description="Maximum number of machines at the same time; default: no limit."
    )
    spot: PricePerHour | None = Field(
        None, description="Price on the spot market; default: not sold there."
    )
    spot_stock: Count | None = Field(
        None,
        description="Maximum number of spot machines at the same time; default: no limit.",
    )


class Faults(ConfigSection):
    """Simulated failures for trials."""

    create: Literal["out-of-stock", "quota", "error"] | None = Field(
        None, description="How every creation fails."
    )
    never_boots: list[Text] = Field(
        [],
        description="Machine types and images whose machines never register.",
    )


class SimBilling(ConfigSection):
    """Billing rules of the simulated provider."""

    increment: Seconds = Field(1, description="Billing step, from a machine's creation.")
    minimum: Seconds | None = Field(
        None, description="Minimum time billed; default: one `increment`."
    )
    hours_per_month: Annotated[int, Field(ge=1, le=744)] | None = Field(
        None,
        description="Maximum hours billed in a calendar month; default: all.",
    )
    address: PricePerHour | None = Field(
        None, description="Price of a machine's address; default: free."
    )
    disk: PricePerHour | None = Field(
        None,
        description="Price of one GiB of disk beyond that of the machine type; default: free.",
    )


class SimProvider(ProviderSection):
    """Simulated machines with invented prices, for trials, demos and tests."""

    has_spot = True
    kind: Literal["sim"] = Field(description="Simulated machines, kept in a file.")
    path: Text | None = Field(
        None, description="File with the simulated cloud; default: in .fleet/."
    )
    boot: Seconds = Field(60, description="Time from creation until the worker registers.")
    types: dict[Text, SimMachineType] = Field(
        {}, description="Machine types in addition to the built-in ones, whose prices are made up."
    )
    billing: SimBilling = Field(
        default_factory=SimBilling.model_construct,
        description="How machines are billed; default: by the second, without extras.",
    )
    faults: Faults = Field(
        default_factory=Faults.model_construct, description="Simulated failures."
    )
    engine: Engine = Field(
        "embedded", description="The engine that owns the stacks of this provider."
    )

    @property
    def price_location(self) -> str:
        """Return the only location in the shipped table."""
        return "sim"

    @property
    def own_types(self) -> Mapping[str, "SimMachineType | LocalMachineType"]:
        """Map name to machine type for the types in fleet.yaml."""
        return self.types

    @property
    def own_billing(self) -> SimBilling:
        """Return the billing rules in fleet.yaml."""
        return self.billing


class LocalMachineType(ConfigSection):
    """A machine type of a local provider, only for planning. Processes may exceed its size."""

    price: ClassVar[None] = None
    spot: ClassVar[None] = None
    cores: Cores = Field(description="Processor cores.")
    memory: Mebibytes = Field(description="Main memory.")
    disk: Mebibytes | None = Field(None, description="Disk; default: none.")
    architecture: Text = Field("amd64", description="Debian architecture.")
    speed: Speed | None = Field(None, description=SPEED)


class LocalProvider(ProviderSection):
    """Machines that are processes on this computer, without cost, for trials and tests."""

    engine: ClassVar[Engine] = "embedded"
    is_free = True
    kind: Literal["local"] = Field(description="Processes on this computer.")
    run: Command = Field(
        description="Program and arguments to run on a machine: `{name}` is the machine's name, "
        "`{home}` its own folder, which is also HOME."
    )
    path: Text | None = Field(
        None, description="Folder with the machines' folders; default: in .fleet/."
    )
    types: dict[Text, LocalMachineType] = Field(
        {}, description="Machine types; a pool may state cores and memory instead."
    )
    faults: Faults = Field(
        default_factory=Faults.model_construct, description="Simulated failures."
    )

    @property
    def own_types(self) -> Mapping[str, "SimMachineType | LocalMachineType"]:
        """Map name to machine type for the types in fleet.yaml."""
        return self.types


class HookTimeouts(ConfigSection):
    """Time limits of commands. At the limit, fleet kills the command and its child processes."""

    new: Seconds = Field(1800, description="Time to create a machine.")
    delete: Seconds = Field(
        1800,
        description="Time to delete a machine, and then until it is no longer listed.",
    )
    list: Seconds = Field(120, description="Time to list all machines.")
    livecheck: Seconds = Field(60, description="Time to check a machine.")
    release: Seconds = Field(600, description="Time to clean a machine after a ticket.")


class Hooks(ConfigSection):
    """Commands that create, list and delete machines."""

    new: Command = Field(
        description="Program and arguments that create a machine: reads user data from standard "
        "input and prints the machine's id, or nothing if the name is the id."
    )
    delete: Command = Field(
        description="Deletes a machine; succeeds if the machine does not exist."
    )
    list: Command = Field(description="Prints the existing machines as a JSON list.")
    livecheck: Command | None = Field(
        None, description="Exits with 0 if a machine works; default: no check."
    )
    release: Command | None = Field(
        None,
        description="Cleans a machine after a ticket, before another ticket gets it; if it fails, "
        "the machine is not reused.",
    )
    timeouts: HookTimeouts = Field(
        default_factory=HookTimeouts.model_construct,
        description="How long each command may take before it fails.",
    )
    at_once: Annotated[int, Field(ge=1, le=100)] = Field(
        16,
        description="Maximum number of commands that run at the same time.",
    )
    livecheck_every: Seconds = Field(
        300, description="Minimum time between two checks of a machine."
    )
    livecheck_failures: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="Failed livechecks in a row after which a machine has failed."
    )
    environment: EnvNames = Field(
        [],
        description="Environment variables to pass on, in addition to PATH, LANG and those about "
        "the machine.",
    )
    interface: Literal["fleet", "resalloc"] = Field(
        "fleet",
        description="How fleet calls the commands: `fleet`, as in "
        "docs/how-to/use-your-own-commands.md, or `resalloc`, as Resalloc does.",
    )
    list_exit: Literal["believed", "ignored"] = Field(
        "believed",
        description="`believed`: a `list` that prints nothing and exits with another status than "
        "0 has failed; `ignored`: it lists no machines, as with Resalloc, unless fleet knows of "
        "some.",
    )
    named_counters: CounterNames = Field(
        [],
        description="Counters shared by all pools: each machine gets the smallest free number, "
        "from 0, and its commands see it. (Resalloc: named_counters)",
    )


class HooksProvider(Hooks, ProviderSection):
    """Machines that your own commands create, list and delete."""

    engine: ClassVar[Engine] = "embedded"
    kind: Literal["hooks"] = Field(description="Your own commands.")

    @property
    def given_variables(self) -> Sequence[str]:
        """Return the names of the variables that `environment` lists."""
        return self.environment


Provider = Annotated[
    HcloudProvider | AwsProvider | SimProvider | LocalProvider | HooksProvider,
    Field(discriminator="kind"),
]
PROVIDERS: Mapping[str, type[ProviderSection]] = {
    get_args(section.model_fields["kind"].annotation)[0]: section
    for section in get_args(get_args(Provider)[0])
}
"""Kind of provider to the model of its section."""


def extra_of(kind: str) -> str:
    """Return the optional extra of fleet that installs the Pulumi packages of a kind."""
    return PROVIDERS.get(kind, ProviderSection).extra


class AdminDsn(ConfigSection):
    """Write access by SQL to a queue's table of workers."""

    dsn: SecretRef = Field(description="DSN of a PostgreSQL role that may write.")


Admin = Annotated[
    Annotated[Command, Tag("admin-command")] | Annotated[AdminDsn, Tag("admin-database")],
    branch(
        {"admin-command": list, "admin-database": (dict, AdminDsn)},
        "a command as a list, or {dsn: {env: NAME}}",
    ),
]


UnknownEnvironment = Literal["wait", "any"]


class DebusineQueue(ConfigSection):
    """A Debusine server that has waiting work and registers workers."""

    kind: Literal["debusine"] = Field(description="Debusine.")
    url: Url = Field(description="Base URL of the server, without credentials.")
    scopes: Annotated[list[Text], Field(min_length=1)] = Field(
        description="Scopes whose work this fleet serves."
    )
    token: SecretRef | None = Field(None, description="REST token of a user with the role viewer.")
    read: SecretRef | None = Field(
        None,
        description="DSN of a read-only PostgreSQL role, exact and fast; without it fleet uses "
        "REST and reads long queues only in part.",
    )
    admin: Admin | None = Field(
        None,
        description="How to create, enable, drain and disable workers: `debusine-admin` as a "
        "list of arguments, or `{dsn: …}`.",
    )
    rules: DebusineRules | None = Field(
        None,
        description="Where the server has its task configuration, to check whether it has the "
        "rules of `powerful` and `derive`.",
    )
    deadline: Seconds | None = Field(
        None,
        description="The queue stops requests after this time; fleet gives none to machines where "
        "it takes longer; default: no limit.",
    )
    unknown_environment: UnknownEnvironment = Field(
        "wait",
        description="A request whose environment no look-up of `derive` knows may `wait`, or run "
        "on `any` architecture.",
    )

    @property
    def any_environment(self) -> bool:
        """Return whether a request with an unknown environment may run on any architecture."""
        return self.unknown_environment == "any"


class CoprQueue(ConfigSection):
    """A Copr build system. Its builds get machines by tickets."""

    kind: Literal["copr"] = Field(description="Copr.")
    url: Url = Field(
        description="Base URL of the frontend; /backend/pending-jobs/ below it must answer."
    )
    tickets: Name | None = Field(
        None,
        description="The queue of tickets from which Copr's backend gets machines; a build with a "
        "ticket is counted once.",
    )
    names: Annotated[int, Field(ge=0, le=1000)] = Field(
        100,
        description="Maximum number of waiting builds, and of running builds with a ticket, whose "
        "package name fleet asks for, one call each; Copr's list lacks it, and `powerful` needs "
        "it.",
    )
    rules: CoprRules | None = Field(
        None,
        description="Where to read its allow-list, to check whether it has the rules of "
        "`powerful`: `{file: PATH}` or `{url: ADDRESS}`.",
    )
    deadline: Seconds = Field(
        172_800,
        description="Copr stops builds after this time; fleet gives none to machines where it "
        "takes longer.",
    )


class TicketQueue(ConfigSection):
    """A queue of tickets that fleet itself serves."""

    kind: Literal["tickets"] = Field(description="Tickets, served by fleet itself.")
    limits: Limits = Field(
        default_factory=Limits.model_construct,
        description="Maximum number of machines of its tickets at the same time.",
    )
    blocked: list[Text] = Field([], description="Owners whose tickets get no machines.")
    builds_named_by: list[Text] = Field(
        [],
        description="Clients of `fleet serve`, by the names of their tokens, whose tag "
        "`build:OWNER/PROJECT/CHROOT/PACKAGE` names the build of a ticket for `powerful` and "
        "`derive`; `anybody`: clients without a token.",
    )
    ageing: Annotated[Seconds, Field(ge=1)] = Field(
        600, description="Waiting time after which a ticket moves up one place."
    )
    prefer: Literal["price", "priority"] = Field(
        "price",
        description="Where fleet creates machines for its tickets: `price`: in the cheapest pool, "
        "then by `priorities`; `priority`: by `priorities`, then in the cheapest pool.",
    )
    prefer_reuse: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        500,
        description="Preference for a machine of a ticket's own sandbox over an unused one, in "
        "addition to `priorities` of pools.",
    )
    answer: Annotated[str, Field(pattern=ANSWER_PATTERN, min_length=1, max_length=1000)] = Field(
        "{host}",
        description="Output for a ticket's client: `{name}`, `{host}` (the address, or the name "
        "without one), `{port}` (22 by default), `{pool}`, and `{data}`, further output of the "
        "machine's commands.",
    )
    most_open: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        20_000, description="Maximum number of open tickets."
    )
    most_open_per_submitter: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        2_000, description="Maximum number of open tickets of one submitter."
    )
    most_open_per_address: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        2_000,
        description="Maximum number of open tickets of one address if its clients have no token "
        "for `fleet serve`, because they can invent submitters.",
    )
    claim_within: Annotated[Seconds, Field(ge=1)] = Field(
        1800,
        description="Time after which a ticket from `fleet serve` expires if its client never "
        "asked for it again, because the answer with its id was lost.",
    )


class WorldQueue(ConfigSection):
    """A recording of a queue, written by `fleet observe`."""

    kind: Literal["world"] = Field(description="A recording made by `fleet observe`.")
    path: Text = Field(description="Path of the recording, relative to this file.")
    queue: Name | None = Field(None, description="Queue of the recording; default: its only one.")
    deadline: Seconds | None = Field(
        None,
        description="The queue stops requests after this time; fleet gives none to machines where "
        "it takes longer; default: no limit.",
    )
    unknown_environment: UnknownEnvironment = Field(
        "wait",
        description="A request whose environment no look-up of `derive` knows may `wait`, or run "
        "on `any` architecture.",
    )

    @property
    def any_environment(self) -> bool:
        """Return whether a request with an unknown environment may run on any architecture."""
        return self.unknown_environment == "any"


Queue = Annotated[
    DebusineQueue | CoprQueue | TicketQueue | WorldQueue, Field(discriminator="kind")
]
