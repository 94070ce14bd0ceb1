"""Observed facts: queues, workers, machines, prices, ledger. A `World` has all facts of one plan.

The JSON form is world.json, which has no secrets. A source that cannot be read is `Unknown`, never
zero. Pseudonyms replace requesters, members of groups, and submitters within sandboxes. Owners and
projects of Copr keep their names: rules match these names, and the server publishes them.
"""

import hmac
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer

from fleet.errors import FleetError
from fleet.model.images import ImageVersion
from fleet.model.orders import Order
from fleet.model.values import (
    MOST,
    Bill,
    Count,
    Moment,
    Rate,
    Tags,
    Value,
    Word,
    digest,
    later,
    sort_by,
    sorted_tags,
)
from fleet.schema.pools import Market


class SharedResource(Value):
    """A resource in fleet.yaml that machines of a provider share, for example a network."""

    kind: Literal["network", "firewall", "ssh_key", "placement_group", "template"]
    name: str
    inputs: dict[str, Any]

    @property
    def key(self) -> str:
        """Return KIND/NAME, which is unique among the shared resources of a provider."""
        return f"{self.kind}/{self.name}"


class Base(Value):
    """The stack of a provider's shared resources, as the engine recorded it."""

    serial: int = Field(description="Grows with each change of the stack's state.")
    parts: Annotated[tuple[SharedResource, ...], sort_by("key")] = Field(
        (), description="The parts of its last update."
    )
    ids: dict[str, str] = Field(
        default_factory=dict, description="Part, as KIND/NAME, to its id at the provider."
    )
    laid: bool = Field(False, description="Whether each part and its contents exist as declared.")
    interrupted: bool = Field(False, description="An earlier operation did not finish.")


class BaseChange(Value):
    """The planned changes of a provider's shared resources, each named KIND/NAME."""

    provider: str
    create: tuple[str, ...] = ()
    change: tuple[str, ...] = Field((), description="Changed in place or replaced.")
    delete: tuple[str, ...] = ()
    outdates: int = Field(0, description="Machines created without the new parts.")

    @property
    def outdating(self) -> str:
        """Return a phrase with the number of machines without the new resources; empty for 0."""
        if not self.outdates:
            return ""
        which = "1 machine" if self.outdates == 1 else f"{self.outdates:,} machines"
        return f"outdates {which}, replaced afterwards as `replace`, guards and budgets allow"

    @property
    def steps(self) -> tuple[str, ...]:
        """Return a phrase per change. Without changes, return a phrase about unfinished work."""
        verbs = (("create", self.create), ("change", self.change), ("delete", self.delete))
        steps = tuple(f"{verb} {key}" for verb, keys in verbs for key in keys)
        return steps or ("finish an earlier update",)


Cents = Annotated[Decimal, PlainSerializer(lambda amount: format(amount, "f"), return_type=str)]
"""An exact amount of money in the currency of fleet.yaml, as a string in JSON."""
Spent = Annotated[Cents, Field(ge=-(10**9), le=10**9)]
"""Money that machines have cost, so little that sums do not overflow."""
Seconds = Annotated[int, Field(ge=-(10**15), le=10**15)]
"""Time of many machines, so little that sums do not overflow."""


class PayerShare(Value):
    """The payer of machine time in a pool. Without a payer, the pool pays."""

    pool: str
    scope: str | None = Field(None, description="Scope of the payer; without payer the pool pays.")
    team: str | None = None
    owner: str | None = None
    tags: Tags = Field((), description="Required tags of the charged work.")


class Charge(PayerShare):
    """Machine time and money of one payer in one pool, for the current hour, day and month."""

    seconds: tuple[Seconds, Seconds, Seconds] = Field(
        description="Machine seconds in the current hour, day and month."
    )
    money: tuple[Spent, Spent, Spent] = Field(
        description="Money in the current hour, day and month."
    )


class LedgerEntry(PayerShare):
    """Machine time and money of one payer in one pool in one hour."""

    hour: Moment = Field(description="Start of the hour, in `money.time_zone`.")
    seconds: Seconds
    money: Spent


class MachinePayer(PayerShare):
    """The payer of a machine's current or last work, or else of the request it will serve."""

    machine: str
    package: str | None = Field(None, description="The source package of that work, if known.")
    since: Moment = Field(
        description="Last observation of that work, else the order of the machine."
    )


class Ledger(Value):
    """Spending in the current hour, day and month of the time zone `money.time_zone`."""

    charged_until: Moment | None = Field(
        None, description="When machines were last charged; None: never."
    )
    charges: Annotated[tuple[Charge, ...], sort_by()] = ()
    payers: Annotated[tuple[MachinePayer, ...], sort_by("machine")] = later(
        (), "Each machine's payer at that moment."
    )


class Quote(Value):
    """A provider's price and properties of one machine type at one location."""

    price: Cents = Field(gt=0, le=10_000, description="Net, per hour.")
    month: Cents = Field(gt=0, le=10_000_000, description="Net, at most per calendar month.")
    cores: int = Field(ge=1, le=10_000)
    memory: int = Field(ge=1, le=2**30, description="MiB.")
    disk: int = Field(ge=0, le=2**40, description="MiB.")
    architecture: str
    spot: Cents | None = later(
        None,
        "Net, per hour on the spot market, in the most expensive zone; null: not read.",
        gt=0,
        le=10_000,
    )


class PriceList(Value):
    """The machine types and prices of a provider at one location."""

    read_at: Moment
    location: str
    currency: str
    quotes: dict[str, Quote]
    address: Cents | None = Field(
        ge=0, le=10_000, description="A public IPv4 address, net, per hour."
    )
    disk: Cents | None = Field(ge=0, le=10_000, description="A GiB of disk, net, per month.")
    stale: str = later(
        "", "Why there is no newer one, though it is time; empty: it is new enough."
    )


class QueueRule(Value):
    """The effect of a rule of a queue on tags. Rules with the same effect are equal values."""

    task: str = Field("", description="Debusine: task of the requests.")
    pattern: str = Field("", description="Copr: pattern of the build name.")
    when_provided: Tags = Field((), description="Debusine: tags that a request provides already.")
    when_required: Tags = Field((), description="Debusine: tags that it requires already.")
    provides: Tags = Field((), description="Tags that a request then provides.")
    requires: Tags = Field((), description="Tags that it then requires.")

    def __str__(self) -> str:
        """Return the rule in one line of text."""
        if self.pattern:
            return f"{self.pattern} gets {', '.join(self.requires)}"
        when = ", ".join((*self.when_provided, *self.when_required)) or "any request"
        gets = ", ".join((*self.requires, *self.provides)) or "nothing"
        return f"{self.task} with {when} gets {gets}"


class HeldRules(Value):
    """The tag rules that a queue stores in one workspace, file or URL."""

    written: Annotated[tuple[QueueRule, ...], sort_by()] = Field(
        (), description="Rules that came from fleet."
    )
    others: Annotated[tuple[QueueRule, ...], sort_by()] = Field(
        (), description="Rules that users wrote there."
    )
    uncompared: int = Field(
        0, description="Number of entries with other effects; their content is not recorded."
    )
    since: Moment | None = Field(
        None, description="Time when fleet first read these rules; None: in this reading."
    )

    @property
    def digest(self) -> str:
        """Return the digest of the rules, regardless of their order."""
        return digest(sorted({rule.model_dump_json() for rule in (*self.written, *self.others)}))


class Unknown(Value):
    """A value that could not be read or that another source contradicts, with the reason."""

    unknown: str = Field(description="Why the value is unknown, in a sentence.")
    fix: str = later("", "The command that fixes the cause.")

    @classmethod
    def of(cls, error: FleetError) -> Self:
        """Return the unknown value of a source that fails with an error."""
        return cls(unknown=str(error), fix=error.fix)


AskSource = Literal["user", "task", "ticket", "system"]


MAX_COUNT = 1_000_000
"""Maximum `count` of equal requests. A larger number is reduced to this value."""


class Request(Value):
    """A waiting request, or a group of `count` equal requests that the queue reports together."""

    id: str = Field(description="The queue's own id; of the oldest when grouped.")
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    task: str = ""
    required: Tags = Field((), description="Tags a worker must provide.")
    provided: Tags = Field((), description="Tags a worker may require of it.")
    asked: dict[str, AskSource] = Field(
        default_factory=dict, description="Source of each required tag, if known."
    )
    priority: Annotated[int, Field(ge=-MOST, le=MOST)] = 0
    pending_since: Moment | None = None
    expected_seconds: Count | None = Field(
        None, description="Expected duration from history, in seconds."
    )
    requester: str | None = None
    groups: tuple[str, ...] = ()
    team: str | None = None
    scope: str | None = None
    workspace: str | None = None
    owner: str | None = None
    project: str | None = None
    chroot: str | None = None
    package: str | None = None
    sandbox: str | None = None
    task_data: dict[str, Any] = Field(
        default_factory=dict, description="Only the fields that rules may read."
    )
    deadline_seconds: Annotated[int, Field(ge=1, le=MOST)] | None = later(
        None,
        "How long it may run, if its queue has a limit for it alone; takes precedence "
        "over `queues.NAME.deadline`.",
    )


def _sort_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(values))


Sizes = Annotated[
    tuple[Annotated[int, Field(ge=0, le=10**9)], ...],
    Field(max_length=10_000),
    AfterValidator(_sort_values),
]
"""Sizes in MiB, sorted so that equal histories are equal values."""


class TaskHistory(Value):
    """The memory and disk that finished runs of a task used for a package."""

    task: str
    package: str
    memory_mib: Sizes = Field((), description="Peak main memory of each finished run, in MiB.")
    disk_mib: Sizes = Field((), description="Peak disk space of each finished run, in MiB.")


class TaskRuns(Value):
    """The durations of finished runs of a task and package on one machine type."""

    task: str
    package: str
    machine: str = Field(description="The machine type.")
    seconds: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MOST)], ...],
        Field(max_length=10_000),
        AfterValidator(_sort_values),
    ] = Field(description="Duration of each run, in seconds.")


class QueueSample(Value):
    """The listed part of a queue that is too long to list in time, and the size of the rest."""

    listed: int = Field(description="Listed requests, oldest and newest of each scope.")
    unlisted: dict[str, int] = Field(
        description="Scope to the number of unlisted pending requests, as the server counts them."
    )
    longest: int = Field(
        description="Approximate number that can be listed in time; read a longer queue over SQL."
    )
    unreadable: dict[str, str] = later(
        {},
        "Id of each request that is counted as unlisted because a value of it cannot "
        "be read, to which.",
    )


class Demand(Value):
    """The requests that waited in a queue when its reading started."""

    read_at: Moment = Field(description="Start of the reading.")
    requests: tuple[Request, ...] = ()
    stored: bool = Field(
        False, description="The queue stored tags of pending requests; they have precedence."
    )
    estimate: bool = Field(False, description="Whether a long queue was only partly read.")
    sample: QueueSample | None = Field(None, description="The known part of such an estimate.")
    history: tuple[TaskHistory, ...] = Field(
        (), description="Resources that earlier runs used, if known."
    )
    runs: Annotated[tuple[TaskRuns, ...], sort_by()] = later(
        (), "How long earlier runs took on which machine type, where that is known."
    )
    environments: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Environment id to its record (architecture, …), if known.",
    )


class WorkerState(Word):
    """The state of a worker in the database of its queue."""

    IDLE = "idle"
    BUSY = "busy"
    DEAF = "deaf"  # connected, but the queue has no current report of its tags
    DISCONNECTED = "disconnected"
    ENROLLED = "enrolled"  # it has a token but never registered
    DISABLED = "disabled"  # it has no working token; it may be connected


class Work(Value):
    """The work of a busy worker, as far as known, with the data that identify its payer."""

    task: str = ""
    required: Tags = Field((), description="Tags its request required.")
    started_at: Moment | None = None
    expected_seconds: Count | None = Field(
        None, description="Expected duration from its start, in seconds."
    )
    requester: str | None = None
    owner: str | None = None
    package: str | None = Field(None, description="The source package, if known.")
    names: Annotated[tuple[str, ...], AfterValidator(sorted_tags)] = later(
        (), "The names of its request, as `powerful` and `durations` match them."
    )
    scope: str | None = None
    workspace: str | None = later(None)
    groups: Annotated[tuple[str, ...], AfterValidator(sorted_tags)] = later(())
    team: str | None = None
    sandbox: str | None = None


class Ended(Value):
    """Finished work of a worker, and the time when it ended."""

    work: Work
    at: Moment


class Worker(Value):
    """A worker, as a queue or provider reports it."""

    name: str
    machine: str | None = Field(None, description="Name of the machine it runs on, if ours.")
    pool: str | None = None
    static: bool = False
    state: WorkerState
    draining: bool = Field(False, description="The queue gives it no new work.")
    running: str | None = Field(None, description="Id of the request it runs.")
    work: Work | None = Field(None, description="Its work; None if the queue does not report it.")
    ended: Ended | None = later(
        None, "Its last ticket, if fleet gives out tickets: charged until its end."
    )
    uses: Count | None = Field(
        None, description="Requests it has finished; None where the queue does not count them."
    )
    provides: Tags = ()
    requires: Tags = ()
    since: Moment | None = Field(None, description="Start of this state.")
    last_seen: Moment | None = None
    connected_since: Moment | None = Field(
        None, description="Start of the connection; None: not connected, or unknown."
    )
    away: bool = Field(
        False, description="Busy, but not connected: it may return with its work, or never."
    )
    stranded: bool = Field(
        False, description="It has no valid token: it can neither fetch nor finish assigned work."
    )
    token_expires: Moment | None = Field(
        None, description="Deadline of its registration; None: no deadline."
    )


class QueueReading(Value):
    """All facts read from a queue. `workers` is None if the queue has no registry of workers."""

    # In pydantic's smart mode, a long queue keeps its whole input in memory during validation.
    demand: Demand | Unknown = Field(union_mode="left_to_right")
    workers: tuple[Worker, ...] | Unknown | None = Field(
        None, description="None: no registry (REST only)."
    )
    rivals: Tags = Field(
        (), description="Worker pools for which the queue itself creates machines."
    )
    clock_ahead: int | None = later(
        None,
        "Minutes by which its server's clock was ahead of this computer's, if the server "
        "reports its time.",
    )
    behind: dict[str, Count] = later(
        {},
        "Waiting ticket to how many places it is behind because its owner had machines meanwhile.",
    )
    packages: dict[str, str] = later(
        {},
        "Ticket with a machine to the source package of its build, if the queue of "
        "its build says.",
    )
    rules: dict[str, HeldRules | Unknown] = Field(
        default_factory=dict,
        description="Place (a workspace, a file, an address) to the rules that the queue has "
        "there; empty: fleet.yaml names no place.",
    )


class MachineState(Word):
    """The state of a machine at its provider."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"  # its livechecks or the command `new` failed


class Machine(Value):
    """A machine with the label fleet=NAME, as its provider lists it."""

    name: str
    id: str = Field(description="The provider's own id.")
    pool: str = Field(description="From the label `pool`.")
    type: str
    state: MachineState
    created_at: Moment | None = Field(description="None: not reported by the provider.")
    image: str | None = None
    digest: str | None = Field(None, description="Digest of its inputs, from its label.")
    expires: Moment | None = Field(
        None, description="When it expires unless `fleet apply` renews it; None: never."
    )
    address: str | None = None
    misses: Count | None = Field(
        None,
        description="Consecutive failed checks of the port in `pools.NAME.ready`; 0: it answers; "
        "None: not checked.",
    )
    was_ready: bool = Field(False, description="That port has answered at least once.")
    looked_since: Moment | None = Field(
        None, description="When that port was first checked; None: unknown."
    )
    deleting_since: Moment | None = later(
        None, "When its provider accepted its deletion; it is deleted once it is no longer listed."
    )
    trouble: str = later(
        "", "Why it still exists although it was to be deleted, and what comes next."
    )


class Listing(Value):
    """The machines that a provider lists with the label of this fleet."""

    read_at: Moment
    machines: tuple[Machine, ...] = ()
    strangers: Tags = later(
        (),
        "Names of machines of others, where the provider lists those too: no machine "
        "of this fleet gets such a name.",
    )
    notes_expiry: bool = Field(False, description="Its machines can carry an expiry.")
    clock_ahead: int | None = later(
        None,
        "Minutes by which its server's clock was ahead of this computer's, if the server "
        "reports its time.",
    )
    workers: tuple[Worker, ...] | None = Field(
        None, description="Workers that register at the provider itself; None: not supported."
    )


class WorkerInputs(Value):
    """The inputs of a worker's machine. They are recorded at its creation and reused unchanged."""

    name: str
    type: str
    image: str
    architecture: str = "amd64"
    labels: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, str] = Field(
        default_factory=dict, description="Settings of this provider kind only (location, boot)."
    )


def market_of(inputs: WorkerInputs | None) -> Market:
    """Return the market on which a machine was bought; `on-demand` if unknown."""
    is_spot = inputs is not None and inputs.settings.get("market") == "spot"
    return "spot" if is_spot else "on-demand"


class FoundMachine(Value):
    """A machine found by a label. Another program may have created the machine."""

    machine: Machine
    architecture: str
    labels: dict[str, str] = Field(description="Its labels, except those that change.")
    settings: dict[str, str] = Field(
        default_factory=dict, description="Other settings that it was created from, if known."
    )
    worker: Worker | None = Field(
        None, description="Its worker, where workers register at the provider itself."
    )


class Stack(Value):
    """A pool's stack as the engine recorded it. It is the second source on the pool's machines."""

    engine: Literal["embedded", "pulumi"]
    provider: str = Field(description="Name of the provider in fleet.yaml at its creation.")
    serial: int = Field(description="Grows with each change of the stack's state.")
    name: str = Field(
        "", description="Stack name if not FLEET-POOL: a renamed pool keeps its stack."
    )
    workers: tuple[WorkerInputs, ...] = ()
    ids: dict[str, str] = Field(
        default_factory=dict, description="Worker name to provider id, for workers that exist."
    )
    interrupted: bool = Field(
        False, description="An earlier operation did not finish; the next apply finishes it."
    )

    @property
    def names(self) -> set[str]:
        """Return the names of all wanted and existing machines in the stack."""
        return {worker.name for worker in self.workers} | self.ids.keys()


AttemptResult = Literal[
    "starting", "registered", "gone", "failed", "out-of-stock", "quota", "name-taken", "error"
]


class Attempt(Value):
    """An attempt to create a machine, and the result."""

    pool: str
    worker: str
    type: str
    market: Market = "on-demand"
    image: str = Field(description="The provider's own id of its image.")
    at: Moment
    result: AttemptResult = Field(
        description="`failed`: never registered; `gone`: disappeared before its registration; "
        "`out-of-stock`, `quota`, `name-taken`, `error`: not created."
    )
    detail: str = Field("", description="The provider's message, without secrets.")


class Departure(Value):
    """The reason why a run drained or disabled a worker. Later runs keep this reason."""

    worker: str
    registry: str = Field("", description="Where it was drained; empty: its token was revoked.")
    reason: str = Field(description="Reason in the plan.")
    at: Moment
    over: Moment | None = Field(
        None, description="Return to work after a hold; None: not returned."
    )

    @property
    def key(self) -> str:
        """Return the key under which a store records this departure."""
        return f"{self.worker} {self.registry}"


class Absence(Value):
    """A machine that a stack records but that complete lists of its provider omit."""

    provider: str
    name: str
    id: str
    since: Moment = Field(description="First of the consecutive listings without it.")
    lists: Count = Field(description="Number of consecutive complete listings without it.")
    works: bool | None = Field(
        None,
        description="False: its livechecks failed as often in a row as its provider permits; "
        "True: the latest one succeeded; None: unknown.",
    )


class World(Value):
    """All observed facts for one plan, without secrets."""

    format: Literal["fleet-world-1"] = "fleet-world-1"
    fleet: str = Field(description="Name of the fleet that observed it.")
    time: Moment
    queues: dict[str, QueueReading] = Field(default_factory=dict)
    providers: dict[str, Listing | Unknown] = Field(default_factory=dict)
    stacks: dict[str, Stack | Unknown] | Unknown = Field(
        default_factory=dict, description="Pool name to its stack; a pool without one is absent."
    )
    bases: dict[str, Base | Unknown] = Field(
        default_factory=dict, description="Provider to its base stack; one without is absent."
    )
    images: tuple[ImageVersion, ...] | Unknown = ()
    ledger: Ledger | Unknown = Field(
        Unknown(unknown="it was not recorded"),
        description="Spending so far; if unknown, budgets allow no new machine.",
    )
    attempts: Annotated[tuple[Attempt, ...], sort_by("at", "worker")] = Field(
        (), description="Latest attempts to create machines of each pool and machine type."
    )
    absences: Annotated[tuple[Absence, ...], sort_by("provider", "name")] = later(
        (), "Machines that their stacks know and that their providers do not list."
    )
    approved: dict[str, int] | Unknown = Field(
        default_factory=dict,
        description="Digest of an approval to the number of machines that used it.",
    )
    orders: Annotated[tuple[Order, ...], sort_by("key")] | Unknown = later(
        (), "Freezes, holds and approvals of operators that apply."
    )
    departures: Annotated[tuple[Departure, ...], sort_by("at", "worker")] = later(
        (), "Workers that earlier runs drained or switched off, and why."
    )
    unread: dict[Literal["attempts", "departures"], str] = later(
        {},
        "Records that the store has and that cannot be read, each with the reason: "
        "they are empty here.",
    )
    members: dict[str, Tags] | Unknown = Field(
        default_factory=dict, description="Group to its users, from the file of `members`."
    )
    runs: Annotated[tuple[Moment, ...], AfterValidator(_sort_values)] | Unknown = Field(
        (), description="Start of the latest finished runs of `fleet apply`, oldest first."
    )
    delete_seconds: Count | None = Field(
        None,
        description="Longest duration of the latest runs with deletions; None: no run has "
        "deleted a machine.",
    )
    prices: dict[str, PriceList | Unknown] = later(
        {}, "Provider to its own price list, if fleet reads it."
    )
    remarks: tuple[str, ...] = later((), "Remarks of queues and providers on their readings.")

    @property
    def versions(self) -> tuple[ImageVersion, ...]:
        """Return all known versions of images."""
        return () if isinstance(self.images, Unknown) else self.images

    @property
    def known_stacks(self) -> dict[str, Stack]:
        """Map pool names to stacks, without the stacks that cannot be read."""
        stacks = {} if isinstance(self.stacks, Unknown) else self.stacks
        return {pool: stack for pool, stack in stacks.items() if isinstance(stack, Stack)}

    def read_stack(self, pool: str) -> Stack | Unknown | None:
        """Return a pool's stack; Unknown if the stack is unreadable, None if there is no stack."""
        return self.stacks if isinstance(self.stacks, Unknown) else self.stacks.get(pool)

    def stack_of(self, pool: str) -> Stack | None:
        """Return a pool's stack; None if the pool has no stack or the stack is unreadable."""
        stack = self.read_stack(pool)
        return stack if isinstance(stack, Stack) else None

    def demands(self) -> "Iterator[tuple[str, Demand]]":
        """Yield the name and demand of each readable queue, sorted by name."""
        for name, reading in sorted(self.queues.items()):
            if isinstance(reading.demand, Demand):
                yield name, reading.demand

    def machines(self) -> "Iterator[tuple[str, Machine]]":
        """Yield (provider, machine) for each listed machine, sorted by provider."""
        for name, listing in sorted(self.providers.items()):
            if isinstance(listing, Listing):
                yield from ((name, machine) for machine in listing.machines)

    def registered(self) -> "Iterator[tuple[str, Worker]]":
        """Yield each worker with the name of its queue or provider: queues first, by name."""
        for name, reading in sorted(self.queues.items()):
            if isinstance(reading.workers, tuple):
                yield from ((name, worker) for worker in reading.workers)
        for name, listing in sorted(self.providers.items()):
            if isinstance(listing, Listing):
                yield from ((name, worker) for worker in listing.workers or ())


_SANDBOX = "sandbox:"


def pseudonymise(world: World, key: bytes, kept: Collection[str] = ()) -> World:
    """Return the world with a pseudonym for each person whose name is not in `kept`.

    A person has the same pseudonym everywhere. A name can be tested against it only with the key.
    """

    def of(person: str) -> str:
        if person in kept:
            return person
        return f"person-{hmac.digest(key, person.encode(), 'sha256').hex()[:12]}"

    def within(value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON
        match value:
            case dict():
                return {k: within(v, k) for k, v in value.items()}
            case list():
                return [within(each, name) for each in value]
            case str() if name in ("requester", "by") or (name == "sandbox" and value):
                return of(value)
            case str() if value.startswith(_SANDBOX):
                return _SANDBOX + of(value.removeprefix(_SANDBOX))
        return value

    data = within(world.model_dump(mode="json"))
    if isinstance(world.members, dict):
        data["members"] = {
            group: [of(user) for user in users] for group, users in world.members.items()
        }
    return World.model_validate(data)


class PlaceFacts(Value):
    """A new machine that could serve a request, with its start, duration and cost."""

    pool: str
    type: str
    market: Market
    start: Moment
    end: Moment | None = None
    """Expected end of the run; None if the duration is unknown."""
    seconds: int | None = None
    source: str = ""
    """Origin of the duration on this machine type; empty if stated or not specific to the type."""
    cost: Bill | None = None
    """Bill of the machine until its idle time-out; None if the price is unknown."""
    deadline: int | None = None
    """Maximum run time in seconds; None if unlimited."""
    own_deadline: bool = False
    """True if the deadline is set for this request, not for its whole queue."""
    is_late: bool = False
    """True if the run cannot end on this machine before its deadline."""
    asks: tuple[str, ...] = ()
    """Tags that the machine requires and that an allow-list rule could add to the request."""
    rule: str = ""
    """The entry of `powerful` that adds these tags; empty if the machine fits without a rule."""
    acts_later: bool = False
    """True if the rule affects only later builds, because the queue stored this build's tags."""
    closed: str = ""
    """The reason why fleet creates no such machine now, such as no stock; empty if it can."""
    closed_until: Moment | None = None
    """The time when this reason ends; None if unknown. The start is not earlier."""
    is_chosen: bool = False
    """True if the plan creates this machine for the request."""


class WorkerFacts(Value):
    """The machine of a worker, and the work that runs on the machine."""

    provider: str | None = None
    location: str | None = Field(None, description="The provider's location or region.")
    market: Market | None = None
    cores: int | None = None
    memory: int | None = Field(None, description="MiB.")
    disk: int | None = Field(None, description="MiB.")
    swap: int | None = Field(None, description="MiB.")
    architecture: str | None = None
    created_at: Moment | None = None
    cost_so_far: Rate | None = Field(
        None, description="Bill of the machine since its creation, in whole billing steps."
    )
    task: str | None = None
    package: str | None = Field(None, description="The source package that its work builds.")
    work_since: Moment | None = None
    work_cost: Rate | None = Field(None, description="Cost of its work so far.")
