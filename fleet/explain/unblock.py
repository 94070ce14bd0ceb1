"""Suggest edits of fleet.yaml, or waits, after which a waiting request is served.

A suggestion removes a constraint that the plan reports: `moves` raises each limit by its
shortfall. Edits that only permit are ranked before edits that claim a property of machines (a
provided tag). Waits come from the forecast. Each suggestion is checked by a plan of the edited
fleet.yaml or of the world after the wait, with at most `MOST_PLANS` plans.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush
from itertools import chain, islice, product

from fleet.checks import CHECKS
from fleet.explain.options import rule_for
from fleet.explain.values import AwaitedEvent, KeyChange, Suggestion
from fleet.explain.what_if import (
    REMOVED,
    REQUEST,
    Edit,
    PlannedRun,
    Replans,
    apply_edits,
    edited,
    figures_at,
    is_served,
    raise_figure,
    served_by,
    value_at,
    write_value,
    write_yaml,
)
from fleet.guard.approvals import APPROVED_DAYS
from fleet.guard.refusals import figure_to_pass
from fleet.model.decisions import Unfit
from fleet.model.facts import Demand, Request, World
from fleet.model.plan import (
    CREATE_LIMIT,
    Create,
    GuardResult,
    Plan,
    Reason,
    Signature,
    Unserved,
)
from fleet.planner.demand import Drops
from fleet.planner.fitting import asked_by
from fleet.planner.forecast import Forecast, next_pause
from fleet.planner.images import choose_images
from fleet.planner.step import step
from fleet.schema.findings import Path, yaml_key
from fleet.schema.model import (
    Approval,
    Askers,
    DeriveRule,
    Fleet,
    Pool,
    StaticPool,
    serves_queue,
)
from fleet.schema.units import write_duration, write_time
from fleet.tagrules.allow import is_for_task, is_valid, matches_name
from fleet.tagrules.derive import (
    context_of,
    find_unknown_tags,
    is_about_environments,
    is_tag,
    value_for,
)
from fleet.tagrules.names import names_of
from fleet.tagrules.sources import nearest_tag, provided_tags
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words import answers
from fleet.words.answers import LAST_CHOICE

ALLOW, EXPIRY, APPROVE, RULE, ASK, CLAIM, OPEN, REMOVE = range(8)
"""Ranks of edits: raise a limit or set a mode, postpone an expiry, approve, add an allow-list
rule, have the request require a tag, declare a provided tag, permit a tag to all users, remove a
key."""
MOST_VALUES = 3
"""Maximum number of values suggested per look-up key, so that other edits are shown, too."""
FEW_PLANS = 2
"""If at most this many trial plans are left, edits are tried before waits."""
MAX_MOMENTS = 3
"""Maximum number of expiry times of constraints for which a plan is tried."""
_WORDS = {"user": "user", "task": "task", "ticket": "tickets", "system": "system"}
MOST_RUNS = 12
MOST_EDITS = 4
_NAMED = 3
_Key = frozenset[tuple[Path, str]]


@dataclass(frozen=True)
class Remedy:
    """A suggestion to the user, and the edits of fleet.yaml that it consists of."""

    suggestion: Suggestion
    edits: tuple[Edit, ...] = ()

    def describe(self, fleet: Fleet) -> str:
        """Return the edits as a phrase, without their side effects."""
        return ", and ".join(describe(fleet, edit) for edit in self.edits)


def find_remedies(run: PlannedRun, key: str, replans: Replans) -> tuple[Remedy, ...]:
    """Return the suggestions for a waiting request: waits first, then edits, smallest first.

    Only suggestions with the fewest edits are returned, at most `replans.most_shown`.
    """
    if is_served(run.plan, key) or key not in run.signatures:
        return ()
    if replans.left <= 0:
        # Each suggestion needs a plan.
        replans.is_spent = True
        return ()
    found: list[Remedy] = []
    is_few = replans.left <= FEW_PLANS and not is_throttled(run.plan, key)
    if is_few:
        # The forecast has the expected start without another plan.
        found = find_fewest(run, key, replans)
    waits = [
        Remedy(Suggestion(sentence=describe_wait(run.fleet, wait), wait=wait))
        for wait in find_waits(run, key, replans)
    ]
    timed = [each for each in waits if each.suggestion.wait and each.suggestion.wait.until]
    if not is_few and len(timed) < replans.most_shown:
        found = find_fewest(run, key, replans)
    return (*waits, *found)


def find_single_edits(run: PlannedRun, key: str, replans: Replans) -> Iterator[Remedy]:
    """Yield the single edits that loosen a limit, even if the request then still waits."""
    for edits in moves(run, key):
        is_limit = len(edits) == 1 and edits[0].rank < RULE
        after = plan_edits(run, key, edits, replans) if is_limit else None
        if after is not None:
            yield remedy_of(run, edits, after)


def remedy_of(run: PlannedRun, edits: tuple[Edit, ...], after: PlannedRun) -> Remedy:
    """Return edits as a suggestion, with their side effects in the run after them."""
    harms = _find_harmed(run.plan, after.plan)
    return Remedy(_suggest(run.fleet, edits, harms, None, ()), edits)


_PURPOSEFUL = frozenset({"limits", "budget", "budgets"})
"""Keys of fleet.yaml that limit users, teams and cost on purpose."""


def find_fewest(
    run: PlannedRun, key: str, replans: Replans, *, patient: bool = True
) -> list[Remedy]:
    """Return the suggestions with the fewest edits, smallest figures first."""
    patient = patient and not is_throttled(run.plan, key)
    search = _EditSearch(run, key, replans, patient=patient)
    every = search.find()
    fewest = min(map(_user_edit_count, every), default=(0, 0))
    found = [(edits, search.harms(edits)) for edits in every if _user_edit_count(edits) == fewest]
    found.sort(key=lambda each: (lifts_limit(each[0]), len(each[1]), _size(each[0])))
    remedies = []
    for edits, harms in found:
        works, wait = search.awaited(edits)
        if works:
            freed = _find_freed(run, key, edits)
            remedies.append(Remedy(_suggest(run.fleet, edits, harms, wait, freed), edits))
    if not remedies and search.patient and replans.left:
        # The throttle would last too many runs: raise the throttle too.
        return find_fewest(run, key, replans, patient=False)
    return remedies[: replans.most_shown]


@dataclass
class _Frontier:
    """Priority queue of the sets of edits to try. The set with the fewest edits is first."""

    is_few: bool
    """True if few trial plans are left. Edits that only grant permissions are then first."""
    heap: list[tuple[bool, int, int, int, tuple[Edit, ...]]] = field(default_factory=list)
    seen: set[_Key] = field(default_factory=set)

    def add(self, edits: tuple[Edit, ...]) -> None:
        """Add a set of edits unless the set was added before."""
        name = _edits_key(edits)
        if name not in self.seen:
            self.seen.add(name)
            rank = sum(edit.rank for edit in edits)
            order = (self.is_few and rank > 0, _count(edits), rank, len(self.seen))
            heappush(self.heap, (*order, edits))


@dataclass
class _EditSearch:
    """Best-first search for the fewest edits after which a request is served."""

    run: PlannedRun
    key: str
    replans: Replans
    patient: bool = False
    """True if a machine that a throttle withholds suffices, since a later run creates it."""

    def find(self) -> list[tuple[Edit, ...]]:
        """Return the smallest sets of edits that serve the request, each checked by a plan.

        This is a best-first search. If the request is not yet served, figures rise by the
        shortfall in that plan. If no plan is left, a set that was not minimized is dropped if
        another set is known.
        """
        frontier = _Frontier(is_few=self.replans.left <= FEW_PLANS)
        found: list[tuple[Edit, ...]] = []
        self._extend(frontier, (), self.run)
        while frontier.heap and len(found) < self.replans.most_shown:
            first = heappop(frontier.heap)
            edits = first[-1]
            size = _count(edits)
            if size > MOST_EDITS or (found and size > _count(found[0])):
                break
            if _is_refused(self.run.fleet, edits):
                continue
            after = plan_edits(self.run, self.key, edits, self.replans)
            if after is None:
                heappush(frontier.heap, first)
                break
            if self._is_reached(after.plan):
                least, is_proven = self._minimize(edits)
                is_new = _edits_key(least) not in map(_edits_key, found)
                if is_new and (is_proven or not found):
                    found.append(least)
            elif self.replans.left:
                self._extend(frontier, edits, after)
        if frontier.heap and not self.replans.left and not found:
            self.replans.is_spent = True
        return found

    def _extend(self, frontier: "_Frontier", edits: tuple[Edit, ...], after: PlannedRun) -> None:
        """Add each union of these edits and a further set that removes another constraint."""
        few = self.replans.left if frontier.is_few else None
        for move in moves(after, self.key, few=few):
            each = _join_edits(edits, move)
            if each:
                frontier.add(each)

    def _minimize(self, edits: tuple[Edit, ...]) -> tuple[tuple[Edit, ...], bool]:
        """Drop needless edits and steps; return False if trial plans ran out before the end."""
        is_proven = True
        for edit in edits if len(edits) > 1 else ():
            fewer = tuple(each for each in edits if each.path != edit.path)
            serves = self._serves(fewer) if fewer else False
            is_proven &= serves is not None
            edits = fewer if serves else edits
        for number, edit in enumerate(edits):
            for steps in range(edit.steps - 1, 0, -1):
                less = (*edits[:number], edit.turned(steps), *edits[number + 1 :])
                serves = self._serves(less)
                is_proven &= serves is not None
                if not serves:
                    break
                edits = less
        return edits, is_proven

    def harms(self, edits: tuple[Edit, ...]) -> tuple[str, ...]:
        """Return the requests that are served now but would wait with these edits."""
        run = plan_edits(self.run, self.key, edits, self.replans)
        return _find_harmed(self.run.plan, run.plan) if run else ()

    def awaited(self, edits: tuple[Edit, ...]) -> tuple[bool, AwaitedEvent | None]:
        """Return whether edits serve the request, and the wait if this takes later runs."""
        run = plan_edits(self.run, self.key, edits, self.replans)
        if run is None or is_served(run.plan, self.key):
            return run is not None, None
        wait = wait_for_runs(run, self.key, self.replans)
        return wait is not None, wait

    def _serves(self, edits: tuple[Edit, ...]) -> bool | None:
        """Return whether the request is served with these edits; None if no trial plan is left."""
        run = plan_edits(self.run, self.key, edits, self.replans)
        return None if run is None else self._is_reached(run.plan)

    def _is_reached(self, plan: Plan) -> bool:
        return is_served(plan, self.key) or (self.patient and is_throttled(plan, self.key))


def plan_edits(
    run: PlannedRun, key: str, edits: tuple[Edit, ...], replans: Replans
) -> PlannedRun | None:
    """Return the run after edits, whose plan is possibly cached; None at the limit of plans."""
    of = key if any(edit.path == REQUEST for edit in edits) else "", _edits_key(edits)
    after = edited(run.fleet, run.world, key, edits)
    plan = replans.plan(*after, of=of)
    return None if plan is None else PlannedRun(*after, plan, of=of)


def _find_harmed(plan: Plan, after: Plan) -> tuple[str, ...]:
    """Return the requests that a plan serves and another plan does not."""
    still = {key for signature in after.signatures for key in served_by(signature)}
    keys = (key for signature in plan.signatures for key in served_by(signature))
    return tuple(key for key in keys if key not in still)


def _join_edits(edits: tuple[Edit, ...], move: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """Return the union of two sets of edits; raises of the same figure are added up.

    Empty if both set the same key and its value is not a figure.
    """
    found = {edit.path: edit for edit in edits}
    for edit in move:
        known = found.get(edit.path)
        if known is None:
            found[edit.path] = edit
        elif known.steps and edit.steps:
            found[edit.path] = known.turned(known.steps + edit.steps)
        else:
            return ()
    return tuple(found.values())


def _edits_key(edits: tuple[Edit, ...]) -> _Key:
    """Return a hashable key of a set of edits, independent of the order of the edits."""
    return frozenset((edit.path, repr(edit.new)) for edit in edits)


def _user_edit_count(edits: tuple[Edit, ...]) -> tuple[int, int]:
    """Return the numbers of edits (two tags in one list count twice) and of edited keys."""
    return _count(edits), len(edits)


def _count(edits: tuple[Edit, ...]) -> int:
    return sum(edit.count for edit in edits)


def _size(edits: tuple[Edit, ...]) -> tuple[int, int, int, str]:
    return (
        _count(edits),
        sum(edit.rank for edit in edits),
        max((edit.steps for edit in edits), default=0),
        str([edit.path for edit in edits]),
    )


def _find_freed(run: PlannedRun, key: str, edits: Iterable[Edit]) -> tuple[str, ...]:
    """Return the pools of which a larger size helps a request that does not fit them."""
    asked = asked_by(run.fleet, run.signatures[key])
    sizes = [str(edit.path[1]) for edit in edits if edit.path[::2] == ("pools", "workers")]
    return tuple(name for name in dict.fromkeys(sizes) if not run.decider.fits(asked, name))


def _suggest(
    fleet: Fleet,
    edits: tuple[Edit, ...],
    harms: tuple[str, ...],
    wait: AwaitedEvent | None,
    freed: tuple[str, ...],
) -> Suggestion:
    asks = [tag for e in edits if e.path == REQUEST and isinstance(e.new, tuple) for tag in e.new]
    return Suggestion(
        sentence=", and ".join(describe(fleet, edit) for edit in edits)
        + (f", then {describe_wait(fleet, wait)}" if wait else "")
        + (answers.explain_freed(freed) if freed else "")
        + _format_harms(harms)
        + (LAST_CHOICE if lifts_limit(edits) else ""),
        changes=tuple(
            KeyChange(
                path=edit.path,
                old=write_value(fleet, edit.path, value_at(fleet, edit.path)),
                new=write_value(fleet, edit.path, edit.new),
                yaml=write_yaml(fleet, edit),
            )
            for edit in edits
            if edit.path != REQUEST
        ),
        asks=tuple(asks),
        wait=wait,
        harms=harms,
        lifts_limit=lifts_limit(edits),
    )


def lifts_limit(edits: Iterable[Edit]) -> bool:
    """Return whether edits raise a limit or budget that the team has set on purpose."""
    return any(not _PURPOSEFUL.isdisjoint(edit.path) for edit in edits)


def _format_harms(harms: tuple[str, ...]) -> str:
    if not harms:
        return ""
    many = f"{len(harms)} requests that are" if len(harms) > 1 else "1 request that is"
    return f" (but {many} served now would wait: {', '.join(harms[:_NAMED])})"


def moves(run: PlannedRun, key: str, *, few: int | None = None) -> Iterator[tuple[Edit, ...]]:
    """Yield sets of edits, each of which removes a constraint that makes a request wait.

    `few`: the number of plans left, if small. Limits are then raised at one additional place,
    because the smallest set is tried first.
    """
    fleet, world = run.fleet, run.world
    signature, found = run.signatures.get(key), run.find(key)
    if signature is None or found is None:
        return
    request, demand = found
    yield from lifts(run, key, few)
    for edit in _expired_rules(fleet, world, request):
        yield (edit,)
    unserved = run.unserved.get(key)
    for edit in _correct_tag(fleet, unserved.path if unserved else ()):
        yield (edit,)
    entries = find_missing_entries(fleet, signature, *found)
    for edit in _lookup_edits(run, signature, entries):
        yield (edit,)
    for edit in _askers(fleet, signature, request):
        yield (edit,)
    # If the queue has stored the tags, a new rule applies only to later requests.
    yield from _fitting_edits(run, signature, None if demand.stored else request)


def lifts(run: PlannedRun, key: str, few: int | None) -> Iterator[tuple[Edit, ...]]:
    """Yield, per machine option, the limits to raise; then an edit per other blocking key."""
    fleet, plan = run.fleet, run.plan
    unserved = run.unserved.get(key)
    if unserved is None:
        return
    if any(each.code == "limit" for each in unserved.blocked):
        most = None if few is None else few + 1
        for lack in islice(run.shortfalls.of(key), most):
            raised = [raise_figure(fleet, each.path, each.amount) for each in lack.missing]
            if all(raised):
                yield tuple(edit for edit in raised if edit)
    yield from _keep_machines(fleet, plan)
    for path in _blocking_paths(plan, unserved):
        for edit in _loosen_key(fleet, run.world, plan, key, path):
            yield (edit,)


def _keep_machines(fleet: Fleet, plan: Plan) -> Iterator[tuple[Edit, ...]]:
    """Yield, per pool above its maximum, the edit that keeps one additional machine."""
    every = (*plan.actions, *plan.withheld)
    gone = (each for each in every if not isinstance(each, Create))
    for name in sorted({each.pool for each in gone if each.reason is Reason.ABOVE_MAX}):
        raised = raise_figure(fleet, ("pools", name, "workers", "max"), Decimal(1))
        if raised is not None:
            yield (raised,)


def _blocking_paths(plan: Plan, unserved: Unserved) -> Iterator[Path]:
    """Yield the paths of the keys, except limits, that make a request wait."""
    paths = [each.path for each in unserved.blocked if each.code != "limit"]
    paths += [] if unserved.blocked else [unserved.path]
    pools = {each.pool for each in unserved.blocked}
    paths += [("pools", pool, "mode") for pool in sorted(pools)]
    paths += [g.path for g in plan.guards if g.result != "passed" and g.pool in (None, *pools)]
    yield from dict.fromkeys(path for path in paths if path)


def _loosen_key(fleet: Fleet, world: World, plan: Plan, key: str, path: Path) -> Iterator[Edit]:
    """Yield edits that loosen a key that makes a request wait."""
    for figure in figures_at(fleet, path):
        if figure[-1] == "of_last":
            continue  # a larger `of_last` counts more boots but permits no boot
        short = _shortfall(fleet, plan, key, figure)
        raised = raise_figure(fleet, figure, short) if short else None
        if raised is not None:
            yield raised
    if path[-1] == "mode" and value_at(fleet, path) not in (None, "apply"):
        yield Edit(path, "apply", text=f"set {yaml_key(path)} to apply")
    for guard in plan.guards:
        if guard.path == path and guard.result == "refused":
            yield from _approvals(fleet, world, guard)
            if guard.guard == "unenforced":
                yield Edit(path, REMOVED, rank=REMOVE, text=f"remove {yaml_key(path)}")


def _shortfall(fleet: Fleet, plan: Plan, key: str, figure: Path) -> Decimal:
    """Return the amount by which a guard's figure must rise; 0 if another figure of it stops."""
    old = Decimal(int(value_at(fleet, figure)))
    guards = [g for g in plan.guards if figure[: len(g.path)] == g.path and g.result != "passed"]
    is_throttle = bool(guards) and figure[:-1] == CREATE_LIMIT
    needed = [old + (not is_throttle)]
    for guard in guards:
        count = guard.count
        if is_throttle:
            # A later run creates the machine, in service order.
            later = [
                each
                for each in plan.withheld
                if isinstance(each, Create) and guard.pool in (None, each.pool)
            ]
            later.sort(key=lambda each: each.turn)
            places = (n for n, each in enumerate(later, 1) if key in each.serves)
            place = next(places, len(later))
            count += place - guard.withheld
        least = figure_to_pass(fleet, guard, str(figure[-1]), count)
        needed += [] if least is None else [Decimal(least)]
    return max(needed) - old


def _approvals(fleet: Fleet, world: World, guard: GuardResult) -> Iterator[Edit]:
    """Yield edits that add an approval of a guard, or raise or renew an existing approval."""
    today, pool = world.time.date(), guard.pool
    for number, approval in enumerate(fleet.approvals):
        if approval.guard == guard.guard and pool in (None, approval.pool):
            path: Path = ("approvals", number)
            if approval.expires < today:
                yield _not_before(world, (*path, "expires"))
            short = Decimal(max(1, guard.count - approval.count))
            raised = raise_figure(fleet, (*path, "count"), short)
            if raised is not None:
                yield raised
    if guard.guard in ("delete", "cost_increase"):
        for name in [pool] if pool else sorted(fleet.pools):
            expires = today + timedelta(days=APPROVED_DAYS)
            written = {"guard": guard.guard, "pool": name, "count": 0, "reason": "say why"}
            new = Approval.model_validate(written | {"expires": expires})
            path = ("approvals", len(fleet.approvals))
            yield Edit(path, new, rank=APPROVE, least=new).turned(max(1, guard.count))


def _expired_rules(fleet: Fleet, world: World, request: Request) -> Iterator[Edit]:
    """Yield edits that renew the expired allow-list rules that match a build."""
    today = world.time.date()
    over = [n for n, rule in enumerate(fleet.powerful) if rule.expires and rule.expires < today]
    names = names_of(request)
    for number in over:
        rule = fleet.powerful[number]
        if (
            is_valid(rule)
            and is_for_task(rule, request.task)
            and any(matches_name(rule, name) for name in names)
        ):
            yield _not_before(world, ("powerful", number, "expires"))


def _correct_tag(fleet: Fleet, path: Path) -> Iterator[Edit]:
    """Yield the correction of a rule that asks for nearly a tag that a pool provides."""
    if path[2:3] != ("ask",):
        return
    tag = value_at(fleet, path)
    if near := nearest_tag(tag, provided_tags(fleet)):
        key, text = path[:3], f"correct {tag} to {near} in {yaml_key(path[:2])}"
        old = value_at(fleet, key)
        new = near if old == tag else [near if each == tag else each for each in old]
        yield Edit(key, new, text=text)


def _not_before(world: World, path: Path) -> Edit:
    """Return the edit that moves an expiry date to today or later."""
    yesterday = world.time.date() - timedelta(days=1)
    return Edit(path, None, rank=EXPIRY, least=yesterday).turned(1)


def find_missing_entries(
    fleet: Fleet, signature: Signature, request: Request, demand: Demand
) -> dict[tuple[str, ...], DeriveRule]:
    """Map each missing look-up key that would decide a request's tags to its `derive` rule."""
    if not any(refused.is_unknown for refused in signature.refused):
        return {}
    context = context_of(fleet, signature.queue, demand)
    unknown = find_unknown_tags(fleet, request, signature.required, context)
    return {each.entry: fleet.derive[each.index] for each in unknown if each.entry}


def _lookup_edits(
    run: PlannedRun, signature: Signature, missing: Mapping[tuple[str, ...], DeriveRule]
) -> Iterator[Edit]:
    """Yield edits that add missing look-up entries and thus a tag that some pool provides."""
    provided = {
        tag
        for name, pool in (run.fleet.pools if missing else {}).items()
        if serves_queue(pool, signature.queue)
        for tag in run.decider.offers[name].provides
    }
    for path, rule in missing.items():
        values = sorted({*(value_for(rule, tag) for tag in provided)} - {""})
        for value in values[:MOST_VALUES]:
            text = f"set {yaml_key(path)} to {value}, if that is the {path[3]} of {path[2]}"
            yield Edit(path, value, rank=CLAIM, text=text)


def _askers(fleet: Fleet, signature: Signature, request: Request) -> Iterator[Edit]:
    """Yield edits of `asked_by` that permit the denied tags."""
    for refused in signature.refused:
        if refused.is_unknown and is_about_environments(fleet.derive[int(refused.path[1])]):
            place: Path = ("queues", signature.queue, "unknown_environment")
            text = f"let requests of queue {signature.queue} run on any architecture"
            yield Edit(place, "any", rank=OPEN, text=text)
        allowed = value_at(fleet, refused.path)
        if not isinstance(allowed, list):
            continue
        source = request.asked.get(refused.tag)
        word = _WORDS.get(source or "", "rules")
        if source in ("user", "ticket") and request.requester:
            one = Askers(users=[request.requester])
            text = f"permit {refused.tag} to user {request.requester}"
            yield Edit(refused.path, [*allowed, one], rank=OPEN, text=text)
        if word not in allowed:
            text = f"permit {refused.tag} to all users ({word})"
            yield Edit(refused.path, [*allowed, word], rank=OPEN, text=text)


def _fitting_edits(
    run: PlannedRun, signature: Signature, ruled: Request | None
) -> Iterator[tuple[Edit, ...]]:
    """Yield sets of edits that make a pool fit, starting with the pool that needs fewest edits.

    `ruled`: the request to which allow-list rules may still add tags; None if stored.
    """
    found: list[tuple[int, str, list[list[tuple[Edit, ...]]]]] = []
    for name, pool in sorted(run.fleet.pools.items()):
        if isinstance(pool, Pool | StaticPool):
            parts = [*_fix_mismatches(run, signature, name, ruled)]
            lacks = sum(min(map(_count, ways)) for ways in parts if ways)
            if parts and all(parts) and lacks <= MOST_EDITS:
                found.append((lacks, name, parts))
    for _, _, parts in sorted(found, key=lambda each: each[:2]):
        yield from (tuple(chain.from_iterable(ways)) for ways in product(*parts))


def _is_refused(fleet: Fleet, edits: Iterable[Edit]) -> bool:
    """Return whether `fleet validate` would refuse the tags that these edits declare."""
    claims = [e for e in edits if e.rank == CLAIM and e.path[0] in ("pools", "images")]
    if not claims:
        return False
    images = {str(edit.path[1]) for edit in claims if edit.path[0] == "images"}
    names = {str(edit.path[1]) for edit in claims if edit.path[0] == "pools"}
    images |= {pool.image for name in names if isinstance(pool := fleet.pools[name], Pool)}
    pools = {
        name: pool
        for name, pool in fleet.pools.items()
        if name in names or (isinstance(pool, Pool) and pool.image in images)
    }
    narrow = fleet.model_copy(update={"pools": pools})
    return bool(_errors(apply_edits(narrow, claims)) - _errors(narrow))


def _errors(fleet: Fleet) -> set[tuple[str, Path]]:
    found = chain.from_iterable(check(fleet) for check in CHECKS)
    return {(each.message, each.path) for each in found if each.severity == "error"}


def _fix_mismatches(
    run: PlannedRun, signature: Signature, name: str, ruled: Request | None
) -> Iterator[list[tuple[Edit, ...]]]:
    """Yield, per mismatch between pool and request, the alternative sets of edits that fix it."""
    fleet, pool = run.fleet, run.fleet.pools[name]
    unfit = run.decider.find_unfit(asked_by(fleet, signature), name)
    tags_of = {each.code: each.figures.tags for each in unfit}
    missing = tags_of.get(Unfit.TAG_MISSING, ())
    if Unfit.TOO_SMALL in tags_of or not all(map(is_tag, missing)):
        return  # no edit of fleet.yaml enlarges machines or adds such a tag
    if Unfit.IMAGE_UNPROVEN in tags_of:
        return  # after a build, test and publication, the image proves these tags
    if Unfit.QUEUE_NOT_SERVED in tags_of:
        text = f"let pool {name} serve queue {signature.queue}"
        serves = [*(pool.serves or ()), signature.queue]
        yield [(Edit(("pools", name, "serves"), serves, text=text),)]
    if missing:
        yield [(_provide(fleet, name, missing),)]
    if not_brought := tags_of.get(Unfit.TAG_NOT_BROUGHT):
        if not isinstance(pool, Pool):
            yield []
            return
        kept = [tag for tag in pool.requires if tag not in not_brought]
        text = f"remove {', '.join(not_brought)} from pools.{name}.requires"
        count = len(not_brought)
        edit = Edit(("pools", name, "requires"), kept, count=count, rank=CLAIM, text=text)
        yield [(edit,)]
    exclusive, on_demand = tags_of.get(Unfit.TAG_EXCLUSIVE, ()), tags_of.get(Unfit.ON_DEMAND, ())
    unasked = tuple(dict.fromkeys((*exclusive, *on_demand[:1])))
    if unasked:
        text = f"have the request ask for {', '.join(unasked)}"
        asking = Edit(REQUEST, unasked, count=len(unasked), rank=ASK, text=text)
        opened = tuple(_open_tags(fleet, exclusive, on_demand))
        ways = [(edit,) for edit in _rules(fleet, ruled, unasked)] if ruled else []
        yield [*ways, (asking,), *([opened] if opened else [])]


def _open_tags(
    fleet: Fleet, exclusive: tuple[str, ...], on_demand: tuple[str, ...]
) -> Iterator[Edit]:
    """Yield the edits after which any request may use workers with these tags."""
    vocabulary = Vocabulary(fleet)
    for tags, flag, holds in (
        (exclusive, "exclusive", vocabulary.is_exclusive),
        (on_demand, "on_demand", vocabulary.is_on_demand),
    ):
        declaring = (next((n for n in vocabulary.names_of(t) if holds(n)), None) for t in tags)
        for name in dict.fromkeys(filter(None, declaring)):
            yield Edit(("tags", name, flag), new=False, rank=OPEN)


def _rules(fleet: Fleet, request: Request, tags: tuple[str, ...]) -> Iterator[Edit]:
    """Yield an edit that adds an allow-list rule with these tags for builds of this name."""
    for name in names_of(request)[:1]:
        text = f"let a rule of `powerful` ask for {', '.join(tags)} for {name}"
        new = rule_for(request, tags)
        yield Edit(("powerful", len(fleet.powerful)), new, rank=RULE, text=text)


def _provide(fleet: Fleet, name: str, tags: tuple[str, ...]) -> Edit:
    """Return the edit that adds tags to the pool's `provides`, or to its image's if required."""
    pool = fleet.pools[name]
    vocabulary = Vocabulary(fleet)
    sources = [vocabulary.provided_by(tag)[0] for tag in tags]
    by_image = any(each is not None and "pool" not in each for each in sources)
    path: Path = ("pools", name, "provides")
    if by_image and isinstance(pool, Pool):
        path = ("images", pool.image, "provides")
    text = f"add {', '.join(tags)} to {yaml_key(path)}, if its workers provide it"
    old = value_at(fleet, path) or []
    return Edit(path, [*old, *tags], count=len(tags), rank=CLAIM, text=text)


def describe(fleet: Fleet, edit: Edit) -> str:
    """Return an edit as a phrase with the old and new value."""
    if edit.text:
        return edit.text
    old = write_value(fleet, edit.path, value_at(fleet, edit.path))
    new = write_value(fleet, edit.path, edit.new)
    if edit.rank == EXPIRY:
        return f"move {yaml_key(edit.path)} from {old} to {new} or later"
    if edit.rank == APPROVE:
        return f"add an approval: {new}"
    verb = "set" if edit.least is None else "raise"
    return f"{verb} {yaml_key(edit.path)} from {old} to {new}"


def describe_wait(fleet: Fleet, wait: AwaitedEvent) -> str:
    """Return a wait as a phrase, such as "wait for the next run, about 12:00 UTC"."""
    when = write_time(wait.until) if wait.until else ""
    begins = f", then it starts about {write_time(wait.start)}" if wait.start else ""
    if wait.runs:
        runs = "the next run" if wait.runs == 1 else f"{wait.runs} runs"
        return f"wait for {runs}, about {when}: fleet apply every {write_duration(fleet.cadence)}"
    if wait.workers:
        names = ", ".join(wait.workers[:_NAMED])
        names += " and others" if len(wait.workers) > _NAMED else ""
        many = f"{len(wait.workers)} busy workers are" if len(wait.workers) > 1 else "a worker is"
        known = f", expected {when}" if when else ", duration unknown"
        if wait.assumed:
            known += f"; assumed: {write_time(wait.assumed)}"
        return f"wait until {many} free ({names}){known}{begins}"
    return f"wait until {when}{begins}"


def find_waits(run: PlannedRun, key: str, replans: Replans) -> Iterator[AwaitedEvent]:
    """Yield waits after which a plan serves the request: for runs, or else for work or time."""
    if _is_eased_by_runs(run, key):
        wait = wait_for_runs(run, key, replans)
        if wait is not None:
            yield wait
            return
    if replans.left <= 0:
        replans.is_spent = True
        return
    after = _after_work(run, key, replans)
    # An attempt after a shortage may fail again, so prefer a known end of work.
    found = [after, _after_time(run, key, replans, attempts=after is None)]
    known = [wait for wait in found if wait is not None]
    yield from sorted(known, key=lambda w: (w.until is None, w.until or run.world.time))


def is_throttled(plan: Plan, key: str) -> bool:
    """Return whether only a throttle withholds the request's machine until a later run."""
    return any(u.path[:2] == ("guards", "throttle") for u in plan.unserved if key in u.requests)


def _is_eased_by_runs(run: PlannedRun, key: str) -> bool:
    """Return whether one of the next runs possibly serves a request without any edit.

    Until then, machines boot or are deleted, or their creation is retried.
    """
    plan, following = run.plan, run.world.time + next_pause(run.fleet)
    blocked = run.unserved[key].blocked if key in run.unserved else ()
    is_made = any(not isinstance(action, Create) for action in plan.actions)
    return (
        is_made
        or bool(plan.releases or plan.resumes)
        or is_throttled(plan, key)
        or any(each.path[-1:] == ("max_starting",) for each in blocked)
        or any(each.until and each.until <= following for each in blocked)
    )


def wait_for_runs(run: PlannedRun, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for the first run that serves a request if all machines boot, or None."""
    while run.number < MOST_RUNS:
        if run.number and not (run.plan.actions or run.plan.releases or run.plan.resumes):
            return None
        following = replans.run_after(run)
        if following is None:
            return None
        run = following
        if is_served(run.plan, key):
            start = run.forecast.start_of(key)
            return AwaitedEvent(runs=run.number, until=run.world.time, start=start)
    return None


def _after_work(run: PlannedRun, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for workers to end their work, if the request is then served, or None."""
    found = run.forecast
    if key in found.untimed:
        found = run.assumed
    wait = _for_workers(run, key, found) if key in found.starts else _for_limit(run, key)
    if wait is None or (wait.assumed and not _all_exist(run, wait.workers)):
        return None
    return _start_after(run, key, wait, replans)


def _all_exist(run: PlannedRun, workers: Iterable[str]) -> bool:
    """Return whether all these workers exist now and are busy or idle."""
    states = {each.worker: each.state for each in run.plan.workers}
    return all(states.get(name) in ("busy", "idle") for name in workers)


def _for_workers(run: PlannedRun, key: str, found: Forecast) -> AwaitedEvent:
    """Return the wait for the busy workers that will first serve this and earlier requests."""
    own = found.workers[key]
    names: dict[str, None] = {}
    for other, worker in found.workers.items():
        each = found.standing[worker]
        if each.works and each.alike == found.standing[own].alike:
            names[worker] = None
        if other == key:
            break
    return _wait(run, tuple(names) or (own,), found, found.starts[key])


def _wait(
    run: PlannedRun, workers: tuple[str, ...], found: Forecast, seconds: int
) -> AwaitedEvent:
    moment = run.world.time + timedelta(seconds=seconds)
    if found is run.forecast:
        return AwaitedEvent(workers=workers, until=moment)
    return AwaitedEvent(workers=workers, assumed=moment)


def _for_limit(run: PlannedRun, key: str) -> AwaitedEvent | None:
    """Return the wait for the work in whose place limits on tags or queues admit a request."""
    for found, turns in ((run.forecast, run.turns), (run.assumed, run.assumed_turns)):
        turn = turns.get(key)
        if turn and turn.first and turn.first.end is not None:
            return _wait(run, (turn.first.worker,), found, turn.first.end)
    return None


def _after_time(
    run: PlannedRun, key: str, replans: Replans, *, attempts: bool
) -> AwaitedEvent | None:
    """Return the wait for the first expiry of a constraint that lets a plan serve a request.

    `attempts`: also wait for the next attempt to create a machine.
    """
    moments = sorted(set(_moments(run, key, attempts=attempts)))
    for moment in islice(moments, MAX_MOMENTS):
        wait = AwaitedEvent(until=moment)
        if then := _start_after(run, key, wait, replans):
            return then
    return None


def _moments(run: PlannedRun, key: str, *, attempts: bool) -> Iterator[datetime]:
    """Yield the times when a constraint ends or `otherwise` lets the request waive a tag."""
    blocked = run.unserved[key].blocked if key in run.unserved else ()
    yield from (b.until for b in blocked if b.until and (attempts or b.code != "closed"))
    if attempts and run.world.attempts:
        # A stopped image version with more tags may boot again.
        choices = choose_images(run.fleet, run.world).values()
        yield from (each.until for each in choices if each.until)
    found, signature = run.find(key), run.signatures.get(key)
    since = found[0].pending_since if found else None
    if since is None or signature is None:
        return
    for *_, seconds in Drops(run.fleet, run.world.time).delays(signature.required):
        if (moment := since + timedelta(seconds=seconds)) > run.world.time:
            yield moment


def awaited(run: PlannedRun, wait: AwaitedEvent, replans: Replans) -> World | None:
    """Return the expected world after a wait; None if no trial plan is left."""
    later: PlannedRun | None = run
    for _ in range(wait.runs):
        later = replans.run_after(later) if later else None
    if later is None or wait.runs:
        return later.world if later else None
    found = run.assumed if wait.assumed else run.forecast
    moment = wait.assumed or wait.until or run.world.time
    return step(run.fleet, run.world, run.plan, moment, found)


def _start_after(
    run: PlannedRun, key: str, wait: AwaitedEvent, replans: Replans
) -> AwaitedEvent | None:
    """Return a wait, with the start of the request if later; None if no run then serves it.

    A ticket's machine may first have to be deleted, and another created.
    """
    if (seen := awaited(run, wait, replans)) is None:
        return None
    plan = replans.plan(run.fleet, seen, of=("wait", wait))
    if plan is None:
        return None
    then = PlannedRun(run.fleet, seen, plan, of=("wait", wait))
    start = then.forecast.start_of(key)
    if not is_served(plan, key):
        further = wait_for_runs(then, key, replans) if _is_eased_by_runs(then, key) else None
        if further is None:
            return None
        start = further.start
    # With an assumed duration, the start is unknown.
    is_later = not wait.workers or start != wait.until
    return wait.altered(start=start) if is_later and not wait.assumed else wait
