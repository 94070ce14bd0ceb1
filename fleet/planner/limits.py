"""Formulate limits on counts (pool sizes, tags, ticket queues) as linear constraints.

Work of unknown users counts against every user's limit, because unknown is not zero.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from fleet.model.decisions import NoMachineReason
from fleet.model.facts import MachineState
from fleet.model.plan import LimitVerdict
from fleet.model.tickets import Limit
from fleet.planner.demand import LimitRow, Path, Place, RequestGroup, Supply, Teams, limits_of
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Fleet, TicketQueue
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words import limits as words
from fleet.words import lives

_ONE = Decimal(1)
_SIZE_REASONS = {
    "max": NoMachineReason.AT_MAX,
    "max_starting": NoMachineReason.AT_MAX_STARTING,
}
"""Key of `workers` to the reason why a pool at this limit creates no machine."""
_SERVES_NOTHING: Mapping[UnitState, str] = {
    UnitState.UNRECORDED: lives.LISTED_ONLY,
    UnitState.MISSING: lives.RECORDED_ONLY,
    UnitState.NEVER_REGISTERED: words.NEVER_REGISTERED,
    UnitState.DEAF: lives.DEAF,
    UnitState.FAILED: lives.FAILED,
    UnitState.STOPPED: lives.STOPPED,
    UnitState.DISCONNECTED: lives.NOT_CONNECTED,
}


def pool_rows(pool_plans: Mapping[str, PoolPlan], places: Iterable[Place]) -> Iterator[LimitRow]:
    """Yield the constraints on the size of each pool that may create machines."""
    ways: defaultdict[str, dict[str, Decimal]] = defaultdict(dict)
    for place in places:
        if place.makes:
            ways[place.pool][place.key] = _ONE
    for name, machines in sorted(ways.items()):
        pool_plan = pool_plans[name]
        size = pool_plan.size
        units = pool_plan.inventory.units
        useless = [(unit.name, why) for unit in units if (why := _explain_useless(unit))]
        row = _pool_row(name, "max", size.max, len(units), machines)
        yield replace(row, because=words.add_useless(row.because, useless))
        if size.max_starting is not None:
            starting = sum(is_booting(unit) for unit in units)
            yield _pool_row(name, "max_starting", size.max_starting, starting, machines)
        choice = pool_plan.choice
        if choice.on_trial:
            tried = {way.key for way in pool_plan.options if way.type in choice.on_trial}
            own = {key: one for key, one in machines.items() if key in tried}
            # Only an approval of `boot_failures` lets these machines pass.
            yield LimitRow(
                path=("guards", "boot_failures"),
                because=words.explain_trial(choice.approved, choice.problem),
                room=Decimal(choice.approved),
                machines=own,
                kept=own,
                code=NoMachineReason.GUARD,
                pool=name,
            )


def _pool_row(
    pool: str, key: str, most: int, held: int, machines: Mapping[str, Decimal]
) -> LimitRow:
    return LimitRow(
        path=("pools", pool, "workers", key),
        because=words.explain_max(key, most, held),
        room=Decimal(max(0, most - held)),
        machines=machines,
        kept=machines,
        over=Decimal(max(0, held - most)),
        code=_SIZE_REASONS[key],
        pool=pool,
    )


def _explain_useless(unit: Unit) -> str:
    """Return why a machine can serve no request; empty if it can, or if it drains."""
    since = unit.machine.deleting_since if unit.machine else None
    if since is not None:
        return words.explain_deleting(since)
    if unit.held is not None and unit.state is not UnitState.BUSY:
        return lives.describe_hold(unit.held.said)
    return "" if unit.returning else _SERVES_NOTHING.get(unit.state, "")


def is_booting(unit: Unit) -> bool:
    """Return True if a machine boots. Without a registry, its state at the provider decides."""
    booting = unit.machine is not None and unit.machine.state is MachineState.STARTING
    return unit.state in (UnitState.STARTING, UnitState.UNFINISHED) or (
        unit.state is UnitState.ASSUMED and booting
    )


@dataclass(frozen=True)
class _StatedLimit(Limit):
    """A maximum under `limits` of a tag or queue: in total, or per user, team, owner or scope."""

    tag: str = ""
    """The tag as written in `tags`, which may end in `*`; empty for a limit of a queue."""
    desk: str = ""
    """The ticket queue that has the limit; empty for a limit of a tag."""


class Use(NamedTuple):
    """The usage of one limit by one payer: busy workers and waiting requests."""

    limit: _StatedLimit
    who: str | None
    workers: tuple[Sequence[str], Sequence[str]]
    """Busy workers of `who`, and busy workers of unknown users, which count for each payer."""
    groups: tuple[RequestGroup, ...]
    counted: Mapping[tuple[str, str], Decimal]
    """(Group, place) pairs that count, without places where the group does not need the tag."""

    @property
    def taken(self) -> int:
        """Return the number of busy workers that count against the limit."""
        return sum(map(len, self.workers))


def find_uses(
    fleet: Fleet, pool_plans: Mapping[str, PoolPlan], groups: Sequence[RequestGroup], teams: Teams
) -> Iterator[Use]:
    """Yield the usage of each limit on tags and queues, per payer."""
    vocabulary = Vocabulary(fleet)
    limits = [*_limits(fleet)]
    held = [*_find_busy(pool_plans)] if limits else []
    for limit in limits:
        taken: defaultdict[str | None, list[str]] = defaultdict(list)
        for whose, worker in _count_for(vocabulary, limit, held, teams):
            taken[whose].append(worker)
        waiting: defaultdict[str | None, list[RequestGroup]] = defaultdict(list)
        for group in groups:
            if (
                group.payer.desk == limit.desk
                if limit.desk
                else _is_tag_limited(vocabulary, limit.tag, group.tags)
            ):
                payer = "" if limit.of == "total" else getattr(group.payer, limit.of)
                waiting[payer].append(group)
        anybody = taken.pop(None, [])
        for who in sorted(waiting.keys() | taken.keys(), key=lambda who: who or ""):
            own = tuple(waiting[who])
            counted = {(g.id, at): _ONE for g in own for at in _counts_at(vocabulary, limit, g)}
            yield Use(limit, who, (taken[who], anybody), own, counted)


def tag_rows(uses: Iterable[Use]) -> Iterator[LimitRow]:
    """Yield a constraint per limit (of a tag or queue) and payer with waiting requests."""
    for use in uses:
        if use.counted:
            limit, key = use.limit, ".".join(map(str, use.limit.path[2:]))
            of = "" if limit.of == "total" else limit.of
            who, unknown = ((use.who or "").strip(), len(use.workers[1])) if of else ("", 0)
            figures = limit.tag, limit.desk, of, who, limit.most, use.taken, unknown
            yield LimitRow(
                path=limit.path,
                because=words.explain_limit(words.LimitUse(key, *figures)),
                room=Decimal(max(0, use.limit.most - use.taken)),
                requests=use.counted,
                over=Decimal(max(0, use.taken - use.limit.most)),
                code=NoMachineReason.QUEUE_LIMIT if use.limit.desk else NoMachineReason.TAG_LIMIT,
            )


def judge_limits(
    uses: Iterable[Use], counts: Mapping[tuple[str, str], int]
) -> Iterator[LimitVerdict]:
    """Yield the usage of each limit after allocation. `counts` maps (group, place) to requests."""
    for use in uses:
        served = sum(counts.get((g.id, place), 0) for g in use.groups for place in g.fits)
        yield LimitVerdict(
            path=use.limit.path,
            who=(use.who or "").strip() or None,
            limit=use.limit.most,
            in_use=use.taken,
            given=sum(counts.get(pair, 0) for pair in use.counted),
            waiting=sum(len(group.requests) for group in use.groups) - served,
        )


def blocked_rows(fleet: Fleet, groups: Sequence[RequestGroup]) -> Iterator[LimitRow]:
    """Yield a constraint with capacity 0 for the tickets of each blocked owner."""
    for group in groups:
        desk = fleet.queues.get(group.payer.desk or "")
        if isinstance(desk, TicketQueue) and group.payer.owner in desk.blocked:
            yield LimitRow(
                path=("queues", group.payer.desk or "", "blocked"),
                because=words.explain_blocked(group.payer.desk, group.payer.owner),
                room=Decimal(0),
                requests={(group.id, place): _ONE for place in group.fits},
                code=NoMachineReason.OWNER_BLOCKED,
            )


def last_rows(
    fleet: Fleet,
    supplies: Mapping[str, Supply],
    groups: Sequence[RequestGroup],
    places: Mapping[str, Place],
) -> Iterator[LimitRow]:
    """Yield constraints that reserve a booting machine for requests with its on-demand tag.

    Otherwise other requests could take this machine, and fleet would create another machine for
    the tagged request.
    """
    vocabulary = Vocabulary(fleet)
    for key in sorted(frozenset[str]().union(*(group.last for group in groups)) & places.keys()):
        at = [group for group in groups if key in group.fits]
        tag = min(supplies[key].offer.on_demand)
        for is_low in (False, True):
            # A request for a low-priority tag takes no machine from other requests.
            callers = [g for g in at if key not in g.last and (is_low or g.rank[0] <= 0)]
            first = sum(len(g.requests) * g.fits[key].share for g in callers)
            others = [g for g in at if key in g.last and (g.rank[0] > 0) == is_low]
            if first and others:
                yield LimitRow(
                    path=vocabulary.on_demand_at(tag),
                    because=words.explain_tagged_first(tag),
                    room=Decimal(max(0.0, places[key].room - first)),
                    requests={(g.id, key): Decimal(g.fits[key].share) for g in others},
                    code=NoMachineReason.TAGGED_FIRST,
                    pool=supplies[key].pool,
                )


def limits_on(fleet: Fleet, desk: str, tags: Iterable[str]) -> tuple[Limit, ...]:
    """Return the limits on tickets of a queue that require these tags."""
    vocabulary = Vocabulary(fleet)
    asked = tuple(tags)
    return tuple(
        limit
        for limit in _limits(fleet)
        if (limit.desk == desk if limit.desk else _is_tag_limited(vocabulary, limit.tag, asked))
        and limit.of != "scope"  # a ticket has no scope
    )


def limited_tags(
    fleet: Fleet, vocabulary: Vocabulary
) -> Callable[[Iterable[str]], frozenset[str]]:
    """Return a function that selects those tags of a request that a limit or budget counts."""
    limited = {limit.tag for limit in _limits(fleet)}
    budgeted = {tag for budget in fleet.budgets.values() for tag in budget.tags}
    if not limited and not budgeted:
        return lambda _: frozenset()
    return lambda tags: frozenset(
        tag for tag in tags if tag in budgeted or limited.intersection(vocabulary.names_of(tag))
    )


def has_limits(fleet: Fleet) -> bool:
    """Return True if any tag or queue has a limit."""
    return any(_limits(fleet))


def _limits(fleet: Fleet) -> Iterator[_StatedLimit]:
    for tag, rule in sorted(fleet.tags.items()):
        for of, most in limits_of(rule.limits):
            yield _StatedLimit(("tags", tag, "limits", *_path_of(of)), most, of, tag=tag)
    for name, queue in sorted(fleet.queues.items()):
        for of, most in limits_of(queue.limits) if isinstance(queue, TicketQueue) else ():
            yield _StatedLimit(("queues", name, "limits", *_path_of(of)), most, of, desk=name)


def _path_of(of: str) -> Path:
    return ("total",) if of == "total" else ("per", of)


def _counts_at(
    vocabulary: Vocabulary, limit: _StatedLimit, group: RequestGroup
) -> Collection[str]:
    """Return the places where a limit counts a group, without places with waived tags."""
    if limit.desk or not group.payer.without:
        return group.fits
    tags = {tag for tag in group.tags if _is_tag_limited(vocabulary, limit.tag, (tag,))}
    return [place for place in group.fits if not tags <= group.payer.lacks(place)]


def _is_tag_limited(vocabulary: Vocabulary, limited: str, tags: Iterable[str]) -> bool:
    return any(limited in vocabulary.names_of(tag) for tag in tags)


def _find_busy(pool_plans: Mapping[str, PoolPlan]) -> Iterator[tuple[Unit, frozenset[str]]]:
    """Yield (machine, tags of its pool) for each machine that is or may be busy."""
    for pool_plan in pool_plans.values():
        inventory = pool_plan.inventory
        unheard = (u for u in inventory.unseen if u.worker is None or u.state is UnitState.BUSY)
        unlisted = [Unit("", pool_plan.name, UnitState.BUSY)] * inventory.uncounted
        for unit in (*inventory.having(UnitState.BUSY), *unheard, *unlisted):
            yield unit, pool_plan.offer.provides


def _count_for(
    vocabulary: Vocabulary,
    limit: _StatedLimit,
    held: Iterable[tuple[Unit, frozenset[str]]],
    teams: Teams,
) -> Iterator[tuple[str | None, str]]:
    """Yield (payer, machine) for each busy machine that counts; payer None if unknown."""
    for unit, provides in held:
        work = unit.worker.work if unit.worker else None
        required = work.required if work else provides
        if (
            unit.registry != limit.desk
            if limit.desk
            else not _is_tag_limited(vocabulary, limit.tag, required)
        ):
            continue
        if limit.of == "total":
            yield "", unit.name
        elif work is None:
            yield None, unit.name
        elif limit.of == "team":
            yield teams.of(work), unit.name
        else:
            yield getattr(work, "requester" if limit.of == "submitter" else limit.of), unit.name
