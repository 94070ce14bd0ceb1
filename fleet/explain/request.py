"""Explain waiting requests: why they wait, when they may start, and which edits serve them.

A command explains one, some or all requests. The status pages show all requests by outcome and
age, with explanations of the longest waits.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.asked import (
    Asked,
    answer_plainly,
    describe_needs,
    name_own_build,
    reasons_of,
)
from fleet.explain.case import Case
from fleet.explain.costs import is_possible
from fleet.explain.loosen import find_missing_entries
from fleet.explain.search import (
    MOST_PLANS,
    MOST_SHOWN,
    Helps,
    Remedy,
    Replans,
    add_gains,
    count_plans,
    find_first_wait,
    find_helps,
    find_remedies,
)
from fleet.explain.tags import enforcement_facts
from fleet.explain.troubles import list_freeze_ends, list_retries
from fleet.explain.values import AwaitedEvent, Contact, EachRequest, Explanation, Suggestion
from fleet.model.decisions import NoMachineReason, Unfit
from fleet.model.facts import PlaceFacts
from fleet.model.plan import Signature
from fleet.schema.findings import Path, listed, yaml_key
from fleet.schema.model import Pool
from fleet.schema.units import write_time
from fleet.tagrules.export import describe_rules
from fleet.tagrules.names import missing_in_name, package_of
from fleet.tagrules.sources import BUILD_ARCH
from fleet.words import answers
from fleet.words.waiting import FLEET, describe_place, describe_repair, describe_rule_contact

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


class OutcomeGroup(NamedTuple):
    """Requests with equal tags and the same outcome, in service order."""

    signature: Signature
    verdict: str
    """The outcome in words."""
    keys: list[str]

    @property
    def is_served(self) -> bool:
        """Return whether the requests have a worker, or get a machine in the next apply."""
        return self.verdict in SERVED


def by_outcome(case: Case) -> Iterator[OutcomeGroup]:
    """Yield each group of requests with equal tags and outcome."""
    for signature in case.plan.signatures:
        found: dict[str, list[str]] = {verdict: [] for verdict in SERVED}
        for key in signature.requests:
            unserved = case.unserved.get(key)
            verdict = unserved.because if unserved else answers.NO_REASON
            if key in signature.by_worker:
                verdict = BY_WORKER if signature.by_worker[key] in case.seen else BY_UNSEEN
            elif key in signature.by_create:
                verdict = BY_CREATE
            found.setdefault(verdict, []).append(key)
        yield from (OutcomeGroup(signature, *each) for each in found.items() if each[1])


def explain_one(case: Case, key: str, replans: Replans, remedies: Sequence[Remedy]) -> Explanation:
    """Explain a request. `remedies` are the result of `find_remedies` with `replans`."""
    about = Asked(case, key)
    suggestions = [remedy.suggestion for remedy in remedies]
    waits = [each.wait for each in suggestions if each.wait and not _has_edits(each)]
    enforced = enforcement_facts(
        case.fleet.tags, case.enforcement, about.signature.required, (about.signature.queue,)
    )
    answer = _answer(about, waits, about.places)
    return answer.altered(
        facts=(*_request_facts(about, answer), *enforced),
        reasons=tuple(reasons_of(about)),
        next_steps=tuple(_list_steps(about, remedies, replans)),
        suggestions=tuple(_note_earlier_worker(each, answer.expected) for each in suggestions),
    )


def explain_like(
    case: Case,
    key: str,
    first: Explanation,
    replans: Replans,
    *,
    places: Sequence[PlaceFacts] | None = None,
) -> Explanation:
    """Explain a request that has the same tags and outcome as that of `first`, without reasons."""
    about = Asked(case, key)
    wait = find_first_wait(case, key, replans)
    answer = _answer(about, [wait] if wait else [], about.places if places is None else places)
    return answer.altered(next_steps=first.next_steps, like=first.name)


def explain_requests(
    case: Case, meant: Collection[str] | None = None, *, most: int = MOST_REPLANS
) -> Iterator[Explanation]:
    """Explain waiting requests, in the order in which they are served; `meant` None: all.

    The searches for edits use at most `most` plans. Only the first request of a group has
    suggestions.
    """
    found = [(g, [k for k in g.keys if meant is None or k in meant]) for g in by_outcome(case)]
    groups = [(group, keys) for group, keys in found if keys]
    fair = count_plans(case.plan)
    replans = Replans(min(most, fair * min(len(groups), MOST_REPLANS // MOST_PLANS)))
    searches = sum(not group.is_served for group, _ in groups)
    for group, (first, *others) in groups:
        replans.begin(max(FEWEST_PLANS, min(fair, replans.total // max(1, searches))))
        searches -= not group.is_served
        remedies = find_remedies(case, first, replans, most=1 if meant is None else MOST_SHOWN)
        answer = explain_one(case, first, replans, remedies)
        if meant is None:
            search = f"to search for a change: `fleet explain request {first}`"
            steps = (search if each == ENDED else each for each in answer.next_steps)
            answer = answer.altered(next_steps=tuple(steps))
        yield answer
        for key in others:
            alike = explain_like(case, key, answer, replans)
            facts = tuple(_request_facts(Asked(case, key), alike))
            yield alike.altered(facts=facts, reasons=answer.reasons)


def explain_every(case: Case, *, most: int = MOST_REPLANS) -> EachRequest:
    """Explain every waiting request."""
    requests = tuple(explain_requests(case, most=most))
    return EachRequest(fleet=case.fleet.fleet, requests=requests)


def _answer(
    about: Asked, waits: Iterable[AwaitedEvent], places: Sequence[PlaceFacts]
) -> Explanation:
    """Return the own answer of a request: times, rules, contacts and sentences."""
    case, key, fleet = about.case, about.key, about.case.fleet
    start, assumed, end = _expect_times(about, waits, places)
    package = (about.request and package_of(about.request)) or "this build"
    own = {fleet.contact: FLEET} if fleet.contact else {}
    asked = {each.contact: describe_rule_contact(package) for each in about.rules if each.contact}
    paths = about.unserved.paths if about.unserved else ()
    turn = case.turns.get(key)
    path: Path = turn.use.limit.path if turn else next(iter(paths), ())
    answer = Explanation(
        kind="request",
        name=key,
        headline=headline(about),
        expected=start,
        assumed=assumed,
        finish=end,
        never=about.never,
        behind=name_own_build(about),
        path=() if about.never or about.blind else path,
        needs=describe_needs(about),
        rules=about.rules,
        contacts=tuple(Contact(name=k, about=text) for k, text in (own | asked | own).items()),
        places=tuple(places),
        currency=fleet.money.currency,
    )
    return answer.altered(plain=tuple(answer_plainly(about, answer)))


def headline(about: Asked) -> str:
    """Return the explanation of a request in one line."""
    if about.worker:
        may = "exists" if about.worker in about.case.seen else "may exist (not listed now)"
        return f"request {about.key} is next for worker {about.worker}, which {may}{about.without}"
    if about.machine:
        return f"request {about.key} gets a new machine: {about.machine}{about.without}"
    because = about.unserved.because if about.unserved else answers.NO_REASON
    return answers.describe_wait(about.key, about.never, because)


def _request_facts(about: Asked, answer: Explanation) -> Iterator[str]:
    case, signature, request = about.case, about.signature, about.request
    if request is not None:
        described = " ".join(filter(None, [request.task, request.package, request.scope]))
        since = write_time(request.pending_since) if request.pending_since else "unknown"
        # A ticket has no task.
        task = f"task {described}, " if described else ""
        yield f"{task}priority {signature.priority}, since {since}"
    yield f"requires {listed(signature.required) or 'nothing'}"
    is_matched = case.fleet.powerful or any(
        isinstance(each, list) for each in case.fleet.durations.values()
    )
    if request is not None and is_matched and (missing := missing_in_name(request)):
        yield answers.explain_nameless(missing)
    if about.turn and about.ahead is not None:
        yield describe_place(about.ahead.ahead, about.ahead.pools)
    if answer.assumed:
        yield answers.ASSUMED
    for pool in case.plan.pools if not about.worker else ():
        if pool.failures and pool.pool in signature.pools:
            yield f"pool {pool.pool}: {pool.failures}"
    for verdict in case.plan.rules:
        if verdict.queue == signature.queue:
            yield f"rules of {verdict.queue}, {verdict.place}: {describe_rules(verdict)}"


def _expect_times(
    about: Asked, waits: Iterable[AwaitedEvent], places: Sequence[PlaceFacts]
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """Return the first expected start, else the assumed one, and the end; None if unknown."""
    case, key, found = about.case, about.key, about.case.forecast
    times = [(found.start_of(key), found.end_of(key))]
    times += [(w.start if w.runs or w.start else w.until, w.end) for w in waits]
    known = [(start, end) for start, end in times if start is not None]
    # A wait that a plan checks is better than the turn at a limit.
    start, end = min(known, key=lambda each: each[0], default=(case.expected_start(key), None))
    if start and end:
        return start, None, end
    assumed = None if start else case.assumed_start(key)
    turn, begin = case.turns.get(key), start or assumed
    if key in found.starts and key in found.ends:
        seconds: int | None = found.ends[key] - found.starts[key]
    elif turn and turn.first and turn.first.end is not None and turn.end is not None:
        seconds = turn.end - turn.first.end
    else:
        lengths = (each.seconds for each in places if is_possible(each))
        seconds = next((each for each in lengths if each is not None), None)
    if begin is None or seconds is None:
        return start, assumed, None
    return start, assumed, begin + timedelta(seconds=seconds)


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


def _list_steps(about: Asked, remedies: Sequence[Remedy], replans: Replans) -> Iterator[str]:
    """Yield the next steps of a user for a request, in addition to the suggestions."""
    unserved = about.unserved
    if unserved is None:
        yield _await_worker(about, replans)
        return
    plan, stopped = about.case.plan, {(each.pool, each.path) for each in unserved.blocked}
    closed = [each for each in unserved.blocked if each.code in ("closed", "guard")]
    steps = [
        f"resolve the guard's refusal: {guard.way_out}"
        for guard in plan.guards
        if guard.result == "refused" and guard.path in unserved.paths and guard.way_out
        # Guards of several pools may share one key of fleet.yaml.
        if guard.pool is None or (guard.pool, guard.path) in stopped
    ]
    # How and when freezes and failed creations end
    steps += list_freeze_ends(plan, [each.pool for each in closed], ("creates",))
    steps += [*list_retries(plan, (each.until for each in closed))][:1]
    if not any(edit.path[0] == "lookups" for each in remedies for edit in each.edits):
        paths = find_missing_entries(about.case, about.key)
        steps += [f"set {yaml_key(path)}: {path[2]} is unknown without it" for path in paths]
    if not _UNPUBLISHED.isdisjoint(each.code for each in unserved.decisions):
        steps.append("build, test and publish its image: `fleet image due` lists the commands")
    yield from steps
    if remedies or steps:
        return
    missing = (
        tag
        for each in unserved.decisions
        if each.code is Unfit.TAG_MISSING
        for tag in each.figures.tags
    )
    if about.blind:
        yield FIRST_READ
    elif any(tag.startswith(BUILD_ARCH) for tag in missing):
        yield "add a pool with machines and an image of that architecture"
    elif replans.is_spent:
        yield ENDED
    elif about.never:
        yield "add a pool whose machines and image meet its requirements"
    else:
        yield "no edit of fleet.yaml found that serves it"


def _await_worker(about: Asked, replans: Replans) -> str:
    following = replans.run_after(about.case)
    if following is not None and about.key not in following.served:
        waits = following.unserved[about.key].because if about.key in following.unserved else ""
        return f"act soon: in the next run the request would wait: {waits}"
    if not about.worker:
        return "nothing to do: the next `fleet apply` creates it, then the queue assigns it"
    if about.worker not in about.case.seen:
        return "resolve the unknown: no replacement is created until it is read again"
    verdict = about.case.verdicts.get(about.worker)
    first = {"starting": "once it has booted, ", "busy": "once it is idle, "}
    when = first.get(verdict.state, "") if verdict else ""
    return f"nothing to do: {when}the queue assigns the request to a free worker that fits"


MOST_EXPLAINED = 100
"""Maximum number of groups with and without a worker whose first request has the reason of each
pool; the groups without a worker also have suggestions."""
_MOST_PLACES = 500
"""Maximum number of requests with the cost on each machine type, which takes some milliseconds."""
LONG_SECONDS = 3600
"""Seconds after which a wait is long if no suitable pool has a `target_wait`."""
_MAX_WORK = 10_000
"""Maximum requests and workers in all trial plans of the searches, which take a few seconds."""


class WaitingRequest(NamedTuple):
    """A request with the start of its wait, its expected start, its package and its user."""

    key: str
    since: datetime | None
    start: datetime | None
    package: str = ""
    assumed: datetime | None = None
    """The start by assumed durations; None if a better estimate is known."""
    user: str = ""
    never: bool = False
    """True if no worker of this fleet can ever run it."""
    why: str = ""
    """The first sentence of its explanation, or else the outcome of its group."""
    brief: str = ""
    """Its position in the queue if that is the reason, or else `why`, in short if it is served."""


class RunningBuild(NamedTuple):
    """A build that a worker runs, with its expected end."""

    key: str
    worker: str
    package: str = ""
    user: str = ""
    since: datetime | None = None
    end: datetime | None = None


class WaitingGroup(NamedTuple):
    """Requests with equal tags and priority and the same outcome, in service order."""

    signature: Signature
    verdict: str
    """The outcome in words."""
    is_served: bool
    """True if the requests have a worker, or if the next apply creates a machine for them."""
    long_seconds: int
    requests: tuple[WaitingRequest, ...]

    @property
    def why(self) -> str:
        """Return why its requests wait. Each of several served requests has its own worker."""
        is_shared = self.is_served and len(self.requests) > 1
        return self.verdict if is_shared else self.requests[0].why or self.verdict

    def is_long(self, request: WaitingRequest, now: datetime) -> bool:
        """Return whether a request has waited longer than `long_seconds`."""
        return request.since is not None and now - request.since > timedelta(
            seconds=self.long_seconds
        )


class WaitingExplanations(NamedTuple):
    """All waiting requests with explanations, and the running builds."""

    groups: tuple[WaitingGroup, ...] = ()
    """Groups without a worker first, then by priority and number of requests."""
    explained: Mapping[str, Explanation] = {}
    """Request to explanation; only the first requests of some groups have all reasons."""
    running: tuple[RunningBuild, ...] = ()


def waits_of(case: Case, *, most: int = MOST_EXPLAINED) -> WaitingExplanations:
    """Return the waiting requests, each explained, and the running builds.

    The first requests of `most` groups without a worker have suggestions.
    """
    outcomes = sorted(
        by_outcome(case), key=lambda g: (g.is_served, -g.signature.priority, -len(g.keys))
    )
    waiting = [each for each in outcomes if not each.is_served][:most]
    size = sum(s.count for s in case.plan.signatures) + len(case.plan.workers)
    replans = Replans(min(2 * MOST_REPLANS, _MAX_WORK // (size + 1)))
    explained: dict[str, Explanation] = {}
    found: dict[str, Helps] = {}
    # Small groups are first, because they leave trial plans to the large ones.
    for number, group in enumerate(sorted(waiting, key=lambda group: len(group.keys))):
        key = group.keys[0]
        fair = max(FEWEST_PLANS, replans.total // (len(waiting) - number) // 2)
        replans.begin(fair)
        remedies = find_remedies(case, key, replans)
        answer = explain_one(case, key, replans, remedies)
        steps = [step for step in answer.next_steps if step not in (ENDED, FIRST_READ)]
        steps += [describe_repair(reason) for reason in Asked(case, key).unknown]
        explained[key] = answer.altered(next_steps=tuple(steps))
        replans.begin(fair)
        found[key] = find_helps(case, group.keys, remedies, replans)
    for group in [each for each in outcomes if each.is_served][:most]:
        explained[group.keys[0]] = explain_one(case, group.keys[0], Replans(0), ())
    unknown = Explanation(kind="request", name="", headline="")
    replans.begin(replans.total)
    for group in outcomes:
        first = explained.get(group.keys[0], unknown)
        for key in group.keys:
            if key not in explained:
                places = None if len(explained) < _MOST_PLACES else ()
                explained[key] = explain_like(case, key, first, replans, places=places)
    replans.begin(replans.total)
    for group in waiting:
        helps = found[group.keys[0]]
        explained |= {key: add_gains(case, explained[key], helps, replans) for key in group.keys}
    groups = (each for group in outcomes for each in _split_by_reason(case, group, explained))
    return WaitingExplanations(tuple(groups), explained, tuple(_list_running(case)))


def _split_by_reason(
    case: Case, group: OutcomeGroup, explained: Mapping[str, Explanation]
) -> Iterator[WaitingGroup]:
    """Yield the requests of a group per first sentence of their explanations."""
    alike: defaultdict[str, list[WaitingRequest]] = defaultdict(list)
    pools = group.signature.pools
    for key in group.keys:
        answer, about = explained[key], Asked(case, key)
        why = answer.plain[0] if answer.plain else group.verdict
        brief, request = SERVED.get(group.verdict, why), about.request
        is_timed = (answer.expected or answer.assumed) and not answer.never
        if is_timed and key in case.line and key not in case.turns:
            brief = describe_place(case.line[key].ahead, case.line[key].pools)
        alike["" if group.is_served else why].append(
            WaitingRequest(
                key,
                request.pending_since if request else None,
                answer.expected,
                package_of(request) if request else "",
                answer.assumed,
                (request.requester if request else "") or "",
                answer.never,
                why,
                brief,
            )
        )
    declared = (case.fleet.pools.get(name) for name in pools)
    targets = (pool.target_wait for pool in declared if isinstance(pool, Pool))
    long_seconds = min((each for each in targets if each is not None), default=LONG_SECONDS)
    for requests in alike.values():
        yield WaitingGroup(
            group.signature, group.verdict, group.is_served, long_seconds, tuple(requests)
        )


def _list_running(case: Case) -> Iterator[RunningBuild]:
    """Yield the running builds, with their expected ends."""
    for each in case.plan.workers:
        worker, seen = case.workers.get(each.worker), case.forecast.standing.get(each.worker)
        if not each.running:
            continue
        work, end = worker.work if worker else None, seen.free_in if seen and seen.works else None
        yield RunningBuild(
            each.running,
            each.worker,
            (work.package if work else "") or "",
            (work.requester if work else "") or "",
            work.started_at if work else None,
            None if end is None else case.world.time + timedelta(seconds=end),
        )
