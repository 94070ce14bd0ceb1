"""Explain why a request waits, when it may start, and which edits make fleet serve it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf

from fleet.explain.case import Case
from fleet.explain.options import is_possible, mark_chosen
from fleet.explain.plain import (
    ARCHITECTURE,
    ExpectedTimes,
    WaitingReason,
    describe_needs,
    describe_next,
    describe_wait,
    name_own_build,
)
from fleet.explain.tags import enforcement_facts, enforcer_of_limit
from fleet.explain.troubles import list_freeze_ends, list_retries
from fleet.explain.unblock import Remedy, find_missing_entries, find_remedies
from fleet.explain.values import (
    Contact,
    EachRequest,
    Everything,
    ExplainedReason,
    Explanation,
    GivenRule,
    OutcomeGroup,
    Suggestion,
)
from fleet.explain.what_if import MOST_PLANS, Replans, count_plans, is_served
from fleet.model.decisions import MISMATCHES, Code, Decision, NoMachineReason, Served, Unfit
from fleet.model.facts import Demand, PlaceFacts, Unknown, World
from fleet.model.plan import Plan, Signature, Unserved
from fleet.planner.demand import Drops, judge_of
from fleet.planner.durations import USUAL
from fleet.planner.fitting import asked_by
from fleet.planner.inventory import PoolInventory
from fleet.schema.findings import Path, listed, yaml_key
from fleet.schema.model import Fleet, TicketQueue
from fleet.schema.units import write_duration, write_time
from fleet.tagrules.derive import NOTHING
from fleet.tagrules.export import describe_rules
from fleet.tagrules.names import missing_in_name, package_of
from fleet.tagrules.sources import Claim, Enforcer, weakest
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words import answers
from fleet.words.pools import describe_pool, with_messages
from fleet.words.waiting import STATE, UNLESS, describe_place, describe_reason

FIRST_READ = "repair first what fleet cannot read: it creates no machine there until then"
ENDED = "no change found within the search limit; the queue is large"
_UNPUBLISHED = frozenset({Unfit.IMAGE_UNPROVEN, NoMachineReason.UNPUBLISHED})
"""Decision codes that mean that an image has no published version."""
MOST_REPLANS = 100
"""Maximum number of trial plans for the searches of all groups. They run in service order."""
FEWEST_PLANS = 1
"""Minimum number of trial plans per group, while plans are left. Most edits need one plan."""
BY_WORKER = "next for workers that exist"
BY_UNSEEN = "next for workers that may exist (not listed now)"
BY_CREATE = "get new machines"
SERVED = {
    BY_WORKER: "Next for a worker.",
    BY_UNSEEN: "Next for a worker that is not listed now.",
    BY_CREATE: "Gets a new machine.",
}
"""Groups of served requests, and the text for each request in the list of all builds."""


def explain_one(
    case: Case,
    signature: Signature,
    key: str,
    replans: Replans,
    remedies: Sequence[Remedy] | None = None,
) -> Explanation:
    """Explain a request. `replans` limits the trial plans of the search for helpful edits.

    `remedies` are the result of that search, if it has run before.
    """
    unserved = case.unserved.get(key)
    never = is_never(case, signature, unserved)
    if remedies is None:
        remedies = find_remedies(case, key, replans)
    start = _estimate_start(case, key, [remedy.suggestion for remedy in remedies])
    places = places_of(case, signature, key)
    suggestions = tuple(_note_earlier_worker(remedy.suggestion, start) for remedy in remedies)
    steps = []
    if unserved is None:
        steps.append(_explain_coming_worker(case, signature, key, replans))
    else:
        stopped = {(each.pool, each.path) for each in unserved.blocked}
        ways = [
            g.way_out
            for g in case.plan.guards
            if g.result == "refused"
            and g.path in unserved.paths
            # Guards of several pools may share one key of fleet.yaml.
            and (g.pool is None or (g.pool, g.path) in stopped)
        ]
        steps += [f"resolve the guard's refusal: {way}" for way in ways if way]
        if not any(edit.path[0] == "lookups" for each in remedies for edit in each.edits):
            steps += _missing_entries(case, signature, key)
        if not _UNPUBLISHED.isdisjoint(each.code for each in unserved.decisions):
            steps.append("build, test and publish its image: `fleet image due` lists the commands")
        closed = [each for each in unserved.blocked if each.code in ("closed", "guard")]
        steps += list_freeze_ends(case.plan, [each.pool for each in closed], ("creates",))
        steps += [*list_retries(case.plan, (each.until for each in closed))][:1]
        if not remedies and not steps:
            steps += _nothing_found(case, unserved, replans, never=never)
    times = _expect(case, key, start, places)
    return _answer(case, signature, key, times, never=never).altered(
        facts=(
            *_request_facts(case, signature, key, start, never=never),
            *enforcement_facts(
                case.fleet.tags, case.enforcement, signature.required, (signature.queue,)
            ),
        ),
        reasons=(*_rules(case, key), *reasons_of(case, signature, key, unserved)),
        next_steps=tuple(steps),
        suggestions=suggestions,
        places=places,
    )


def _expect(
    case: Case, key: str, start: datetime | None, places: Sequence[PlaceFacts]
) -> ExpectedTimes:
    assumed = None if start else case.assumed_start(key)
    return ExpectedTimes(start, assumed, estimate_end(case, key, start or assumed, places))


def _answer(
    case: Case, signature: Signature, key: str, times: ExpectedTimes, *, never: bool
) -> Explanation:
    """Return the own answer of a request: times, rules, contacts and sentences."""
    rules = _given_rules(case, key)
    return Explanation(
        kind="request",
        name=key,
        headline=headline(case, signature, key, never=never),
        expected=times.start,
        assumed=times.assumed,
        finish=times.end,
        never=never,
        plain=answer_plainly(case, signature, key, times, never=never),
        behind="" if never else name_own_build(case, key),
        path=() if never else _find_rule(case, key),
        needs=describe_needs(case, signature, key, rules),
        rules=rules,
        contacts=_contacts(case, key, rules),
        currency=case.fleet.money.currency,
    )


def headline(case: Case, signature: Signature, key: str, *, never: bool) -> str:
    """Return the explanation of a request in one line."""
    worker = case.worker_of(signature, key)
    if worker is not None:
        may = "exists" if worker in case.seen else "may exist (not listed now)"
        without = _dropped_tags(case, signature, worker)
        return f"request {key} is next for worker {worker}, which {may}{without}"
    if worker := signature.by_create.get(key) or signature.by_worker.get(key):
        return (
            f"request {key} gets a new machine: {worker}{_dropped_tags(case, signature, worker)}"
        )
    unserved = case.unserved.get(key)
    because = unserved.because if unserved else answers.NO_REASON
    return answers.describe_wait(key, because, never=never)


def answer_plainly(
    case: Case, signature: Signature, key: str, times: ExpectedTimes, *, never: bool
) -> tuple[str, ...]:
    """Return the answer for the user of a request, in sentences."""
    worker = signature.by_worker.get(key) or signature.by_create.get(key)
    times = times._replace(no_start=_explain_unknown_start(case, key))
    if worker is not None:
        return describe_next(case, signature, key, _dropped_tags(case, signature, worker), times)
    unserved = case.unserved.get(key)
    if unserved is None:
        return (describe_reason(answers.NO_REASON),)
    why = WaitingReason(unserved, never, tuple(dict.fromkeys(_name_unread(case, unserved))))
    return describe_wait(case, signature, key, why, times)


def _find_rule(case: Case, key: str) -> Path:
    """Return the key of fleet.yaml that decides about a request; empty if no key does."""
    turn, unserved = case.turns.get(key), case.unserved.get(key)
    if unknown_of(case, unserved):
        return ()
    if turn is not None:
        return turn.use.limit.path
    return next(iter(unserved.paths), ()) if unserved else ()


def _given_rules(case: Case, key: str) -> tuple[GivenRule, ...]:
    found = case.find(key)
    return case.given.find(found[0]) if found else ()


def _contacts(case: Case, key: str, rules: tuple[GivenRule, ...]) -> tuple[Contact, ...]:
    found = case.find(key)
    return case.given.contacts(rules, package_of(found[0]) if found else "")


def _dropped_tags(case: Case, signature: Signature, worker: str) -> str:
    """Return ", without TAGS" for waived tags that a worker does not provide; or empty."""
    verdict = case.verdicts.get(worker)
    offer = case.decider.offers.get(verdict.pool) if verdict else None
    provides = offer.provides if offer else ()
    missing = listed([tag for tag in signature.dropped if tag not in provides])
    return f", without {missing}" if missing else ""


def _request_facts(
    case: Case, signature: Signature, key: str, start: datetime | None, *, never: bool
) -> Iterator[str]:
    found = case.find(key)
    if found is not None:
        request, _ = found
        described = " ".join(filter(None, [request.task, request.package, request.scope]))
        since = write_time(request.pending_since) if request.pending_since else "unknown"
        # A ticket has no task.
        task = f"task {described}, " if described else ""
        yield f"{task}priority {signature.priority}, since {since}"
    yield f"requires {listed(signature.required) or 'nothing'}"
    is_matched = case.fleet.powerful or any(
        isinstance(d, list) for d in case.fleet.durations.values()
    )
    if found is not None and is_matched and (missing := missing_in_name(found[0])):
        yield answers.explain_nameless(missing)
    if case.worker_of(signature, key) is None:
        for pool in case.plan.pools:
            if pool.failures and pool.pool in signature.pools:
                yield f"pool {pool.pool}: {pool.failures}"
    if key in case.line and signature.pools:
        yield describe_place(case.line[key][0], signature.pools)
    yield expectation(case, key, start, never=never)
    if start is None and key in case.unserved and case.assumed_start(key):
        yield _workers_that_fit(case, signature)
    for verdict in case.plan.rules:
        if verdict.queue == signature.queue:
            yield f"rules of {verdict.queue}, {verdict.place}: {describe_rules(verdict)}"


def expectation(case: Case, key: str, start: datetime | None, *, never: bool) -> str:
    """Return a sentence with the expected start of a request, or why the start is unknown."""
    if never:
        return f"expected start: {UNLESS}"
    assumed = case.assumed_start(key) if start is None else None
    moment = start or assumed
    if moment is None:
        return answers.describe_unknown_start(_explain_unknown_start(case, key))
    seconds = int((moment - case.world.time).total_seconds())
    soon = f"in {write_duration(seconds)}" if seconds else "now"
    said = f"expected start: {write_time(moment)} ({soon}), in queue order"
    if assumed is None:
        return said
    why = "of unknown duration (no history, no `durations`)"
    return f"{said}; assumed: {write_duration(USUAL)} for work {why}"


def _explain_unknown_start(case: Case, key: str) -> str:
    """Return the reason why the start of a request is unknown."""
    if unknown_of(case, case.unserved.get(key)):
        return answers.UNREPAIRED
    turn = case.turns.get(key)
    if turn and turn.is_alone and turn.first is None:
        return answers.UNTIMED_WORK
    return case.forecast.not_known.get(key, answers.UNREAD_QUEUE)


def _workers_that_fit(case: Case, signature: Signature) -> str:
    """Return a phrase with the number, by state, of workers that fit a request."""
    asked = asked_by(case.fleet, signature)
    states: Counter[str] = Counter()
    for (queues, offer, _), found in case.classes.items():
        if signature.queue in queues and asked.fits(offer):
            states += found
    said = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
    others = "; other requests get those that are not busy" if states.keys() - {"busy"} else ""
    return f"workers that fit: {said}{others}"


def _estimate_start(case: Case, key: str, suggestions: Iterable[Suggestion]) -> datetime | None:
    """Return the earliest expected start of a request, even after a wait; None if unknown."""
    starts = [case.forecast.start_of(key)]
    waits = [each.wait for each in suggestions if each.wait and not _has_edits(each)]
    starts += [wait.start if wait.runs or wait.start else wait.until for wait in waits]
    known = min((start for start in starts if start is not None), default=None)
    # A wait that a plan checks is better than the turn at a limit.
    return known or case.expected_start(key)


def estimate_end(
    case: Case, key: str, start: datetime | None, places: Sequence[PlaceFacts]
) -> datetime | None:
    """Return the expected end of a request that starts at a time; None if unknown."""
    turn, found = case.turns.get(key), case.forecast
    if key in found.starts and key in found.ends:
        seconds: int | None = found.ends[key] - found.starts[key]
    elif turn and turn.first and turn.first.end is not None and turn.end is not None:
        seconds = turn.end - turn.first.end
    else:
        possible = [each for each in places if is_possible(each)]
        seconds = next((each.seconds for each in possible if each.seconds is not None), None)
    return None if start is None or seconds is None else start + timedelta(seconds=seconds)


def _has_edits(suggestion: Suggestion) -> bool:
    return bool(suggestion.changes or suggestion.asks)


def _note_earlier_worker(suggestion: Suggestion, start: datetime | None) -> Suggestion:
    """Note in a suggestion to wait for a run that a worker is possibly free before that run."""
    wait = suggestion.wait
    if wait is None or start is None or wait.until is None or not wait.runs:
        return suggestion
    if _has_edits(suggestion) or start >= wait.until:
        return suggestion
    soon = f"; a worker that fits may be free earlier, about {start:%H:%M} UTC"
    return suggestion.altered(sentence=suggestion.sentence + soon)


def _explain_coming_worker(case: Case, signature: Signature, key: str, replans: Replans) -> str:
    """Return the next step for a served request, or a warning if the next run drops it."""
    following = replans.run_after(case)
    if following is not None and not is_served(following.plan, key):
        waits = following.unserved[key].because if key in following.unserved else ""
        return f"act soon: in the next run the request would wait: {waits}"
    worker = case.worker_of(signature, key)
    if worker is None:
        return "nothing to do: the next `fleet apply` creates it, then the queue assigns it"
    if worker not in case.seen:
        return "resolve the unknown: no replacement is created until it is read again"
    state = case.verdicts[worker].state if worker in case.verdicts else ""
    first = {"starting": "once it has booted, ", "busy": "once it is idle, "}.get(state, "")
    return f"nothing to do: {first}the queue assigns the request to a free worker that fits"


def _missing_entries(case: Case, signature: Signature, key: str) -> Iterator[str]:
    """Yield a step per missing look-up entry, without which a request's tags are unknown."""
    found = case.find(key)
    for path in find_missing_entries(case.fleet, signature, *found) if found else ():
        yield f"set {yaml_key(path)}: {path[2]} is unknown without it"


def _nothing_found(
    case: Case, unserved: Unserved, replans: Replans, *, never: bool
) -> Iterator[str]:
    if unknown_of(case, unserved):
        yield FIRST_READ
    elif any(
        tag.startswith(ARCHITECTURE)
        for each in unserved.decisions
        if each.code is Unfit.TAG_MISSING
        for tag in each.figures.tags
    ):
        yield "add a pool with machines and an image of that architecture"
    elif replans.is_spent:
        yield ENDED
    elif never:
        yield "add a pool whose machines and image meet its requirements"
    else:
        yield "no edit of fleet.yaml found that serves it"


def _rules(case: Case, key: str) -> Iterator[ExplainedReason]:
    """Yield the rules of fleet.yaml that add tags to a ticket."""
    found = case.find(key)
    if found is None or not isinstance(case.fleet.queues.get(key.partition("/")[0]), TicketQueue):
        return
    for origin in judge_of(case.fleet, case.world).ask_of(found[0], NOTHING).origins:
        if origin.path:
            rule = f"{origin.path[0]}[{origin.path[1]}]"
            because = answers.explain_ruled_tag(origin.tag, rule, origin.because)
            yield ExplainedReason(because=because, path=origin.path, by="scheduler")


def is_never(case: Case, signature: Signature, unserved: Unserved | None) -> bool:
    """Return whether no existing or new worker of this fleet can ever run a request."""
    if unserved is None or unserved.blocked:
        return False
    if any(each.code is Unfit.IMAGE_UNPROVEN for each in unserved.decisions):
        return False
    asked = asked_by(case.fleet, signature)
    demand = case.world.queues[signature.queue].demand
    if isinstance(demand, Demand) and not demand.stored:
        later = Drops(case.fleet, case.world.time).within(signature.required, inf)
        asked = asked._replace(dropped=asked.dropped | later)
    return not any(case.decider.fits(asked, name) for name in case.fleet.pools) and not any(
        signature.queue in queues and asked.fits(offer) for queues, offer, _ in case.classes
    )


def reasons_of(
    case: Case, signature: Signature, key: str, unserved: Unserved | None
) -> Iterator[ExplainedReason]:
    """Yield the reasons for the state of a request: rule, denied tags, unknown facts, pools."""
    if unserved and unserved.path[2:3] == ("ask",):
        who = "maintainer of the rule"
        yield ExplainedReason(because=unserved.because, path=unserved.path, who=who)
    for refused in signature.refused:
        who = f"owner of tag {refused.tag}: `asked_by`"
        if refused.is_unknown:
            who = "requester, or operator of `derive` and `lookups`"
        by = case.enforcer([refused.tag], "tag", signature.queue)
        yield ExplainedReason(because=refused.because, path=refused.path, by=by, who=who)
    for difference in signature.differences:
        yield ExplainedReason(because=difference.because, path=difference.path, by="scheduler")
    yield from _otherwise_reasons(case, signature, key)
    for because in unknown_of(case, unserved):
        who = "operator of the unreadable source"
        yield ExplainedReason(because=because, who=who)
    for name in sorted(case.fleet.pools):
        yield _explain_pool(case, signature, unserved, name)


def _otherwise_reasons(case: Case, signature: Signature, key: str) -> Iterator[ExplainedReason]:
    """Yield, per tag with `otherwise`, when the request may run without the tag."""
    found = case.find(key)
    since = found[0].pending_since if found else None
    if found is None or since is None:
        return
    for tag, name, seconds in Drops(case.fleet, case.world.time).delays(signature.required):
        after, until = write_duration(seconds), since + timedelta(seconds=seconds)
        because = (
            answers.explain_stored_tag(tag, name, signature.queue)
            if found[1].stored
            else answers.explain_waived_tag(tag, after, until, waived=tag in signature.dropped)
        )
        yield ExplainedReason(because=because, path=("tags", name, "otherwise"))


def unknown_of(case: Case, unserved: Unserved | None) -> tuple[str, ...]:
    """Return the unknown facts that stop suitable pools from creating machines."""
    pools = _find_blind(case, unserved)
    return tuple(dict.fromkeys(because for each in pools for because in each.blind))


def _find_blind(case: Case, unserved: Unserved | None) -> list[PoolInventory]:
    """Return the suitable pools that create no machines because of unknown facts."""
    names = [each.pool for each in unserved.blocked] if unserved else []
    pools = (case.inventory[name] for name in names if name in case.inventory)
    return [each for each in pools if each.blind]


def _name_unread(case: Case, unserved: Unserved | None) -> Iterator[str]:
    """Yield a noun for the unreadable source of each of these pools."""
    for each in _find_blind(case, unserved):
        of = f"pool {each.pool}" if each.listed else f"provider {each.provider}"
        yield STATE if isinstance(case.world.stacks, Unknown) else f"the machines of {of}"


def _explain_pool(
    case: Case, signature: Signature, unserved: Unserved | None, name: str
) -> ExplainedReason:
    has_machines = name in case.inhabited
    decisions = case.decider.decide(signature, name, unserved, has_machines=has_machines)
    first = decisions[0]
    is_stopped = isinstance(first.code, NoMachineReason)
    tags = ", ".join(first.figures.tags)
    by, who = _BY.get(first.code), _WHO.get(first.code, "").format(pool=name, tags=tags)
    if is_stopped:
        by = enforcer_of_limit(case.enforcement, first.key, (signature.queue,))
        who = _format_approver(case.plan, first.key)
    elif first.code in MISMATCHES:
        by = weakest(filter(None, (_enforcer_of(case, signature, each) for each in decisions)))
        who = "; ".join(_format_fixers(case, decisions))
    return ExplainedReason(
        because=describe_pool(decisions),
        path=first.key if is_stopped or first.code is Unfit.QUEUE_NOT_SERVED else ("pools", name),
        by=by,
        who=who,
        decisions=with_messages(decisions),
    )


_BY: Mapping[Code, Enforcer] = {
    Unfit.QUEUE_NOT_SERVED: "scheduler",
    Unfit.TAG_HELD: "capacity",
    Unfit.ON_DEMAND: "capacity",
    Served.SERVES_OTHERS: "capacity",
    Served.WORKERS_BUSY: "scheduler",
}
_WHO: Mapping[Code, str] = {
    Unfit.QUEUE_NOT_SERVED: "fleet operator: pools.{pool}.serves",
    Unfit.TAG_HELD: "see above",
    Unfit.ON_DEMAND: "requester: ask for {tags}, if allowed",
    Served.SERVES_OTHERS: "wait",
    Served.WORKERS_BUSY: "wait",
}


def _format_approver(plan: Plan, path: Path) -> str:
    way_out = next((g.way_out for g in plan.guards if g.path == path and g.way_out), "")
    if way_out:
        return way_out
    match path[:1]:
        case ("guards",):
            return "the next runs, or the owner of guards"
        case ("budgets",):
            return "owner of budgets"
    return "fleet operator"


def _enforcer_of(case: Case, signature: Signature, decision: Decision) -> Enforcer | None:
    if decision.code not in MISMATCHES:
        return None
    claim: Claim = "exclusive" if decision.code is Unfit.TAG_EXCLUSIVE else "tag"
    return case.enforcer(decision.figures.tags, claim, signature.queue)


def _format_fixers(case: Case, decisions: Iterable[Decision]) -> Iterator[str]:
    """Yield, per mismatch, the person who can make a pool fit, and the key to edit."""
    vocabulary = Vocabulary(case.fleet)
    tags_of = {each.code: each.figures.tags for each in decisions}
    name = next(each.subject[0] for each in decisions)
    fixed: list[str] = []
    stated: list[str] = []
    for tag in tags_of.get(Unfit.TAG_MISSING, ()):
        may = {"pool", "image"} & set(vocabulary.provided_by(tag)[0] or ("pool",))
        (stated if may and not tag.startswith(ARCHITECTURE) else fixed).append(tag)
    if fixed := [*fixed, *tags_of.get(Unfit.TOO_SMALL, ())]:
        yield f"only a new pool whose machine and image have {listed(fixed)}"
    if stated:
        yield f"pool owner, if its workers have {listed(stated)}: pools.{name}.provides"
    if Unfit.TAG_NOT_BROUGHT in tags_of:
        yield f"fleet operator: pools.{name}.requires"
    if Unfit.TAG_EXCLUSIVE in tags_of and not fixed:
        yield f"requester: ask for {listed(tags_of[Unfit.TAG_EXCLUSIVE])}"


def places_of(case: Case, signature: Signature, key: str) -> tuple[PlaceFacts, ...]:
    """Return the machines that could run a request: first those that need no additional rule."""
    found = case.find(key)
    if found is None:
        return ()
    way = case.created.get(signature.by_create.get(key, ""))
    options = case.options.options_for(signature.queue, found[0])
    return mark_chosen(options, () if way is None else (way,))


def explain_every(
    fleet: Fleet, world: World, plan: Plan, *, most: int = MOST_REPLANS
) -> Everything:
    """Explain every waiting request, in the order in which requests are served.

    The searches for edits use at most `most` plans.
    """
    case = Case(fleet, world, plan)
    replans = Replans(min(most, MOST_REPLANS * count_plans(plan) // MOST_PLANS))
    apart = [*by_outcome(case)]
    searches = sum(verdict not in SERVED for _, verdict, _ in apart)
    groups = []
    for signature, verdict, keys in apart:
        waits = verdict not in SERVED
        with replans.share(_share(replans.left, searches) if waits else 1, most_shown=1) as given:
            answers = tuple(_explain_group(case, signature, keys, given))
        searches -= waits
        groups.append(
            OutcomeGroup(
                signature=signature.id,
                queue=signature.queue,
                required=signature.required,
                priority=signature.priority,
                verdict=verdict,
                requests=answers,
            )
        )
    return Everything(fleet=fleet.fleet, groups=tuple(groups))


def _share(left: int, searches: int) -> int:
    """Return how many of the `left` trial plans the next of `searches` searches may use."""
    return min(left, max(FEWEST_PLANS, left // searches))


def by_outcome(case: Case) -> Iterator[tuple[Signature, str, list[str]]]:
    """Yield (signature, outcome, requests) per group of requests with equal tags and outcome."""
    for signature in case.plan.signatures:
        verdicts = {key: _verdict(case, signature, key) for key in signature.requests}
        for verdict in sorted(dict.fromkeys(verdicts.values()), key=_rank):
            yield signature, verdict, [key for key in verdicts if verdicts[key] == verdict]


def each_request(everything: Everything) -> EachRequest:
    """Return the explanations of all groups as one list."""
    answers = (answer for group in everything.groups for answer in group.requests)
    return EachRequest(fleet=everything.fleet, requests=tuple(answers))


def _verdict(case: Case, signature: Signature, key: str) -> str:
    if key in signature.by_worker:
        return BY_WORKER if signature.by_worker[key] in case.seen else BY_UNSEEN
    if key in signature.by_create:
        return BY_CREATE
    unserved = case.unserved.get(key)
    return unserved.because if unserved else "no reason recorded"


def _rank(verdict: str) -> int:
    return [*SERVED].index(verdict) if verdict in SERVED else len(SERVED)


def _explain_group(
    case: Case, signature: Signature, keys: list[str], replans: Replans
) -> Iterator[Explanation]:
    first = without_search(explain_one(case, signature, keys[0], replans))
    yield first
    for key in keys[1:]:
        fact = expectation(case, key, case.expected_start(key), never=first.never)
        yield explain_like(case, signature, key, first).altered(facts=(fact,))


def without_search(answer: Explanation) -> Explanation:
    """Return the explanation. If no trial plan was left for a search, add the search command."""
    if ENDED not in answer.next_steps:
        return answer
    steps = [step for step in answer.next_steps if step != ENDED]
    steps.append(f"to search for a change: `fleet explain request {answer.name}`")
    return answer.altered(next_steps=tuple(steps))


def explain_like(case: Case, signature: Signature, key: str, first: Explanation) -> Explanation:
    """Explain a request like that of `first`. Both requests have the same tags and outcome."""
    places, start = places_of(case, signature, key), case.expected_start(key)
    return explain_alike(case, signature, key, first, places).altered(
        facts=tuple(_request_facts(case, signature, key, start, never=first.never)),
        reasons=first.reasons,
        next_steps=first.next_steps,
        places=places,
    )


def explain_alike(
    case: Case,
    signature: Signature,
    key: str,
    first: Explanation,
    places: Sequence[PlaceFacts] = (),
) -> Explanation:
    """Return only the own answer of a request that is like `first`."""
    times = _expect(case, key, case.expected_start(key), places)
    return _answer(case, signature, key, times, never=first.never).altered(like=first.name)
