"""The status of a fleet as a value, and the tables that plan, status and pages share.

Inactive workers (machine gone, token disabled) are counted but not listed. An unreadable figure is
null, never zero.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from fleet.explain.troubles import Trouble, find_troubles
from fleet.explain.values import GivenRule, Responsible
from fleet.model.facts import BaseChange, WorkerFacts
from fleet.model.images import WaitingVersion
from fleet.model.orders import Order
from fleet.model.plan import (
    ApprovalVerdict,
    BudgetVerdict,
    Estimate,
    GuardResult,
    LimitVerdict,
    Notice,
    NotKnown,
    Plan,
    PoolDecision,
    PoolVerdict,
    Promotion,
    WorkerVerdict,
)
from fleet.model.values import Moment, Rate, Value, amount_of, later
from fleet.planner import assembly
from fleet.report.document import (
    Bar,
    Cell,
    Column,
    ColumnKind,
    Form,
    Line,
    Section,
    Style,
    StyledText,
    TableOf,
    line,
    link,
)
from fleet.schema.findings import Path, yaml_key
from fleet.words import figures as words

_MAX_SHOWN = 12
"""Maximum budgets, limits or pools without machines to draw in a terminal."""
CHANGE_MARKS = {
    "create": ("+", Style.GREEN),
    "drain": ("~", Style.YELLOW),
    "delete": ("-", Style.RED),
}
"""Mark and style of each kind of action."""

_NO_FACTS = WorkerFacts()
_FIGURES: dict[NotKnown, tuple[str, ...]] = {
    "machines": ("machines", "other", "unwanted"),
    "workers": ("busy", "idle", "starting", "draining"),
    "cost": ("cost_before", "cost_after"),
    "price": ("price",),
}
BROKEN = frozenset(
    {"deaf", "disconnected", "failed", "stopped", "never-registered", "unrecorded", "missing"}
)
"""States of workers that should work but cannot."""
_STATE_STYLES = {
    "busy": Style.GREEN,
    "starting": Style.CYAN,
    "draining": Style.YELLOW,
    "disconnected": Style.RED,
    "failed": Style.RED,
    "never-registered": Style.RED,
    "unrecorded": Style.RED,
    "missing": Style.RED,
}


class RequestsStatus(Value):
    """Requests of a queue with equal tags and priority, and the number that get a machine."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    requests: tuple[str, ...]
    count: int
    served: int = Field(description="Number of them with an existing or new worker.")
    refused: tuple[str, ...] = Field(description="Reasons of denied tags.")
    pools: tuple[str, ...] = Field(description="Pools that may serve them.")
    because: tuple[str, ...] = Field(description="Reasons why the others wait.")
    rules: tuple[GivenRule, ...] = later(
        (), "Rules of the allow-list that apply to them, with reason and contact."
    )


class PoolStatus(PoolDecision):
    """The status of a pool and its machines. An unknown figure is null."""

    machines: int | None = Field(description="Number of these machines.")
    busy: int | None
    idle: int | None
    starting: int | None
    other: int | None
    price: Rate | None
    cost_before: Rate | None
    cost_after: Rate | None
    unwanted: int | None = Field(description="Number of unwanted ones among them.")
    draining: int | None = Field(description="Number of them without new work.")


class WorkerStatus(WorkerVerdict, WorkerFacts):
    """The status of a worker: its machine, its work, and the plan's decision about the worker."""


class Status(Value):
    """Existing machines and waiting requests at the time of a plan. An unknown figure is null."""

    format: Literal["fleet-status-2"] = "fleet-status-2"
    fleet: str
    time: Moment
    currency: str
    cost_per_hour: Rate | None
    cost_per_hour_after: Rate | None
    cost_per_hour_at_least: Rate = Field(description="The known part of the cost.")
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerStatus, ...]
    unlisted: tuple[str, ...] = Field(description="Pools whose machines are unknown.")
    budgets: tuple[BudgetVerdict, ...] = Field(description="Each in its current and next period.")
    hidden: int = Field(description="Number of omitted inactive workers.")
    waiting: tuple[RequestsStatus, ...]
    unread: tuple[str, ...] = Field(description="Queues that could not be read.")
    estimates: tuple[Estimate, ...] = Field(description="Queues that were only partly read.")
    unknown: tuple[str, ...]
    attention: tuple[str, ...]
    cadence: str | None = Field(
        description="Warnings if runs are much less frequent than `cadence`."
    )
    clock: tuple[str, ...] = later(
        (), "Why `fleet apply` refuses the clock that this was worked out by."
    )
    bases: tuple[BaseChange, ...] = Field(description="Pending changes of shared resources.")
    promotions: tuple[Promotion, ...] = Field(description="Versions that the next run promotes.")
    waiting_versions: tuple[WaitingVersion, ...] = Field(
        description="Newer versions of images that some machines do not boot yet."
    )
    guards: tuple[GuardResult, ...] = Field(
        description="Actions that guards withhold, and approved ones."
    )
    approvals: tuple[ApprovalVerdict, ...]
    orders: tuple[Order, ...] = Field(
        description="Freezes, holds and approvals of operators that apply."
    )
    notices: tuple[Notice, ...] = later((), "Things that expire soon or are too old.")
    troubles: tuple[Trouble, ...] = later(
        (), "Stops and failures of pools, freezes and holds, each with the command that helps."
    )
    contact: str = later("", "Contact for questions about this fleet.")
    remarks: tuple[str, ...] = later((), "Remarks of queues and providers on their readings.")


_PLAN_FIELDS = (
    *("fleet", "time", "currency", "unread", "estimates", "unknown", "attention", "bases"),
    *("promotions", "waiting_versions", "guards", "approvals", "orders", "notices", "remarks"),
)
"""Fields that a status copies from its plan."""


def status_of(
    plan: Plan,
    facts: Mapping[str, WorkerFacts] = MappingProxyType({}),
    responsible: Responsible = Responsible(),  # noqa: B008 - a tuple, which never changes
) -> Status:
    """Return the status at the time of a plan. Workers are sorted by pool and name.

    `facts` maps a worker name to additional facts of the worker and its machine.
    """
    exists = [verdict for verdict in plan.workers if verdict.verdict != "create"]
    active = [verdict for verdict in exists if not verdict.inactive]
    pools = tuple(pool_status(pool) for pool in sorted(plan.pools, key=lambda pool: pool.pool))
    return Status(
        cost_per_hour=plan.cost_before if plan.is_cost_known else None,
        cost_per_hour_after=plan.cost_after if plan.is_cost_known else None,
        cost_per_hour_at_least=plan.cost_before,
        pools=pools,
        workers=tuple(
            WorkerStatus(**dict(facts.get(each.worker, _NO_FACTS)), **dict(each))
            for each in sorted(active, key=lambda worker: (worker.pool, worker.worker))
        ),
        unlisted=tuple(pool.pool for pool in pools if pool.machines is None),
        budgets=plan.budgets,
        hidden=len(exists) - len(active),
        waiting=_waiting(plan, responsible),
        contact=responsible.contact,
        clock=words.clock(plan),
        troubles=tuple(find_troubles(plan)),
        cadence=next((each.message for each in plan.warnings if each.rule == assembly.RULE), None),
        **{name: getattr(plan, name) for name in _PLAN_FIELDS},
    )


def pool_status(verdict: PoolVerdict) -> PoolStatus:
    """Return the status of a pool. Each unknown figure is null."""
    unknown = {name for missing in verdict.not_known for name in _FIGURES[missing]}
    fields = PoolStatus.model_fields.keys()
    return PoolStatus(**{n: None if n in unknown else getattr(verdict, n) for n in fields})


def _waiting(plan: Plan, responsible: Responsible) -> tuple[RequestsStatus, ...]:
    unserved: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for entry in plan.unserved:
        unserved.setdefault(entry.signature, []).append(entry.because)
        left[entry.signature] = left.get(entry.signature, 0) + entry.count
    return tuple(
        RequestsStatus(
            signature=signature.id,
            queue=signature.queue,
            required=signature.required,
            priority=signature.priority,
            requests=signature.requests,
            count=signature.count,
            served=max(0, signature.count - left.get(signature.id, 0)),
            refused=tuple(tag.because for tag in signature.refused),
            pools=signature.pools,
            because=tuple(unserved.get(signature.id, ())),
            rules=responsible.rules.get(signature.id, ()),
        )
        for signature in sorted(plan.signatures, key=lambda entry: -entry.priority)
    )


class Targets:
    """The pages that cells link to. A terminal has no pages."""

    def of_worker(self, worker: WorkerVerdict) -> str:  # noqa: ARG002 - for pages
        """Return the quoted path of a worker's page; empty without a page."""
        return ""

    def of_pool(self, name: str) -> str:  # noqa: ARG002 - for pages
        """Return the quoted path of a pool's page; empty without a page."""
        return ""


def count_cell(count: int | None) -> Line:
    """Return a count as a cell: dim if zero, yellow if unknown."""
    style = Style.YELLOW if count is None else Style.PLAIN if count else Style.DIM
    return (StyledText(words.figure(count), style),)


def pool_table(
    pools: Sequence[PoolStatus],
    currency: str,
    targets: Targets = Targets(),  # noqa: B008 - never changes
    *,
    why: Form = Form.FULL,
    heading: str = "",
) -> TableOf[PoolStatus]:
    """Return pools as a table. A terminal draws their reasons only if `why` is `Form.ALL`.

    The column of names has the title of the section, if no `heading` is given.
    """
    table = TableOf(pools)

    def count(name: str, number: Callable[[PoolStatus], int | None], fold: int = 0) -> None:
        table.figure(name, lambda pool: count_cell(number(pool)), fold)

    def rare(name: str, number: Callable[[PoolStatus], int | None], fold: int) -> None:
        """Add a column only if the count of a pool is not 0 or is unknown."""
        if any(number(pool) != 0 for pool in pools):
            count(name, number, fold)

    def label(pool: PoolStatus) -> Cell:
        mode = "" if pool.mode == "apply" else f" ({pool.mode})"
        return link(pool.pool + mode, targets.of_pool(pool.pool))

    table.name(heading, label)
    if why is Form.FULL:
        table.add(Column("in use", form=Form.FULL), pool_bar)
    count("busy", lambda pool: pool.busy)
    count("idle", lambda pool: pool.idle)
    count("starting", lambda pool: pool.starting, fold=4)
    rare("other", lambda pool: pool.other, fold=3)
    table.figure("max", lambda pool: str(pool.max), fold=2)
    if any(map(change_of, pools)):
        table.figure("change", change_of)
    table.figure(f"{currency}/h", lambda pool: words.hourly(pool.cost_before), fold=1)
    if any(pool.cost_after != pool.cost_before for pool in pools):
        table.figure("after", lambda pool: words.hourly(pool.cost_after))
    for name, style, text in (
        ("why this many", Style.DIM, lambda pool: pool.because),
        ("failures", Style.YELLOW, lambda pool: pool.failures),
    ):
        table.add(Column(name, ColumnKind.PROSE, style=style, form=why), text)
    quiet = [
        nth
        for nth, pool in enumerate(pools)
        if pool.machines == 0 and not change_of(pool) and pool.mode == "apply"
    ]
    return table.hide(
        quiet if len(quiet) > _MAX_SHOWN else (),
        lambda rest: f"{words.many(len(rest), 'pool')} without machines or changes",
    )


def change_of(pool: PoolDecision) -> str:
    """Return the numbers of created, drained and deleted machines of a pool, such as +2 ~1 -1."""
    counts = {"create": pool.create, "drain": pool.drain, "delete": pool.delete}
    return " ".join(f"{CHANGE_MARKS[kind][0]}{count}" for kind, count in counts.items() if count)


def pool_bar(pool: PoolStatus) -> Cell:
    """Return a bar of the machines of a pool, by state, up to the maximum of the pool."""
    counts = {"busy": pool.busy, "idle": pool.idle, "starting": pool.starting, "other": pool.other}
    if pool.machines is None:
        return ""
    if pool.busy is None:
        counts = {"other": pool.machines}
    whole = max(pool.max, sum(count or 0 for count in counts.values()), 1)
    return Bar([(kind, round(100 * count / whole, 2)) for kind, count in counts.items() if count])


def worker_table(
    status: Status,
    workers: Sequence[WorkerStatus],
    targets: Targets = Targets(),  # noqa: B008 - never changes
) -> TableOf[WorkerStatus]:
    """Return some workers of a status as a table, grouped by pool."""
    costs = iter(words.rates([amount_of(each.cost) for each in workers]))
    return (
        TableOf(workers)
        .add(Column("Pool", ColumnKind.GROUP), lambda w: link(w.pool, targets.of_pool(w.pool)))
        .name("WORKER", lambda w: link(w.worker, targets.of_worker(w)))
        .text("STATE", state_cell)
        .text("RUNS", lambda w: w.running or (words.UNKNOWN if w.state == "assumed" else "-"))
        .add(Column("Package", form=Form.FULL), lambda w: w.package or "-")
        .figure("SINCE", lambda w: words.since(w.since, status.time))
        .text("IMAGE", lambda w: w.image or "-", fold=3)
        .text("TYPE", lambda w: w.type or "-", fold=2)
        .add(Column("Location", fold=1, form=Form.FULL), lambda w: w.location or w.provider or "-")
        .figure(f"{status.currency}/h", lambda _: next(costs), fold=1)
        .add(
            Column("What happens", ColumnKind.PROSE, form=Form.FULL),
            lambda w: line(w.verdict, ": ", w.because) if w.state in BROKEN else "",
        )
    )


def state_cell(worker: WorkerVerdict) -> Line:
    """Return the state of a worker as a cell."""
    said = words.state(worker) + (", outdated" if worker.outdated else "")
    return (StyledText(said, _STATE_STYLES.get(worker.state, Style.PLAIN)),)


def find_shown_budgets(plan: Plan) -> Iterator[BudgetVerdict]:
    """Yield the budgets of the current periods, and those of coming periods that stop work."""
    blocked = {id(each.blocked): each.blocked for each in plan.unserved}.values()
    waited_for = {pool.path for pools in blocked for pool in pools}
    left_now = {each.path: amount_of(each.left) for each in plan.budgets if not each.coming}
    for budget in plan.budgets:
        left, now = amount_of(budget.left), left_now.get(budget.path)
        has_less = left is not None and now is not None and left < now
        if not budget.coming or budget.exceeded or (has_less and budget.path in waited_for):
            yield budget


def budgets_section(
    budgets: Iterable[BudgetVerdict], projected: Mapping[Path, Decimal] | None = None
) -> Section:
    """Return the budgets as a table; a terminal draws only the most used budgets.

    `projected` maps the path of each monthly budget to its amount at the end of the month.
    """
    at_end = projected or {}

    def note(budget: BudgetVerdict) -> str:
        expected = at_end.get(budget.path)
        if amount_of(budget.spent) is None:
            return "spending unknown: no new machines under this budget"
        if budget.exceeded:
            return "exceeded: no new machines under this budget, running work ends normally"
        if expected is not None and expected > budget.limit:
            return f"above the limit by {expected - budget.limit:.2f} at the end of the month"
        return words.near_limit(budget)

    def share(budget: BudgetVerdict) -> Cell:
        spent = amount_of(budget.spent)
        if spent is None:
            return words.UNKNOWN
        return share_bar(spent, budget.limit) if budget.limit else Bar((("part", 100),))

    table = (
        TableOf(budgets)
        .name("", lambda each: yaml_key(each.path))
        .text("when", lambda each: each.when)
        .figure("spent", lambda each: words.amount(each.spent))
        .figure("reserved", lambda each: words.amount(each.reserved), fold=2)
        .figure("planned", lambda each: words.amount(each.planned), fold=1)
        .figure("left", lambda each: words.amount(each.left))
        .figure("limit", lambda each: f"{words.rate(each.limit)} {each.unit}")
        .prose("note", note, Style.RED)
        .keep(
            _MAX_SHOWN,
            lambda rest: f"{words.many(len(rest), 'budget')} with more left",
            lambda each: (
                Decimal("Infinity")
                if each.exceeded or each.used is None or not each.limit
                else each.used / each.limit,
            ),
        )
    )
    if projected is not None:
        table.figure(
            "expected",
            lambda each: (
                f"{at_end[each.path]:.2f}"
                if each.path in at_end
                else words.UNKNOWN
                if each.period == "month"
                else "-"
            ),
        ).text("of the limit", share)
    return Section("Budgets", [table], "budgets")


def share_bar(part: Decimal, whole: Decimal) -> Bar:
    """Return a bar of a part of a whole. A negative part (a refund) is empty."""
    share = min(Decimal(100), 100 * max(Decimal(0), part) / whole) if whole > 0 else 0
    return Bar((("part", round(float(share), 1)),))


def limits_section(limits: Sequence[LimitVerdict]) -> Section:
    """Return the limits; a terminal draws those that requests wait for, then the most used."""
    table = (
        TableOf(limits)
        .name("", lambda each: yaml_key(each.path))
        .text("for", lambda each: "all" if each.path[-1] == "total" else each.who or words.UNKNOWN)
        .figure("in use", lambda each: str(each.in_use))
        .figure("new", lambda each: str(each.given), fold=1)
        .figure("waiting", lambda each: str(each.waiting))
        .figure("max", lambda each: str(each.limit))
        .keep(
            _MAX_SHOWN,
            lambda rest: f"{words.many(len(rest), 'limit')} with more left",
            lambda each: (bool(each.waiting), each.in_use + each.given - each.limit),
        )
    )
    return Section("Limits", [table])
