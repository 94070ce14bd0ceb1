"""Find the edits of fleet.yaml that remove a constraint because of which a request waits.

An edit is the inverse of a constraint that the plan records: it raises a limit by its shortfall,
or permits what is forbidden.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import chain, islice, product

from fleet.checks import CHECKS
from fleet.explain.case import Case
from fleet.explain.edits import (
    REMOVED,
    REQUEST,
    Edit,
    apply_edits,
    figures_at,
    raise_figure,
    size_of_edits,
    value_at,
)
from fleet.explain.options import rule_for
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

ALLOW, EXPIRY, APPROVE, RULE, ASK, CLAIM, OPEN, REMOVE = range(8)
"""Ranks of edits: raise a limit or set a mode, postpone an expiry, approve, add an allow-list
rule, have the request require a tag, declare a provided tag, permit a tag to all users, remove a
key."""
MOST_VALUES = 3
"""Maximum number of values suggested per look-up key, so that other edits are shown, too."""
MOST_EDITS = 4
_WORDS = {"user": "user", "task": "task", "ticket": "tickets", "system": "system"}
Edits = tuple[Edit, ...]


def moves(run: Case, key: str, most: int | None = None) -> Iterator[Edits]:
    """Yield sets of edits, each of which removes a constraint that makes a request wait.

    Limits are raised for the first `most` places where a machine could run the request.
    """
    signature, found, unserved = run.signatures.get(key), run.find(key), run.unserved.get(key)
    if signature is None or found is None:
        return
    request, demand = found
    # A throttle that passes some machines only withholds those of other requests for a while.
    is_slow = any(isinstance(each, Create) for each in run.plan.actions) and not (
        unserved and any(each.path == CREATE_LIMIT for each in unserved.blocked)
    )
    for edits in raises(run, key, most):
        if not is_slow or all(edit.path[:-1] != CREATE_LIMIT for edit in edits):
            yield edits
    for edit in chain(
        _renew_rules(run, request),
        _correct_tag(run.fleet, unserved.path if unserved else ()),
        _add_entries(run, signature, find_missing_entries(run.fleet, signature, *found)),
        _permit_tags(run.fleet, signature, request),
    ):
        yield (edit,)
    # If the queue has stored the tags, a new rule applies only to later requests.
    yield from _fit_pools(run, signature, None if demand.stored else request)


def raises(run: Case, key: str, most: int | None = None) -> Iterator[Edits]:
    """Yield, per machine option, the limits to raise; then an edit per other blocking key."""
    fleet, plan, unserved = run.fleet, run.plan, run.unserved.get(key)
    if unserved is None:
        return
    if any(each.code == "limit" for each in unserved.blocked):
        for lack in islice(run.shortfalls.of(key), most):
            raised = [raise_figure(fleet, each.path, each.amount) for each in lack.missing]
            if all(raised):
                yield tuple(edit for edit in raised if edit)
    # A machine above the maximum of its pool is kept if the maximum rises.
    gone = (each for each in (*plan.actions, *plan.withheld) if not isinstance(each, Create))
    for name in sorted({each.pool for each in gone if each.reason is Reason.ABOVE_MAX}):
        if edit := raise_figure(fleet, ("pools", name, "workers", "max"), Decimal(1)):
            yield (edit,)
    for path in _list_blocking_paths(plan, unserved):
        yield from _loosen_key(run, key, path)


def _list_blocking_paths(plan: Plan, unserved: Unserved) -> Iterable[Path]:
    """Return the paths of the keys, except limits, that make a request wait."""
    paths = [each.path for each in unserved.blocked if each.code != "limit"]
    paths += [] if unserved.blocked else [unserved.path]
    pools = {each.pool for each in unserved.blocked}
    paths += [("pools", pool, "mode") for pool in sorted(pools)]
    paths += [g.path for g in plan.guards if g.result != "passed" and g.pool in (None, *pools)]
    return dict.fromkeys(filter(None, paths))


def _loosen_key(run: Case, key: str, path: Path) -> Iterator[Edits]:
    """Yield sets of edits, each of which loosens a key that makes a request wait."""
    raised = dict(_raise_figures(run, key, path))
    if path == CREATE_LIMIT:
        # `count` limits creations in addition to `share` of `free_below`.
        count = [raised.pop("count")] if "count" in raised else []
        is_shared = raised.keys() < {"share", "free_below"}
        yield from [(*count,)] if is_shared else ((*count, each) for each in raised.values())
    else:
        yield from ((edit,) for edit in raised.values())
    if path[-1] == "mode" and value_at(run.fleet, path) not in (None, "apply"):
        yield (Edit(path, "apply", text=f"set {yaml_key(path)} to apply"),)
    for guard in run.plan.guards:
        if guard.path == path and guard.result == "refused":
            yield from ((edit,) for edit in _approve(run.fleet, run.world, guard))
            if guard.guard == "unenforced":
                yield (Edit(path, REMOVED, rank=REMOVE, text=f"remove {yaml_key(path)}"),)


def _raise_figures(run: Case, key: str, path: Path) -> Iterator[tuple[str, Edit]]:
    """Yield, per figure at a key, the edit that raises the figure as far as its guards require."""
    guards = [each for each in run.plan.guards if each.path == path and each.result != "passed"]
    counts = [(guard, guard.count) for guard in guards]
    if is_throttle := bool(guards) and path == CREATE_LIMIT:
        places = [(guard, _find_place(run.plan, guard, key)) for guard in guards]
        counts = [(guard, place) for guard, place in places if place] or counts
    for figure in figures_at(run.fleet, path):
        name, old = str(figure[-1]), int(value_at(run.fleet, figure))
        least = [figure_to_pass(run.fleet, guard, name, count) for guard, count in counts]
        short = max([old + (not is_throttle), *(each for each in least if each is not None)]) - old
        # A larger `of_last` counts more boots but permits no boot.
        edit = raise_figure(run.fleet, figure, Decimal(short)) if name != "of_last" else None
        if edit and short:
            yield name, edit


def _find_place(plan: Plan, guard: GuardResult, key: str) -> int:
    """Return the number of machines that a throttle passes up to that of a request; 0 if none."""
    creates = [each for each in (*plan.actions, *plan.withheld) if isinstance(each, Create)]
    own = pass_order([each for each in creates if guard.pool in (None, each.pool)])
    serves = [isinstance(each, Create) and key in each.serves for each in own]
    return serves.index(True) + 1 if any(serves) else 0


def _approve(fleet: Fleet, world: World, guard: GuardResult) -> Iterator[Edit]:
    """Yield edits that add an approval of a guard, or raise or renew an existing approval."""
    today, pool = world.time.date(), guard.pool
    for number, approval in enumerate(fleet.approvals):
        if approval.guard == guard.guard and pool in (None, approval.pool):
            path: Path = ("approvals", number)
            if approval.expires < today:
                yield Edit((*path, "expires"), today, rank=EXPIRY)
            short = Decimal(max(1, guard.count - approval.count))
            if edit := raise_figure(fleet, (*path, "count"), short):
                yield edit
    if guard.guard in ("delete", "cost_increase"):
        for name in [pool] if pool else sorted(fleet.pools):
            fields = {"guard": guard.guard, "pool": name, "count": max(1, guard.count)}
            expires = today + timedelta(days=APPROVED_DAYS)
            new = Approval.model_validate({**fields, "reason": "say why", "expires": expires})
            yield Edit(("approvals", len(fleet.approvals)), new, rank=APPROVE)


def _renew_rules(run: Case, request: Request) -> Iterator[Edit]:
    """Yield edits that renew the expired allow-list rules that match a build."""
    today, names = run.world.time.date(), names_of(request)
    for number, rule in enumerate(run.fleet.powerful):
        is_over = rule.expires is not None and rule.expires < today
        is_own = is_over and is_valid(rule) and is_for_task(rule, request.task)
        if is_own and any(matches_name(rule, name) for name in names):
            yield Edit(("powerful", number, "expires"), today, rank=EXPIRY)


def _correct_tag(fleet: Fleet, path: Path) -> Iterator[Edit]:
    """Yield the correction of a rule that asks for nearly a tag that a pool provides."""
    tag = value_at(fleet, path) if path[2:3] == ("ask",) else None
    if tag and (near := nearest_tag(tag, provided_tags(fleet))):
        key, text = path[:3], f"correct {tag} to {near} in {yaml_key(path[:2])}"
        old = value_at(fleet, key)
        new = near if old == tag else [near if each == tag else each for each in old]
        yield Edit(key, new, text=text)


def find_missing_entries(
    fleet: Fleet, signature: Signature, request: Request, demand: Demand
) -> dict[tuple[str, ...], DeriveRule]:
    """Map each missing look-up key that would decide a request's tags to its `derive` rule."""
    if not any(refused.is_unknown for refused in signature.refused):
        return {}
    context = context_of(fleet, signature.queue, demand)
    unknown = find_unknown_tags(fleet, request, signature.required, context)
    return {each.entry: fleet.derive[each.index] for each in unknown if each.entry}


def _add_entries(
    run: Case, signature: Signature, missing: Mapping[tuple[str, ...], DeriveRule]
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


def _permit_tags(fleet: Fleet, signature: Signature, request: Request) -> Iterator[Edit]:
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


def _fit_pools(run: Case, signature: Signature, ruled: Request | None) -> Iterator[Edits]:
    """Yield sets of edits that make a pool fit, starting with the pool that needs fewest edits.

    `ruled`: the request to which allow-list rules may still add tags; None if stored.
    """
    found: list[tuple[int, str, list[list[Edits]]]] = []
    for name in sorted(run.fleet.pools):
        parts = [*_fix_mismatches(run, signature, name, ruled)]
        lacks = sum(min(map(size_of_edits, ways))[0] for ways in parts if ways)
        if parts and all(parts) and lacks <= MOST_EDITS:
            found.append((lacks, name, parts))
    for _, _, parts in sorted(found, key=lambda each: each[:2]):
        yield from (tuple(chain.from_iterable(ways)) for ways in product(*parts))


def _fix_mismatches(
    run: Case, signature: Signature, name: str, ruled: Request | None
) -> Iterator[list[Edits]]:
    """Yield, per mismatch between pool and request, the alternative sets of edits that fix it."""
    fleet, pool = run.fleet, run.fleet.pools[name]
    unfit = run.decider.find_unfit(asked_by(fleet, signature), name)
    tags_of = {each.code: each.figures.tags for each in unfit}
    missing = tags_of.get(Unfit.TAG_MISSING, ())
    # No edit of fleet.yaml enlarges machines or adds such a tag. After a build, test and
    # publication, an image proves its tags.
    is_fixed = not tags_of.keys() & {Unfit.TOO_SMALL, Unfit.IMAGE_UNPROVEN}
    if not is_fixed or not all(map(is_tag, missing)) or not isinstance(pool, Pool | StaticPool):
        return
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
        count, path = len(not_brought), ("pools", name, "requires")
        yield [(Edit(path, kept, count=count, rank=CLAIM, text=text),)]
    exclusive, on_demand = tags_of.get(Unfit.TAG_EXCLUSIVE, ()), tags_of.get(Unfit.ON_DEMAND, ())
    if unasked := tuple(dict.fromkeys((*exclusive, *on_demand[:1]))):
        text = f"have the request ask for {', '.join(unasked)}"
        asking = Edit(REQUEST, unasked, count=len(unasked), rank=ASK, text=text)
        opened = tuple(_open_tags(fleet, exclusive, on_demand))
        # Any request may use a machine with an on-demand tag if the machine exists.
        free: list[Edits] = [] if exclusive else [()]
        yield [*free, *_add_rule(fleet, ruled, unasked), (asking,), *([opened] if opened else [])]


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


def _add_rule(fleet: Fleet, request: Request | None, tags: tuple[str, ...]) -> Iterator[Edits]:
    """Yield an edit that adds an allow-list rule with these tags for builds of this name."""
    if request is not None and (names := names_of(request)):
        text = f"let a rule of `powerful` ask for {', '.join(tags)} for {names[0]}"
        new = rule_for(request, tags)
        yield (Edit(("powerful", len(fleet.powerful)), new, rank=RULE, text=text),)


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


def is_refused(fleet: Fleet, edits: Iterable[Edit]) -> bool:
    """Return whether `fleet validate` would refuse the tags that these edits declare."""
    claims = [e for e in edits if e.rank == CLAIM and e.path[0] in ("pools", "images")]
    names = {edit.path[1] for edit in claims}
    dynamic = fleet.dynamic_pools
    images = {pool.image for name, pool in dynamic.items() if names & {name, pool.image}}
    pools = {
        name: pool
        for name, pool in fleet.pools.items()
        if name in names or (name in dynamic and dynamic[name].image in images)
    }
    narrow = fleet.model_copy(update={"pools": pools})
    return bool(claims) and bool(_find_errors(apply_edits(narrow, claims)) - _find_errors(narrow))


def _find_errors(fleet: Fleet) -> set[tuple[str, Path]]:
    found = chain.from_iterable(check(fleet) for check in CHECKS)
    return {(each.message, each.path) for each in found if each.severity == "error"}
