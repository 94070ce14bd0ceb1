"""Render the figures of one plan and of the last run as OpenMetrics, for Prometheus.

All metrics are gauges, so that the same text is valid in Prometheus' older format, which
node_exporter's textfile collector reads. An unknown figure has no sample, because unknown is not
zero. Labels contain names of fleet.yaml and constants of fleet, never a request, worker or person.
Times are seconds since 1970; queries decide whether a limit is exceeded or near.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

from fleet.checks.limits import dated
from fleet.explain.history import STATES, sample_of
from fleet.model.facts import AttemptResult, World
from fleet.model.history import LastRun
from fleet.model.images import Version
from fleet.model.orders import Freeze, Hold
from fleet.model.plan import NOTICE_KINDS, BudgetVerdict, Plan, PoolVerdict
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


class _Family(NamedTuple):
    """A metric with name, help and samples. A sample with the value None is left out."""

    name: str
    help: str
    samples: Samples


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
    families = [*_run_families(fleet, last), *(_plan_families(fleet, seen) if seen else ())]
    if wrong_tokens is not None:
        told = "Requests with a wrong token since `fleet serve` was started."
        families.append(_Family("fleet_serve_wrong_tokens", told, _single_sample(wrong_tokens)))
    return "".join(line for each in families for line in _lines(fleet.fleet, each)) + "# EOF\n"


def _lines(fleet: str, family: _Family) -> Iterator[str]:
    name = family.name
    yield f"# HELP {name} {family.help}\n# TYPE {name} gauge\n"
    if name.endswith("_seconds"):
        yield f"# UNIT {name} seconds\n"
    for labels, value in family.samples:
        if value is not None:
            told = {"fleet": fleet, **labels}.items()
            inside = ",".join(f'{label}="{_escape(text)}"' for label, text in told)
            yield f"{name}{{{inside}}} {_format_value(value)}\n"


def _escape(text: str) -> str:
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


def _format_value(value: float | Decimal) -> str:
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def _single_sample(value: float | Decimal | None) -> Samples:
    return [({}, value)]


def _run_families(fleet: Fleet, last: LastRun | None) -> Iterator[_Family]:
    yield _Family(
        "fleet_cadence_seconds",
        "How often `fleet apply` is to run.",
        _single_sample(fleet.cadence),
    )
    yield _Family(
        "fleet_last_run_timestamp_seconds",
        "When the last run of `fleet apply` that came to its end did so.",
        _single_sample(last and last.ended.timestamp()),
    )
    yield _Family(
        "fleet_last_run_success",
        "1 if that run did all of its plan, 0 if something failed or was refused.",
        _single_sample(last and int(last.succeeded)),
    )


def _plan_families(fleet: Fleet, seen: MetricsInputs) -> Iterator[_Family]:
    plan = seen.plan
    yield _Family(
        "fleet_plan_timestamp_seconds",
        "When the world was observed that the metrics below are of.",
        _single_sample(plan.time.timestamp()),
    )
    yield from _pool_families(fleet, seen)
    yield from _queue_families(fleet, plan)
    now = [each for each in plan.budgets if not each.coming]
    for name, said, amounts in (
        ("spent", "Spent under a budget so far.", [amount_of(b.spent) for b in now]),
        ("reserved", "Expected further cost of machines.", [b.reserved for b in now]),
        ("limit", "The limit of a budget.", [b.limit for b in now]),
    ):
        yield _Family(
            f"fleet_budget_{name}",
            f"{said} In this period and unit.",
            [(_budget(each), amount) for each, amount in zip(now, amounts, strict=True)],
        )
    yield _Family(
        "fleet_cost_per_hour",
        "Cost per hour of all machines, in this currency.",
        [({"currency": plan.currency}, plan.cost_before if plan.is_cost_known else None)],
    )
    yield from _trouble_families(plan)
    current = [each for each in seen.versions if each.state == "current"]
    yield _Family(
        "fleet_image_built_timestamp_seconds",
        "When the version of an image was built that machines boot.",
        [
            ({"image": each.image}, each.built_at.timestamp())
            for each in sorted(current, key=lambda version: version.image)
            if each.image in fleet.images
        ],
    )
    yield _Family(
        "fleet_expiry_timestamp_seconds",
        "When the next one of these loses its effect: rules of the allow-list, approvals.",
        _next_expiries(fleet, seen.plan.time.date()),
    )
    yield _Family(
        "fleet_prices_timestamp_seconds",
        "When the prices of a provider were read; of the shipped table its date.",
        [
            ({"provider": each.provider}, seen.plan.time.timestamp() - each.age_seconds)
            for each in seen.plan.prices
            if each.age_seconds is not None
        ],
    )


def _pool_families(fleet: Fleet, seen: MetricsInputs) -> Iterator[_Family]:
    plan = seen.plan
    status = [pool_status(each) for each in plan.pools]
    sample = sample_of(fleet, plan)
    yield _Family(
        "fleet_pool_machines",
        "Machines of a pool by state; `other` machines count to the maximum and get no work.",
        [
            ({"pool": each.pool, "state": state}, getattr(each, state))
            for each in status
            for state in STATES
        ],
    )
    yield _Family(
        "fleet_pool_machines_max",
        "Maximum number of machines of a pool; static pools have no sample.",
        [({"pool": each.pool}, each.max) for each in plan.pools if _is_managed(fleet, each)],
    )
    yield _Family(
        "fleet_pool_requests_waiting",
        "Requests that wait and that a pool fits; one may count in several pools.",
        [({"pool": pool}, figures.waiting) for pool, figures in sample.pools.items()],
    )
    yield _Family(
        "fleet_pool_cost_per_hour",
        "Cost per hour of the machines of a pool, in this currency.",
        [({"pool": each.pool, "currency": plan.currency}, each.cost_before) for each in status],
    )
    yield _Family(
        "fleet_pool_machines_expired",
        "Machines of a pool whose expiry has passed, not renewed by `fleet apply`.",
        _expired_samples(fleet, seen),
    )
    yield _Family(
        "fleet_pool_recent_attempts",
        "Creations of machines in the last 3 hours, by result.",
        _attempts(fleet, seen),
    )


def _expired_samples(fleet: Fleet, seen: MetricsInputs) -> Samples:
    world, plan = seen.world, seen.plan
    takers, found = takers_of(fleet, world), Counter[str]()
    known = {each.pool for each in plan.pools}
    for provider, machine in world.machines():
        pool = takers.get(machine.pool, machine.pool)
        if expired_at(fleet, world, provider, machine):
            found[pool if pool in known else _OTHER_POOL] += 1
    for each in plan.pools:
        if _is_managed(fleet, each) and "machines" not in each.not_known:
            yield {"pool": each.pool}, found[each.pool]
    yield {"pool": _OTHER_POOL}, found[_OTHER_POOL] or None


def _is_managed(fleet: Fleet, pool: PoolVerdict) -> bool:
    """Return whether fleet creates the machines of a pool."""
    return not isinstance(fleet.pools.get(pool.pool), StaticPool)


def _attempts(fleet: Fleet, seen: MetricsInputs) -> Samples:
    since = seen.plan.time - RECENT
    tried = Counter(
        (each.pool, each.result) for each in attempts_of(fleet, seen.world) if each.at >= since
    )
    for pool in seen.plan.pools:
        if _is_managed(fleet, pool):
            for result in _RESULTS:
                yield {"pool": pool.pool, "result": result}, tried[pool.pool, result]


def _queue_families(fleet: Fleet, plan: Plan) -> Iterator[_Family]:
    unread, partly = set(plan.unread), {each.queue for each in plan.estimates}
    queues = {each.id: each.queue for each in plan.signatures}
    waiting, unserved = Counter[str](), Counter[str]()
    for signature in plan.signatures:
        waiting[signature.queue] += signature.count
    for each in plan.unserved:
        unserved[queues.get(each.signature, "")] += each.count

    def known(counts: Mapping[str, int]) -> Samples:
        return [({"queue": each}, counts[each]) for each in fleet.queues if each not in unread]

    yield _Family(
        "fleet_queue_requests_waiting",
        "Requests that wait in a queue; of one that is read partly, those that are known.",
        known(waiting),
    )
    yield _Family(
        "fleet_queue_requests_unserved",
        "Requests of a queue that get no machine in this run.",
        known(unserved),
    )
    yield _Family(
        "fleet_queue_unread",
        "1 if a queue could not be read.",
        [({"queue": each}, int(each in unread)) for each in fleet.queues],
    )
    yield _Family(
        "fleet_queue_partly_read",
        "1 if a queue is too long to be read whole; scale-down is paused then.",
        [({"queue": each}, int(each in partly)) for each in fleet.queues],
    )


def _budget(verdict: BudgetVerdict) -> Labels:
    """Return the labels of a budget. The budget of a pool is named `pools.NAME.budget`."""
    *section, _ = verdict.path
    name = ".".join(map(str, section)).removeprefix("budgets.")
    return {"budget": name, "period": verdict.period, "unit": verdict.unit}


def _trouble_families(plan: Plan) -> Iterator[_Family]:
    guards = sorted({each.guard for each in plan.guards})
    refused = Counter(each.guard for each in plan.guards if each.result == "refused")
    withheld = Counter[str]()
    for each in plan.guards:
        withheld[each.guard] += each.withheld
    yield _Family(
        "fleet_guard_refusals",
        "Refusals of a guard in this plan.",
        [({"guard": guard}, refused[guard]) for guard in guards],
    )
    yield _Family(
        "fleet_guard_withheld_actions",
        "Actions that a guard withholds in this plan.",
        [({"guard": guard}, withheld[guard]) for guard in guards],
    )
    yield _Family(
        "fleet_attention",
        "Problems that an operator must fix; `fleet status` lists them.",
        _single_sample(len(plan.attention)),
    )
    noticed = Counter(each.kind for each in plan.notices)
    yield _Family(
        "fleet_notices",
        "Objects that expire within 30 days or are too old, by kind.",
        [({"kind": kind}, noticed[kind]) for kind in NOTICE_KINDS],
    )
    yield _Family(
        "fleet_freezes",
        "1 while `fleet freeze` stops these actions in this pool.",
        [
            ({"pool": pool, "stops": what}, 1)
            for pool, what in sorted(
                {
                    (each.pool or _ALL_POOLS, what)
                    for each in plan.orders
                    if isinstance(each, Freeze)
                    for what in each.stops
                }
            )
        ],
    )
    yield _Family(
        "fleet_machines_held",
        "Machines that `fleet hold` keeps; they get no new work and are billed.",
        _single_sample(sum(isinstance(each, Hold) for each in plan.orders)),
    )
    yield _Family(
        "fleet_sources_unknown",
        "How many readings failed: of queues, providers, stacks, images, or the ledger.",
        _single_sample(len(plan.unknown)),
    )


def _next_expiries(fleet: Fleet, today: date) -> Samples:
    for kind, section in (("allow-list", "powerful"), ("approval", "approvals")):
        days = [each.day for each in dated(fleet) if each.path[0] == section]
        first = min((day for day in days if today <= day < date.max), default=None)
        yield (
            {"kind": kind},
            None
            if first is None
            else datetime.combine(first + timedelta(days=1), time(), UTC).timestamp(),
        )
