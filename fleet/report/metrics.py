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
from functools import partial
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

Number = float | Decimal | None
Samples = Iterable[tuple[Mapping[str, str], Number]]


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
            escaped = ((k, clean(v).replace("\\", "\\\\").replace('"', '\\"')) for k, v in pairs)
            inside = ",".join(f'{label}="{text}"' for label, text in escaped)
            number = format(value, "f") if isinstance(value, Decimal) else repr(value)
            yield f"{name}{{{inside}}} {number}\n"


def _total(number: Callable[[Plan], Number]) -> _Samples:
    """Return the single sample of a plan."""
    return lambda _, seen: [({}, number(seen.plan))]


def _label(
    label: str, numbers: Callable[[Fleet, MetricsInputs], Mapping[str, Number]]
) -> _Samples:
    """Return a sample per value of a label."""
    return lambda fleet, seen: [
        ({label: value}, number) for value, number in numbers(fleet, seen).items()
    ]


def _budgets(amount: Callable[[BudgetVerdict], Decimal | None]) -> _Samples:
    """Return the samples of each current budget. The budget of a pool is `pools.NAME.budget`."""

    def labels(budget: BudgetVerdict) -> Mapping[str, str]:
        name = ".".join(map(str, budget.path[:-1])).removeprefix("budgets.")
        return {"budget": name, "period": budget.period, "unit": budget.unit}

    return lambda _, seen: [
        (labels(each), amount(each)) for each in seen.plan.budgets if not each.coming
    ]


def _queues(number: Callable[[Plan, str], int | None]) -> _Samples:
    """Return the sample of each queue."""
    return _label(
        "queue", lambda fleet, seen: {each: number(seen.plan, each) for each in fleet.queues}
    )


def _count_requests(plan: Plan, queue: str, *, unserved: bool) -> int | None:
    own = {each.id: each.count for each in plan.signatures if each.queue == queue}
    left = sum(each.count for each in plan.unserved if each.signature in own)
    return None if queue in plan.unread else left if unserved else sum(own.values())


def _guards(number: Callable[[GuardResult], int]) -> _Samples:
    """Return the samples of each guard: the sum of its results."""

    def sums(_: Fleet, seen: MetricsInputs) -> Mapping[str, Number]:
        found = Counter[str]()
        for each in seen.plan.guards:
            found[each.guard] += number(each)
        return dict(sorted(found.items()))

    return _label("guard", sums)


def _managed_pools(fleet: Fleet, plan: Plan) -> list[PoolVerdict]:
    """Return the pools whose machines fleet creates."""
    return [each for each in plan.pools if not isinstance(fleet.pools.get(each.pool), StaticPool)]


def _expired_machines(fleet: Fleet, seen: MetricsInputs) -> Mapping[str, Number]:
    world, plan = seen.world, seen.plan
    takers, found = takers_of(fleet, world), Counter[str]()
    known = {each.pool for each in plan.pools}
    for provider, machine in world.machines():
        pool = takers.get(machine.pool, machine.pool)
        if expired_at(fleet, world, provider, machine):
            found[pool if pool in known else _OTHER_POOL] += 1
    pools = [each for each in _managed_pools(fleet, plan) if "machines" not in each.not_known]
    counts: dict[str, Number] = {each.pool: found[each.pool] for each in pools}
    return counts | {_OTHER_POOL: found[_OTHER_POOL] or None}


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


def _next_expiries(fleet: Fleet, seen: MetricsInputs) -> Mapping[str, Number]:
    today, found = seen.plan.time.date(), dict[str, Number]()
    for kind, section in (("allow-list", "powerful"), ("approval", "approvals")):
        days = [each.day for each in dated(fleet) if each.path[0] == section]
        if first := min((day for day in days if today <= day < date.max), default=None):
            end = datetime.combine(first + timedelta(days=1), time(), UTC)
            found[kind] = end.timestamp()
    return found


def _count_notices(_: Fleet, seen: MetricsInputs) -> Mapping[str, Number]:
    found = Counter(each.kind for each in seen.plan.notices)
    return {kind: found[kind] for kind in NOTICE_KINDS}


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
    "plan_timestamp_seconds": _total(lambda plan: plan.time.timestamp()),
    "pool_machines": lambda _, seen: [
        ({"pool": pool.pool, "state": state}, getattr(pool, state))
        for pool in map(pool_status, seen.plan.pools)
        for state in STATES
    ],
    "pool_machines_max": _label(
        "pool", lambda *of: {each.pool: each.max for each in _managed_pools(of[0], of[1].plan)}
    ),
    "pool_requests_waiting": _label(
        "pool",
        lambda fleet, seen: {
            pool: figures.waiting for pool, figures in sample_of(fleet, seen.plan).pools.items()
        },
    ),
    "pool_cost_per_hour": lambda _, seen: [
        ({"pool": each.pool, "currency": seen.plan.currency}, pool_status(each).cost_before)
        for each in seen.plan.pools
    ],
    "pool_machines_expired": _label("pool", _expired_machines),
    "pool_recent_attempts": _recent_attempts,
    "queue_requests_waiting": _queues(partial(_count_requests, unserved=False)),
    "queue_requests_unserved": _queues(partial(_count_requests, unserved=True)),
    "queue_unread": _queues(lambda plan, queue: int(queue in plan.unread)),
    "queue_partly_read": _queues(
        lambda plan, queue: int(queue in {each.queue for each in plan.estimates})
    ),
    "budget_spent": _budgets(lambda budget: amount_of(budget.spent)),
    "budget_reserved": _budgets(lambda budget: amount_of(budget.reserved)),
    "budget_limit": _budgets(lambda budget: budget.limit),
    "cost_per_hour": lambda _, seen: [
        (
            {"currency": seen.plan.currency},
            seen.plan.cost_before if seen.plan.is_cost_known else None,
        )
    ],
    "guard_refusals": _guards(lambda guard: guard.result == "refused"),
    "guard_withheld_actions": _guards(lambda guard: guard.withheld),
    "attention": _total(lambda plan: len(plan.attention)),
    "notices": _label("kind", _count_notices),
    "freezes": _freezes,
    "machines_held": _total(lambda plan: sum(isinstance(o, Hold) for o in plan.orders)),
    "sources_unknown": _total(lambda plan: len(plan.unknown)),
    "image_built_timestamp_seconds": _label(
        "image",
        lambda fleet, seen: {
            each.image: each.built_at.timestamp()
            for each in sorted(seen.versions, key=lambda version: version.image)
            if each.state == "current" and each.image in fleet.images
        },
    ),
    "expiry_timestamp_seconds": _label("kind", _next_expiries),
    "prices_timestamp_seconds": _label(
        "provider",
        lambda _, seen: {
            each.provider: seen.plan.time.timestamp() - each.age_seconds
            for each in seen.plan.prices
            if each.age_seconds is not None
        },
    ),
}
"""The samples of each metric of a plan, in output order."""
