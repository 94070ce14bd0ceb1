"""The answer for the user of a waiting build: why it waits, and until when.

The sentences state the decisions and figures that the other parts of an explanation state.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.asked import ARCHITECTURE, Asked
from fleet.explain.case import Case
from fleet.explain.turns import ENDING, CountedWork, LimitTurn
from fleet.model.decisions import NoMachineReason
from fleet.model.plan import CREATE_LIMIT, Unserved
from fleet.planner.fitting import asked_by
from fleet.tagrules.names import package_of
from fleet.words import answers
from fleet.words import waiting as words
from fleet.words.sentence import Sentence

_ARCHITECTURES = (ARCHITECTURE, "arch_")
"""Beginnings of the tags of an architecture, at Debusine and at Copr."""
_AFTER_WORK = {"starting": ", which is booting", "busy": ", when its present work ends"}


class ExpectedTimes(NamedTuple):
    """The expected times of a request; None if unknown."""

    start: datetime | None
    assumed: datetime | None
    """The start if work of unknown duration takes the usual time; None if `start` is known."""
    end: datetime | None


def answer_plainly(about: Asked, times: ExpectedTimes) -> Iterator[str]:
    """Yield the answer for the user of a request, in sentences."""
    case, worker = about.case, about.worker
    if worker:
        state = case.verdicts[worker].state if worker in case.verdicts else ""
        sentence = words.NEXT if worker in case.seen else words.UNSEEN
        first = _AFTER_WORK.get(state, "")
        yield sentence(worker=worker, first=first, without=about.without)
    elif about.machine:
        way = case.created.get(about.machine)
        machine = words.MACHINE_OF(type=way.type, pool=way.pool) if way else words.BEING_CREATED
        yield words.NEW(worker=about.machine, machine=machine, without=about.without)
    elif about.unserved is None:
        yield words.REASON(reason=answers.NO_REASON)
        return
    else:
        yield from _explain_cause(about, about.unserved)
        if about.turn is None and about.ahead is not None:
            yield words.describe_ahead(about.ahead.ahead, about.ahead.higher)
    yield words.NEVER_STARTS if about.never else _explain_start(about, times)


def _explain_start(about: Asked, times: ExpectedTimes) -> str:
    """State when a request starts, and in place of which work; or why the start is unknown."""
    case, turn, after = about.case, about.turn, ""
    if turn and turn.first and turn.first.end is not None:
        is_only = turn.works == (turn.first,) or turn.is_later
        after = words.THAT if is_only else _name_work(case, turn.first)
        earliest = case.world.time + timedelta(seconds=turn.first.end)
        if times.start is None and times.assumed is None:
            return words.NOT_BEFORE(start=earliest, after=after)
        if times.start not in (None, earliest):
            after = ""  # another machine has to be created first
    if times.start:
        return words.describe_start(times.start, after, times.end, "")
    if times.assumed is None:
        return words.NO_START(reason=_explain_unknown_start(about))
    works = [] if about.machine else _find_untimed(about)
    untimed = [_name_work(case, each) for each in works]
    if turn and turn.first and after == words.THAT and [_name_work(case, turn.first)] == untimed:
        assumption = words.describe_assumption([words.IT])
    else:
        standing = case.assumed.standing
        ends = [standing[each.worker].free_in for each in works if each.worker in standing]
        assumption = words.describe_assumption(untimed, _write_last(case, ends))
    return words.describe_start(times.assumed, after, times.end, assumption)


def _explain_unknown_start(about: Asked) -> str:
    if about.blind:
        return answers.UNREPAIRED
    turn = about.case.turns.get(about.key)
    if turn and turn.is_alone and turn.first is None:
        return answers.UNTIMED_WORK
    return about.case.forecast.not_known.get(about.key, answers.UNREAD_QUEUE)


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
            yield words.NO_ARCHITECTURE(architecture=architecture)
        elif missing:
            yield words.NO_TAGS(tags=missing)
        else:
            yield words.NEVER_RUNS(reason=unserved.because)
    elif about.blind:
        yield words.UNREAD(sources=about.unread)
        yield words.REPAIR_FIRST
    elif turn := about.turn:
        yield from _explain_limit(case, turn)
        for each in () if turn.is_alone else unserved.decisions:
            if each.code not in ENDING and each.message:
                yield words.ALSO(pools=each.subject, reason=each.message)
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
        return words.name_build(package_of(found[0]) if found else "", work.work)
    if not work.work:
        return words.WORK_OF(worker=work.worker)
    worker = case.workers.get(work.worker)
    package = (worker.work.package if worker and worker.work else "") or words.REQUEST
    return words.RUNNING(build=words.name_build(package, work.work), worker=work.worker)


def _explain_block(case: Case, unserved: Unserved) -> str:
    """Explain the first constraint that stops a request in a pool that fits."""
    first = next((each for each in unserved.blocked if each.path == unserved.path), None)
    first = first or next(iter(unserved.blocked), None)
    codes = {pool: each.code for each in unserved.decisions for pool in each.subject}
    match codes.get(first.pool) if first else None:
        case NoMachineReason.AT_MAX if first:
            return _explain_growth(case, first.pool, words.TAKEN)
        case NoMachineReason.GUARD if first and unserved.path == CREATE_LIMIT:
            return _explain_growth(case, first.pool, words.POSTPONED)
        case NoMachineReason.GUARD if first:
            return words.HELD_BACK(reason=first.because)
        case NoMachineReason.CLOSED if first:
            return words.describe_pool_closed(first.because)
    return words.REASON(reason=unserved.because)


def _explain_growth(case: Case, name: str, sentence: Sentence) -> str:
    """State how many machines of a pool are ready, starting, planned, and postponed."""
    pool = next(each for each in case.plan.pools if each.pool == name)
    if not pool.max:
        return words.NO_MACHINES(pool=name)
    standing = case.forecast.standing
    later = [standing.get(each.worker) for each in case.postponed if each.pool == name]
    end = _write_last(case, [worker.free_in if worker else None for worker in later])
    ready = pool.machines - pool.starting
    counts = words.count_machines(ready, pool.starting, pool.create, len(later), end)
    return sentence(pool=name, most=pool.max, counts=counts)
