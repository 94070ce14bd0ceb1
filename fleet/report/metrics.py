"""Render the figures of one plan and of the last run as OpenMetrics, for Prometheus.

All metrics are gauges, so that the same text is valid in Prometheus' older format, which
node_exporter's textfile collector reads. An unknown figure has no sample, because unknown is not
zero. Labels contain names of fleet.yaml and constants of fleet, never a request, worker or person.
Times are seconds since 1970; queries decide whether a limit is exceeded or near.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

from fleet.checks.limits import dated
from fleet.explain.history import STATES, sample_of
from fleet.model.facts import AttemptResult, World
from fleet.model.history import LastRun
from fleet.model.images import Version
from fleet.model.orders import Freeze, Hold
from fleet.model.plan import NOTICE_KINDS, BudgetVerdict, GuardResult, Plan, PoolVerdict
from fleet.model.values import amount_of
from fleet.planner.inventory import attempts_of, expired_at, takers_of
from fleet.report.status import pool_status
from fleet.report.terminal import clean
from fleet.schema.model import Fleet, StaticPool

RECENT = timedelta(hours=3)
"""Maximum age of a counted attempt to create a machine."""
_OTHER_POOL = "(other)"
"""Label of machines whose pool is not in the plan."""
_ALL_POOLS = "(all)"
"""Label of a freeze that applies to all pools."""
_RESULTS: tuple[AttemptResult, ...] = (
    "registered",
    "failed",
    "gone",
    "out-of-stock",
    "quota",
    "name-taken",
    "error",
)

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | Decimal | None]]


class MetricsInputs(NamedTuple):
    """The observations and the plan of one run, or of one read-only query."""

    world: World
    plan: Plan
    versions: Sequence[Version] = ()
    """All versions of images in the store."""


_Samples = Callable[[Fleet, MetricsInputs], Samples]


def metrics_to_text(
    fleet: Fleet,
    last: LastRun | None,
    seen: MetricsInputs | None = None,
    wrong_tokens: int | None = None,
) -> str:
    """Return the metrics of a fleet. Without `seen`, return only the metrics of its runs.

    `last` is None if no run has ended yet, or the store is unreadable. `wrong_tokens` is None
    outside of `fleet serve`.
    """
    families: dict[str, Samples] = {
        "cadence_seconds": [({}, fleet.cadence)],
        "last_run_timestamp_seconds": [({}, last and last.ended.timestamp())],
        "last_run_success": [({}, last and int(last.succeeded))],
    }
    if seen:
        families |= {name: samples(fleet, seen) for name, samples in _SAMPLES.items()}
    if wrong_tokens is not None:
        families["serve_wrong_tokens"] = [({}, wrong_tokens)]
    return "".join(text for each in families.items() for text in _lines(fleet, *each)) + "# EOF\n"


def _lines(fleet: Fleet, name: str, samples: Samples) -> Iterator[str]:
    help_, name = _HELP[name], f"fleet_{name}"
    yield f"# HELP {name} {help_}\n# TYPE {name} gauge\n"
    if name.endswith("_seconds"):
        yield f"# UNIT {name} seconds\n"
    for labels, value in samples:
        if value is not None:
            pairs = {"fleet": fleet.fleet, **labels}.items()
            inside = ",".join(f'{label}="{_escape(text)}"' for label, text in pairs)
            yield f"{name}{{{inside}}} {_format_value(value)}\n"


def _escape(text: str) -> str:
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


def _format_value(value: float | Decimal) -> str:
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def _budgets(amount: Callable[[BudgetVerdict], Decimal | None]) -> _Samples:
    """Return the samples of each current budget. The budget of a pool is `pools.NAME.budget`."""

    def labels(budget: BudgetVerdict) -> Labels:
        name = ".".join(map(str, budget.path[:-1])).removeprefix("budgets.")
        return {"budget": name, "period": budget.period, "unit": budget.unit}

    return lambda _, seen: [
        (labels(each), amount(each)) for each in seen.plan.budgets if not each.coming
    ]


def _count(number: Callable[[Plan], float | Decimal | None]) -> _Samples:
    """Return the single sample of a plan."""
    return lambda _, seen: [({}, number(seen.plan))]


def _queues(number: Callable[[Plan, str], int | None]) -> _Samples:
    """Return the samples of each queue."""
    return lambda fleet, seen: [
        ({"queue": each}, number(seen.plan, each)) for each in fleet.queues
    ]


def _count_waiting(plan: Plan, queue: str) -> int | None:
    waiting = sum(each.count for each in plan.signatures if each.queue == queue)
    return None if queue in plan.unread else waiting


def _count_unserved(plan: Plan, queue: str) -> int | None:
    own = {each.id for each in plan.signatures if each.queue == queue}
    unserved = sum(each.count for each in plan.unserved if each.signature in own)
    return None if queue in plan.unread else unserved


def _guards(number: Callable[[GuardResult], int]) -> _Samples:
    """Return the samples of each guard: the sum of its results."""

    def samples(_: Fleet, seen: MetricsInputs) -> Samples:
        sums = Counter[str]()
        for each in seen.plan.guards:
            sums[each.guard] += number(each)
        return [({"guard": guard}, sums[guard]) for guard in sorted(sums)]

    return samples


def _pool_machines(_: Fleet, seen: MetricsInputs) -> Samples:
    for pool in map(pool_status, seen.plan.pools):
        for state in STATES:
            yield {"pool": pool.pool, "state": state}, getattr(pool, state)


def _expired_machines(fleet: Fleet, seen: MetricsInputs) -> Samples:
    world, plan = seen.world, seen.plan
    takers, found = takers_of(fleet, world), Counter[str]()
    known = {each.pool for each in plan.pools}
    for provider, machine in world.machines():
        pool = takers.get(machine.pool, machine.pool)
        if expired_at(fleet, world, provider, machine):
            found[pool if pool in known else _OTHER_POOL] += 1
    for each in _managed_pools(fleet, plan):
        if "machines" not in each.not_known:
            yield {"pool": each.pool}, found[each.pool]
    yield {"pool": _OTHER_POOL}, found[_OTHER_POOL] or None


def _managed_pools(fleet: Fleet, plan: Plan) -> list[PoolVerdict]:
    """Return the pools whose machines fleet creates."""
    return [each for each in plan.pools if not isinstance(fleet.pools.get(each.pool), StaticPool)]


def _recent_attempts(fleet: Fleet, seen: MetricsInputs) -> Samples:
    since = seen.plan.time - RECENT
    tried = Counter(
        (each.pool, each.result) for each in attempts_of(fleet, seen.world) if each.at >= since
    )
    for pool in _managed_pools(fleet, seen.plan):
        for result in _RESULTS:
            yield {"pool": pool.pool, "result": result}, tried[pool.pool, result]


def _freezes(_: Fleet, seen: MetricsInputs) -> Samples:
    freezes = [each for each in seen.plan.orders if isinstance(each, Freeze)]
    stopped = {(each.pool or _ALL_POOLS, what) for each in freezes for what in each.stops}
    return [({"pool": pool, "stops": what}, 1) for pool, what in sorted(stopped)]


def _build_times(fleet: Fleet, seen: MetricsInputs) -> Samples:
    for each in sorted(seen.versions, key=lambda version: version.image):
        if each.state == "current" and each.image in fleet.images:
            yield {"image": each.image}, each.built_at.timestamp()


def _next_expiries(fleet: Fleet, seen: MetricsInputs) -> Samples:
    today = seen.plan.time.date()
    for kind, section in (("allow-list", "powerful"), ("approval", "approvals")):
        days = [each.day for each in dated(fleet) if each.path[0] == section]
        if first := min((day for day in days if today <= day < date.max), default=None):
            end = datetime.combine(first + timedelta(days=1), time(), UTC)
            yield {"kind": kind}, end.timestamp()


def _max_machines(fleet: Fleet, seen: MetricsInputs) -> Samples:
    return [({"pool": each.pool}, each.max) for each in _managed_pools(fleet, seen.plan)]


def _waiting_by_pool(fleet: Fleet, seen: MetricsInputs) -> Samples:
    pools = sample_of(fleet, seen.plan).pools
    return [({"pool": pool}, figures.waiting) for pool, figures in pools.items()]


def _costs(_: Fleet, seen: MetricsInputs) -> Samples:
    plan = seen.plan
    yield {"currency": plan.currency}, plan.cost_before if plan.is_cost_known else None


def _pool_costs(_: Fleet, seen: MetricsInputs) -> Samples:
    for pool in map(pool_status, seen.plan.pools):
        yield {"pool": pool.pool, "currency": seen.plan.currency}, pool.cost_before


def _notices(_: Fleet, seen: MetricsInputs) -> Samples:
    found = Counter(each.kind for each in seen.plan.notices)
    return [({"kind": kind}, found[kind]) for kind in NOTICE_KINDS]


def _price_times(_: Fleet, seen: MetricsInputs) -> Samples:
    for each in seen.plan.prices:
        if each.age_seconds is not None:
            yield {"provider": each.provider}, seen.plan.time.timestamp() - each.age_seconds


_HELP = dict(
    text.split(maxsplit=1)
    for text in """
cadence_seconds How often `fleet apply` is to run.
last_run_timestamp_seconds When the last run of `fleet apply` that came to its end did so.
last_run_success 1 if that run did all of its plan, 0 if something failed or was refused.
plan_timestamp_seconds When the world was observed that the metrics below are of.
pool_machines Machines of a pool by state; `other` machines count to the maximum and get no work.
pool_machines_max Maximum number of machines of a pool; static pools have no sample.
pool_requests_waiting Requests that wait and that a pool fits; one may count in several pools.
pool_cost_per_hour Cost per hour of the machines of a pool, in this currency.
pool_machines_expired Machines of a pool whose expiry has passed, not renewed by `fleet apply`.
pool_recent_attempts Creations of machines in the last 3 hours, by result.
queue_requests_waiting Requests that wait in a queue; if it is read partly, the known ones.
queue_requests_unserved Requests of a queue that get no machine in this run.
queue_unread 1 if a queue could not be read.
queue_partly_read 1 if a queue is too long to be read whole; scale-down is paused then.
budget_spent Spent under a budget so far. In this period and unit.
budget_reserved Expected further cost of machines. In this period and unit.
budget_limit The limit of a budget. In this period and unit.
cost_per_hour Cost per hour of all machines, in this currency.
guard_refusals Refusals of a guard in this plan.
guard_withheld_actions Actions that a guard withholds in this plan.
attention Problems that an operator must fix; `fleet status` lists them.
notices Objects that expire within 30 days or are too old, by kind.
freezes 1 while `fleet freeze` stops these actions in this pool.
machines_held Machines that `fleet hold` keeps; they get no new work and are billed.
sources_unknown How many readings failed: of queues, providers, stacks, images, or the ledger.
image_built_timestamp_seconds When the version of an image was built that machines boot.
expiry_timestamp_seconds When the next allow-list rule or the next approval loses its effect.
prices_timestamp_seconds When the prices of a provider were read; of the shipped table its date.
serve_wrong_tokens Requests with a wrong token since `fleet serve` was started.
""".strip().splitlines()
)
"""The meaning of each metric."""

_SAMPLES: Mapping[str, _Samples] = {
    "plan_timestamp_seconds": _count(lambda plan: plan.time.timestamp()),
    "pool_machines": _pool_machines,
    "pool_machines_max": _max_machines,
    "pool_requests_waiting": _waiting_by_pool,
    "pool_cost_per_hour": _pool_costs,
    "pool_machines_expired": _expired_machines,
    "pool_recent_attempts": _recent_attempts,
    "queue_requests_waiting": _queues(_count_waiting),
    "queue_requests_unserved": _queues(_count_unserved),
    "queue_unread": _queues(lambda plan, queue: int(queue in plan.unread)),
    "queue_partly_read": _queues(
        lambda plan, queue: int(queue in {each.queue for each in plan.estimates})
    ),
    "budget_spent": _budgets(lambda budget: amount_of(budget.spent)),
    "budget_reserved": _budgets(lambda budget: amount_of(budget.reserved)),
    "budget_limit": _budgets(lambda budget: budget.limit),
    "cost_per_hour": _costs,
    "guard_refusals": _guards(lambda guard: guard.result == "refused"),
    "guard_withheld_actions": _guards(lambda guard: guard.withheld),
    "attention": _count(lambda plan: len(plan.attention)),
    "notices": _notices,
    "freezes": _freezes,
    "machines_held": _count(lambda plan: sum(isinstance(o, Hold) for o in plan.orders)),
    "sources_unknown": _count(lambda plan: len(plan.unknown)),
    "image_built_timestamp_seconds": _build_times,
    "expiry_timestamp_seconds": _next_expiries,
    "prices_timestamp_seconds": _price_times,
}
"""The samples of each metric of a plan, in output order."""
