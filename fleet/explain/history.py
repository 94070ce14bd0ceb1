"""The figures that each run stores, and the recent history of a fleet.

A run has a sample before its actions; a run that creates or deletes machines has a second sample
at its end. Samples are averaged over time slots of equal length. A sample is valid until the next
sample, but at most `HOLDS` times `cadence`. Time after that is unknown, as are figures that a run
could not read. Unknown time does not count as zero.

The tallies of a run are counts and costs that are added to the sums of the month, next to the
ledger.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from heapq import nsmallest
from math import exp, log
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fleet.explain.builds import read_builds
from fleet.model.facts import Demand, Work, Worker, World
from fleet.model.history import NANO, MomentFigures, Outcome, RunSample, Tally, TallyKind
from fleet.model.plan import Action, Create, Delete, NotKnown, Plan, PoolVerdict
from fleet.model.prices import find_type
from fleet.planner.budgets import spending_limits
from fleet.planner.demand import limits_of
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool, TicketQueue, serves_queue
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import tasks_by_name
from fleet.words.limits import ROUNDING

DAYS = 7
FINE, COARSE = timedelta(minutes=30), timedelta(hours=4)
"""Slot lengths of plots and of the tables below the plots. COARSE is a multiple of FINE."""
YOUNG = timedelta(hours=12)
"""A history shorter than this gets shorter slots, so that its plots have enough steps."""
YOUNG_FINE, YOUNG_COARSE = timedelta(minutes=5), timedelta(minutes=30)
HOLDS = 3
"""Maximum validity of a sample in multiples of `cadence`. Runs have stopped after that."""


def sample_of(fleet: Fleet, plan: Plan) -> RunSample:
    """Return the figures of each pool and of the fleet before the actions of the plan."""
    unsure = {*plan.unread, *(each.queue for each in plan.estimates)}
    waiting: Counter[str] = Counter()
    for signature in plan.signatures:
        waiting.update(dict.fromkeys(signature.pools, signature.count))
    pools = {}
    for row in plan.pools:
        declared = fleet.pools.get(row.pool)
        is_sure = declared is None or not any(serves_queue(declared, queue) for queue in unsure)
        pools[row.pool] = _figures(row, waiting[row.pool] if is_sure else None)
    total = None if unsure else sum(signature.count for signature in plan.signatures)
    return RunSample(at=plan.time, fleet=_sum_pools(pools.values(), total), pools=pools)


def sample_after(
    before: RunSample, plan: Plan, actions: Iterable[Action], outcome: Outcome, at: datetime
) -> RunSample:
    """Return the figures at the end of a run, after the creations and deletions that succeeded.

    `actions` are those of the plan and of earlier runs that were under way. A machine that the
    plan already counts is not counted again.
    """
    pools = dict(before.pools)
    done = {name for stack in outcome.stacks for name in (*stack.created, *stack.deleted)}
    states = {each.worker: each.state for each in plan.workers if each.verdict != "create"}
    for action in actions:
        if action.worker not in done or action.pool not in pools:
            continue
        if isinstance(action, Create) and action.worker not in states:
            change, state, rate = 1, "starting", action.cost
        elif isinstance(action, Delete) and action.worker in states:
            change, state, rate = -1, states[action.worker], -action.saves
        else:
            continue
        column = state if state in STATES else "other"
        found = pools[action.pool]
        count = getattr(found, column)
        pools[action.pool] = found._replace(
            nanos=None if found.nanos is None else max(0, found.nanos + int(rate * NANO)),
            **{column: None if count is None else max(0, count + change)},
        )
    return RunSample(at=at, fleet=_sum_pools(pools.values(), before.fleet.waiting), pools=pools)


def _sum_pools(pools: Iterable[MomentFigures], waiting: int | None) -> MomentFigures:
    columns = list(zip(*pools, strict=True)) or [()] * len(MomentFigures._fields)
    sums = [None if None in column else sum(filter(None, column)) for column in columns]
    return MomentFigures(*sums)._replace(waiting=waiting)


def _figures(verdict: PoolVerdict, waiting: int | None) -> MomentFigures:
    def known(what: NotKnown, figure: int) -> int | None:
        return None if what in verdict.not_known else figure

    return MomentFigures(
        busy=known("workers", verdict.busy),
        idle=known("workers", verdict.idle),
        starting=known("workers", verdict.starting),
        other=known("machines", verdict.other),
        waiting=waiting,
        nanos=known("cost", int(verdict.cost_before * NANO)),
    )


STATES = ("busy", "idle", "starting", "other")
"""The machine states that the figures of past runs count."""


class Slot(NamedTuple):
    """Figures of a time slot: averages of known values, and the maximum of waiting requests.

    None if a figure is unknown in the whole slot.
    """

    start: datetime
    busy: float | None
    idle: float | None
    starting: float | None
    other: float | None
    waiting: int | None
    rate: float | None
    """Average cost per hour, in the currency of fleet.yaml."""


class SlotGrid(NamedTuple):
    """Consecutive time slots of equal length, and the maximum validity of a sample."""

    start: datetime
    length: timedelta
    slots: int
    hold: timedelta

    @property
    def end(self) -> datetime:
        """Return the end of the last slot."""
        return self.start + self.length * self.slots


def span_of(fleet: Fleet, begin: datetime, now: datetime, *, length: timedelta) -> SlotGrid:
    """Return the slots from `begin` to `now`. Each slot starts at a multiple of `length`."""
    start = begin - (begin - _ZERO) % length
    slots = -((start - now) // length)
    return SlotGrid(start, length, slots, HOLDS * timedelta(seconds=fleet.cadence))


def fold(samples: Sequence[tuple[datetime, MomentFigures]], span: SlotGrid) -> tuple[Slot, ...]:
    """Average samples over each slot. The samples are sorted by time."""
    parts = [*_split_at_slots([at for at, _ in samples], span)]
    return _fold_parts([figures for _, figures in samples], parts, span)


class _SlotPart(NamedTuple):
    """The part of a time slot in which a sample is valid."""

    slot: int
    seconds: float
    sample: int


def _fold_parts(
    figures: Sequence[MomentFigures], parts: Iterable[_SlotPart], span: SlotGrid
) -> tuple[Slot, ...]:
    sums = [[0.0] * len(MomentFigures._fields) for _ in range(span.slots)]
    known = [[0.0] * len(MomentFigures._fields) for _ in range(span.slots)]
    most: list[int | None] = [None] * span.slots
    for nth, seconds, sample in parts:
        found, total, time = figures[sample], sums[nth], known[nth]
        for column, figure in enumerate(found):
            if figure is not None:
                total[column] += seconds * figure
                time[column] += seconds
        if found.waiting is not None:
            most[nth] = max(most[nth] or 0, found.waiting)
    slots = []
    for nth, columns in enumerate(zip(sums, known, strict=True)):
        means = [total / time if time else None for total, time in zip(*columns, strict=True)]
        busy, idle, starting, other, _, nanos = means
        rate = None if nanos is None else nanos / NANO
        start = span.start + nth * span.length
        slots.append(Slot(start, busy, idle, starting, other, most[nth], rate))
    return tuple(slots)


def _split_at_slots(times: Sequence[datetime], span: SlotGrid) -> Iterator[_SlotPart]:
    """Yield the parts of slots in which samples taken at these times are valid."""
    length = span.length.total_seconds()
    for nth, at in enumerate(times):
        following = times[nth + 1] if nth + 1 < len(times) else span.end
        begin = (max(at, span.start) - span.start).total_seconds()
        end = (min(following, at + span.hold, span.end) - span.start).total_seconds()
        while begin < end:
            slot = int(begin // length)
            until = min(end, (slot + 1) * length)
            yield _SlotPart(slot, until - begin, nth)
            begin = until


@dataclass(frozen=True)
class Trend:
    """The recent figures of a pool or fleet, averaged over fine and over coarse time slots."""

    span: SlotGrid
    fine: tuple[Slot, ...]
    coarse: tuple[Slot, ...]
    step: timedelta
    """Length of a coarse slot."""
    now: MomentFigures
    """The figures at the time of the plan."""


@dataclass(frozen=True)
class FleetHistory:
    """The figures of the last days, for a fleet and for each of its pools."""

    fleet: Trend
    pools: Mapping[str, Trend]


def history_of(fleet: Fleet, plan: Plan, samples: Sequence[RunSample]) -> FleetHistory:
    """Return the figures of the last `DAYS` days before a plan. `samples` are sorted by time."""
    begin = plan.time - timedelta(days=DAYS)
    if samples:
        begin = max(begin, samples[0].at)
    is_young = plan.time - begin < YOUNG
    fine, coarse = (YOUNG_FINE, YOUNG_COARSE) if is_young else (FINE, COARSE)
    spans = [span_of(fleet, begin, plan.time, length=length) for length in (fine, coarse)]
    now = sample_of(fleet, plan)
    # The time after this plan is unknown, even in the last slot.
    times = [*(each.at for each in samples), plan.time]
    parts = [[*_split_at_slots(times, span)] for span in spans]

    def trend(figures: Iterable[MomentFigures], current: MomentFigures) -> Trend:
        every = [*figures, _ABSENT]
        slots, longer = (_fold_parts(every, *each) for each in zip(parts, spans, strict=True))
        return Trend(spans[0], slots, longer, coarse, current)

    return FleetHistory(
        fleet=trend((each.fleet for each in samples), now.fleet),
        pools={
            name: trend((each.pools.get(name, _ABSENT) for each in samples), current)
            for name, current in now.pools.items()
        },
    )


_ABSENT = MomentFigures(None, None, None, None, None, None)


_ZERO = datetime.min.replace(tzinfo=UTC)


POWERFUL, ORDINARY = "powerful", "ordinary"
FAR_BELOW = 4
"""A build needs no powerful machine if its peak is less than 1/4 of the machine's memory."""
_STEP = log(1.1)
_MOST_WAITING = 1000
_NANO = 10**9
_MAX_NAME_LENGTH = 200


def bucket_of(seconds: float) -> int:
    """Return the number of the histogram bucket for a wait. Bucket limits grow by 10%."""
    return int(log(max(0.0, seconds) + 1) / _STEP)


def most_of(bucket: int) -> int:
    """Return the longest wait in a histogram bucket, in seconds."""
    return int(exp((bucket + 1) * _STEP) - 1)


def _figure_name(path: Iterable[str | int]) -> str:
    """Return the path of a key of fleet.yaml joined with dots, such as "pools.arm.workers.max"."""
    return ".".join(map(str, path))


def limit_paths(fleet: Fleet) -> frozenset[str]:
    """Return the keys of fleet.yaml that limit the number or the cost of machines."""
    found: list[Path] = [("pools", name, "workers", "max") for name in fleet.dynamic_pools]
    found += [limit.path for limit in spending_limits(fleet)]
    tickets = {n: each for n, each in fleet.queues.items() if isinstance(each, TicketQueue)}
    limited = (("tags", fleet.tags), ("queues", tickets))
    found += [
        (section, name, "limits", *(() if of == "total" else ("per",)), of)
        for section, owners in limited
        for name, owner in owners.items()
        for of, _ in limits_of(owner.limits)
    ]
    return frozenset(map(_figure_name, found))


def tallies_of(
    fleet: Fleet, world: World, plan: Plan, waited: Mapping[str, datetime]
) -> tuple[Tally, ...]:
    """Return the counts of this run. `waited` maps requests to the start of their last wait."""
    month = f"{world.time.astimezone(ZoneInfo(fleet.money.time_zone)):%Y-%m}"

    def tally(kind: TallyKind, name: str = "", *, count: int = 1, nanos: int = 0) -> Tally:
        return Tally(
            month=month, kind=kind, name=name[:_MAX_NAME_LENGTH], count=count, nanos=nanos
        )

    given = {tag for rule in fleet.powerful for tag in rule.ask}
    found = [tally("run")]
    found += [tally("bound", path) for path in sorted(_binding_keys(plan) & limit_paths(fleet))]
    found += [tally("rule", match) for match in sorted(_matching_patterns(fleet, world))]
    running = _running(world)
    for key in sorted(waited.keys() & running.keys()):
        _, work = running[key]
        if work.started_at is None:
            found.append(tally("unseen"))
            continue
        kind = POWERFUL if given & set(work.required) else ORDINARY
        wait = bucket_of((work.started_at - waited[key]).total_seconds())
        found.append(tally("wait", f"{kind} {wait}"))
    gone = waited.keys() - running.keys() - waiting_of(world, waited).keys()
    found += [tally("unseen", count=len(gone))] if gone else []
    found += [tally(kind, package) for kind, package in _peaks(fleet, world, plan, given)]
    return (*found, *_optimum(plan, tally))


def waiting_of(world: World, waited: Mapping[str, datetime]) -> dict[str, datetime]:
    """Map each waiting request to the start of its wait. Requests of unread queues are kept.

    Only the longest waits are kept if there are too many.
    """
    running = _running(world)
    found: dict[str, datetime] = {}
    for queue, reading in world.queues.items():
        if isinstance(reading.demand, Demand):
            for request in reading.demand.requests:
                if request.pending_since is not None:
                    found[f"{queue}/{request.id}"] = request.pending_since
        else:
            ours = f"{queue}/"
            found |= {k: at for k, at in waited.items() if k.startswith(ours) and k not in running}
    return dict(nsmallest(_MOST_WAITING, found.items(), lambda each: (each[1], each[0])))


def _running(world: World) -> dict[str, tuple[Worker, Work]]:
    """Map each running request to its worker and work."""
    return {
        f"{queue}/{worker.running}": (worker, worker.work)
        for queue, reading in world.queues.items()
        for worker in (reading.workers if isinstance(reading.workers, tuple) else ())
        if worker.running and worker.work
    }


def _binding_keys(plan: Plan) -> set[str]:
    """Return the keys of fleet.yaml whose limits are exceeded or make requests wait."""
    paths = {path for each in plan.unserved for path in each.paths}
    paths |= {each.path for each in plan.budgets if each.exceeded and not each.coming}
    paths |= {e.path for e in plan.limits if e.waiting and e.in_use + e.given >= e.limit}
    return set(map(_figure_name, paths))


def _matching_patterns(fleet: Fleet, world: World) -> set[str]:
    """Return the patterns of `powerful` that match a waiting or running build."""
    recording = read_builds([world]) if fleet.powerful else None
    if recording is None:
        return set()
    rules = AllowList(fleet, world.time.date()).count_names(tasks_by_name(recording.used))
    return {fleet.powerful[index].match for index, found in rules.items() if found}


def _peaks(
    fleet: Fleet, world: World, plan: Plan, given: set[str]
) -> Iterator[tuple[TallyKind, str]]:
    """Yield ("powerful", package) per build of known memory peak; if low, also "needless"."""
    types = {each.worker: (each.pool, each.type) for each in plan.workers}
    running = _running(world)
    for queue, demand in world.demands():
        peaks = {(each.task, each.package): each.memory_mib for each in demand.history}
        for key, (worker, work) in running.items() if peaks else ():
            if not work.package or not key.startswith(f"{queue}/"):
                continue
            peak = peaks.get((work.task, work.package))
            if not peak or not given & set(work.required):
                continue
            yield "powerful", work.package
            pool, name = types.get(worker.name, ("", None))
            declared = fleet.pools.get(pool)
            if isinstance(declared, Pool) and name:
                known = find_type(fleet, declared, name)
                if known and max(peak) * FAR_BELOW < known.memory:
                    yield "needless", work.package


def _optimum(plan: Plan, tally: Callable[..., Tally]) -> Iterator[Tally]:
    """Yield the cost of new machines, and the lower bound if it is about the same machines.

    If a guard withholds machines, the bound includes them and the cost does not.
    """
    best = plan.optimum
    if best is None or not best.machines:
        return
    if best.withheld or best.model is None:
        yield tally("optimum", "withheld", nanos=_nanos(best.cost))
        return
    yield tally("optimum", "planned", nanos=_nanos(best.model))
    yield tally("optimum", "bound", nanos=_nanos(best.bound))
    if best.model > best.bound:
        yield tally("gap", best.because or ROUNDING, nanos=_nanos(best.model - best.bound))


def _nanos(amount: Decimal) -> int:
    return int(amount * _NANO)
