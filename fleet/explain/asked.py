"""A waiting request in a plan: its facts, the reasons for its state, and the answer for its user.

The sentences for the user state the decisions and figures that the other parts of an explanation
state: why the request waits, and until when.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from fleet.explain.case import ENDING, Case, CountedWork, LimitTurn, PlaceInLine
from fleet.explain.costs import mark_chosen
from fleet.explain.tags import enforcer_of_limit
from fleet.explain.values import ExplainedReason, Explanation, GivenRule
from fleet.model.decisions import MISMATCHES, Code, Decision, NoMachineReason, Served, Unfit
from fleet.model.facts import PlaceFacts, Request, Unknown
from fleet.model.plan import CREATE_LIMIT, Signature, Unserved
from fleet.planner.demand import Drops, judge_of
from fleet.planner.fitting import asked_by
from fleet.planner.inventory import PoolInventory
from fleet.schema.findings import listed
from fleet.schema.model import TicketQueue
from fleet.schema.units import write_duration
from fleet.tagrules.derive import NOTHING
from fleet.tagrules.names import package_of
from fleet.tagrules.sources import BUILD_ARCH, Claim, Enforcer, weakest
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words import answers
from fleet.words import waiting as words
from fleet.words.pools import describe_pool, with_messages
from fleet.words.waiting import STATE


@dataclass(frozen=True)
class Asked:
    """A waiting request, with the decisions of the plan about it."""

    case: Case
    key: str

    @cached_property
    def signature(self) -> Signature:
        """Return the group of requests that fleet.yaml treats equally."""
        return self.case.signatures[self.key]

    @cached_property
    def unserved(self) -> Unserved | None:
        """Return the plan's reason why the request gets no machine; None if it gets one."""
        return self.case.unserved.get(self.key)

    @cached_property
    def request(self) -> Request | None:
        """Return the request as its queue lists it."""
        found = self.case.find(self.key)
        return found[0] if found else None

    @cached_property
    def worker(self) -> str:
        """Return the existing worker that serves the request next; empty if none does."""
        name = self.signature.by_worker.get(self.key, "")
        return "" if name in self.case.uncreated else name

    @property
    def machine(self) -> str:
        """Return the worker that serves the request: existing or new; empty if none does."""
        return self.case.served.get(self.key, "")

    @property
    def without(self) -> str:
        """Return ", without TAGS" for waived tags that its worker does not provide; or empty."""
        verdict = self.case.verdicts.get(self.machine)
        offer = self.case.decider.offers.get(verdict.pool) if verdict else None
        provides = offer.provides if offer else ()
        missing = listed([tag for tag in self.signature.dropped if tag not in provides])
        return f", without {missing}" if missing else ""

    @property
    def never(self) -> bool:
        """Return whether no existing or new worker of this fleet can ever run the request."""
        known, unserved = self.case.hopeless, self.unserved
        if unserved is None or unserved.blocked:
            return False
        if id(unserved) not in known:
            known[id(unserved)] = not self._is_servable(unserved)
        return known[id(unserved)]

    def _is_servable(self, unserved: Unserved) -> bool:
        if any(each.code is Unfit.IMAGE_UNPROVEN for each in unserved.decisions):
            return True
        case, signature = self.case, self.signature
        asked = case.asks_later(signature)
        return any(case.decider.fits(asked, name) for name in case.fleet.pools) or any(
            signature.queue in queues and asked.fits(offer) for queues, offer, _ in case.classes
        )

    @cached_property
    def blind(self) -> list[PoolInventory]:
        """Return the suitable pools that create no machines because of unknown facts."""
        names = [each.pool for each in self.unserved.blocked] if self.unserved else []
        pools = (self.case.inventory[name] for name in names if name in self.case.inventory)
        return [each for each in pools if each.blind]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the unknown facts that stop suitable pools from creating machines."""
        return tuple(dict.fromkeys(because for each in self.blind for because in each.blind))

    @property
    def unread(self) -> tuple[str, ...]:
        """Return a noun for each unreadable source of machines."""
        is_lost = isinstance(self.case.world.stacks, Unknown)
        names = (
            f"pool {each.pool}" if each.listed else f"provider {each.provider}"
            for each in self.blind
        )
        return tuple(dict.fromkeys(STATE if is_lost else f"the machines of {n}" for n in names))

    @cached_property
    def turn(self) -> LimitTurn | None:
        """Return the turn at a limit, by assumed durations if the start is unknown."""
        turn = None if self.blind else self.case.turns.get(self.key)
        return turn if turn is None or turn.first else self.case.assumed_turns.get(self.key, turn)

    @property
    def ahead(self) -> PlaceInLine | None:
        """Return the place of the request in `Case.line`; None if no pool fits."""
        return self.case.line.get(self.key)

    @cached_property
    def rules(self) -> tuple[GivenRule, ...]:
        """Return the rules of the allow-list that apply to the request."""
        return self.case.rules_of(self.request) if self.request else ()

    @cached_property
    def places(self) -> tuple[PlaceFacts, ...]:
        """Return the machines that could run it: first those that need no additional rule."""
        if self.request is None:
            return ()
        way = self.case.created.get(self.signature.by_create.get(self.key, ""))
        options = self.case.options.options_for(self.signature.queue, self.request)
        return mark_chosen(options, () if way is None else (way,))


def reasons_of(about: Asked) -> Iterator[ExplainedReason]:
    """Yield the reasons for the state of a request: rule, denied tags, unknown facts, pools."""
    case, signature, unserved = about.case, about.signature, about.unserved
    yield from _list_ticket_rules(about)
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
    yield from _list_waived_tags(about)
    for because in about.unknown:
        yield ExplainedReason(because=because, who="operator of the unreadable source")
    for name in sorted(case.fleet.pools):
        yield _explain_pool(about, name)


def _list_ticket_rules(about: Asked) -> Iterator[ExplainedReason]:
    """Yield the rules of fleet.yaml that add tags to a ticket."""
    fleet, request = about.case.fleet, about.request
    if request is None or not isinstance(fleet.queues.get(about.signature.queue), TicketQueue):
        return
    for origin in judge_of(fleet, about.case.world).ask_of(request, NOTHING).origins:
        if origin.path:
            rule = f"{origin.path[0]}[{origin.path[1]}]"
            because = answers.explain_ruled_tag(origin.tag, rule, origin.because)
            yield ExplainedReason(because=because, path=origin.path, by="scheduler")


def _list_waived_tags(about: Asked) -> Iterator[ExplainedReason]:
    """Yield, per tag with `otherwise`, when the request may run without the tag."""
    signature, found = about.signature, about.case.find(about.key)
    since = found[0].pending_since if found else None
    if found is None or since is None:
        return
    drops = Drops(about.case.fleet, about.case.world.time)
    for tag, name, seconds in drops.delays(signature.required):
        after, until = write_duration(seconds), since + timedelta(seconds=seconds)
        because = (
            answers.explain_stored_tag(name, signature.queue, tag)
            if found[1].stored
            else answers.explain_waived_tag(tag in signature.dropped, after, tag, until)
        )
        yield ExplainedReason(because=because, path=("tags", name, "otherwise"))


_BY: Mapping[Code, Enforcer] = {
    Unfit.QUEUE_NOT_SERVED: "scheduler",
    Unfit.TAG_HELD: "capacity",
    Unfit.ON_DEMAND: "capacity",
    Served.SERVES_OTHERS: "capacity",
    Served.WORKERS_BUSY: "scheduler",
}


def _explain_pool(about: Asked, name: str) -> ExplainedReason:
    case, queue = about.case, about.signature.queue
    decisions = case.decider.decide(
        about.signature, name, about.unserved, has_machines=name in case.inhabited
    )
    first = decisions[0]
    is_stopped, by = isinstance(first.code, NoMachineReason), _BY.get(first.code)
    if is_stopped:
        by = enforcer_of_limit(case.enforcement, first.key, (queue,))
    elif first.code in MISMATCHES:
        claims: dict[Code, Claim] = {Unfit.TAG_EXCLUSIVE: "exclusive"}
        enforcers = (
            case.enforcer(each.figures.tags, claims.get(each.code, "tag"), queue)
            for each in decisions
            if each.code in MISMATCHES
        )
        by = weakest(filter(None, enforcers))
    return ExplainedReason(
        because=describe_pool(decisions),
        path=first.key if is_stopped or first.code is Unfit.QUEUE_NOT_SERVED else ("pools", name),
        by=by,
        who="; ".join(_list_fixers(case, name, decisions)) if about.never else "",
        decisions=with_messages(decisions),
    )


def _list_fixers(case: Case, name: str, decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield, per mismatch, the person who can make a pool fit, and the key to edit."""
    vocabulary = Vocabulary(case.fleet)
    tags_of = {each.code: each.figures.tags for each in decisions}
    fixed: list[str] = []
    stated: list[str] = []
    for tag in tags_of.get(Unfit.TAG_MISSING, ()):
        may = {"pool", "image"} & set(vocabulary.provided_by(tag)[0] or ("pool",))
        (stated if may and not tag.startswith(BUILD_ARCH) else fixed).append(tag)
    if fixed := [*fixed, *tags_of.get(Unfit.TOO_SMALL, ())]:
        yield f"only a new pool whose machine and image have {listed(fixed)}"
    if stated:
        yield f"pool owner, if its workers have {listed(stated)}: pools.{name}.provides"
    for code, key in ((Unfit.TAG_NOT_BROUGHT, "requires"), (Unfit.QUEUE_NOT_SERVED, "serves")):
        if code in tags_of:
            yield f"fleet operator: pools.{name}.{key}"
    asked = [*tags_of.get(Unfit.TAG_EXCLUSIVE, ()), *tags_of.get(Unfit.ON_DEMAND, ())]
    if asked and not fixed:
        yield f"requester: ask for {listed([*dict.fromkeys(asked)])}"
    if Unfit.TAG_HELD in tags_of:
        yield "see above"


_ARCHITECTURES = (BUILD_ARCH, "arch_")
"""Beginnings of the tags of an architecture, at Debusine and at Copr."""
_AFTER_WORK = {"starting": ", which is booting", "busy": ", when its present work ends"}


def answer_plainly(about: Asked, answer: Explanation) -> Iterator[str]:
    """Yield sentences for the user of a request. `answer` has its expected times."""
    case, worker = about.case, about.worker
    if worker:
        state = case.verdicts[worker].state if worker in case.verdicts else ""
        yield (
            words.describe_next(worker, _AFTER_WORK.get(state, ""), about.without)
            if worker in case.seen
            else words.describe_unseen(worker, about.without)
        )
    elif about.machine:
        way = case.created.get(about.machine)
        machine = words.name_machine(way.type, way.pool) if way else words.BEING_CREATED
        yield words.describe_new(about.machine, machine, about.without)
    elif about.unserved is None:
        yield words.describe_reason(answers.NO_REASON)
        return
    else:
        yield from _explain_cause(about, about.unserved)
        if about.turn is None and about.ahead is not None:
            yield words.describe_ahead(about.ahead.ahead, about.ahead.higher)
    yield words.NEVER_STARTS if about.never else _explain_start(about, answer)


def _explain_start(about: Asked, answer: Explanation) -> str:
    """State when a request starts, and in place of which work; or why the start is unknown."""
    case, turn, after = about.case, about.turn, ""
    if turn and turn.first and turn.first.end is not None:
        is_only = turn.works == (turn.first,) or turn.is_later
        after = words.THAT if is_only else _name_work(case, turn.first)
        earliest = case.world.time + timedelta(seconds=turn.first.end)
        if answer.expected is None and answer.assumed is None:
            return words.describe_earliest(earliest, after)
        if answer.expected not in (None, earliest):
            after = ""  # another machine has to be created first
    if answer.expected:
        return words.describe_start(answer.expected, after, answer.finish, "")
    if answer.assumed is None:
        limited = case.turns.get(about.key)
        reason = case.forecast.not_known.get(about.key, answers.UNREAD_QUEUE)
        if limited and limited.is_alone and limited.first is None:
            reason = answers.UNTIMED_WORK
        return words.describe_no_start(answers.UNREPAIRED if about.blind else reason)
    works = [] if about.machine else _find_untimed(about)
    untimed = [_name_work(case, each) for each in works]
    if turn and turn.first and after == words.THAT and [_name_work(case, turn.first)] == untimed:
        assumption = words.describe_assumption([words.IT])
    else:
        standing = case.assumed.standing
        ends = [standing[each.worker].free_in for each in works if each.worker in standing]
        assumption = words.describe_assumption(untimed, _write_last(case, ends))
    return words.describe_start(answer.assumed, after, answer.finish, assumption)


def name_own_build(about: Asked) -> str:
    """Return the build of the same user in whose place a request starts; empty if none."""
    turn = about.turn
    if turn is None or turn.first is None or turn.use.limit.of != "submitter":
        return ""
    is_own = turn.is_later or turn.first in turn.counted
    return _name_work(about.case, turn.first) if is_own else ""


def _find_untimed(about: Asked) -> list[CountedWork]:
    """Return the running work of unknown duration that a request waits for."""
    case, queue = about.case, about.signature.queue
    turn = None if about.blind else case.turns.get(about.key)
    if turn:
        return [each for each in turn.works if each.end is None and each.is_running]
    asked = asked_by(case.fleet, about.signature)
    return [
        CountedWork(None, name, case.verdicts[name].running or "", True)
        for name, worker in case.forecast.standing.items()
        if worker.works and worker.free_in is None
        if queue in worker.alike[0] and asked.fits(worker.alike[1])
    ]


def _write_last(case: Case, seconds: Sequence[int | None]) -> str:
    """Return the last of some moments, in seconds from now; empty if one is unknown."""
    known, now = [each for each in seconds if each is not None], case.world.time
    if not known or len(known) < len(seconds):
        return ""
    return words.write_later(now + timedelta(seconds=max(known)), now)


def describe_needs(about: Asked) -> str:
    """Return the task, the architecture and the machine that a request needs."""
    required = about.signature.required
    task = (about.request.task or "") if about.request else ""
    given = sorted({tag for rule in about.rules for tag in rule.ask if tag in required})
    classes = {tag for tag in required if tag.startswith(words.CLASS)}
    return words.describe_needs(
        task, _read_architecture(required), given, sorted(classes - {*given})
    )


def _read_architecture(tags: Sequence[str]) -> str:
    """Return the first architecture that tags name; empty if they name none."""
    pairs = ((tag, begin) for tag in tags for begin in _ARCHITECTURES if tag.startswith(begin))
    return next((tag.removeprefix(begin) for tag, begin in pairs if tag != begin), "")


def _explain_cause(about: Asked, unserved: Unserved) -> Iterator[str]:
    """Yield the sentences about the reason of a wait."""
    case = about.case
    if about.never:
        provided = (case.decider.offers[name].provides for name in case.fleet.pools)
        missing = sorted(frozenset(about.signature.required).difference(*provided))
        if architecture := _read_architecture(missing):
            yield words.describe_missing_architecture(architecture)
        elif missing:
            yield words.describe_missing_tags(missing)
        else:
            yield words.describe_never(unserved.because)
    elif about.blind:
        yield words.describe_unread(about.unread)
        yield words.REPAIR_FIRST
    elif turn := about.turn:
        yield from _explain_limit(case, turn)
        for each in () if turn.is_alone else unserved.decisions:
            if each.code not in ENDING and each.message:
                yield words.describe_other(each.subject, each.message)
    else:
        yield _explain_block(case, unserved)


def _explain_limit(case: Case, turn: LimitTurn) -> Iterator[str]:
    """Yield the limit that stops a request, and the work that counts to it."""
    limit = turn.use.limit
    payer = "" if limit.of == "total" else limit.of
    known, unknown = turn.counted, turn.works[:0]
    if turn.first and turn.is_later:
        known = [turn.first]
    elif payer:
        unknown = turn.works[len(turn.use.workers[0]) : turn.use.taken]
    who = (turn.use.who or "").strip() if payer else ""
    yield words.describe_wait_for(payer, who, len(known)) if known else words.WAITS_FOR_UNKNOWN
    is_powerful = any(limit.tag in rule.ask for rule in case.fleet.powerful)
    kind = "powerful" if is_powerful else (limit.tag or limit.desk).removeprefix(words.CLASS)
    named, strange = ([_name_work(case, each) for each in works] for works in (known, unknown))
    begin = ""
    if len(known) == 1 and not known[0].is_running:
        at = case.likely_start(known[0].work)
        begin = words.write_later(at, case.world.time) if at else ""
    works = (named, strange, begin)
    yield words.describe_counted(payer, who, limit.most, f"{kind} machine", works)


def _name_work(case: Case, work: CountedWork) -> str:
    if not work.is_running:
        found = case.find(work.work)
        return words.name_build(package_of(found[0]) if found else "", work.work, "")
    if not work.work:
        return words.name_work_of(work.worker)
    worker = case.workers.get(work.worker)
    package = (worker.work.package if worker and worker.work else "") or words.REQUEST
    return words.name_running(words.name_build(package, work.work, ""), work.worker)


def _explain_block(case: Case, unserved: Unserved) -> str:
    """Explain the first constraint that stops a request in a pool that fits."""
    first = next((each for each in unserved.blocked if each.path == unserved.path), None)
    first = first or next(iter(unserved.blocked), None)
    codes = {pool: each.code for each in unserved.decisions for pool in each.subject}
    match codes.get(first.pool) if first else None:
        case NoMachineReason.AT_MAX if first:
            return _explain_growth(case, first.pool, is_postponed=False)
        case NoMachineReason.GUARD if first and unserved.path == CREATE_LIMIT:
            return _explain_growth(case, first.pool, is_postponed=True)
        case NoMachineReason.GUARD if first:
            return words.describe_guard(first.because)
        case NoMachineReason.CLOSED if first:
            return words.describe_pool_closed(first.because)
    return words.describe_reason(unserved.because)


def _explain_growth(case: Case, name: str, *, is_postponed: bool) -> str:
    """State how many machines of a pool are ready, starting, planned, and postponed."""
    pool = next(each for each in case.plan.pools if each.pool == name)
    if not pool.max:
        return words.describe_no_machines(name)
    standing = case.forecast.standing
    later = [standing.get(each.worker) for each in case.postponed if each.pool == name]
    end = _write_last(case, [worker.free_in if worker else None for worker in later])
    ready = pool.machines - pool.starting
    counts = words.count_machines(ready, pool.starting, pool.create, len(later), end)
    if is_postponed:
        return words.describe_postponed(name, counts)
    return words.describe_taken(name, pool.max, counts)
