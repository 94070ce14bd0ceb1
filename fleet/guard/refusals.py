"""Refuse actions above a limit if config, an image or lost data causes them.

The number of removals is the number of workers that config no longer wants, including busy
workers. If only the deletions of one run counted, a removed pool could disappear over several
runs. Workers that were already draining have passed this guard and do not count again.

Replacements of outdated workers within `replace.at_a_time` do not count as removals. A few orphans
or vanished machines do not count either: a pool may have no other machines, so that their share
would always be too high. A release of a worker counts if its machine may exist unobserved.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from fleet.guard.approvals import (
    approve_first,
    command_to_type,
    describe_approvals,
    left_for,
    line_to_paste,
)
from fleet.model.plan import (
    CREATE_LIMIT,
    REPLACEMENT_REASONS,
    Action,
    Cause,
    Create,
    Delete,
    GuardName,
    GuardResult,
    Plan,
    PoolVerdict,
    Reason,
    Release,
    is_begun,
)
from fleet.model.pool_limits import pace_of, size_of
from fleet.model.prices import convert
from fleet.model.values import amount_of, rate
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool, ThrottleCreate
from fleet.words import guards as words
from fleet.words.images import describe_type
from fleet.words.lives import NO_MACHINE, join


@dataclass(frozen=True)
class GuardDecision:
    """The result of a guard, the withheld actions, and the workers that approvals pass."""

    result: GuardResult
    withheld: Collection[Action | Release] = ()
    approved: Mapping[str, str] = field(default_factory=dict)
    """Worker to the digest of the approval that passes it."""
    until: datetime | None = None
    """Time when the guard stops withholding by itself; None: unknown."""


_A = TypeVar("_A", Action, Release)


def count_fleet_machines(plan: Plan) -> int:
    """Return the number of machines in all pools, except static pools."""
    return sum(verdict.machines for verdict in plan.pools if verdict.mode != "static")


def by_pool(actions: Sequence[_A]) -> Mapping[str, list[_A]]:
    """Map pool name to its actions; the map returns an empty list for other pools."""
    found: defaultdict[str, list[_A]] = defaultdict(list)
    for action in actions:
        found[action.pool].append(action)
    return found


def pools_with(
    plan: Plan, actions: Sequence[Action]
) -> Iterator[tuple[PoolVerdict, Sequence[Action]]]:
    """Yield (pool's entry in the plan, actions) for each pool that has actions."""
    found = by_pool(actions)
    for verdict in plan.pools:
        if found[verdict.pool]:
            yield verdict, found[verdict.pool]


_THROTTLED_DELETE = ("guards", "throttle", "delete")


def throttle(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[GuardDecision]:
    """Pass the first actions in service order, and withhold the others until a later run."""
    create, most = fleet.guards.throttle.create, fleet.guards.throttle.delete.count
    described = f"{create.share}% of at least {create.free_below}, and at most {create.count}"
    for kind in ("create", "drain", "delete"):
        # Throttle all creations. Removals that config causes are limited by `refuse` instead.
        is_create = kind == "create"
        ours = [a for a in actions if a.action == kind and (is_create or a.cause is Cause.DEMAND)]
        kept: list[Action] = []
        counted = [
            (verdict.pool, own, verdict.machines) for verdict, own in pools_with(plan, ours)
        ]
        # The fleet comes last: it counts the actions that pass in their pools.
        for pool, own, of in (*counted, (None, kept, count_fleet_machines(plan))):
            passing, later = _split(own, _max_creations(create, of) if is_create else most)
            kept += passing if pool is not None else ()
            if later:
                result = GuardResult(
                    guard=f"throttle-{kind}",
                    pool=pool,
                    result="throttled",
                    because=words.describe_throttle(
                        len(own), kind, pool, of, len(own) - len(later), len(later)
                    ),
                    path=CREATE_LIMIT if is_create else _THROTTLED_DELETE,
                    count=len(own),
                    of=of,
                    withheld=len(later),
                    limit=described if is_create else f"at most {most}",
                )
                yield GuardDecision(result, later)


def _max_creations(limit: ThrottleCreate, held: int) -> int:
    # If the share is less than one machine, allow one machine, so that a small pool can grow.
    grown = max(held, limit.free_below, 1) * limit.share // 100
    return min(limit.count, max(grown, min(limit.share, 1)))


def figures_to_pass(fleet: Fleet, result: GuardResult, count: int) -> Iterator[dict[Path, int]]:
    """Yield alternative sets of figures of a guard, as key to the least value for `count` actions.

    `_max_creations` defines the share and `free_below` of creations.
    """
    figures = {(*result.path, "count"): count}
    if result.path == CREATE_LIMIT:
        create = fleet.guards.throttle.create
        held = max(1, result.of, create.free_below)
        is_enough = max(held * create.share // 100, min(create.share, 1)) >= count
        for key, of in (("share", held), ("free_below", create.share)):
            more = {} if is_enough else {(*result.path, key): -(-100 * count // max(1, of))}
            yield figures | more
    elif result.path == _THROTTLED_DELETE:
        yield figures
    elif result.path == _DELETE:
        yield figures | {(*result.path, "share"): -(-100 * count // max(1, result.of))}


def pass_order(actions: Sequence[Action]) -> list[Action]:
    """Return actions in the order in which a throttle passes them.

    Started actions come first, then the first action of each pool, then the other actions.
    """
    in_turn = sorted(actions, key=_service_position)
    begun = [action for action in in_turn if is_begun(action)]
    fresh = [action for action in in_turn if not is_begun(action)]
    firsts = list({action.pool: action for action in reversed(fresh)}.values())
    firsts.sort(key=_service_position)
    first_names = {action.worker for action in firsts}
    return [*begun, *firsts, *(each for each in fresh if each.worker not in first_names)]


def _split(actions: Sequence[Action], allowed: int) -> tuple[list[Action], list[Action]]:
    """Split actions into at most `allowed` actions for now, and the actions for later."""
    if len(actions) <= allowed:
        return [*actions], []
    allowed = max(allowed, sum(map(is_begun, actions)))
    in_turn = pass_order(actions)
    return in_turn[:allowed], in_turn[allowed:]


def _service_position(action: Action) -> int:
    return action.turn if isinstance(action, Create) else 0


_DELETE = ("guards", "refuse", "delete")
_COST = ("guards", "refuse", "cost_increase")
_COUNT_ONLY_REASONS = frozenset({Reason.ORPHAN, Reason.GONE})
"""Reasons of removals that are not limited by share: a pool may have no other machines."""
_APPROVE_HINT = "if the change is intended, add under approvals in the same merge request:"
_RESTORE_HINT = "restore the lost data; or, to delete the machines, add under approvals:"


@dataclass(frozen=True)
class _GuardLimit:
    """A guard that refuses actions, with its limit in fleet.yaml."""

    guard: GuardName
    path: tuple[str, ...]
    description: str
    is_within: Callable[[Sequence[Decimal], int], bool]
    """Whether the limit allows these amounts, one per machine, of a number of machines."""
    describe: Callable[[Sequence[Decimal], int, str | None, str], str]
    """Return the sentence on amounts, machines, pool and causes; None: the whole fleet."""


@dataclass(frozen=True)
class _PoolCase:
    """The actions of one pool that a guard may refuse, with the counts for its limit."""

    verdict: PoolVerdict
    open: int
    """Number of machines that still have to pass the guard."""
    actions: Sequence[Action | Release]
    """The actions of this run that the guard may refuse."""
    causes: str = ""
    along: Sequence[Action] = ()
    """Further actions that the guard withholds unless all `open` machines pass."""
    amounts: tuple[Decimal, ...] = ()
    """Amount per machine that counts to the limit; the actions of this run come first."""
    unseen: int = 0
    """Number of unobserved machines whose workers the plan releases."""

    @property
    def pool(self) -> str:
        """Return the pool's name."""
        return self.verdict.pool

    @property
    def held(self) -> int:
        """Return the number of machines in the pool, including unobserved machines."""
        return self.verdict.machines + self.unseen


def decide(
    plan: Plan, verdict: PoolVerdict, own: Sequence[Action], blank: GuardResult
) -> GuardDecision:
    """Return the decision that withholds a pool's actions, except those that an approval passes.

    `blank.because` is the sentence without the approvals.
    """
    passing = approve_first(plan, blank.guard, verdict.pool, own)
    left = [action for action in own if action.worker not in passing]
    result = blank.altered(
        result=blank.result if left else "passed",
        pool=verdict.pool,
        because=join(
            blank.because, describe_approvals(plan, blank.guard, verdict.pool, len(passing))
        ),
        count=len(own),
        of=verdict.machines,
        withheld=len(left),
        approved=len(passing),
    )
    return GuardDecision(result, left, passing)


def refuse_rivalled(_: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[GuardDecision]:
    """Refuse creations for requests for which the queue may create machines itself."""
    rivalled = [a for a in actions if plan.rivals and _rivals_of(plan, a)]
    for verdict, own in pools_with(plan, rivalled):
        queues = sorted({queue for action in own for queue in _rivals_of(plan, action)})
        pools = sorted({pool for queue in queues for pool in plan.rivals[queue]})
        left = len(own) - len(approve_first(plan, "rival", verdict.pool, own))
        because = words.explain_rivals(queues, pools, left, verdict.pool)
        paste = line_to_paste("rival", verdict.pool, left, plan.time.date())
        ways = {
            "way_out": "disable them on the queue's server: debusine-admin worker_pool disable "
            f"NAME; to let both create machines, add under approvals: {paste}",
            "approve": (paste,),
            "commands": (command_to_type("rival", verdict.pool, left),),
        }
        refused = GuardResult(
            guard="rival", result="refused", because=because, path=("queues", queues[0])
        )
        yield decide(plan, verdict, own, refused.altered(**ways) if left else refused)


def withhold_untested(_: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[GuardDecision]:
    """Withhold creations on machine types that fail to boot, unless an approval lets them pass."""
    kinds = {verdict.pool: verdict.on_trial for verdict in plan.pools if verdict.on_trial}
    tried = [
        action
        for action in actions
        if isinstance(action, Create)
        and action.inputs.type in kinds.get(action.pool, ())
        and not is_begun(action)
    ]
    for verdict, own in pools_with(plan, tried):
        left = len(own) - len(approve_first(plan, "boot_failures", verdict.pool, own))
        because = words.explain_retries(
            verdict.pool, describe_type(", ".join(verdict.on_trial)), left
        )
        path = ("guards", "boot_failures")
        withheld = GuardResult(
            guard="boot_failures", result="throttled", because=because, path=path
        )
        yield decide(plan, verdict, own, withheld)


def _rivals_of(plan: Plan, action: Action) -> Collection[str]:
    """Return the queues that may themselves create a machine for a creation's requests.

    Empty for creations without requests: for `min` or `spare`, or started by an earlier run.
    """
    if not isinstance(action, Create) or is_begun(action):
        return ()
    return action.queues & plan.rivals.keys()


def refuse_delete(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[GuardDecision]:
    """Refuse removals beyond the share or count limit that demand did not cause."""
    limit = fleet.guards.refuse.delete
    description = f"{limit.share}% and at most {limit.count}"

    def is_within(removed: Sequence[Decimal], held: int) -> bool:
        return len(removed) <= limit.count and 100 * len(removed) <= limit.share * held

    def describe(removed: Sequence[Decimal], held: int, pool: str | None, causes: str) -> str:
        return words.describe_removal(causes, pool, len(removed), held, description)

    ours = _GuardLimit("delete", _DELETE, description, is_within, describe)
    yield from _refuse_above(plan, ours, _find_removals(fleet, plan, actions))


def _refuse_above(
    plan: Plan, limit: _GuardLimit, cases: Iterable[_PoolCase]
) -> Iterator[GuardDecision]:
    """Refuse the actions of each pool above a limit, then those of the others if they exceed it.

    In the whole fleet, machines that an approval lets pass do not count.
    """
    free = []
    for case in cases:
        if limit.is_within(case.amounts, case.held):
            free.append(case)
        else:
            because = limit.describe(case.amounts, case.held, case.pool, case.causes)
            yield _refuse(plan, limit, [case], because, pool=case.pool)
    total = _count_with_unseen(plan)
    amounts = [
        amount
        for case in free
        for amount in case.amounts[: case.open][left_for(plan, limit.guard, case.pool) :]
    ]
    if amounts and not limit.is_within(amounts, total):
        because = limit.describe(amounts, total, None, free[0].causes)
        yield _refuse(plan, limit, free, because, pool=None)


def _find_removals(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_PoolCase]:
    """Yield a case per pool that loses machines for a reason other than lower demand."""
    drained = {v.worker for v in plan.workers if v.state == "draining"}
    leaving = [a for a in actions if not isinstance(a, Create)]
    drained |= {a.worker for a in leaving if a.reason is Reason.ORPHAN and isinstance(a, Delete)}
    reasons = Counter(v.reason for v in plan.workers)
    few = {
        each for each in _COUNT_ONLY_REASONS if reasons[each] <= fleet.guards.refuse.delete.count
    }
    # New removals with a cause other than demand.
    judged = [
        a
        for a in leaving
        if not is_begun(a) and a.cause is not Cause.DEMAND and a.reason not in few
    ]
    ours = by_pool([a for a in judged if a.worker not in drained])
    unseen = by_pool([each for each in plan.releases if each.may_work])
    demanded = Counter(
        a.pool for a in leaving if a.cause is Cause.DEMAND and a.worker not in drained
    )
    made = by_pool([a for a in actions if isinstance(a, Create)] if judged or unseen else ())
    # Removed pools without machines but with workers have no entry in the plan.
    gone = [
        PoolVerdict(pool=name, mode="removed", because=NO_MACHINE)
        for name in unseen.keys() - {verdict.pool for verdict in plan.pools}
    ]
    able = [each for each in (*plan.pools, *gone) if each.mode not in ("static", "observe")]
    for verdict in sorted(able, key=lambda verdict: verdict.pool):
        pool, going = fleet.pools.get(verdict.pool), ours[verdict.pool]
        if isinstance(pool, Pool) and pool.mode == "apply":
            # `turns` rounds the share up to one machine, as in the replacement step.
            pace = pace_of(pool).turns(verdict.machines)
            paced = [a for a in going if a.reason in REPLACEMENT_REASONS][:pace]
            going = [action for action in going if action not in paced]
        lost = unseen.get(verdict.pool, [])
        unwanted = verdict.unwanted - demanded[verdict.pool]
        count = max(unwanted, len(going)) + len(lost)
        left = max(unwanted - verdict.draining, len(going)) + len(lost)
        if left > 0:
            # Lost data may hide existing workers: also withhold the creations that replace them.
            is_lost = _has_lost_data([*going, *lost])
            again = [a for a in made[verdict.pool] if is_lost and not is_begun(a)]
            config = {Cause.CONFIG} if unwanted > 0 else set()
            causes = words.describe_causes({*map(_cause_of, [*going, *lost]), *config})
            ones, unseen_here = (Decimal(1),) * count, len(lost)
            yield _PoolCase(verdict, left, [*going, *lost], causes, again, ones, unseen_here)


def _count_with_unseen(plan: Plan) -> int:
    """Return the number of machines in the fleet, including unobserved machines."""
    return count_fleet_machines(plan) + sum(release.may_work for release in plan.releases)


def _has_lost_data(going: Sequence[Action | Release]) -> bool:
    """Return True if lost data or unobserved machines cause any of these removals."""
    return Cause.KNOWLEDGE in map(_cause_of, going)


def _cause_of(going: Action | Release) -> Cause:
    return Cause.KNOWLEDGE if isinstance(going, Release) else going.cause


def refuse_cost(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[GuardDecision]:
    """Refuse creations that config causes if they raise the hourly cost above the limit."""
    limit = fleet.guards.refuse.cost_increase
    if limit is None:
        return
    most = convert(fleet, limit.amount, limit.currency)

    def is_within(rises: Sequence[Decimal], _: int) -> bool:
        return most is not None and sum(rises, Decimal(0)) <= most

    def describe(rises: Sequence[Decimal], _: int, pool: str | None, __: str) -> str:
        amount = f"{rate(sum(rises, Decimal(0)))} {plan.currency}"
        return words.describe_cost_rise(len(rises), amount, pool, f"{limit}/h")

    ours = _GuardLimit("cost_increase", _COST, f"{limit}/h", is_within, describe)
    yield from _refuse_above(plan, ours, _find_increases(fleet, plan, actions))


def _find_increases(fleet: Fleet, plan: Plan, actions: Sequence[Action]) -> Iterator[_PoolCase]:
    """Yield a case per pool that costs more by a higher workers.min or a more expensive type."""
    ours = by_pool(actions)
    for verdict in plan.pools:
        pool = fleet.pools.get(verdict.pool)
        if isinstance(pool, Pool) and verdict.mode != "observe":
            creates = [each for each in ours[verdict.pool] if isinstance(each, Create)]
            # This run's creations for workers.min, and the number still to follow.
            warm = [
                action
                for action in creates
                if action.cause is Cause.CONFIG and action.reason is not Reason.REPLACEMENT
            ]
            least = min(size_of(pool).min, size_of(pool).max) if warm else 0
            lacking = max(0, least - verdict.machines - len(creates))
            made = [each for each in creates if each.reason is Reason.REPLACEMENT]
            outdated = [each for each in ours[verdict.pool] if each.reason is Reason.OUTDATED]
            drained = [each for each in outdated if not isinstance(each, Create)]
            price = made[0].cost if made else verdict.price
            old = [w for w in plan.workers if w.pool == verdict.pool and w.outdated]
            # A machine of unknown cost may cost nothing: count the whole new price as increase.
            costs = [amount_of(each.cost) or Decimal(0) for each in old if made or drained]
            rises = sorted((price - cost for cost in costs if cost < price), reverse=True)
            if not rises:
                made, drained = [], []
            if warm or rises:
                added = tuple(action.cost for action in warm)
                amounts = (*added, *rises, *added[-1:] * lacking)
                ours_here = [*warm, *made]
                yield _PoolCase(verdict, len(amounts), ours_here, along=drained, amounts=amounts)


def _refuse(
    plan: Plan, limit: _GuardLimit, cases: Sequence[_PoolCase], because: str, *, pool: str | None
) -> GuardDecision:
    """Refuse the actions of the cases, except those that an approval permits."""
    passing: dict[str, str] = {}
    later: list[Action | Release] = []
    lines: list[str] = []
    commands: list[str] = []
    for case in cases:
        approved = approve_first(plan, limit.guard, case.pool, case.actions)
        rest = max(0, case.open - left_for(plan, limit.guard, case.pool))
        passing |= approved
        later += [action for action in case.actions if action.worker not in approved]
        later += case.along if rest else ()
        if rest:
            lines.append(line_to_paste(limit.guard, case.pool, rest, plan.time.date()))
            commands.append(command_to_type(limit.guard, case.pool, rest))
    used = describe_approvals(plan, limit.guard, pool, len(passing)) if pool else ""
    gone = [f"`previously: {case.pool}`" for case in cases if case.verdict.mode == "removed"]
    renamed = f"if a pool was renamed, write {' or '.join(gone)} in it; " if gone else ""
    is_lost = any(_has_lost_data(case.actions) for case in cases)
    hint = _RESTORE_HINT if is_lost else f"{renamed}{_APPROVE_HINT}"
    result = GuardResult(
        guard=limit.guard,
        pool=pool,
        result="refused" if lines else "passed",
        because=join(because, used),
        way_out=f"{hint} {' and '.join(lines)}" if lines else "",
        path=limit.path,
        count=sum(len(case.amounts) for case in cases),
        of=cases[0].held if pool else _count_with_unseen(plan),
        approved=len(passing),
        withheld=len(later),
        limit=limit.description,
        approve=tuple(lines),
        commands=tuple(commands),
    )
    return GuardDecision(result, later, passing)
