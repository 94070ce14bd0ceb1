"""Group workers into supplies, assign requests to workers, and list the machines to create.

The requests of each place are assigned to its workers in service order (list scheduling): the next
request is assigned to the worker with the earliest expected finish.

Each unserved request gets a reason and the key of fleet.yaml that decides it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache, partial
from heapq import heapreplace
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from fleet.model.decisions import (
    NO_FIGURES,
    Decision,
    DecisionFigures,
    NoMachineReason,
    Served,
    Unfit,
)
from fleet.model.facts import Worker, WorkerInputs, WorkerState, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Blocked, BudgetVerdict, Cause, LimitVerdict, Reason, Unserved
from fleet.model.values import amount_of
from fleet.planner.allocation import Allocation, Proof
from fleet.planner.assignment import Stop
from fleet.planner.begin import PoolPlans
from fleet.planner.demand import EqualRequests, LimitRow, Ordered, Path, Place, Rank, Supply
from fleet.planner.durations import USUAL, kind_at
from fleet.planner.fitting import FitRequirements, find_unfit, fitting, held_by, held_tags
from fleet.planner.images import Unproven, find_unproven
from fleet.planner.machine_inputs import Closure, new_inputs
from fleet.planner.pool_plan import PoolPlan, Why, is_going
from fleet.planner.units import UnitState, is_busy
from fleet.schema.model import Fleet, StaticPool, TicketQueue, serves_queue
from fleet.tagrules.derive import is_about_environments
from fleet.tagrules.offers import (
    Nearness,
    Offer,
    offer_of_pool,
    offer_of_worker,
)
from fleet.tagrules.vocabulary import asking_key
from fleet.words import limits as words
from fleet.words import lives, pools


def find_supplies(fleet: Fleet, world: World, pool_plans: PoolPlans) -> dict[str, Supply]:
    """Return the future workers of each pool, and its existing workers grouped by offer.

    Existing workers are those that can take a request; with `target_wait`, also busy workers.
    Machines whose payer counts against other budgets form a separate group, because their work
    costs that payer more.
    """
    queues = frozenset(world.queues)
    counted_by = pool_plans.books.find_counting_budgets() if pool_plans.books else {}
    supplies = {}
    for name, pool in sorted(fleet.pools.items()):
        served = frozenset(queue for queue in queues if serves_queue(pool, queue))
        if isinstance(pool, StaticPool):
            images: Iterable[ImageVersion] = world.versions
            offer = offer_of_pool(fleet, name, images)
            found: Iterable[tuple[str, Worker | None]] = _static_workers(world, pool)
        else:
            pool_plan = pool_plans[name]
            images, offer = pool_plan.choice.images, pool_plan.offer
            may_wait = pool_plan.pool is not None and pool_plan.pool.target_wait is not None
            # Workers that cannot be observed now may start work soon: do not replace them.
            unseen = [unit for unit in pool_plan.inventory.unseen if not is_going(unit)]
            found = [
                (unit.name, unit.worker)
                for unit in (*pool_plan.staying, *unseen)
                if unit.is_capacity or (may_wait and unit.state is UnitState.BUSY)
            ]
            found += [
                (each, None) for each in islice(pool_plan.names, pool_plan.inventory.uncounted)
            ]
        counted = [(each, worker, counted_by.get((name, each), ())) for each, worker in found]
        groups = _group_by_offer(fleet, images, name, offer, counted)
        groups.setdefault((offer, ()), [])
        for number, ((offered, budgets), units) in enumerate(groups.items()):
            key = name if offered == offer and not budgets else f"{name}~{number}"
            supplies[key] = Supply(name, served, offered, tuple(units))
    return supplies


def _group_by_offer(
    fleet: Fleet,
    images: Iterable[ImageVersion],
    pool: str,
    default: Offer,
    workers: Iterable[tuple[str, Worker | None, tuple[str, ...]]],
) -> dict[tuple[Offer, tuple[str, ...]], list[str]]:
    """Group workers by their offer and by the budgets that count their payer.

    The offer is the tags that the worker reports; without these, the offer of the pool.
    """
    offers: dict[tuple[tuple[str, ...], ...], Offer] = {}
    groups: dict[tuple[Offer, tuple[str, ...]], list[str]] = {}
    reported = [
        ((worker.provides, worker.requires) if worker else (), budgets, name, worker)
        for name, worker, budgets in workers
    ]
    for tags, budgets, name, worker in sorted(reported, key=itemgetter(0, 1, 2)):
        if tags not in offers and worker is not None and worker.provides:
            offers[tags] = offer_of_worker(fleet, pool, images, worker)
        elif tags not in offers:
            # A worker that reports only `requires` provides the tags of its pool.
            requires = worker.requires if worker else ()
            offers[tags] = default._replace(requires=default.requires | set(requires))
        groups.setdefault((offers[tags], budgets), []).append(name)
    return groups


def _static_workers(world: World, pool: StaticPool) -> list[tuple[str, Worker]]:
    """Return the workers of a static pool that are idle in every queue that lists them."""
    names = frozenset(pool.static)
    found: dict[str, Worker] = {}
    taken: set[str] = set()
    for queue, reading in sorted(world.queues.items()):
        if isinstance(reading.workers, tuple) and serves_queue(pool, queue):
            for worker in reading.workers:
                if worker.name in names:
                    found.setdefault(worker.name, worker)
                    if is_busy(worker) or worker.draining or worker.state is not WorkerState.IDLE:
                        taken.add(worker.name)
    return [(name, worker) for name, worker in found.items() if name not in taken]


_Load = list[tuple[Rank, Ordered]]
"""The requests assigned to one worker, in service order."""


@dataclass
class Service:
    """The assignment of requests to existing and new workers, and its limits and cost."""

    demand: Sequence[EqualRequests] = ()
    by_worker: dict[str, str] = field(default_factory=dict)
    """Request to the existing worker that is planned for it."""
    unserved: Mapping[str, tuple[Stop, ...]] = field(default_factory=dict)
    turns: int = 0
    """Number of machines that are created for requests."""
    budgets: tuple[BudgetVerdict, ...] = ()
    """The usage of each budget."""
    limits: tuple[LimitVerdict, ...] = ()
    """The usage of each limit on tags and queues."""
    proof: Proof = field(default_factory=Proof)
    """The cost of the new machines, and its lower bound."""


def staff(
    pool_plans: Mapping[str, PoolPlan],
    supplies: Mapping[str, Supply],
    places: Mapping[str, Place],
    demand: Sequence[EqualRequests],
    allocation: Allocation,
) -> Service:
    """Assign requests to existing workers, and create machines for the other served requests."""
    service = Service(demand, unserved=allocation.unserved)
    owner = {
        unit.name: pool_plan
        for pool_plan in pool_plans.values()
        for unit in (*pool_plan.inventory.units, *pool_plan.inventory.unseen)
    }
    busy = {
        unit.name
        for pool_plan in pool_plans.values()
        for unit in pool_plan.inventory.having(UnitState.BUSY)
    }
    loads: list[tuple[str, _Load]] = []
    for key, served in sorted(allocation.served.items()):
        if places[key].makes:
            own = _distribute(served, allocation.machines.get(key, 0), places[key])
            loads += ((key, load) for load in own if load)
            continue
        # Idle workers are sorted before busy workers.
        units = sorted(supplies[key].units, key=lambda name: (name in busy, name))
        for unit, load in zip(units, _distribute(served, len(units), places[key]), strict=True):
            service.by_worker |= {request.key: unit for _, request in load}
            if load and unit in owner:
                owner[unit].used[unit] = load[0][1].key
                owner[unit].served += len(load)
    loads.sort(key=lambda each: each[1][0])
    options = {each.key: each for own in pool_plans.values() for each in own.options}
    made: dict[tuple[str, str], WorkerInputs] = {}
    # Cached because many machines have an equal bill.
    billed = cache(lambda key, seconds: places[key].billed(seconds))
    for turn, (key, load) in enumerate(loads, start=1):
        place = places[key]
        pool_plan = pool_plans[place.pool]
        worker = next(pool_plan.names)
        way = pool_plan.next_way(options[key])
        alike = (key, way.image)
        if alike not in made:
            made[alike] = new_inputs(pool_plan.fleet, way, worker)
        labels = made[alike].labels | {"worker": worker}
        keys, known = tuple([request.key for _, request in load]), _known_durations(load, place)
        assumed, because = known.count(None), lives.explain_requests(keys[0], len(keys) - 1)
        until_idle = billed(key, sum(filter(None, known)) + assumed * USUAL)
        reason, cause = Reason.REQUESTS_WAIT, Cause.DEMAND
        why = Why(reason, cause, because, keys, turn, until_idle, assumed)
        pool_plan.create(made[alike].altered(name=worker, labels=labels), why)
        pool_plan.served += len(load)
    service.turns = len(loads)
    _note_unserved(pool_plans, places, allocation)
    return service


def _note_unserved(
    pool_plans: Mapping[str, PoolPlan], places: Mapping[str, Place], allocation: Allocation
) -> None:
    """Record which pools limits block, and how many requests only `workers.max` blocks."""
    waiting = Counter(map(id, allocation.unserved.values()))
    for known, stops in _index_by_id(allocation.unserved.values()).items():
        for stop in stops:
            if stop.rows:
                pool_plan = pool_plans[places[stop.place].pool]
                pool_plan.awaited = True
                if is_blocked_by_max(stop, pool_plan.name):
                    pool_plan.blocked_by_max += waiting[known]


def is_blocked_by_max(stop: Stop, pool: str) -> bool:
    """Return True if only `workers.max` of this pool blocks a request."""
    room = ("pools", pool, "workers", "max")
    return bool(stop.rows) and all(row.path == room for row in stop.rows)


def _index_by_id(stopped: Collection[tuple[Stop, ...]]) -> dict[int, tuple[Stop, ...]]:
    """Map the `id()` of each stop tuple to the tuple. The tuples are shared and slow to hash."""
    return dict(zip(map(id, stopped), stopped, strict=True))


def _distribute(served: Sequence[tuple[Rank, Ordered]], workers: int, place: Place) -> list[_Load]:
    """Assign each request to the worker that is free first; return the load per worker."""
    loads: list[_Load] = [[] for _ in range(workers)]
    if len(served) <= workers:
        for load, each in zip(loads, served, strict=False):
            load.append(each)
        return loads
    # One integer per worker: the time when it is free, times `workers`, plus its number.
    free, known = [*range(workers)], _known_durations(served, place)
    for each, seconds in zip(served, known, strict=True) if workers else ():
        first = free[0]
        loads[first % workers].append(each)
        heapreplace(free, first + workers * max(1, USUAL if seconds is None else seconds))
    return loads


def _known_durations(requests: Iterable[tuple[Rank, Ordered]], place: Place) -> list[int | None]:
    """Return the expected seconds of each request at a place, or None if unknown."""
    kinds = place.kinds
    return [each.seconds_on(*kinds) if each.timing else each.seconds for _, each in requests]


def find_unserved(
    fleet: Fleet,
    world: World,
    pool_plans: Mapping[str, PoolPlan],
    service: Service,
) -> Iterator[Unserved]:
    """Yield the requests that get no machine in this run, grouped by signature and cause."""
    if not service.unserved:
        return
    own = {
        name: pool_plan.offer
        for name, pool_plan in pool_plans.items()
        if pool_plan.pool is not None
    }
    offers = {
        name: own.get(name) or offer_of_pool(fleet, name, world.versions)
        for name in sorted(fleet.pools)
    }

    @cache
    def near(queue: str) -> Nearness:
        served = {
            name: offer for name, offer in offers.items() if serves_queue(fleet.pools[name], queue)
        }
        about, rests_on = ("near", queue), tuple(served.values())
        return fleet.cached(about, rests_on, lambda: Nearness(served))

    # The nearest pool depends only on the requirements, not on the priority.
    unproven = find_unproven(fleet, world)
    nearest = cache(lambda asked: _find_nearest(fleet, unproven, near(asked.queue), asked))
    stops_of = _index_by_id(service.unserved.values())
    # Plain tuples hash without a Python-level call per stop.
    first: dict[tuple[tuple[str, tuple[LimitRow, ...], tuple[bool, ...]], ...], int] = {}
    numbers = {
        known: first.setdefault(tuple(map(_said, stops)), known)
        for known, stops in stops_of.items()
    }
    stopped_by = cache(partial(_stopped_by, used_of(service.budgets)))

    # Cached because one limit blocks many requests.
    @cache
    def stopped_at(pools: tuple[str, ...], number: int) -> tuple[_Stopped, ...]:
        return tuple(_find_blocked(pool_plans, pools, stops_of[number], stopped_by))

    cause_of = cache(lambda pools, number: _join_stopped(stopped_at(pools, number)))
    for signed in service.demand:
        groups = _group_by_stops(signed, service.unserved, numbers)
        for (number, seconds), waiting in groups.items():
            pools = signed.creating_pools
            late = tuple(_find_late_pools(fleet, pool_plans, signed, seconds))
            cause = cause_of(pools, number)
            if late:
                dropped = {each.blocked.pool for each in late}
                others = (e for e in stopped_at(pools, number) if e.blocked.pool not in dropped)
                cause = _join_stopped((*others, *late))
            if not cause.blocked:
                asked = FitRequirements(signed.queue, signed.ask, signed.dropped)
                cause = _explain_held(fleet, signed) or nearest(asked)
            # Skip validation, so that requests with equal causes share the objects.
            yield cause.altered(signature=signed.id, requests=tuple(waiting), count=len(waiting))


def _group_by_stops(
    signed: EqualRequests, unserved: Mapping[str, tuple[Stop, ...]], numbers: Mapping[int, int]
) -> Mapping[tuple[int, int | None], list[str]]:
    """Return the unserved requests of a signature by stops (their number) and duration.

    The duration matters only with a deadline; otherwise it is None.
    """
    keys = [request.key for request in signed.requests]
    groups: defaultdict[tuple[int, int | None], list[str]] = defaultdict(list)
    if unserved.keys().isdisjoint(keys):
        return groups
    has_end = signed.timing is not None and signed.timing.deadline is not None
    seconds_of = [request.seconds if has_end else None for request in signed.requests]
    # Consecutive requests usually have the same cause.
    alike = groupby(zip(map(unserved.get, keys), seconds_of, keys, strict=True), itemgetter(0, 1))
    for (stops, seconds), each in alike:
        if stops is not None:
            groups[numbers[id(stops)], seconds] += [key for _, _, key in each]
    return groups


_NO_CAUSE = Unserved(signature="", requests=(), count=0, because="", path=(), blocked=())


def _find_late_pools(
    fleet: Fleet, pool_plans: Mapping[str, PoolPlan], signed: EqualRequests, seconds: int | None
) -> Iterator["_Stopped"]:
    """Yield the pools whose machines would finish a request after its deadline."""
    timing = signed.timing
    if timing is None or timing.deadline is None or seconds is None:
        return
    own = timing.own_deadline
    path = () if own else ("queues", signed.queue, "deadline")
    for pool in signed.creating_pools:
        pool_plan = pool_plans.get(pool)
        kinds = [kind_at(fleet, pool, way.type) for way in pool_plan.options] if pool_plan else []
        if kinds and all(timing.is_late([kind], seconds) for kind in kinds):
            fastest = min(timing.on(kind, seconds) or 0 for kind in kinds)
            message = words.explain_late(fastest, "" if own else signed.queue, timing.deadline)
            because = words.add_pool(pool, message)
            blocked = Blocked(pool=pool, because=because, path=path, code="late")
            yield _Stopped(blocked, NoMachineReason.DEADLINE, message)


_said = attrgetter("place", "rows", "above")


class _Stopped(NamedTuple):
    """A pool that a limit prevents from creating a machine; `room` is the slack of the limit."""

    blocked: Blocked
    code: NoMachineReason
    message: str
    """The reason in words, without the name of the pool."""
    room: Decimal | None = None

    @property
    def what(self) -> tuple[Path, str]:
        """Return the identity of the cause: the path of a limit, or the path and sentence."""
        return self.blocked.path, self.blocked.because if self.room is None else ""


def _find_blocked(
    pool_plans: Mapping[str, PoolPlan],
    pools: Iterable[str],
    stops: Sequence[Stop],
    stopped_by: Callable[[str, LimitRow, str, bool], _Stopped],
) -> Iterator[_Stopped]:
    """Yield, per fitting pool, the reasons why it creates no further machine."""
    rows = {stop.place: [*zip(stop.rows, stop.above, strict=True)] for stop in stops}
    free: defaultdict[str, list[str]] = defaultdict(list)
    for place in sorted(rows):
        free[place.partition("~")[0]].append(place)
    for pool in pools:
        pool_plan = pool_plans.get(pool)
        if pool_plan is None:
            continue
        if pool_plan.closed:
            message = words.explain_closed(pool_plan.closed.reason)
            yield _close_pool(pool, message, pool_plan.closed)
            continue
        for option in pool_plan.options:
            # A limit on numbers that stops the same machine type on another, open market would
            # stop the closed market too. A budget may allow the cheaper market.
            if option.closed and not any(
                row.code is not NoMachineReason.BUDGET
                for each in pool_plan.options
                if each.type == option.type and not each.closed
                for row, _ in rows.get(each.key, ())
            ):
                name = f"{option.type} (spot)" if option.market == "spot" else option.type
                message = words.explain_closed_type(name, option.closed.reason)
                yield _close_pool(pool, message, option.closed)
            for row, is_above in rows.get(option.key, ()):
                yield stopped_by(pool, row, option.key, is_above)
        for place in free[pool]:
            # A machine is idle at this place, but a limit blocks the request.
            for row, is_above in rows[place]:
                yield stopped_by(pool, row, place, is_above)


def _close_pool(pool: str, message: str, by: Closure) -> _Stopped:
    because = words.add_pool(pool, message)
    blocked = Blocked(pool=pool, because=because, path=by.path, code="closed", until=by.until)
    code = NoMachineReason.UNPUBLISHED if by.unpublished else NoMachineReason.CLOSED
    return _Stopped(blocked, code, message)


Used = Mapping[tuple[Path, str], BudgetVerdict]
"""Budget decisions by the path and the period of the budget."""


def used_of(budgets: Iterable[BudgetVerdict]) -> Used:
    """Map (path, period) of each budget with known usage to the decision about the budget."""
    return {
        (budget.path, budget.when): budget
        for budget in budgets
        if amount_of(budget.spent) is not None
    }


def why_stopped(row: LimitRow, need: Decimal, what: str, used: Used) -> str:
    """Return why a limit forbids `need` more for `what`; if it is a budget, also its use."""
    budget = used.get((row.path, row.when))
    if budget is None:
        return row.sentence
    of_pool = row.path[:2] != ("budgets", budget.budget)
    return words.explain_used_budget(budget, need, what, of_pool=of_pool)


def _stopped_by(used: Used, pool: str, row: LimitRow, place: str, is_above: bool) -> _Stopped:  # noqa: FBT001 - one position per cached value
    """Return the pool that a limit blocks at a place, with the slack of that limit."""
    machine = row.machines.get(place, Decimal(0))
    need = machine + row.least.get(place, Decimal(0))
    if is_above:
        amounts = (machine + each for (_, at), each in row.requests.items() if at == place)
        need = min(filter(row.is_below, amounts), default=machine)
    because = why_stopped(row, need, "request", used)
    budget = used.get((row.path, row.when))
    left = (amount_of(budget.left) if budget else None) or Decimal(0)
    blocked = Blocked(
        pool=pool,
        because=because,
        path=row.path,
        needed=need,
        left=None if row.over is None else left,
        unit=row.unit,
        until=None if is_above else row.until,  # the next period does not pay for it either
    )
    return _Stopped(blocked, row.code, row.because if row.pool else because, row.room)


def _join_stopped(found: Sequence[_Stopped]) -> Unserved:
    """Return the reason why requests wait: these pools, their limits and the joined sentences.

    A limit with equal slack in two periods counts once. If its slack differs, the sentence is
    about the period with less slack.
    """
    if not found:
        return _NO_CAUSE
    kept: dict[tuple[object, ...], _Stopped] = {}
    tightest: dict[tuple[Path, str], _Stopped] = {}
    for each in found:
        kept.setdefault((each.blocked.pool, each.what, each.room), each)
        known = tightest.setdefault(each.what, each)
        if each.room is not None and known.room is not None and each.room < known.room:
            tightest[each.what] = each
    return _NO_CAUSE.altered(
        because=lives.join(*dict.fromkeys(each.blocked.because for each in tightest.values())),
        path=found[0].blocked.path,
        blocked=tuple(each.blocked for each in kept.values()),
        decisions=tuple(_join_pools(kept.values())),
    )


def _join_pools(found: Iterable[_Stopped]) -> Iterator[Decision]:
    """Yield one decision per group of pools with the same code, key and figures.

    Pools that are each blocked by their own budget form one group without figures, because 400
    pools rarely have equal budgets. `blocked` has these figures.
    """
    classes: defaultdict[tuple[object, ...], list[_Stopped]] = defaultdict(list)
    for each in found:
        one = each.blocked
        shared = (one.needed, one.left, one.unit, one.until, each.message)
        key = _key_of_class(one)
        classes[each.code, key, None if _is_own_budget(each) else shared].append(each)
    for alike in classes.values():
        first, one = alike[0], alike[0].blocked
        own = _is_own_budget(first)
        yield Decision(
            code=first.code,
            subject=tuple(dict.fromkeys(each.blocked.pool for each in alike)),
            key=_key_of_class(one),
            figures=NO_FIGURES
            if own
            else DecisionFigures(needed=one.needed, left=one.left, unit=one.unit, until=one.until),
            message="" if own else first.message,
        )


def _is_own_budget(stopped: _Stopped) -> bool:
    return stopped.code is NoMachineReason.BUDGET and stopped.blocked.path[:1] == ("pools",)


def _key_of_class(blocked: Blocked) -> Path:
    """Return the key that blocks these pools, with `*` in place of the pool's name."""
    own = blocked.path[:2] == ("pools", blocked.pool)
    return ("pools", "*", *blocked.path[2:]) if own else blocked.path


def _explain_held(fleet: Fleet, signed: EqualRequests) -> Unserved | None:
    """Return why the queue assigns these requests to no worker; None if it may assign them."""
    if not signed.held:
        return None
    tags, first = held_tags(signed.refused), held_by(signed.refused)
    figures = DecisionFigures(tags=tags, held="unknown" if first.is_unknown else "denied")
    held = Decision(code=Unfit.TAG_HELD, subject=(), key=first.path, figures=figures)
    if first.is_unknown and is_about_environments(fleet.derive[int(first.path[1])]):
        because = pools.explain_unknown_environment(first.because, signed.queue)
    elif first.is_unknown:
        because = pools.explain_unknown_value(first.because, first.path)
    elif not first.is_sure:
        because = pools.explain_unsure(first.because)
    elif isinstance(fleet.queues.get(signed.queue), TicketQueue):
        because = pools.explain_denied_ticket(first.because)
    else:
        because = pools.explain_stored(first.because)
    return _NO_CAUSE.altered(because=because, path=first.path, decisions=(held,))


def _find_nearest(
    fleet: Fleet, unproven: Mapping[str, Unproven], near: Nearness, asked: FitRequirements
) -> Unserved:
    """Return the mismatches of the pool that fits best, and the key of fleet.yaml to change."""
    if not near.offers:
        unserved_queue = pools.explain_unserved_queue(asked.queue)
        return _NO_CAUSE.altered(because=unserved_queue, path=("pools",))
    least = asked.ask._replace(required=asked.ask.required - asked.dropped)
    wrong, _, name = min(near.count_mismatches(least))
    code = Served.WORKERS_BUSY if isinstance(fleet.pools[name], StaticPool) else Served.FITS
    unfit = tuple(find_unfit(fleet, asked, name, near.offers[name])) or (fitting(name, code),)
    # An unpublished image needs a command, not an edit of fleet.yaml.
    for pool in sorted(unproven.keys() & near.offers.keys()) if wrong else ():
        first = next(find_unfit(fleet, asked, pool, near.offers[pool], unproven[pool]), None)
        if first is not None and first.code is Unfit.IMAGE_UNPROVEN:
            unfit = (first,)
            break
    missing = (
        tag for each in unfit if each.code is Unfit.TAG_MISSING for tag in each.figures.tags
    )
    provided = frozenset[str]().union(*(each.provides for each in near.offers.values()))
    for tag in missing:
        if tag not in provided and (path := asking_key(fleet, tag)):
            because = pools.explain_unprovided(tag, path[:2])
            return _NO_CAUSE.altered(because=because, path=path, decisions=unfit)
    deciding = min(unfit, key=lambda each: _KEY_ORDER.get(each.key[2:], len(_KEY_ORDER)))
    because = pools.describe_nearest(unfit)
    return _NO_CAUSE.altered(because=because, path=deciding.key, decisions=unfit)


_KEY_ORDER: Mapping[Path, int] = {("image",): 0, ("machine",): 1}
"""Keys of a pool that decide a mismatch before its tags, because they are harder to change."""
