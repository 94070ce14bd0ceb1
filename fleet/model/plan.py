"""A plan: actions with reasons, decisions on requests, pools and workers, guards, limits, money.

All outputs (text, JSON, Markdown, HTML, GitLab reports) render this value. A plan that is written
to JSON and read again is equal to the original.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, get_args

from pydantic import Field

from fleet.model.decisions import LASTING, Code, Decision, Path
from fleet.model.facts import BaseChange, WorkerInputs
from fleet.model.images import State, WaitingVersion
from fleet.model.orders import Order
from fleet.model.price_lists import PriceSource
from fleet.model.values import (
    FOR_PEOPLE,
    Bill,
    Figure,
    ForPeople,
    Moment,
    Rate,
    Value,
    Word,
    later,
)
from fleet.schema.units import CURRENCY_PATTERN

NoticeKind = Literal["allow-list", "approval", "prices", "image"]
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


class Notice(Value):
    """A setting that an operator must renew or remove by a date."""

    kind: NoticeKind
    key: str = Field(
        description="Identity: each notice is sent once. The notices of 30 and of 7 days differ."
    )
    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that it describes.")
    until: date = Field(description="Last valid day.")
    said: str = Field(description="Object and required action, as a sentence.")


CREATE_LIMIT = ("guards", "throttle", "create")
"""The key of fleet.yaml that limits the machines that one run creates."""


class GuardResult(Value):
    """The decision of a guard, with its figures and its key of fleet.yaml."""

    guard: str
    pool: str | None = Field(None, description="Counted pool; None: the whole fleet.")
    result: Literal["passed", "throttled", "refused"]
    because: ForPeople
    way_out: ForPeople = ""
    path: tuple[str | int, ...] = ()
    count: int = Field(0, description="Number of affected machines.")
    of: int = Field(0, description="Number of machines of the pool or the fleet.")
    approved: int = Field(0, description="Number that approvals let pass in this run.")
    withheld: int = Field(0, description="Number of actions that it withholds in this run.")
    limit: str = Field("", description="The limit in fleet.yaml, as in `30% and at most 10`.")
    approve: tuple[str, ...] = Field(
        (), description="Lines for `approvals` that would let it pass, one per pool."
    )
    commands: tuple[str, ...] = later(
        (), "Commands that do the same without a merge request, one per pool."
    )


GuardName = Literal["boot_failures", "cost_increase", "delete", "rival"]
"""The guards that an approval can overrule."""


class ApprovalVerdict(Value):
    """The use of an approval, and the machines for which it overrules a guard in this plan."""

    digest: str = Field(
        description="Digest of the whole approval: an edited approval is another one."
    )
    path: tuple[str | int, ...] = Field(
        description="Its key in fleet.yaml; absent if given by `fleet approve`."
    )
    by: str = later("", "The person who ran `fleet approve`, and its end.")
    guard: GuardName
    pool: str
    count: int = Field(description="Total number of machines that may pass.")
    used: int = Field(0, description="Number of machines that passed in earlier runs.")
    passes: tuple[str, ...] = Field((), description="Workers that it lets pass in this plan.")
    reason: str
    expires: date = Field(description="Last valid day.")
    inert: ForPeople = Field("", description="Reason why it has no effect; empty: it has one.")

    @property
    def left(self) -> int:
        """Return for how many machines the approval can still be used, before this plan."""
        return 0 if self.inert else max(0, self.count - self.used)


class LimitVerdict(Value):
    """The number of machines in use under a limit, including this plan."""

    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that sets the limit.")
    who: str | None = Field(
        None, description="The payer whose machines count; None: all payers, or unknown."
    )
    limit: int = Field(description="Maximum number of machines in use at the same time.")
    in_use: int = Field(description="Machines whose work counts, or may count, to the limit.")
    given: int = Field(description="Requests that get a free or new machine, before guards.")
    waiting: int = Field(description="Counted requests that continue to wait.")


_ROUNDING_TOLERANCE = Decimal("0.0002")
"""Maximum difference of equal amounts after rounding to four decimal places."""


PeriodName = Literal["hour", "day", "month"]
_WHEN: dict[PeriodName, tuple[str, str]] = {
    "hour": ("this hour", "in the next hour"),
    "day": ("today", "tomorrow"),
    "month": ("this month", "next month"),
}


def say_when(period: PeriodName, *, coming: bool) -> str:
    """Return a phrase for the current period, or for the next one if `coming`."""
    return _WHEN[period][coming]


class BudgetVerdict(Value):
    """The spending under a budget in one period, including this plan."""

    budget: str = Field(description="Name under `budgets`, or of the pool whose budget it is.")
    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that sets the limit.")
    period: PeriodName
    unit: str = Field(description="A currency, or `machine hours`.")
    limit: Rate
    spent: Figure = Field(description="Spending so far in this period.")
    reserved: Figure = Field(description="Expected further cost of existing machines and work.")
    planned: Rate = Field(description="Cost that this plan adds.")
    exceeded: bool = Field(False, description="Spent and reserved exceed the limit.")
    coming: bool = Field(False, description="Whether it is about the next hour, day or month.")
    known: bool = Field(True, description="Whether `spent` is known; the next release omits it.")
    left: Figure | None = later(
        None, "The rest after this plan, at least 0. While it is unknown, nothing more is bought."
    )

    @property
    def when(self) -> str:
        """Return a phrase for the period of this budget, for example `this month`."""
        return say_when(self.period, coming=self.coming)

    def with_rest(self) -> "BudgetVerdict":
        """Return a copy with the remaining budget. The rest is unknown if `spent` is unknown."""
        used = self.used
        unknown = self.reserved if isinstance(self.spent, Decimal) else self.spent
        left = unknown if used is None else max(Decimal(0), self.limit - used)
        return self.altered(left=left, known=used is not None)

    @property
    def used(self) -> Decimal | None:
        """Return the amount that is spent, reserved or planned; None if it is unknown."""
        if isinstance(self.spent, Decimal) and isinstance(self.reserved, Decimal):
            return self.spent + self.reserved + self.planned
        return None


class Optimum(Value):
    """The cost of this plan's new machines until their idle time-out, and the minimum cost.

    The figures of the model include the machines that a guard withholds.
    """

    cost: Rate = Field(description="Total bill of the machines (`until_idle`).")
    machines: int = Field(0, description="Number of these machines.")
    withheld: int = Field(0, description="Number of withheld machines, not in `cost`.")
    assumed: int = Field(0, description="Requests whose duration is unknown, counted as an hour.")
    unpriced: int = Field(0, description="Machines without a known price, counted as 0.")
    model: Rate | None = Field(None, description="Cost of the allocation in the model.")
    bound: Rate = Field(description="Lower bound of the cost of serving the same requests.")
    relaxed: Rate = Field(description="The bound if parts of machines could be bought (root LP).")
    averaged: Rate = later(
        Decimal(0),
        "The bound of the parts in which requests of one group with different "
        "durations count as equally long. It is one of the model alone, so `bound` has 0 for it.",
    )
    gap: float = Field(description="(model - bound) / model; 0: proven optimal.")
    because: ForPeople = Field("", description="Reason why the search ended, if the gap is not 0.")

    @property
    def model_bound(self) -> Decimal:
        """Return the model's lower bound. It assumes equal durations in a group of requests."""
        return self.bound + self.averaged

    @property
    def is_about_cost(self) -> bool:
        """Return whether the model's cost equals the displayed cost, apart from rounding."""
        return (
            not self.withheld
            and self.model is not None
            and abs(self.cost - self.model) <= _ROUNDING_TOLERANCE
        )

    @property
    def is_optimal(self) -> bool:
        """Return whether it is proven that cheaper machines cannot serve the same requests."""
        return self.is_about_cost and not self.gap


class MissingRule(Value):
    """A part of a rule in fleet.yaml that is missing in a queue."""

    path: tuple[str | int, ...] = Field(description="The rule in fleet.yaml.")
    entry: str


class RulesVerdict(Value):
    """Difference between the rules in fleet.yaml and those at one location of a queue."""

    queue: str
    place: str = Field(description="A workspace of Debusine; Copr's file or address.")
    state: Literal["in-force", "differs", "unseen"]
    since: Moment | None = Field(
        None, description="Time when fleet first read them there; None: in this reading."
    )
    expected: int = Field(0, description="Number of entries for the rules of fleet.yaml.")
    missing: tuple[MissingRule, ...] = ()
    extra: tuple[str, ...] = Field(
        (), description="Entries that fleet wrote earlier, or that no rule of fleet.yaml creates."
    )
    because: ForPeople = Field("", description="Reason why they are unreadable.")
    fix: ForPeople = Field("", description="The command or key of fleet.yaml that fixes it.")


class Cause(Word):
    """The cause of an action. Guards treat each cause differently."""

    DEMAND = "demand"  # throttled: N in this run, the others in later runs
    CONFIG = "config"  # refused above the limit
    KNOWLEDGE = "knowledge"  # a source was lost or not read; refused above the limit


class Reason(Word):
    """The reason for an action or for a decision on a machine."""

    # create
    REQUESTS_WAIT = "requests-wait"
    BELOW_MIN = "below-min"
    BELOW_SPARE = "below-spare"
    INTERRUPTED = "interrupted"  # an earlier apply was killed; this apply finishes the creation
    REPLACEMENT = "replacement"  # replaces a worker that is outdated or expired
    # drain, disable, delete
    IDLE_TOO_LONG = "idle-too-long"
    TICKET_RETURNED = "ticket-returned"  # its ticket ended, and no other ticket may use it
    ABOVE_MAX = "above-max"
    POOL_DRAINING = "pool-draining"
    POOL_REMOVED = "pool-removed"
    DISABLED = "disabled"
    BOOT_FAILED = "boot-failed"  # its worker did not register within boot.deadline
    DEAF = "deaf"  # connected for long without a report of its tags, so it gets no work
    STOPPED = "stopped"  # the provider reports the machine as switched off
    LIVECHECK_FAILED = "livecheck-failed"  # its provider found that the machine does not work
    REGISTRATION_LOST = "registration-lost"  # it was registered, but the registry no longer has it
    OUTDATED = "outdated"  # created from an older configuration or image
    MAX_AGE = "max-age"
    MAX_USES = "max-uses"
    BUDGET_USED_UP = "budget-used-up"  # a budget cannot pay for new work on the machine
    NOT_WANTED = "not-wanted"  # its requests are withdrawn, and no other request fits
    GONE = "gone"  # a stack records it, but its provider no longer lists it
    ORPHAN = "orphan"  # a provider lists it, but neither a stack nor a ticket has it
    EXPIRED = (
        "expired"  # `fleet apply` did not renew it; only for `fleet machine delete --expired`
    )
    REQUESTED = "requested"  # a user named the machine, its pool or its run
    # drain, keep
    HELD = "held"  # `fleet hold`: it gets no new work and is kept
    # keep
    BUSY = "busy"
    SERVES_WAITING = "serves-waiting"
    KEPT_FOR_MIN = "kept-for-min"
    KEPT_SPARE = "kept-spare"
    IDLE_RECENTLY = "idle-recently"
    STARTING = "starting"
    NEVER_REGISTERED = "never-registered"
    NO_REGISTRY = "no-registry"
    NOT_KNOWN = "not-known"
    POOL_PAUSED = "pool-paused"
    DISCONNECTED = "disconnected"  # if it stays disconnected while idle, it is deleted
    STATIC = "static"
    MACHINE_GONE = "machine-gone"
    PAID_FOR = "paid-for"  # idle, but already paid for until after the next run
    WAITS_FOR_WINDOW = "waits-for-window"  # outdated; a later run replaces it (`replace`)
    # promote
    NEWER_VERSION = "newer-version"  # tested, published, newer than the version that machines boot
    CANDIDATE_CAME_UP = "candidate-came-up"  # its machines have worked for `promote.after`


REPLACEMENT_REASONS = frozenset(
    {Reason.OUTDATED, Reason.MAX_AGE, Reason.MAX_USES, Reason.LIVECHECK_FAILED}
)
"""Reasons to replace a machine, at the pace of `replace.at_a_time`."""


class Create(Value):
    """The creation of a machine. Its worker registers at the first boot."""

    action: Literal["create"] = "create"
    pool: str
    worker: str = Field(description="Name of the worker and of its machine.")
    registry: str | None = Field(
        None, description="Queue that issues its token; None: it registers at its provider."
    )
    inputs: WorkerInputs
    reason: Reason
    cause: Cause
    because: ForPeople = Field(description="The reason as a sentence, with its figures.")
    cost: Rate = Field(description="Additional money per hour.")
    serves: tuple[str, ...] = Field((), description="Ids of the requests that it serves.")
    until_idle: Bill | None = Field(
        None,
        description="Its cost until its deletion after the idle time-out; None: it serves no "
        "request, or its price is unknown.",
    )
    assumed: int = Field(
        0, description="Number of these requests with unknown duration: each counts as an hour."
    )
    turn: int = Field(0, description="Its place in the order of service, over all pools.")

    @property
    def queues(self) -> frozenset[str]:
        """Return the names of the queues whose requests this machine serves."""
        return frozenset(key.partition("/")[0] for key in self.serves)


class Drain(Value):
    """The first step of a deletion: the queue assigns no more work to the worker."""

    action: Literal["drain"] = "drain"
    pool: str
    worker: str
    registry: str = Field(description="Queue or provider of its registration.")
    reason: Reason
    cause: Cause
    because: ForPeople


class Delete(Value):
    """The second step of a deletion: the idle worker is disabled, then its machine is deleted."""

    action: Literal["delete"] = "delete"
    pool: str
    worker: str
    registry: str | None = Field(description="Queue that disables it or revokes its token.")
    reason: Reason
    cause: Cause
    because: ForPeople
    saves: Rate = Field(description="Money per hour that this saves.")
    revokes: bool = Field(False, description="It never registered, so its token is revoked first.")
    releases: bool = Field(False, description="Whether its requests return to the queue first.")
    begun: bool = later(False, "An earlier run switched it off for this reason.")
    forgets: bool = later(
        False, "Its machine no longer exists: only its entry in the stack is removed."
    )
    absent: Literal["", "gone", "unmade"] = later(
        "", "Why there is no machine: it is gone, or its creation never ended."
    )


class RegisteredWorker(Value):
    """A worker, its pool, the place of its registration, and why the plan mentions it."""

    pool: str
    worker: str
    registry: str | None = Field(description="Queue or provider of its registration.")
    because: ForPeople


class BootHold(RegisteredWorker):
    """A machine that failed to boot and is kept for inspection."""

    provider: str
    machine: str = Field(description="The provider's own id.")
    log: int = Field(description="Number of console lines to keep.")


class Release(RegisteredWorker):
    """The release of a worker without a machine. Its request is queued again."""

    registry: str
    may_work: bool = Field(
        False, description="Whether it has a valid token: guards count it as a deletion."
    )


class Resume(RegisteredWorker):
    """The return of a worker to work, after the end of the hold that drained the worker."""

    registry: str


class Replaced(Value):
    """The number of machines of a pool that are replaced after a version is promoted."""

    pool: str
    machines: int
    at_a_time: int = Field(description="Maximum share of the pool at the same time, in percent.")
    windows: tuple[str, ...] = ()


class Promotion(Value):
    """A change of an image version's state by the rules in `images.NAME.promote`."""

    image: str
    version: str
    was: State
    now: State
    share: int = Field(0, description="As a candidate, of each pool's workers, in percent.")
    reason: Reason
    because: ForPeople = Field(description="The reason as a sentence, with its figures.")
    replaces: tuple[Replaced, ...] = ()
    cost: Rate | None = Field(
        description="Maximum cost of new machines while the old ones exist; None: unknown."
    )

    @property
    def verb(self) -> str:
        """Return the verb of this action, for example `promote to candidate (20%)`."""
        if self.now == "retired":
            return "retire"
        share = f" ({self.share}%)" if self.share else ""
        return f"promote to {self.now}{share}"


Action = Annotated[Create | Drain | Delete, Field(discriminator="action")]


def is_begun(action: Action) -> bool:
    """Return whether an earlier run started this action but did not finish it."""
    return (isinstance(action, Delete) and action.begun) or action.reason is Reason.INTERRUPTED


NotKnown = Literal["machines", "workers", "cost", "price"]
"""Names of a pool's figures that may be unknown."""


class WorkerVerdict(Value):
    """The planned action for a worker, or the reason to keep the worker."""

    worker: str
    pool: str
    registry: str | None = Field(None, description="Queue or provider of its registration.")
    verdict: Literal["keep", "create", "drain", "delete"]
    reason: Reason
    because: ForPeople
    state: str = Field(description="idle, busy, starting, draining, deaf, disconnected, unknown.")
    running: str | None = None
    since: Moment | None = None
    image: str | None = None
    type: str | None = None
    cost: Figure = Field(Decimal(0), description="Money per hour.")
    cost_known: bool = Field(
        True, description="Whether `cost` is known; the next release omits it."
    )
    outdated: bool = Field(False, description="Created from an older configuration.")
    inactive: bool = Field(
        False, description="Its machine is gone or its token disabled; status omits it."
    )


class RefusedTag(Value):
    """A tag of a request that has no effect, because it is forbidden or its source is unknown."""

    tag: str
    who: str
    because: ForPeople
    path: tuple[str | int, ...] = Field((), description="The key of fleet.yaml that forbids it.")

    @property
    def is_unknown(self) -> bool:
        """Return whether a value of the request, for example its environment, has no known tag."""
        return self.path[:1] == ("derive",)


class TagDifference(Value):
    """A tag that the current rules add but that the queue did not store with the request."""

    tag: str
    because: ForPeople
    path: tuple[str | int, ...] = Field((), description="The rule in fleet.yaml.")


class RuledTag(Value):
    """A tag that a rule of fleet.yaml adds to a ticket, because of the ticket's build."""

    tag: str
    path: tuple[str | int, ...] = Field(description="The rule in fleet.yaml.")


class Signature(Value):
    """A group of requests that all rules and limits of fleet.yaml treat equally."""

    id: str = Field(description="Digest of their common properties.")
    queue: str
    required: tuple[str, ...]
    provided: tuple[str, ...] = ()
    priority: int
    count: int
    requests: tuple[str, ...] = Field(description="Their ids, in the order of service.")
    by_worker: dict[str, str] = Field(
        default_factory=dict, description="Request id to its existing worker."
    )
    by_create: dict[str, str] = Field(
        default_factory=dict, description="Request id to its new worker."
    )
    pools: tuple[str, ...] = Field(
        (), description="Pools that may create a machine for it, by name."
    )
    refused: tuple[RefusedTag, ...] = Field(
        (), description="Tags without effect, with the reason."
    )
    dropped: tuple[str, ...] = Field(
        (), description="Required tags that it may currently run without (`otherwise`)."
    )
    held: tuple[str, ...] = later(
        (), "Denied or unknown tags for which no worker may serve its requests."
    )
    differences: tuple[TagDifference, ...] = Field(
        (), description="Tags that today's rules would add to the tags in the queue."
    )
    ruled: tuple[RuledTag, ...] = Field(
        (), description="Tickets: required tags that rules of fleet.yaml add."
    )


BlockedCode = Literal["closed", "guard", "late", "limit"]
"""Kind of constraint: a pool or machine type is closed, a guard, a deadline, or a limit."""


class Blocked(Value):
    """A pool that fits a request but now creates no machine for the request, and the reason."""

    pool: str
    because: ForPeople
    path: tuple[str | int, ...] = Field((), description="The key of fleet.yaml that decides.")
    code: BlockedCode = later("limit", "Kind of constraint.")
    needed: Rate | None = later(None, "The amount of a limit that a further request needs there.")
    left: Rate | None = later(None, "The remainder of that limit; None: unknown.")
    unit: str = later("", "Unit of both: `machines or requests`, a currency, or `machine hours`.")
    until: Moment | None = later(None, "When the constraint ends by itself, if that is known.")

    def is_lasting(self, zero: Collection[str]) -> bool:
        """Return whether it lasts until fleet.yaml changes; `zero`: pools with `max: 0`."""
        if self.path[:1] == ("pools",) and self.path[2:] == ("workers", "max"):
            return self.pool in zero
        return self.code == "late" or self.is_above_budget

    @property
    def is_budget(self) -> bool:
        """Return whether the constraint is a budget of money or machine hours."""
        return self.code == "limit" and self.unit != "machines or requests"

    @property
    def is_above_budget(self) -> bool:
        """Return whether one request needs more than a whole budget."""
        return self.is_budget and self.left is not None and not self.until


def overlaps(path: Path, key: Path) -> bool:
    """Return whether a path in fleet.yaml is a key, a part of it or a section with it."""
    return path[: len(key)] == key[: len(path)]


class Unserved(Value):
    """Requests that get no machine in this run, and the reason."""

    signature: str
    requests: tuple[str, ...]
    count: int
    because: ForPeople
    path: tuple[str | int, ...] = ()
    blocked: tuple[Blocked, ...] = Field((), description="Each pool that fits.")
    decisions: tuple[Decision, ...] = later(
        (), "The same by reason: one entry per class of pools with the same code, key and figures."
    )

    @property
    def paths(self) -> tuple[tuple[str | int, ...], ...]:
        """Return the paths of the keys of fleet.yaml that leave the requests unserved."""
        found = [self.path, *(each.path for each in self.blocked)]
        return tuple(path for path in dict.fromkeys(found) if path)

    @property
    def cause(self) -> frozenset[tuple[Code, Path]]:
        """Return the codes and keys of the decisions, which identify the cause."""
        return frozenset((each.code, each.key) for each in self.decisions)

    def is_lasting(self, zero: Collection[str]) -> bool:
        """Return whether the requests get no machine before fleet.yaml changes.

        `zero` has the pools whose `workers.max` is 0.
        """
        if not self.blocked:
            return bool(self.decisions) and all(each.code in LASTING for each in self.decisions)
        found: defaultdict[str, defaultdict[Path, list[bool]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for each in self.blocked:
            found[each.pool][each.path].append(each.is_lasting(zero))
        return all(any(map(all, limits.values())) for limits in found.values())


class PoolDecision(Value):
    """The planned changes of a pool, without the figures that may be unknown."""

    pool: str
    mode: str
    because: ForPeople = Field(description="Reasons of this number of machines.")
    decisions: tuple[Decision, ...] = later((), "The same, one entry per reason.")
    create: int = 0
    drain: int = 0
    delete: int = 0
    served: int = Field(0, description="Waiting requests that get an existing or new worker here.")
    max: int = 0
    provider: str | None = Field(None, description="Name in fleet.yaml; None: static or removed.")
    type: str | None = Field(None, description="Machine type of its new workers.")
    image: str | None = Field(None, description="Image of its new workers.")
    provides: tuple[str, ...] = Field((), description="Tags that its workers provide.")
    stack: str | None = Field(None, description="Name of its stack.")
    serial: int | None = None
    not_known: tuple[NotKnown, ...] = Field(
        (), description="Names of the unknown figures, which count as 0 in plans."
    )
    failures: ForPeople = later(
        "",
        "Its latest attempts to create a machine, if they failed in a row: how many, when, why.",
    )
    on_trial: tuple[str, ...] = later(
        (), "Machine types on which its image fails to boot, and which approvals let it create."
    )


class PoolVerdict(PoolDecision):
    """The planned changes of a pool, with its machines and its cost."""

    busy: int = 0
    idle: int = 0
    starting: int = 0
    other: int = Field(0, description="Machines that count to max but serve no request.")
    price: Rate = Decimal(0)
    cost_before: Rate = Decimal(0)
    cost_after: Rate = Decimal(0)
    unwanted: int = Field(
        0,
        description="Machines to delete when their work ends, including busy and draining ones, "
        "without merely outdated ones.",
    )
    draining: int = Field(0, description="Machines whose workers get no new work, busy or not.")

    @property
    def machines(self) -> int:
        """Return the current number of machines in the pool."""
        return self.busy + self.idle + self.starting + self.other

    @property
    def machines_after(self) -> int:
        """Return the number of machines in the pool after this plan."""
        return self.machines + self.create - self.delete


class Estimate(Value):
    """A queue that was only partly read. Its idle machines are not deleted in this run."""

    queue: str
    listed: int = Field(description="Pending requests that are known.")
    unlisted: int | None = Field(
        None, description="Number of further requests that the queue counts; None: unknown."
    )
    longest: int | None = Field(
        None, description="Length above which this queue must be read by SQL."
    )
    because: ForPeople


CLOCK_RULE = "wrong-clock"
"""Rule id of the warning that `fleet apply` refuses to run with this computer's clock."""


class Warning_(Value):  # noqa: N801 - `Warning` is a builtin
    """A warning for the user. It does not affect the plan."""

    rule: str
    message: str
    place: str = Field("", description="file:line:col where there is one.")


class Digests(Value):
    """The SHA-256 digests of the plan and of its inputs."""

    config: str
    world: str
    plan: str = ""
    over: Literal["sentences", "decisions"] = later(
        "sentences",
        "Content of the plan's digest. `decisions`: codes, subjects, keys and figures, without "
        "sentences, which older versions counted.",
    )


class Plan(Value):
    """The planned changes of a fleet, with reasons and cost."""

    format: Literal["fleet-plan-1"] = "fleet-plan-1"
    fleet: str
    time: Moment
    currency: str = Field(pattern=CURRENCY_PATTERN)
    actions: tuple[Action, ...] = ()
    withheld: tuple[Action, ...] = Field(
        (), description="Actions that a guard withholds in this run."
    )
    releases: tuple[Release, ...] = Field(
        (), description="Workers whose machines no longer exist."
    )
    unreleased: tuple[Release, ...] = Field((), description="Releases that a guard withholds.")
    resumes: tuple[Resume, ...] = later(
        (), "Workers that get work again: they were drained for a hold that is over."
    )
    holds: tuple[BootHold, ...] = later(
        (), "Machines that failed to boot and are held from this run on."
    )
    bases: tuple[BaseChange, ...] = Field(
        (), description="Changes to shared resources of providers."
    )
    promotions: tuple[Promotion, ...] = Field(
        (), description="Versions that `fleet apply` promotes; later runs replace machines."
    )
    waiting_versions: tuple[WaitingVersion, ...] = Field(
        (), description="Newer versions that some machines do not boot yet, with the reason."
    )
    workers: tuple[WorkerVerdict, ...] = ()
    pools: tuple[PoolVerdict, ...] = ()
    signatures: tuple[Signature, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    guards: tuple[GuardResult, ...] = ()
    approvals: tuple[ApprovalVerdict, ...] = ()
    orders: tuple[Order, ...] = later((), "Freezes, holds and approvals of operators that apply.")
    notices: Annotated[tuple[Notice, ...], FOR_PEOPLE] = later(
        (), "Things that expire soon or are too old."
    )
    remarks: Annotated[tuple[str, ...], FOR_PEOPLE] = later(
        (), "Remarks of queues and providers on their readings, such as retried GETs."
    )
    budgets: tuple[BudgetVerdict, ...] = ()
    limits: tuple[LimitVerdict, ...] = ()
    optimum: Optimum | None = Field(None, description="None: no machine is created for requests.")
    unknown: Annotated[tuple[str, ...], FOR_PEOPLE] = Field(
        (), description="Unreadable sources, and the changes that they prevent."
    )
    unread: tuple[str, ...] = Field(
        (), description="Queues that could not be read; `unknown` says why."
    )
    estimates: tuple[Estimate, ...] = Field((), description="Queues that were only partly read.")
    attention: Annotated[tuple[str, ...], FOR_PEOPLE] = Field(
        (), description="Problems that only an operator can fix."
    )
    rules: tuple[RulesVerdict, ...] = Field(
        (), description="Whether queues have the rules of this fleet.yaml, by place."
    )
    prices: tuple[PriceSource, ...] = later(
        (), "Which prices of each cloud are used, and their date."
    )
    warnings: Annotated[tuple[Warning_, ...], FOR_PEOPLE] = ()
    rivals: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Queues that create machines themselves, with their worker pools.",
    )
    cost_before: Rate = Decimal(0)
    cost_after: Rate = Decimal(0)
    included: Annotated[dict[str, str], FOR_PEOPLE] = Field(
        default_factory=dict,
        description="Sections and names that this plan cites, such as `tags.big`, to their "
        "included file; the others are in fleet.yaml itself.",
    )
    digests: Digests

    @property
    def cited(self) -> Iterator[tuple[str | int, ...]]:
        """Yield the paths of the keys of fleet.yaml that this plan mentions, with repeats."""
        # Many requests share one tuple of blocked pools.
        for unserved in {(u.path, id(u.blocked)): u for u in self.unserved}.values():
            yield from unserved.paths
        for signature in self.signatures:
            yield from (each.path for each in signature.refused)
            yield from (each.path for each in signature.differences)
            yield from (each.path for each in signature.ruled)
        yield from (guard.path for guard in self.guards)

    def optimum_of(self, actions: Sequence[Action]) -> Optimum | None:
        """Return the optimum with the cost of these actions; None if they serve no requests."""
        creates = [each for each in actions if isinstance(each, Create) and each.serves]
        made = [each for each in creates if not is_begun(each)]
        if self.optimum is None or not made:
            return None
        asked = self.optimum.machines + self.optimum.withheld
        figures = {
            "cost": sum((each.until_idle or Decimal(0) for each in made), Decimal(0)),
            "machines": len(made),
            "withheld": max(0, asked - len(made)),
            "assumed": sum(each.assumed for each in made),
            "unpriced": sum(each.until_idle is None for each in made),
        }
        return Optimum.model_validate(self.optimum.model_dump() | figures)

    @property
    def is_cost_known(self) -> bool:
        """Return whether the cost totals include all machines. Otherwise they are lower bounds."""
        return not any("cost" in pool.not_known for pool in self.pools)

    @property
    def zero_pools(self) -> frozenset[str]:
        """Return the pools whose `workers.max` is 0."""
        return frozenset(pool.pool for pool in self.pools if not pool.max)

    @property
    def is_refused(self) -> bool:
        """Return whether a guard refuses an action."""
        return any(guard.result == "refused" for guard in self.guards)

    @property
    def is_quiet(self) -> bool:
        """Return whether the plan has no action."""
        changes = (
            *(self.actions, self.releases, self.resumes, self.holds),
            *(self.bases, self.promotions),
        )
        return not any(changes)
