"""What gets a waiting request served: edits of fleet.yaml, or waiting.

`candidates` yields single edits from the reasons of a plan; edits that claim something about
machines (a tag that they provide) rank after edits that only allow. Every suggestion is verified
by a plan with the edited fleet.yaml or in the awaited world. Fewest edits first, then the smallest
figures.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import chain, count, islice

from fleet.checks import CHECKS
from fleet.explain.forecast import left_of
from fleet.explain.options import rule_for
from fleet.explain.values import Change, Suggestion, Wait
from fleet.explain.what_if import (
    MOST_COUNT,
    REMOVED,
    REQUEST,
    Edit,
    Replans,
    Run,
    apply_edits,
    edited,
    figures_at,
    find_request,
    freed,
    is_served,
    later,
    served_by,
    signature_of,
    turn_up,
    value_at,
    write_value,
    write_yaml,
)
from fleet.guard.approvals import APPROVED_DAYS
from fleet.model.facts import Demand, Request, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Plan, Signature, Unserved
from fleet.planner.images import images_by_pool
from fleet.planner.units import is_busy
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
from fleet.schema.rules import Otherwise
from fleet.schema.units import write_duration, write_time
from fleet.tagrules.allow import is_for_task, is_valid, matches_name
from fleet.tagrules.context import context_of
from fleet.tagrules.derive import find_unknown_tags, is_about_environments, is_tag, value_for
from fleet.tagrules.names import names_of
from fleet.tagrules.offers import ask_of_tags, find_mismatch, offer_of_pool
from fleet.tagrules.vocabulary import Vocabulary

ALLOW, EXPIRY, APPROVE, RULE, ASK, CLAIM, OPEN, REMOVE = range(8)
"""Ranks: raise a limit or set a mode, move an expiry, approve, put it on the allow-list, have the
request ask for a tag, say that workers provide one, open a tag to everyone, remove a key."""
NEAREST = 4
"""How many pools that do not fit are looked at, those first that lack least."""
MOST_VALUES = 3
"""Values proposed for a key of a look-up: fewer than `MOST_SHOWN`, to show others too."""
_WORDS = {"user": "user", "task": "task", "ticket": "tickets", "system": "system"}
MOST_RUNS = 12
MOST_WAITING_DAYS = 62
"""How far ahead to look: the next month ends within it."""
MOST_EDITS = 4
_NAMED = 3
_Key = frozenset[tuple[Path, str]]


@dataclass(frozen=True)
class Remedy:
    """A suggestion, and the edits that it is made of."""

    suggestion: Suggestion
    edits: tuple[Edit, ...] = ()


def find_remedies(
    fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans
) -> tuple[Remedy, ...]:
    """Return what would get a waiting request served, the smallest first; waiting is no edit.

    Returns only the fewest edits, at most `replans.most_shown`.
    """
    if is_served(plan, key) or signature_of(plan, key) is None:
        return ()
    if replans.left <= 0:
        # Every suggestion is proven by a plan; finding what to try takes long by itself.
        replans.is_spent = True
        return ()
    with replans.share(replans.left // 2) as given:
        waits = [
            Remedy(Suggestion(sentence=describe_wait(fleet, wait), wait=wait))
            for wait in find_waits(fleet, world, plan, key, given)
        ]
    timed = [each for each in waits if each.suggestion.wait and each.suggestion.wait.until]
    if len(timed) >= replans.most_shown:
        return tuple(waits)
    found = _fewest(_Search(fleet, world, key, replans, patient=not is_throttled(plan, key)), plan)
    # Where waiting for a throttle takes too many runs, raise the throttle too.
    found = found or _fewest(_Search(fleet, world, key, replans), plan)
    replans.is_spent |= given.is_spent
    return (*waits, *found)


def _fewest(search: "_Search", plan: Plan) -> list[Remedy]:
    """Return the fewest edits that get a request served, the smallest figures first."""
    wide = sorted(search.run(plan, most=search.replans.left // 2), key=_size)
    small = map(search.minimised, wide[: 2 * search.replans.most_shown])
    every = {_name(edits): edits for edits in small if edits}.values()
    fewest = min(map(_few, every), default=(0, 0))
    found = [(edits, search.harms(plan, edits)) for edits in every if _few(edits) == fewest]
    found.sort(key=lambda each: (len(each[1]), _size(each[0])))
    remedies = []
    for edits, harms in found:
        works, wait = search.awaited(edits)
        if works:
            remedies.append(Remedy(_suggest(search.fleet, edits, harms, wait), edits))
    return remedies[: search.replans.most_shown]


@dataclass
class _Search:
    """The search for the fewest edits, each state planned again."""

    fleet: Fleet
    world: World
    key: str
    replans: Replans
    patient: bool = False
    """A throttled machine, which a later run creates, is enough."""

    def run(self, plan: Plan, most: int) -> list[tuple[Edit, ...]]:
        """Return every set of the fewest edits that serves the request, figures at their maximum.

        Makes at most `most` plans; `minimised` reduces the figures afterwards.
        """
        order = count()
        heap: list[tuple[int, int, int, tuple[Edit, ...], Plan]] = []
        heappush(heap, (0, 0, next(order), (), plan))
        seen: set[_Key] = set()
        found: list[tuple[Edit, ...]] = []
        while heap and most > 0:
            most -= 1
            size, _, _, edits, before = heappop(heap)
            if size > MOST_EDITS or (found and size > _count(found[0])):
                break
            after = self._plan(edits) if edits else before
            if after is None:
                break
            if self._is_reached(after):
                found.append(edits)
                continue
            for each in self._next(edits, after):
                name = _name(each)
                if name not in seen:
                    seen.add(name)
                    rank = sum(edit.rank for edit in each)
                    heappush(heap, (_count(each), rank, next(order), each, after))
        if heap and most <= 0 and not found:
            self.replans.is_spent = True
        return found

    def minimised(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """Return the edits with the smallest figures that serve; none if that took too long.

        Drops edits that the others do not need; some are needed only beside a maximal figure.
        """
        before: tuple[Edit, ...] = ()
        while edits != before:
            before = edits
            for edit in before:
                fewer = tuple(each for each in edits if each.path != edit.path)
                if fewer and self._serves(fewer):
                    edits = fewer
            for number, edit in enumerate(edits):
                if edit.least is not None:
                    edits = self._turned_down(edits, number)
        return () if self.replans.is_spent else edits

    def harms(self, plan: Plan, edits: tuple[Edit, ...]) -> tuple[str, ...]:
        """Return the requests that a plan serves, and would not serve after these edits."""
        after = self._plan(edits)
        keys = (key for signature in plan.signatures for key in served_by(signature))
        still = {key for s in after.signatures for key in served_by(s)} if after else set()
        return tuple(key for key in keys if after is not None and key not in still)

    def awaited(self, edits: tuple[Edit, ...]) -> tuple[bool, Wait | None]:
        """Return whether edits get the request served, and what to wait for if not in this run."""
        plan = self._plan(edits)
        if plan is None or is_served(plan, self.key):
            return plan is not None, None
        run = Run(*edited(self.fleet, self.world, self.key, edits), plan, of=self._of(edits))
        wait = wait_for_runs(run, self.key, self.replans)
        return wait is not None, wait

    def _turned_down(self, edits: tuple[Edit, ...], number: int) -> tuple[Edit, ...]:
        most = edits[number].steps

        def turned(steps: int) -> tuple[Edit, ...]:
            return (*edits[:number], edits[number].turned(steps), *edits[number + 1 :])

        return turned(first_that(lambda n: n == most or self._serves(turned(n)), most))

    def _plan(self, edits: tuple[Edit, ...]) -> Plan | None:
        after = edited(self.fleet, self.world, self.key, edits)
        return self.replans.plan(*after, of=self._of(edits))

    def _of(self, edits: tuple[Edit, ...]) -> tuple[str, _Key]:
        """Return the key of these edits' plan; an edit may be of the request itself."""
        return self.key if any(edit.path == REQUEST for edit in edits) else "", _name(edits)

    def _serves(self, edits: tuple[Edit, ...]) -> bool:
        plan = self._plan(edits)
        return plan is not None and self._is_reached(plan)

    def _is_reached(self, plan: Plan) -> bool:
        return is_served(plan, self.key) or (self.patient and is_throttled(plan, self.key))

    def _next(self, edits: tuple[Edit, ...], plan: Plan) -> list[tuple[Edit, ...]]:
        fleet, world = edited(self.fleet, self.world, self.key, edits)
        taken = {edit.path for edit in edits}
        more = candidates(fleet, world, plan, self.key)
        return [(*edits, edit) for edit in more if edit.path not in taken]


def first_that(holds: Callable[[int], bool], most: int) -> int:
    """Return the least number from 1 to `most` for which it holds, by doubling and bisection.

    0 where doubling met none; what is returned was tried.
    """
    low, high = 0, 1
    while high <= most and not holds(high):
        low, high = high, high * 2
    if high > most:
        if low >= most or not holds(most):
            return 0
        high = most
    return low + 1 + bisect_left(range(low + 1, high), True, key=holds)


def _name(edits: tuple[Edit, ...]) -> _Key:
    """Return a key of these edits, whatever their order."""
    return frozenset((edit.path, repr(edit.new)) for edit in edits)


def _few(edits: tuple[Edit, ...]) -> tuple[int, int]:
    """Return how many edits a person would count, and in how many places."""
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


def _suggest(
    fleet: Fleet, edits: tuple[Edit, ...], harms: tuple[str, ...], wait: Wait | None
) -> Suggestion:
    asks = [tag for e in edits if e.path == REQUEST and isinstance(e.new, tuple) for tag in e.new]
    return Suggestion(
        sentence=", and ".join(describe(fleet, edit) for edit in edits)
        + (f", then {describe_wait(fleet, wait)}" if wait else "")
        + _format_harms(harms),
        changes=tuple(
            Change(
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
    )


def _format_harms(harms: tuple[str, ...]) -> str:
    if not harms:
        return ""
    many = f"{len(harms)} requests that are" if len(harms) > 1 else "1 request that is"
    return f" (but {many} served now would wait: {', '.join(harms[:_NAMED])})"


def candidates(fleet: Fleet, world: World, plan: Plan, key: str) -> Iterator[Edit]:
    """Yield what may be changed for one request that a plan leaves waiting."""
    signature, found = signature_of(plan, key), find_request(world, key)
    if signature is None or found is None:
        return
    request, demand = found
    unserved = next((each for each in plan.unserved if key in each.requests), None)
    if unserved is not None:
        for path in _blocking_paths(plan, unserved):
            yield from _allowing(fleet, world, plan, path)
    yield from _expired_rules(fleet, world, request)
    yield from _looked_up(fleet, world, signature, find_missing_entries(fleet, signature, *found))
    yield from _askers(fleet, signature, request)
    # Where the queue stored its tags already, a rule acts on later requests.
    yield from _fitting(fleet, world, signature, None if demand.stored else request)


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
        yield Edit(path, "apply", text=f"set {yaml_key(path)} to apply")
    for guard in plan.guards:
        if guard.path == path and guard.result == "refused":
            yield from _approvals(fleet, world, guard.guard, guard.pool)
            if guard.guard == "unenforced":
                yield Edit(path, REMOVED, rank=REMOVE, text=f"remove {yaml_key(path)}")


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
            path = ("approvals", len(fleet.approvals))
            yield Edit(path, new, rank=APPROVE, least=new).turned(MOST_COUNT)


def _expired_rules(fleet: Fleet, world: World, request: Request) -> Iterator[Edit]:
    """Yield the rules of the allow-list that would match, had they not expired."""
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


def _not_before(world: World, path: Path) -> Edit:
    """Return the edit that moves an expiry to today or later."""
    yesterday = world.time.date() - timedelta(days=1)
    return Edit(path, None, rank=EXPIRY, least=yesterday).turned(1)


def find_missing_entries(
    fleet: Fleet, signature: Signature, request: Request, demand: Demand
) -> dict[tuple[str, ...], DeriveRule]:
    """Return the missing keys of look-ups that would tell a request's tags, with the rule."""
    if not any(refused.is_unknown for refused in signature.refused):
        return {}
    context = context_of(fleet, signature.queue, demand)
    unknown = find_unknown_tags(fleet, request, signature.required, context)
    return {each.entry: fleet.derive[each.index] for each in unknown if each.entry}


def _looked_up(
    fleet: Fleet,
    world: World,
    signature: Signature,
    missing: Mapping[tuple[str, ...], DeriveRule],
) -> Iterator[Edit]:
    """Yield the values of a look-up's missing key that give a tag that some pool provides."""
    if not missing:
        return
    images = images_by_pool(fleet, world)
    provided = {
        tag
        for name, pool in fleet.pools.items()
        if serves_queue(pool, signature.queue)
        for tag in offer_of_pool(fleet, name, images[name]).provides
    }
    for path, rule in missing.items():
        values = sorted({*(value_for(rule, tag) for tag in provided)} - {""})
        for value in values[:MOST_VALUES]:
            text = f"set {yaml_key(path)} to {value}, if that is the {path[3]} of {path[2]}"
            yield Edit(path, value, rank=CLAIM, text=text)


def _askers(fleet: Fleet, signature: Signature, request: Request) -> Iterator[Edit]:
    """Yield edits of `asked_by` that allow the denied tags."""
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
            text = f"let user {request.requester} ask for {refused.tag}"
            yield Edit(refused.path, [*allowed, one], rank=OPEN, text=text)
        if word not in allowed:
            text = f"let everyone ask for {refused.tag} by {word}"
            yield Edit(refused.path, [*allowed, word], rank=OPEN, text=text)


def _fitting(
    fleet: Fleet, world: World, signature: Signature, ruled: Request | None
) -> Iterator[Edit]:
    """Yield edits that make a pool fit, of the pools that lack least; `ruled`: rules act on it."""
    images = images_by_pool(fleet, world)
    found: list[tuple[int, str, tuple[Edit, ...]]] = []
    for name, pool in sorted(fleet.pools.items()):
        if isinstance(pool, Pool | StaticPool):
            edits = tuple(_fitting_one(fleet, images[name], signature, name, ruled))
            lacks = sum(edit.count for edit in edits)
            found.append((lacks, name, edits))
    nearest = sorted([e for e in found if e[2] and e[0] <= MOST_EDITS], key=lambda e: e[:2])
    valid = (edits for _, name, edits in nearest if not _is_refused(fleet, name, edits))
    yield from chain.from_iterable(islice(valid, NEAREST))


def _is_refused(fleet: Fleet, name: str, edits: Iterable[Edit]) -> bool:
    """Say whether `fleet validate` would refuse what makes a pool fit."""
    claims = [edit for edit in edits if edit.path[0] in ("pools", "images")]
    pool = fleet.pools[name]
    booted = pool.image if isinstance(pool, Pool) else ""
    alike = {n: p for n, p in fleet.dynamic_pools.items() if booted and p.image == booted}
    narrow = fleet.model_copy(update={"pools": {**alike, name: pool}})
    return bool(claims and _errors(apply_edits(narrow, claims)) - _errors(narrow))


def _errors(fleet: Fleet) -> set[tuple[str, Path]]:
    found = chain.from_iterable(check(fleet) for check in CHECKS)
    return {(each.message, each.path) for each in found if each.severity == "error"}


def _fitting_one(
    fleet: Fleet,
    images: tuple[ImageVersion, ...],
    signature: Signature,
    name: str,
    ruled: Request | None,
) -> Iterator[Edit]:
    pool = fleet.pools[name]
    ask = ask_of_tags(fleet, signature.required, signature.provided)
    offer = offer_of_pool(fleet, name, images)
    mismatch = find_mismatch(ask, offer)
    if mismatch.too_small or not all(map(is_tag, mismatch.missing)):
        return  # no edit makes its machines bigger, or names such a tag
    if not serves_queue(pool, signature.queue):
        text = f"let pool {name} serve queue {signature.queue}"
        yield Edit(("pools", name, "serves"), [*(pool.serves or ()), signature.queue], text=text)
    if mismatch.missing:
        yield _provide(fleet, name, mismatch.missing)
    if mismatch.not_brought and isinstance(pool, Pool):
        kept = [tag for tag in pool.requires if tag not in mismatch.not_brought]
        text = f"remove {', '.join(mismatch.not_brought)} from pools.{name}.requires"
        count = len(mismatch.not_brought)
        yield Edit(("pools", name, "requires"), kept, count=count, rank=CLAIM, text=text)
    asked = tuple(sorted(offer.on_demand)) if not offer.on_demand & ask.required else ()
    unasked = tuple(dict.fromkeys((*mismatch.not_asked, *asked[:1])))
    if unasked:
        if ruled is not None:
            yield from _rules(fleet, ruled, unasked)
        text = f"have the request ask for {', '.join(unasked)}"
        yield Edit(REQUEST, unasked, count=len(unasked), rank=ASK, text=text)
    vocabulary = Vocabulary(fleet)
    for tags, flag, holds in (
        (mismatch.not_asked, "exclusive", vocabulary.is_exclusive),
        (asked, "on_demand", vocabulary.is_on_demand),
    ):
        for tag in tags:
            declaring = next((n for n in vocabulary.names_of(tag) if holds(n)), None)
            if declaring is not None:
                yield Edit(("tags", declaring, flag), new=False, rank=OPEN)


def _rules(fleet: Fleet, request: Request, tags: tuple[str, ...]) -> Iterator[Edit]:
    """Yield the rule of the allow-list that gives builds like this one these tags."""
    for name in names_of(request)[:1]:
        text = f"let a rule of `powerful` ask for {', '.join(tags)} for {name}"
        new = rule_for(request, tags)
        yield Edit(("powerful", len(fleet.powerful)), new, rank=RULE, text=text)


def _provide(fleet: Fleet, name: str, tags: tuple[str, ...]) -> Edit:
    """Return the edit by which a pool, or its image where only that may, provides tags."""
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
    """Return an edit in words with its figures."""
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


def describe_wait(fleet: Fleet, wait: Wait) -> str:
    """Return what to wait for in words."""
    when = write_time(wait.until) if wait.until else ""
    if wait.runs:
        runs = "the next run" if wait.runs == 1 else f"{wait.runs} runs"
        return f"wait for {runs}, about {when}: fleet apply every {write_duration(fleet.cadence)}"
    if wait.workers:
        names = ", ".join(wait.workers[:_NAMED])
        names += " and others" if len(wait.workers) > _NAMED else ""
        many = f"{len(wait.workers)} busy workers are" if len(wait.workers) > 1 else "a worker is"
        known = f", expected {when}" if when else ", duration unknown"
        return f"wait until {many} free ({names}){known}"
    return f"wait until {when}"


def find_waits(
    fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans
) -> Iterator[Wait]:
    """Yield what to wait for, each planned again; the coming runs stand for everything later."""
    run = wait_for_runs(Run(fleet, world, plan), key, replans)
    if run is not None:
        yield run
        return
    found = [
        _after_work(fleet, world, plan, key, replans),
        _after_time(fleet, world, plan, key, replans),
    ]
    known = [wait for wait in found if wait is not None]
    yield from sorted(known, key=lambda w: (w.until is None, w.until or world.time))


def is_throttled(plan: Plan, key: str) -> bool:
    """Return whether only a throttle withholds a request's machine: a later run creates it."""
    return any(u.path[:2] == ("guards", "throttle") for u in plan.unserved if key in u.requests)


def wait_for_runs(run: Run, key: str, replans: Replans) -> Wait | None:
    """Return the first run that serves a request if every run's machines come up."""
    while run.number < MOST_RUNS:
        if run.number and not (run.plan.actions or run.plan.releases or run.plan.resumes):
            return None
        following = replans.run_after(run)
        if following is None:
            return None
        run = following
        if is_served(run.plan, key):
            start = run.forecast.start_of(key)
            return Wait(runs=run.number, until=run.world.time, start=start)
    return None


def _after_work(fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans) -> Wait | None:
    """Return the fewest busy workers, first to end first, that serve a request once free."""
    pools = {each.pool for u in plan.unserved if key in u.requests for each in u.blocked}
    own = {v.worker for v in plan.workers if v.pool in pools or v.state == "static"}
    known = {w.name: w for _, w in world.registered() if is_busy(w) and not w.draining}
    ends = {
        worker.name: left_of(fleet, world, worker)
        for worker in known.values()
        if worker.name in own or not pools
    }
    busy = sorted(ends, key=lambda name: (ends[name] is None, ends[name] or 0, name))

    def waiting_for(most: int) -> Wait:
        left = ends[busy[most - 1]]
        until = None if left is None else world.time + timedelta(seconds=left)
        return Wait(workers=tuple(busy[:most]), until=until)

    def serves(most: int) -> bool:
        wait = waiting_for(most)
        seen = awaited(fleet, world, wait, plan, replans)
        return seen is not None and replans.serves(fleet, seen, key, of=wait)

    fewest = first_that(serves, len(busy))
    return waiting_for(fewest) if fewest else None


def _after_time(fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans) -> Wait | None:
    """Return the first run that serves a request although nothing else happens until then."""
    if not _clock_matters(fleet, world, plan, key):
        return None

    def at(runs: int) -> datetime:
        return world.time + timedelta(seconds=runs * fleet.cadence)

    most = MOST_WAITING_DAYS * 86_400 // fleet.cadence

    def serves(runs: int) -> bool:
        return replans.serves(fleet, later(world, at(runs)), key, of=("time", runs))

    runs = first_that(serves, most)
    if not runs:
        return None
    # The exact moment, not the run after it, which moves with each call.
    before = at(runs - 1)

    def serves_at(moment: datetime) -> bool:
        return replans.serves(fleet, later(world, moment), key, of=("at", moment))

    likely = sorted(m for m in _likely_moments(fleet, world, key) if before < m <= at(runs))
    moment = next(filter(serves_at, likely), None)
    if moment is None:
        seconds = first_that(lambda n: serves_at(before + timedelta(seconds=n)), fleet.cadence - 1)
        moment = before + timedelta(seconds=seconds or fleet.cadence)
    return Wait(until=moment)


def _likely_moments(fleet: Fleet, world: World, key: str) -> Iterator[datetime]:
    """Yield when `otherwise` drops a tag, and every full hour, when periods end."""
    found = find_request(world, key)
    since = found[0].pending_since if found else None
    for rule in fleet.tags.values():
        if since is not None and isinstance(rule.otherwise, Otherwise):
            yield since + timedelta(seconds=rule.otherwise.after)
    hour = world.time.replace(minute=0, second=0, microsecond=0)
    yield from (hour + timedelta(hours=n) for n in range(1, MOST_WAITING_DAYS * 24 + 1))


def _clock_matters(fleet: Fleet, world: World, plan: Plan, key: str) -> bool:
    """Return whether time alone may serve a request: a period, a back-off or `otherwise` ends."""
    blocked = [each for u in plan.unserved if key in u.requests for each in u.blocked]
    pools = [fleet.pools.get(each.pool) for each in blocked]
    return bool(
        world.attempts
        or any("budget" in each.path or "budgets" in each.path for each in blocked)
        or any(isinstance(pool, Pool) and pool.replace.windows for pool in pools)
        or any(rule.otherwise != "wait" for rule in fleet.tags.values())
    )


def awaited(fleet: Fleet, world: World, wait: Wait, plan: Plan, replans: Replans) -> World | None:
    """Return the world that a wait waits for."""
    run: Run | None = Run(fleet, world, plan)
    for _ in range(wait.runs):
        run = replans.run_after(run) if run else None
    if wait.runs:
        return run.world if run else None
    world = later(world, wait.until) if wait.until else world
    return freed(world, wait.workers)
