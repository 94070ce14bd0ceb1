"""The edits of fleet.yaml that remove a constraint because of which a request waits.

An edit is the inverse of a constraint that the plan records: it raises a limit by its shortfall,
or permits what is forbidden.
"""

from collections.abc import Iterator
from decimal import Decimal
from itertools import chain, islice, product

import yaml

from fleet.checks import CHECKS
from fleet.explain.case import Case
from fleet.explain.costs import rule_for
from fleet.explain.edits import (
    APPROVE,
    ASK,
    CLAIM,
    EXPIRY,
    OPEN,
    REMOVE,
    REMOVED,
    REQUEST,
    RULE,
    Edit,
    Edits,
    apply_edits,
    raise_figure,
    value_at,
)
from fleet.guard.refusals import figures_to_pass, pass_order
from fleet.model.decisions import Unfit
from fleet.model.facts import Request
from fleet.model.plan import CREATE_LIMIT, Create, GuardResult, Plan, Reason, Signature
from fleet.planner.fitting import asked_by
from fleet.schema.findings import Path
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

_MOST_VALUES = 3
"""Maximum number of values to suggest for one missing key of a look-up."""
_WORDS = {"user": "user", "task": "task", "ticket": "tickets", "system": "system"}


def moves(case: Case, key: str, most: int | None = None) -> Iterator[Edits]:
    """Yield sets of edits, each of which removes a constraint that makes a request wait.

    Limits are raised for the first `most` places where a machine could run the request.
    """
    signature, found = case.signatures.get(key), case.find(key)
    if signature is None or found is None:
        return
    request, demand = found
    yield from raises(case, key, most)
    for edit in chain(
        _renew_rules(case, request),
        _correct_tag(case, key),
        _add_entries(case, key),
        _permit_tags(case.fleet, signature, request),
    ):
        yield (edit,)
    # If the queue has stored the tags, a new rule applies only to later requests.
    ruled = None if demand.stored else request
    for name in sorted(case.fleet.pools):
        if fixes := [*_fix_mismatches(case, signature, name, ruled)]:
            yield from (tuple(chain.from_iterable(ways)) for ways in product(*fixes))


def raises(case: Case, key: str, most: int | None = None) -> Iterator[Edits]:
    """Yield, per machine option, the limits to raise; then edits of other keys that block."""
    unserved = case.unserved.get(key)
    if unserved is None:
        return
    if any(each.code == "limit" for each in unserved.blocked):
        for lack in islice(case.shortfalls.of(key), most):
            yield from _raise_all(case.fleet, {each.path: each.amount for each in lack.missing})
    # A machine above the maximum of its pool is kept if the maximum rises.
    actions = (*case.plan.actions, *case.plan.withheld)
    for name in sorted({each.pool for each in actions if each.reason is Reason.ABOVE_MAX}):
        yield from _raise_all(case.fleet, {("pools", name, "workers", "max"): Decimal(1)})
    paths = [each.path for each in unserved.blocked if each.code != "limit"]
    for path in dict.fromkeys(paths if unserved.blocked else [unserved.path]):
        mode = (*path[:2], "mode") if path[:1] == ("pools",) else ()
        if mode and value_at(case.fleet, mode) not in (None, "apply"):
            yield (Edit(mode, "apply"),)
        elif path == ("guards", "boot_failures"):
            yield from _raise_all(case.fleet, {(*path, "stop_after"): Decimal(1)})
        yield from _pass_guards(case, key, path)


def hasten(case: Case, key: str, most: int) -> Iterator[Edits]:
    """Yield edits of limits and guards after which a request possibly starts earlier.

    A guard that withholds machines of other requests also delays the requests after them.
    """
    unserved = case.unserved.get(key)
    pools = {each.pool for each in unserved.blocked} if unserved else set()
    paths = dict.fromkeys(g.path for g in case.plan.guards if g.pool in (None, *pools))
    others = (edits for path in paths for edits in _pass_guards(case, key, path))
    for edits in chain(raises(case, key, most), others):
        if all(edit.rank < RULE for edit in edits):
            yield edits


def _raise_all(fleet: Fleet, amounts: dict[Path, Decimal]) -> Iterator[Edits]:
    """Yield the edits that raise figures by amounts, unless one of them is impossible."""
    raised = [raise_figure(fleet, path, amount) for path, amount in amounts.items()]
    edits = tuple(edit for edit in raised if edit)
    if edits and len(edits) == len(raised):
        yield edits


def _pass_guards(case: Case, key: str, path: Path) -> Iterator[Edits]:
    """Yield edits after which the guards with this key of fleet.yaml withhold no machine."""
    fleet = case.fleet
    guards = [each for each in case.plan.guards if each.path == path and each.result != "passed"]
    counts = [(each, _count_until(case.plan, each, key) or each.count) for each in guards]
    ways = [[*figures_to_pass(fleet, guard, count)] for guard, count in counts]
    for alike in zip(*ways, strict=False):
        raised: dict[Path, Decimal] = {}
        for figure, least in chain.from_iterable(each.items() for each in alike):
            amount = Decimal(least - value_at(fleet, figure))
            if amount > raised.get(figure, 0):
                raised[figure] = amount
        yield from _raise_all(fleet, raised)
    for guard in guards:
        if lines := [yaml.safe_load(line)[0] for line in guard.approve]:
            end = len(fleet.approvals)
            new = map(Approval.model_validate, lines)
            yield tuple(Edit(("approvals", n), a, rank=APPROVE) for n, a in enumerate(new, end))
        if guard.guard == "unenforced":
            yield (Edit(guard.path, REMOVED, rank=REMOVE),)


def _count_until(plan: Plan, guard: GuardResult, key: str) -> int:
    """Return the number of machines that a throttle passes up to that of a request; 0 if none."""
    if guard.path != CREATE_LIMIT:
        return 0
    creates = [each for each in (*plan.actions, *plan.withheld) if isinstance(each, Create)]
    own = pass_order([each for each in creates if guard.pool in (None, each.pool)])
    serves = [isinstance(each, Create) and key in each.serves for each in own]
    return serves.index(True) + 1 if any(serves) else 0


def _renew_rules(case: Case, request: Request) -> Iterator[Edit]:
    """Yield edits that renew the expired allow-list rules that match a build."""
    today, names = case.world.time.date(), names_of(request)
    for number, rule in enumerate(case.fleet.powerful):
        is_over = rule.expires is not None and rule.expires < today
        is_own = is_over and is_valid(rule) and is_for_task(rule, request.task)
        if is_own and any(matches_name(rule, name) for name in names):
            yield Edit(("powerful", number, "expires"), today, rank=EXPIRY)


def _correct_tag(case: Case, key: str) -> Iterator[Edit]:
    """Yield the correction of a rule that asks for nearly a tag that a pool provides."""
    path = case.unserved[key].path if key in case.unserved else ()
    tag = value_at(case.fleet, path) if path[2:3] == ("ask",) else None
    if tag and (near := nearest_tag(tag, provided_tags(case.fleet))):
        old = value_at(case.fleet, path[:3])
        new = near if old == tag else [near if each == tag else each for each in old]
        yield Edit(path[:3], new)


def find_missing_entries(case: Case, key: str) -> dict[Path, DeriveRule]:
    """Map each missing look-up key that would decide a request's tags to its `derive` rule."""
    signature, found = case.signatures[key], case.find(key)
    if found is None or not any(refused.is_unknown for refused in signature.refused):
        return {}
    context = context_of(case.fleet, signature.queue, found[1])
    unknown = find_unknown_tags(case.fleet, found[0], signature.required, context)
    return {each.entry: case.fleet.derive[each.index] for each in unknown if each.entry}


def _add_entries(case: Case, key: str) -> Iterator[Edit]:
    """Yield edits that set missing look-up keys so that the request asks for a provided tag."""
    queue, offers = case.signatures[key].queue, case.decider.offers
    for path, rule in find_missing_entries(case, key).items():
        serving = [n for n, pool in case.fleet.pools.items() if serves_queue(pool, queue)]
        provided = {tag for name in serving for tag in offers[name].provides}
        for value in sorted({value_for(rule, tag) for tag in provided} - {""})[:_MOST_VALUES]:
            yield Edit(path, value, rank=CLAIM)


def _permit_tags(fleet: Fleet, signature: Signature, request: Request) -> Iterator[Edit]:
    """Yield edits of `asked_by` that permit the denied tags."""
    for refused in signature.refused:
        if refused.is_unknown and is_about_environments(fleet.derive[int(refused.path[1])]):
            yield Edit(("queues", signature.queue, "unknown_environment"), "any", rank=OPEN)
        allowed = value_at(fleet, refused.path)
        if not isinstance(allowed, list):
            continue
        source = request.asked.get(refused.tag) or ""
        if source in ("user", "ticket") and request.requester:
            one = Askers(users=[request.requester])
            yield Edit(refused.path, [*allowed, one], rank=OPEN)
        if (word := _WORDS.get(source, "rules")) not in allowed:
            yield Edit(refused.path, [*allowed, word], rank=OPEN)


def _fix_mismatches(
    case: Case, signature: Signature, name: str, ruled: Request | None
) -> Iterator[list[Edits]]:
    """Yield, per mismatch between pool and request, the alternative sets of edits that fix it.

    `ruled`: the request to which allow-list rules may still add tags; None if stored.
    """
    fleet, pool = case.fleet, case.fleet.pools[name]
    unfit = case.decider.find_unfit(asked_by(fleet, signature), name)
    tags_of = {each.code: each.figures.tags for each in unfit}
    missing = tags_of.get(Unfit.TAG_MISSING, ())
    # No edit of fleet.yaml enlarges machines or adds such a tag. After a build, test and
    # publication, an image proves its tags.
    is_fixed = not tags_of.keys() & {Unfit.TOO_SMALL, Unfit.IMAGE_UNPROVEN}
    if not is_fixed or not all(map(is_tag, missing)) or not isinstance(pool, Pool | StaticPool):
        return
    if Unfit.QUEUE_NOT_SERVED in tags_of:
        yield [(Edit(("pools", name, "serves"), [*(pool.serves or ()), signature.queue]),)]
    if missing:
        yield [(_provide(fleet, name, missing),)]
    if not_brought := tags_of.get(Unfit.TAG_NOT_BROUGHT):
        brought = pool.requires if isinstance(pool, Pool) else []
        kept = [tag for tag in brought if tag not in not_brought]
        yield [(Edit(("pools", name, "requires"), kept, rank=OPEN),)] if brought else []
    exclusive, on_demand = tags_of.get(Unfit.TAG_EXCLUSIVE, ()), tags_of.get(Unfit.ON_DEMAND, ())
    if unasked := tuple(dict.fromkeys((*exclusive, *on_demand[:1]))):
        # Any request may use a machine with an on-demand tag if the machine exists.
        ways: list[Edits] = [] if exclusive else [()]
        if ruled is not None and names_of(ruled):
            ways += [(Edit(("powerful", len(fleet.powerful)), rule_for(ruled, unasked), RULE),)]
        ways += [(Edit(REQUEST, unasked, rank=ASK),)]
        opened = tuple(_open_tags(fleet, exclusive, on_demand))
        yield [*ways, opened] if opened else ways


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


def _provide(fleet: Fleet, name: str, tags: tuple[str, ...]) -> Edit:
    """Return the edit that adds tags to the pool's `provides`, or to its image's if required."""
    pool, vocabulary = fleet.pools[name], Vocabulary(fleet)
    sources = [vocabulary.provided_by(tag)[0] for tag in tags]
    by_image = any(each is not None and "pool" not in each for each in sources)
    path: Path = ("pools", name, "provides")
    if by_image and isinstance(pool, Pool):
        path = ("images", pool.image, "provides")
    return Edit(path, [*(value_at(fleet, path) or []), *tags], rank=CLAIM)


def is_refused(fleet: Fleet, edits: Edits) -> bool:
    """Return whether `fleet validate` would refuse the tags that these edits declare."""
    claims = [edit for edit in edits if edit.rank == CLAIM]
    return bool(claims) and not _find_errors(apply_edits(fleet, claims)) <= _find_errors(fleet)


def _find_errors(fleet: Fleet) -> set[tuple[str, Path]]:
    found = chain.from_iterable(check(fleet) for check in CHECKS)
    return {(each.message, each.path) for each in found if each.severity == "error"}
