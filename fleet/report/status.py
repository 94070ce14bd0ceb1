"""The status of a fleet, as a value and as text: pools, workers, waiting work, money.

Inactive workers (machine gone, token disabled) are counted but not listed. An unreadable figure is
null, never zero.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from fleet.explain.given import Responsible
from fleet.explain.troubles import Trouble, find_troubles
from fleet.explain.values import GivenRule
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
    Block,
    Cell,
    Column,
    ColumnKind,
    Form,
    Items,
    Line,
    Row,
    Section,
    Style,
    StyledText,
    Table,
    Title,
    line,
    row,
)
from fleet.schema.findings import Path, yaml_key
from fleet.words import figures as words
from fleet.words.images import describe_waiting

_MAX_SHOWN = 12
"""Maximum budgets or limits to draw in a terminal."""
_FOLDS = {"reserved": 2, "planned": 1, "new": 1}
"""Map of figures to folding ranks. A narrow terminal moves the highest below the row first."""

POOL_FIGURES = {"busy": 0, "idle": 0, "starting": 4, "other": 3}
"""Figures that plan, status and pages show of each pool: column to folding rank."""


class Targets:
    """The pages that cells link to. A terminal has no pages."""

    def of_worker(self, worker: WorkerVerdict) -> str:  # noqa: ARG002 - for pages
        """Return the quoted path of a worker's page; empty without a page."""
        return ""

    def of_pool(self, name: str) -> str:  # noqa: ARG002 - for pages
        """Return the quoted path of a pool's page; empty without a page."""
        return ""


def linked(text: str, target: str) -> Cell:
    """Return a text that links to a page; `target` is empty without a page."""
    return (StyledText(text, target=target),) if target else text


def budgets_section(
    budgets: Sequence[BudgetVerdict], projected: Mapping[Path, Decimal] | None = None
) -> Section:
    """Return the budgets as a table; a terminal draws only the most used budgets.

    `projected` maps the path of each monthly budget to its amount at the end of the month.
    """
    figures = ("spent", "reserved", "planned", "left", "limit")
    columns = [*_columns("when", figures), Column("note", ColumnKind.PROSE, style=Style.RED)]
    rows = _mark_hidden(*shown_budgets(budgets, projected=projected), "budget")
    if projected is not None:
        columns += [Column("expected", ColumnKind.FIGURE), Column("of the limit")]
        wanted = (each for each in budgets if not each.coming or each.exceeded)
        for nth, each in enumerate(wanted):
            amount = projected.get(each.path)
            missing = words.UNKNOWN if each.period == "month" else "-"
            said = missing if amount is None else f"{amount:.2f}"
            rows[nth] = rows[nth]._replace(cells=(*rows[nth].cells, said, _bar_of_budget(each)))
    return Section("Budgets", [Table(columns, rows)], "budgets")


def _bar_of_budget(budget: BudgetVerdict) -> Cell:
    spent = amount_of(budget.spent)
    if spent is None:
        return words.UNKNOWN
    return share_bar(spent, budget.limit) if budget.limit else Bar((("part", 100),))


def share_bar(part: Decimal, whole: Decimal) -> Bar:
    """Return a bar of a part of a whole. A negative part (a refund) is empty."""
    share = min(Decimal(100), 100 * max(Decimal(0), part) / whole) if whole > 0 else 0
    return Bar((("part", round(float(share), 1)),))


def _columns(second: str, figures: Sequence[str]) -> Iterator[Column]:
    """Yield the columns of a table of limits: a key of fleet.yaml, a text, and figures."""
    yield Column("", ColumnKind.NAME)
    yield Column(second)
    for each in figures:
        yield Column(each, ColumnKind.FIGURE, fold=_FOLDS.get(each, 0))


def _mark_hidden(rows: Sequence[Sequence[str]], kept: Collection[int], noun: str) -> list[Row]:
    """Return rows. A terminal draws only the rows at positions `kept` and counts the others."""
    found = [
        Row(cells, form=Form.ALL if nth in kept else Form.FULL) for nth, cells in enumerate(rows)
    ]
    if hidden := len(rows) - len(kept):
        more = f"… and {words.many(hidden, noun)} with more left"
        found.append(row(more, form=Form.BRIEF))
    return found


def shown_budgets(
    budgets: Sequence[BudgetVerdict],
    most: int = _MAX_SHOWN,
    projected: Mapping[Path, Decimal] | None = None,
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the budgets as rows, and the positions of the `most` most used budgets."""
    wanted = [each for each in budgets if not each.coming or each.exceeded]

    def use(nth: int) -> tuple[Decimal, int]:
        """Return the sort key: the used part of the limit, infinite without a known rest."""
        budget, spent = wanted[nth], amount_of(wanted[nth].spent)
        if budget.exceeded or spent is None or not budget.limit:
            return Decimal("Infinity"), -nth
        return (spent + budget.reserved + budget.planned) / budget.limit, -nth

    rows = [
        (
            yaml_key(each.path),
            each.when,
            *map(words.amount, (each.spent, each.reserved, each.planned, each.left)),
            f"{words.rate(each.limit)} {each.unit}",
            _note(each, (projected or {}).get(each.path)),
        )
        for each in wanted
    ]
    return rows, sorted(sorted(range(len(wanted)), key=use, reverse=True)[:most])


def _note(budget: BudgetVerdict, projected: Decimal | None) -> str:
    if amount_of(budget.spent) is None:
        return "spending unknown: no new machines under this budget"
    if budget.exceeded:
        return "exceeded: no new machines under this budget, running work ends normally"
    if projected is not None and projected > budget.limit:
        return f"above the limit by {projected - budget.limit:.2f} at the end of the month"
    return words.near_limit(budget)


def limits_section(limits: Sequence[LimitVerdict]) -> Section:
    """Return the limits as a table; a terminal draws only the most used limits."""
    columns = (*_columns("for", ("in use", "new", "waiting", "max")),)
    rows = _mark_hidden(*shown_limits(limits), "limit")
    return Section("Limits", [Table(columns, rows)])


def shown_limits(
    limits: Sequence[LimitVerdict], most: int = _MAX_SHOWN
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the limits as rows, and the positions of the `most` most used limits."""

    def left(nth: int) -> tuple[bool, int, int]:
        """Return the sort key: limits with waiting requests, then limits with the least left."""
        limit = limits[nth]
        return not limit.waiting, limit.limit - limit.in_use - limit.given, nth

    rows = [
        (
            yaml_key(limit.path),
            "all" if limit.path[-1] == "total" else limit.who or words.UNKNOWN,
            *map(str, (limit.in_use, limit.given, limit.waiting, limit.limit)),
        )
        for limit in limits
    ]
    return rows, sorted(sorted(range(len(limits)), key=left)[:most])


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


def status_blocks(plan: Plan) -> Iterator[Block]:
    """Yield the cost and notices of a fleet, then its pools, budgets and workers."""
    status = status_of(plan)
    waiting = sum(entry.count for entry in status.waiting)
    served = sum(entry.served for entry in status.waiting)
    demand = words.demand(waiting, served, unsure=status.unread or status.estimates)
    yield Title(
        line(StyledText(f"Fleet {status.fleet}", Style.BOLD), f" at {words.time(status.time)}")
    )
    yield Items(status.clock, StyledText("! ", Style.RED))
    yield line(_cost(status), "; ", demand, "; `fleet explain request --all`" * (served < waiting))
    for each in status.troubles:
        if each.by_order:
            yield line(
                StyledText("order: ", Style.YELLOW), f"{each.about} {each.said}; `{each.fix}`"
            )
    yield from _draw_unknown(status)
    for each in status.troubles:
        if not (each.by_order or each.reported):
            yield line(StyledText(f"{each.about}: ", Style.YELLOW), f"{each.said}; `{each.fix}`")
    yield Section("", [pool_table(status)])
    yield budgets_section(plan.budgets)
    yield Section("", [*_workers(status)])


def _cost(status: Status) -> str:
    least = status.cost_per_hour_at_least
    if status.cost_per_hour is not None:
        return f"{words.rate(status.cost_per_hour)} {status.currency}/h"
    return (
        f"at least {words.rate(least)} {status.currency}/h" if least else f"cost {words.UNKNOWN}"
    )


def _draw_unknown(status: Status) -> Iterator[Line]:
    for label, texts in (
        ("unknown", status.unknown),
        ("action required", status.attention),
        ("notice", tuple(each.said for each in status.notices)),
        ("remark", status.remarks),
    ):
        yield from (line(StyledText(f"{label}: ", Style.YELLOW), text) for text in texts)
    if status.cadence:
        yield line(StyledText("late: ", Style.YELLOW), status.cadence)
    yield from image_lines(status)
    for guard in status.guards:
        if guard.result == "refused":
            yield line(StyledText("refused: ", Style.RED), guard.because)
    for approval in status.approvals:
        used = words.used(approval)
        until = approval.by or f"until {approval.expires}"
        what = f"{approval.guard}, pool {approval.pool}, {used}, {until}"
        inert = f" ({approval.inert})" if approval.inert else ""
        yield line(StyledText("approval: ", Style.DIM), what, inert)


def image_lines(status: Status) -> Iterator[Line]:
    """Yield the versions of images that the next run promotes, and those that wait."""
    for moving in status.promotions:
        yield line(
            StyledText(f"image {moving.image}: ", Style.YELLOW),
            f"next `fleet apply`: {moving.verb} {moving.version}",
        )
    for each in status.waiting_versions:
        waiting = f"{describe_waiting(each)}; `{each.command}`"
        yield line(StyledText(f"image {each.image}: ", Style.YELLOW), waiting)


def pool_table(status: Status, targets: Targets = Targets()) -> Block:  # noqa: B008 - never changes
    """Return the pools of a status as a table."""
    if not status.pools:
        return line("No pools.")
    money = words.rates([pool.cost_before for pool in status.pools])
    columns = (
        Column("POOL", ColumnKind.NAME),
        Column("in use", form=Form.FULL),
        *(Column(name.upper(), ColumnKind.FIGURE, fold) for name, fold in POOL_FIGURES.items()),
        Column("MAX", ColumnKind.FIGURE),
        Column(f"{status.currency}/h", ColumnKind.FIGURE),
        Column("MODE"),
        Column("why this many", ColumnKind.PROSE, form=Form.FULL),
    )
    rows = [
        row(
            linked(pool.pool, targets.of_pool(pool.pool)),
            pool_bar(pool),
            *pool_figures(pool).values(),
            str(pool.max),
            rate,
            (StyledText(pool.mode, Style.PLAIN if pool.mode == "apply" else Style.YELLOW),),
            pool.because,
        )
        for pool, rate in zip(status.pools, money, strict=True)
    ]
    return Table(columns, rows)


def pool_figures(pool: PoolStatus) -> dict[str, Line]:
    """Return the cells of a pool below the columns of `POOL_FIGURES`."""
    return {
        "busy": count_cell(pool.busy),
        "idle": count_cell(pool.idle),
        "starting": count_cell(pool.starting),
        "other": count_cell(pool.other),
    }


def pool_bar(pool: PoolStatus) -> Cell:
    """Return a bar of the machines of a pool, by state, up to the maximum of the pool."""
    counts = {"busy": pool.busy, "idle": pool.idle, "starting": pool.starting, "other": pool.other}
    if pool.machines is None:
        return ""
    if pool.busy is None:
        counts = {"other": pool.machines}
    whole = max(pool.max, sum(count or 0 for count in counts.values()), 1)
    return Bar([(kind, round(100 * count / whole, 2)) for kind, count in counts.items() if count])


def count_cell(count: int | None) -> Line:
    """Return a count as a cell: dim if zero, yellow if unknown."""
    style = Style.YELLOW if count is None else Style.PLAIN if count else Style.DIM
    return (StyledText(words.figure(count), style),)


def _workers(status: Status) -> Iterator[Block]:
    if status.workers:
        yield worker_table(status, status.workers)
    elif not status.unlisted:
        more = "No workers known; what could not be read may hold some."
        yield line(more if status.unknown else "No workers.")
    if status.unlisted:
        which = words.named("pool", status.unlisted)
        yield line(StyledText(f"Workers of {which}: {words.UNKNOWN}", Style.YELLOW))
    if status.hidden:
        yield line(
            StyledText(
                f"{words.many(status.hidden, 'inactive worker')} not shown "
                "(machine gone or token disabled)",
                Style.DIM,
            )
        )


def worker_table(
    status: Status,
    workers: Sequence[WorkerStatus],
    targets: Targets = Targets(),  # noqa: B008 - never changes
) -> Table:
    """Return some workers of a status as a table, grouped by pool."""
    money = words.rates([amount_of(worker.cost) for worker in workers])
    columns = (
        Column("Pool", ColumnKind.GROUP),
        Column("WORKER", ColumnKind.NAME),
        Column("STATE"),
        Column("RUNS"),
        Column("Package", form=Form.FULL),
        Column("SINCE", ColumnKind.FIGURE),
        Column("IMAGE", fold=3),
        Column("TYPE", fold=2),
        Column("Location", fold=1, form=Form.FULL),
        Column(f"{status.currency}/h", ColumnKind.FIGURE, fold=1),
        Column("What happens", ColumnKind.PROSE, form=Form.FULL),
    )
    rows = [
        row(
            linked(worker.pool, targets.of_pool(worker.pool)),
            linked(worker.worker, targets.of_worker(worker)),
            state_cell(worker),
            worker.running or (words.UNKNOWN if worker.state == "assumed" else "-"),
            worker.package or "-",
            words.since(worker.since, status.time),
            worker.image or "-",
            worker.type or "-",
            worker.location or worker.provider or "-",
            rate,
            line(worker.verdict, ": ", worker.because) if worker.state in BROKEN else "",
        )
        for worker, rate in zip(workers, money, strict=True)
    ]
    return Table(columns, rows)


def state_cell(worker: WorkerVerdict) -> Line:
    """Return the state of a worker as a cell."""
    said = words.state(worker) + (", outdated" if worker.outdated else "")
    return (StyledText(said, _STATE_STYLES.get(worker.state, Style.PLAIN)),)
