"""This module names the single edits that might unblock a waiting request, from a plan's reasons.

It promises nothing: whether an edit helps is found out by planning again. Edits that say
something about the world (a tag that workers are said to have) come after those that only allow.
"""

import re
from collections.abc import Iterator
from datetime import timedelta

from fleet.explain.counterfactual import REQUEST, find_request, signature_of
from fleet.explain.edits import (
    MOST_COUNT,
    MOST_DAYS,
    REMOVED,
    Edit,
    Knob,
    Path,
    figures_at,
    turn_up,
    value_at,
    write_value,
)
from fleet.facts import Request, World
from fleet.facts.versions import ImageVersion
from fleet.guard.approvals import APPROVED_DAYS
from fleet.making.image_choice import images_by_pool
from fleet.plan import Plan, Signature, Unserved
from fleet.schema.model import Approval, Askers, Fleet, Pool, PowerfulRule, StaticPool
from fleet.tagrules import ask_of_tags, find_mismatch, offer_of_pool, serves_queue
from fleet.tagrules.names import names_of
from fleet.tagrules.vocabulary import Vocabulary

ALLOW, EXPIRY, APPROVE, RULE, ASK, CLAIM, OPEN, REMOVE = range(8)
"""Ranks: raise a limit or set a mode, move an expiry, approve, put it on the allow-list, have the
request ask for a tag, say that workers provide one, open a tag to everyone, remove a key."""

NEAREST = 4
"""How many pools that do not fit are looked at, those first that lack least."""

_WORDS = {"user": "user", "task": "task", "ticket": "tickets", "system": "system"}


def candidates(fleet: Fleet, world: World, plan: Plan, key: str) -> Iterator[Edit]:
    """Yield what may be changed for one request that a plan leaves waiting."""
    signature, found = signature_of(plan, key), find_request(world, key)
    if signature is None or found is None:
        return
    request, stored = found
    unserved = next((each for each in plan.unserved if key in each.requests), None)
    if unserved is not None:
        for path in _blocking_paths(plan, unserved):
            yield from _allowing(fleet, world, plan, path)
    yield from _expired_rules(fleet, world, request)
    yield from _askers(fleet, signature, request)
    # Where the queue stored its tags already, a rule acts on later requests.
    yield from _fitting(fleet, world, signature, () if stored else names_of(request))


def _blocking_paths(plan: Plan, unserved: Unserved) -> Iterator[Path]:
    paths = [each.path for each in unserved.blocked] + [unserved.path]
    pools = {each.pool for each in unserved.blocked}
    paths += [("pools", pool, "mode") for pool in sorted(pools)]
    paths += [("guards", "boot_failures")] if pools else []
    paths += [g.path for g in plan.guards if g.result != "passed" and g.pool in (None, *pools)]
    yield from dict.fromkeys(path for path in paths if path)


def _allowing(fleet: Fleet, world: World, plan: Plan, path: Path) -> Iterator[Edit]:
    """Yield what a blocking key may be changed to so that it allows more."""
    for figure in figures_at(fleet, path):
        raised = turn_up(fleet, figure)
        if raised is not None:
            yield raised
    if path[-1] == "mode" and value_at(fleet, path) not in (None, "apply"):
        yield Edit(path, "apply", says=f"set {dotted(path)} to apply")
    for guard in plan.guards:
        if guard.path == path and guard.result == "refused":
            yield from _approvals(fleet, world, guard.guard, guard.pool)
            if guard.guard == "unenforced":
                yield Edit(path, REMOVED, rank=REMOVE, says=f"remove {dotted(path)}")


def _approvals(fleet: Fleet, world: World, guard: str, pool: str | None) -> Iterator[Edit]:
    """Yield approvals: one more, or more of one that is there, or one that has expired."""
    today = world.time.date()
    for number, approval in enumerate(fleet.approvals):
        if approval.guard == guard and pool in (None, approval.pool):
            path: Path = ("approvals", number)
            if approval.expires < today:
                yield _not_before(world, (*path, "expires"))
            raised = turn_up(fleet, (*path, "count"))
            if raised is not None:
                yield raised
    if guard in ("delete", "cost_increase"):
        for name in [pool] if pool else sorted(fleet.pools):
            expires = today + timedelta(days=APPROVED_DAYS)
            written = {"guard": guard, "pool": name, "count": 0, "reason": "say why"}
            new = Approval.model_validate(written | {"expires": expires})
            knob = Knob(new, MOST_COUNT)
            path = ("approvals", len(fleet.approvals))
            yield Edit(path, new, rank=APPROVE, knob=knob).turned(MOST_COUNT)


def _expired_rules(fleet: Fleet, world: World, request: Request) -> Iterator[Edit]:
    """Yield the rules of the allow-list that would match, had they not expired."""
    today = world.time.date()
    over = [n for n, rule in enumerate(fleet.powerful) if rule.expires and rule.expires < today]
    if not over:
        return
    # Patterns need RE2, which a file without them does not load.
    from fleet.tagrules.allow import is_valid, matches_name

    names = names_of(request)
    for number in over:
        rule = fleet.powerful[number]
        if is_valid(rule) and any(matches_name(rule, name) for name in names):
            yield _not_before(world, ("powerful", number, "expires"))


def _not_before(world: World, path: Path) -> Edit:
    """Return the edit that has something expire today at the earliest."""
    knob = Knob(world.time.date() - timedelta(days=1), MOST_DAYS)
    return Edit(path, None, rank=EXPIRY, knob=knob).turned(1)


def _askers(fleet: Fleet, signature: Signature, request: Request) -> Iterator[Edit]:
    """Yield who might be let ask for the tags that do not count."""
    for refused in signature.refused:
        allowed = value_at(fleet, refused.path)
        if not isinstance(allowed, list):
            continue
        source = request.asked.get(refused.tag)
        word = _WORDS.get(source or "", "rules")
        if source in ("user", "ticket") and request.requester:
            one = Askers(users=[request.requester])
            says = f"let user {request.requester} ask for {refused.tag}"
            yield Edit(refused.path, [*allowed, one], rank=OPEN, says=says)
        if word not in allowed:
            says = f"let everyone ask for {refused.tag} by {word}"
            yield Edit(refused.path, [*allowed, word], rank=OPEN, says=says)


def _fitting(
    fleet: Fleet, world: World, signature: Signature, names: tuple[str, ...]
) -> Iterator[Edit]:
    """Yield what might make a pool fit that does not, of the pools that lack least."""
    images = images_by_pool(fleet, world)
    found: list[tuple[int, str, tuple[Edit, ...]]] = []
    for name, pool in sorted(fleet.pools.items()):
        if isinstance(pool, Pool | StaticPool):
            edits = tuple(_fitting_one(fleet, images[name], signature, name, names))
            lacks = sum(edit.count for edit in edits)
            found.append((lacks, name, edits))
    for _, _, edits in sorted([e for e in found if e[2]], key=lambda e: e[:2])[:NEAREST]:
        yield from edits


def _fitting_one(
    fleet: Fleet,
    images: tuple[ImageVersion, ...],
    signature: Signature,
    name: str,
    names: tuple[str, ...],
) -> Iterator[Edit]:
    pool = fleet.pools[name]
    ask = ask_of_tags(fleet, signature.required, signature.provided)
    offer = offer_of_pool(fleet, name, images)
    mismatch = find_mismatch(ask, offer)
    if mismatch.too_small:
        return  # no word in fleet.yaml makes a machine bigger that is not
    if not serves_queue(pool, signature.queue):
        says = f"let pool {name} serve queue {signature.queue}"
        yield Edit(("pools", name, "serves"), [*(pool.serves or ()), signature.queue], says=says)
    if mismatch.missing:
        yield _provide(fleet, name, mismatch.missing)
    if mismatch.not_brought and isinstance(pool, Pool):
        kept = [tag for tag in pool.requires if tag not in mismatch.not_brought]
        says = f"take {', '.join(mismatch.not_brought)} out of pools.{name}.requires"
        count = len(mismatch.not_brought)
        yield Edit(("pools", name, "requires"), kept, count=count, rank=CLAIM, says=says)
    asked = tuple(sorted(offer.on_demand)) if not offer.on_demand & ask.required else ()
    unasked = tuple(dict.fromkeys((*mismatch.not_asked, *asked[:1])))
    if unasked:
        yield from _rules(fleet, names[:1], unasked)
        says = f"have the request ask for {', '.join(unasked)}"
        yield Edit(REQUEST, unasked, count=len(unasked), rank=ASK, says=says)
    vocabulary = Vocabulary(fleet)
    for tags, flag, holds in (
        (mismatch.not_asked, "exclusive", vocabulary.is_exclusive),
        (asked, "on_demand", vocabulary.is_on_demand),
    ):
        for tag in tags:
            declaring = next((n for n in vocabulary.names_of(tag) if holds(n)), None)
            if declaring is not None:
                yield Edit(("tags", declaring, flag), new=False, rank=OPEN)


def _rules(fleet: Fleet, names: tuple[str, ...], tags: tuple[str, ...]) -> Iterator[Edit]:
    """Yield the rules of the allow-list that give builds of these names these tags."""
    for name in names:
        # What RE2 would read as an operator, and no more: a name is to be read by a person.
        match = re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", name)
        rule = PowerfulRule(match=match, ask=list(tags))
        says = f"let a rule of `powerful` ask for {', '.join(tags)} for {name}"
        yield Edit(("powerful", len(fleet.powerful)), rule, rank=RULE, says=says)


def _provide(fleet: Fleet, name: str, tags: tuple[str, ...]) -> Edit:
    """Return the edit by which a pool, or its image where only that may, provides tags."""
    pool = fleet.pools[name]
    vocabulary = Vocabulary(fleet)
    sources = [vocabulary.provided_by(tag)[0] for tag in tags]
    by_image = any(each is not None and "pool" not in each for each in sources)
    path: Path = ("pools", name, "provides")
    if by_image and isinstance(pool, Pool):
        path = ("images", pool.image, "provides")
    says = f"add {', '.join(tags)} to {dotted(path)}, if its workers really have it"
    old = value_at(fleet, path) or []
    return Edit(path, [*old, *tags], count=len(tags), rank=CLAIM, says=says)


def dotted(path: Path) -> str:
    """Return a path the way a person names a key: `powerful[0].expires`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def describe(fleet: Fleet, edit: Edit) -> str:
    """Return what to do, in words with its figures."""
    if edit.says:
        return edit.says
    old = write_value(fleet, edit.path, value_at(fleet, edit.path))
    new = write_value(fleet, edit.path, edit.new)
    if edit.rank == EXPIRY:
        return f"move {dotted(edit.path)} from {old} to {new} or later"
    if edit.rank == APPROVE:
        return f"add an approval: {new}"
    verb = "raise" if edit.knob else "set"
    return f"{verb} {dotted(edit.path)} from {old} to {new}"
