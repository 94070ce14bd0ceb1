"""Suggest edits of fleet.yaml, or waits, after which a waiting request is served.

An edit is the inverse of a constraint that the plan records: `moves` raises each limit by its
shortfall, and permits what is forbidden. A plan of the edited fleet.yaml checks each edit. If the
request still waits, the edits that this plan calls for are added. At most `MOST_PLANS` plans are
made.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from heapq import heappop, heappush
from itertools import chain, islice, product
from typing import NamedTuple

from fleet.checks import CHECKS
from fleet.explain.edits import (
    REMOVED,
    REQUEST,
    Edit,
    apply_edits,
    figures_at,
    lower_figure,
    raise_figure,
    value_at,
    write_value,
    write_yaml,
)
from fleet.explain.options import rule_for
from fleet.explain.values import AwaitedEvent, KeyChange, Suggestion
from fleet.explain.waits import describe_wait, find_waits, is_throttled, wait_for_runs
from fleet.explain.what_if import PlannedRun, Replans, edited, is_served, served_by
from fleet.guard.approvals import APPROVED_DAYS
from fleet.guard.refusals import figure_to_pass, pass_order
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
from fleet.planner.fitting import asked_by
from fleet.schema.findings import Path, yaml_key
from fleet.schema.model import (
    Approval,
    Askers,
    DeriveRule,
    Fleet,
    Money,
    Pool,
    StaticPool,
    serves_queue,
)
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
_WORDS = {"user": "user", "task": "task", "ticket": "tickets", "system": "system"}
MOST_EDITS = 4
_NAMED = 3
_PURPOSEFUL = frozenset({"limits", "budget", "budgets"})
"""Keys of fleet.yaml that limit users, teams and cost on purpose."""


@dataclass(frozen=True)
class Remedy:
    """A suggestion to the user, and the edits of fleet.yaml that it consists of."""

    suggestion: Suggestion
    edits: tuple[Edit, ...] = ()

    def describe(self, fleet: Fleet) -> str:
        """Return the edits as a phrase, without their side effects."""
        return ", and ".join(describe(fleet, edit) for edit in self.edits)


def find_remedies(run: PlannedRun, key: str, replans: Replans) -> tuple[Remedy, ...]:
    """Return the suggestions for a waiting request: waits first, then edits, smallest first."""
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
        found = find_edits(run, key, replans)
    waits = [
        Remedy(Suggestion(sentence=describe_wait(run.fleet, wait), wait=wait))
        for wait in find_waits(run, key, replans)
    ]
    timed = [each for each in waits if each.suggestion.wait and each.suggestion.wait.until]
    if not is_few and len(timed) < replans.most_shown:
        found = find_edits(run, key, replans)
    return (*waits, *found)


def find_edits(run: PlannedRun, key: str, replans: Replans) -> list[Remedy]:
    """Return the smallest sets of edits that serve a request, at most `replans.most_shown`.

    A set also serves the request if then only a throttle withholds its machine for some runs.
    """
    is_patient = not is_throttled(run.plan, key)

    def is_enough(after: PlannedRun) -> bool:
        is_later = is_patient and is_throttled(after.plan, key)
        return is_served(after.plan, key) or (
            is_later and wait_for_runs(after, key, replans) is not None
        )

    tried = try_edits(run, key, replans, moves, is_enough)
    found = [*islice((each for each in tried if each.is_enough), replans.most_shown)]
    least = min((len(each.edits) for each in found), default=0)
    remedies = []
    for each in (each for each in found if len(each.edits) == least):
        edits, after, _ = _lower(run, key, each, replans, is_enough)
        is_now = is_served(after.plan, key)
        wait = None if is_now else wait_for_runs(after, key, replans)
        remedies.append(remedy_of(run, key, edits, after, wait))
    remedies.sort(key=lambda each: len(each.suggestion.harms))
    return sorted(remedies, key=lambda each: each.suggestion.lifts_limit)


def _lower(
    run: PlannedRun,
    key: str,
    trial: "EditTrial",
    replans: Replans,
    is_enough: Callable[[PlannedRun], bool],
) -> "EditTrial":
    """Return the edits with the lowest figures that are enough, as far as trial plans are left.

    A shortfall is calculated without a solver, so it is sometimes a step too high.
    """
    for number, edit in enumerate(trial.edits):
        less = lower_figure(run.fleet, edit)
        if less is None or replans.left <= 0:
            continue
        edits = (*trial.edits[:number], less, *trial.edits[number + 1 :])
        after = plan_edits(run, key, edits, replans)
        if after is not None and is_enough(after):
            return _lower(run, key, EditTrial(edits, after, is_enough=True), replans, is_enough)
    return trial


class EditTrial(NamedTuple):
    """A set of edits that was tried, with the run after it."""

    edits: tuple[Edit, ...]
    after: PlannedRun
    is_enough: bool


def try_edits(
    run: PlannedRun,
    key: str,
    replans: Replans,
    find: Callable[[PlannedRun, str, int], Iterable[tuple[Edit, ...]]],
    is_enough: Callable[[PlannedRun], bool],
) -> Iterator[EditTrial]:
    """Yield the sets of edits that were tried, from the smallest on, until some are enough.

    `find` yields the edits for the constraints in a plan. If a set is not enough, the edits for
    the constraints in the plan after it are added.
    """
    known: set[frozenset[tuple[Path, str]]] = set()
    heap: list[tuple[bool, tuple[int, int], int, tuple[Edit, ...]]] = []
    is_few = replans.left <= FEW_PLANS

    def add(edits: tuple[Edit, ...], after: PlannedRun) -> None:
        for more in find(after, key, replans.left + 1):
            each = _join_edits(edits, more)
            if each and (name := _edits_key(each)) not in known:
                known.add(name)
                # With few trial plans, edits that only permit are tried first.
                is_last = is_few and any(edit.rank for edit in each)
                heappush(heap, (is_last, _size(each), len(known), each))

    add((), run)
    most = MOST_EDITS
    while heap:
        _, size, _, edits = heappop(heap)
        if size[0] > most:
            return
        if _is_refused(run.fleet, edits):
            continue
        after = plan_edits(run, key, edits, replans)
        if after is None:
            return
        trial = EditTrial(edits, after, is_enough(after))
        yield trial
        if trial.is_enough:
            most = size[0]
        else:
            add(edits, after)


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


def _join_edits(edits: tuple[Edit, ...], more: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """Return the union of edits and more edits, which raise the figures further.

    Empty if both set the same key and its value is not a figure.
    """
    found = {edit.path: edit for edit in edits}
    if any(edit.path in found and not _is_raise(edit) for edit in more):
        return ()
    return tuple((found | {edit.path: edit for edit in more}).values())


def _is_raise(edit: Edit) -> bool:
    return isinstance(edit.new, int | Money) and not isinstance(edit.new, bool)


def _edits_key(edits: tuple[Edit, ...]) -> frozenset[tuple[Path, str]]:
    """Return a hashable key of a set of edits, independent of the order of the edits."""
    return frozenset((edit.path, repr(edit.new)) for edit in edits)


def _size(edits: tuple[Edit, ...]) -> tuple[int, int]:
    """Return the number of edits (two tags in one list count twice) and the sum of their ranks."""
    return sum(edit.count for edit in edits), sum(edit.rank for edit in edits)


def remedy_of(
    run: PlannedRun,
    key: str,
    edits: tuple[Edit, ...],
    after: PlannedRun,
    wait: AwaitedEvent | None = None,
) -> Remedy:
    """Return edits as a suggestion, with their side effects in the run after them."""
    fleet, plan = run.fleet, run.plan
    harms = _find_harmed(plan, after.plan)
    freed = _find_freed(run, key, edits)
    asks = [tag for e in edits if e.path == REQUEST and isinstance(e.new, tuple) for tag in e.new]
    suggestion = Suggestion(
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
    return Remedy(suggestion, edits)


def _find_freed(run: PlannedRun, key: str, edits: Iterable[Edit]) -> tuple[str, ...]:
    """Return the pools of which a larger size helps a request that does not fit them."""
    asked = asked_by(run.fleet, run.signatures[key])
    sizes = [str(edit.path[1]) for edit in edits if edit.path[::2] == ("pools", "workers")]
    return tuple(name for name in dict.fromkeys(sizes) if not run.decider.fits(asked, name))


def lifts_limit(edits: Iterable[Edit]) -> bool:
    """Return whether edits raise a limit or budget that the team has set on purpose."""
    return any(not _PURPOSEFUL.isdisjoint(edit.path) for edit in edits)


def _format_harms(harms: tuple[str, ...]) -> str:
    if not harms:
        return ""
    many = f"{len(harms)} requests that are" if len(harms) > 1 else "1 request that is"
    return f" (but {many} served now would wait: {', '.join(harms[:_NAMED])})"


def moves(run: PlannedRun, key: str, most: int | None = None) -> Iterator[tuple[Edit, ...]]:
    """Yield sets of edits, each of which removes a constraint that makes a request wait.

    Limits are raised for the first `most` places where a machine could run the request.
    """
    fleet, world = run.fleet, run.world
    signature, found = run.signatures.get(key), run.find(key)
    if signature is None or found is None:
        return
    request, demand = found
    unserved = run.unserved.get(key)
    blocking = {each.path for each in unserved.blocked} if unserved else set[Path]()
    is_growing = any(isinstance(each, Create) for each in run.plan.actions)
    for edits in raises(run, key, most):
        # A throttle that passes some machines only withholds those of other requests for a while.
        is_slow = is_growing and any(edit.path[:-1] == CREATE_LIMIT for edit in edits)
        if not is_slow or CREATE_LIMIT in blocking:
            yield edits
    for edit in _expired_rules(fleet, world, request):
        yield (edit,)
    for edit in _correct_tag(fleet, unserved.path if unserved else ()):
        yield (edit,)
    entries = find_missing_entries(fleet, signature, *found)
    for edit in _lookup_edits(run, signature, entries):
        yield (edit,)
    for edit in _askers(fleet, signature, request):
        yield (edit,)
    # If the queue has stored the tags, a new rule applies only to later requests.
    yield from _fitting_edits(run, signature, None if demand.stored else request)


def raises(run: PlannedRun, key: str, most: int | None = None) -> Iterator[tuple[Edit, ...]]:
    """Yield, per machine option, the limits to raise; then an edit per other blocking key."""
    fleet, plan = run.fleet, run.plan
    unserved = run.unserved.get(key)
    if unserved is None:
        return
    if any(each.code == "limit" for each in unserved.blocked):
        for lack in islice(run.shortfalls.of(key), most):
            raised = [raise_figure(fleet, each.path, each.amount) for each in lack.missing]
            if all(raised):
                yield tuple(edit for edit in raised if edit)
    yield from _keep_machines(fleet, plan)
    for path in _blocking_paths(plan, unserved):
        yield from _loosen_key(fleet, run.world, plan, key, path)


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


def _loosen_key(
    fleet: Fleet, world: World, plan: Plan, key: str, path: Path
) -> Iterator[tuple[Edit, ...]]:
    """Yield sets of edits, each of which loosens a key that makes a request wait."""
    # A larger `of_last` counts more boots but permits no boot.
    figures = [each for each in figures_at(fleet, path) if each[-1] != "of_last"]
    short = {each: _shortfall(fleet, plan, key, each) for each in figures}
    if path == CREATE_LIMIT and not all(short[*path, each] for each in ("share", "free_below")):
        # `share` of `free_below` machines suffices, so only `count` stops the request.
        short = {each: amount for each, amount in short.items() if each[-1] == "count"}
    edits = (raise_figure(fleet, each, amount) for each, amount in short.items() if amount)
    raised = {edit.path[-1]: edit for edit in edits if edit}
    if path == CREATE_LIMIT and (count := raised.pop("count", None)):
        # `count` limits creations in addition to `share` of `free_below`.
        yield from ((count, other) for other in raised.values())
        raised = {} if raised else {"count": count}
    yield from ((edit,) for edit in raised.values())
    if path[-1] == "mode" and value_at(fleet, path) not in (None, "apply"):
        yield (Edit(path, "apply", text=f"set {yaml_key(path)} to apply"),)
    for guard in plan.guards:
        if guard.path == path and guard.result == "refused":
            yield from ((edit,) for edit in _approvals(fleet, world, guard))
            if guard.guard == "unenforced":
                yield (Edit(path, REMOVED, rank=REMOVE, text=f"remove {yaml_key(path)}"),)


def _shortfall(fleet: Fleet, plan: Plan, key: str, figure: Path) -> Decimal:
    """Return the amount by which a guard's figure must rise; 0 if another figure of it stops."""
    old = Decimal(int(value_at(fleet, figure)))
    guards = [g for g in plan.guards if figure[: len(g.path)] == g.path and g.result != "passed"]
    is_throttle = bool(guards) and figure[:-1] == CREATE_LIMIT
    counts = [(guard, guard.count) for guard in guards]
    if is_throttle:
        places = [(guard, _place_at(plan, guard, key)) for guard in guards]
        counts = [(guard, place) for guard, place in places if place] or counts
    needed = [old + (not is_throttle)]
    for guard, count in counts:
        least = figure_to_pass(fleet, guard, str(figure[-1]), count)
        needed += [] if least is None else [Decimal(least)]
    return max(needed) - old


def _place_at(plan: Plan, guard: GuardResult, key: str) -> int:
    """Return the number of machines that a throttle passes up to that of a request; 0 if none."""
    creates = [each for each in (*plan.actions, *plan.withheld) if isinstance(each, Create)]
    own = pass_order([each for each in creates if guard.pool in (None, each.pool)])
    serves = [isinstance(each, Create) and key in each.serves for each in own]
    return serves.index(True) + 1 if any(serves) else 0


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
            count = max(1, guard.count)
            written = {"guard": guard.guard, "pool": name, "count": count, "reason": "say why"}
            new = Approval.model_validate(written | {"expires": expires})
            path = ("approvals", len(fleet.approvals))
            yield Edit(path, new, rank=APPROVE)


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
    return Edit(path, world.time.date(), rank=EXPIRY)


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
            lacks = sum(min(map(_size, ways))[0] for ways in parts if ways)
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
        # Any request may use a machine with an on-demand tag if the machine exists.
        free: list[tuple[Edit, ...]] = [] if exclusive else [()]
        yield [*free, *ways, (asking,), *([opened] if opened else [])]


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
    verb = "raise" if _is_raise(edit) else "set"
    return f"{verb} {yaml_key(edit.path)} from {old} to {new}"
