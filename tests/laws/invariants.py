"""What must hold of every run in the small world, whatever happened before it."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from fleet.guard import guard
from fleet.model.facts import Listing, Request, Stack, Unknown, WorkerState
from fleet.model.plan import Action, Create, Plan, Reason, Signature
from fleet.reconcile import reconcile
from fleet.schema.model import Pool
from tests.laws.machine import QUEUE, Farm, Made, Run
from tests.laws.strategies import shuffled

_WHOSE = {"submitter": "requester"}


def check(farm: Farm, run: Run) -> None:
    """Check everything that holds of a run by itself."""
    _check_counts(run)
    _check_tag_limits(farm, run)
    _check_budgets(run)
    _check_deletions(run)
    _check_unknown(run)
    _check_plan(run)


# limits


def known_names(run: Run, pool: str) -> set[str]:
    """Return every machine of a pool that any witness told of."""
    stack = run.world.stacks.get(pool) if isinstance(run.world.stacks, dict) else None
    recorded = (*(w.name for w in stack.workers), *stack.ids) if isinstance(stack, Stack) else ()
    return {*recorded} | {name for name, made in run.there.items() if made.pool == pool}


def _check_counts(run: Run) -> None:
    for name, pool in run.fleet.pools.items():
        made = [a.worker for a in _creates(run.before) if a.pool == name]
        if not isinstance(pool, Pool) or not made:
            continue
        known = known_names(run, name)
        fresh = [each for each in made if each not in known]
        if fresh:
            assert len(known) + len(fresh) <= pool.workers.max, (name, made)
        recorded = [each for each in made if each in known and each not in run.there]
        if recorded:
            there = {n for n, m in run.there.items() if m.pool == name}
            assert len(there) + len(recorded) <= pool.workers.max, (name, made)
        most = pool.workers.max_starting
        if most is not None and fresh:
            deadline = timedelta(seconds=pool.boot.deadline)
            booting = [
                m
                for m in run.there.values()
                if m.pool == name
                and not m.is_registered
                and run.world.time - m.created_at <= deadline
            ]
            assert len(booting) + len(fresh) <= most, (name, made)


def _check_tag_limits(farm: Farm, run: Run) -> None:
    waiting = {f"{QUEUE}/{request.id}": request for request in farm.waiting.values()}
    served = [
        waiting[key]
        for signature in run.before.signatures
        for key in (*signature.by_worker, *signature.by_create)
    ]
    running = [made.request for made in run.there.values() if made.request]
    for tag, rule in run.fleet.tags.items():
        limits = [("total", rule.limits.total), *rule.limits.per]
        for of, most in limits:
            if most is not None:
                count = Counter(_who(of, each) for each in served if tag in each.required)
                held = Counter(_who(of, each) for each in running if tag in each.required)
                for who, more in count.items():
                    assert held[who] + more <= most, (tag, of, who)


def _who(of: str, request: Request) -> str | None:
    return "" if of == "total" else getattr(request, _WHOSE.get(of, of))


def _check_budgets(run: Run) -> None:
    for verdict in run.before.budgets:
        if verdict.planned > 0:
            assert verdict.used is not None, verdict
            assert verdict.used <= verdict.limit, verdict
    for name, pool in run.fleet.pools.items():
        shut = [b for b in run.before.budgets if b.path[:2] == ("pools", name) and b.exceeded]
        fresh = {a.worker for a in _creates(run.before) if a.pool == name}
        if isinstance(pool, Pool) and shut:
            assert not fresh - known_names(run, name), (name, shut)


# deletions


def _check_deletions(run: Run) -> None:
    busy = {name for name, made in run.there.items() if made.request}
    assert not busy & {a.worker for a in run.plan.actions if a.action == "delete"}
    assert not busy & run.deleted.keys()
    for made in run.deleted.values():
        assert made.revoked or (made.disabled and _was_seen_going(run, made)), made


def _was_seen_going(run: Run, made: Made) -> bool:
    """Say whether a run saw that the worker got no work any more, before this one deleted it."""
    listing = run.world.providers[made.cloud]
    assert isinstance(listing, Listing)
    (worker,) = [each for each in listing.workers or () if each.name == made.name]
    off = worker.state is WorkerState.DISABLED
    return off or (worker.state is WorkerState.IDLE and worker.draining)


# unknown is not zero


def _check_unknown(run: Run) -> None:
    stacks = run.world.stacks
    assert isinstance(stacks, dict)
    for verdict in run.plan.pools:
        dark = isinstance(run.world.providers.get(verdict.provider or ""), Unknown)
        if dark or isinstance(stacks.get(verdict.pool), Unknown):
            assert not [a for a in run.before.actions if a.pool == verdict.pool]
        if isinstance(run.world.queues[QUEUE].demand, Unknown):
            # What was interrupted goes on, and machines that never registered are let go of.
            gone = [a for a in run.before.actions if a.pool == verdict.pool and _is_removal(a)]
            assert not gone, verdict.pool


def _is_removal(action: Action) -> bool:
    return not isinstance(action, Create)


def check_nothing_bought_twice(seeing: Plan, blind: Plan) -> None:
    """Check that a blind provider makes nobody buy more than if everything were seen."""
    assert _bought(blind) <= _bought(seeing)


def _bought(plan: Plan) -> int:
    return sum(action.reason is Reason.REQUESTS_WAIT for action in _creates(plan))


# the plan as a value


def _check_plan(run: Run) -> None:
    plan = run.plan
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    again = guard(run.fleet, reconcile(run.fleet, shuffled(run.world)))
    assert again.model_dump_json() == plan.model_dump_json()
    names = [action.worker for action in run.before.actions]
    finished = [a.worker for a in _creates(run.before) if a.reason is Reason.INTERRUPTED]
    assert all(count == 1 for name, count in Counter(names).items()), (names, finished)


def _creates(plan: Plan) -> Iterator[Create]:
    return (action for action in plan.actions if isinstance(action, Create))


# one plan beside another


def neighbours(plan: Plan, pool: str) -> set[str]:
    """Return the pools that share demand with a pool, directly or through others."""
    shared = [_places_of(plan, signature) for signature in plan.signatures]
    found = {pool}
    while more := {p for each in shared if each & found for p in each} - found:
        found |= more
    return found


def actions_of(plan: Plan, pools: set[str]) -> list[Action]:
    """Return the actions in these pools, without their turn in the order of all pools."""
    return [
        action.altered(turn=0) if isinstance(action, Create) else action
        for action in plan.actions
        if action.pool in pools
    ]


def check_more_is_no_less(before: Plan, after: Plan, added: str) -> None:
    """Check that one more request like others takes nothing from them, where they are alone."""
    (more,) = [each for each in after.signatures if added in each.requests]
    same = [each for each in before.signatures if each.id == more.id]
    places = _places_of(after, more)
    others = [each for each in after.signatures if each is not more]
    alone = not any(places & _places_of(after, other) for other in others)
    proven = all(plan.optimum is None or plan.optimum.gap == 0 for plan in (before, after))
    if same and alone and proven:
        assert _served(more) >= _served(same[0])


def _places_of(plan: Plan, signature: Signature) -> set[str]:
    worker_of = {verdict.worker: verdict.pool for verdict in plan.workers}
    return {*signature.pools, *(worker_of.get(w, "") for w in signature.by_worker.values())}


def _served(signature: Signature) -> int:
    return len(signature.by_worker) + len(signature.by_create)
