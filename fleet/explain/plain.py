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

_ARCHITECTURES = (ARCHITECTURE, "arch_")
"""Beginnings of the tags of an architecture, at Debusine and at Copr."""


class ExpectedTimes(NamedTuple):
    """The expected times of a request; None if unknown."""

    start: datetime | None
    assumed: datetime | None
    """The start if work of unknown duration takes the usual time; None if `start` is known."""
    end: datetime | None


def answer_plainly(about: Asked, times: ExpectedTimes) -> Iterator[str]:
    """Yield the answer for the user of a request, in sentences."""
    case = about.case
    if about.worker:
        state = case.verdicts[about.worker].state if about.worker in case.verdicts else ""
        is_seen = about.worker in case.seen
        yield words.describe_next(about.worker, state, about.without, is_seen=is_seen)
        yield _describe_times(about, times, "", words.describe_assumption())
    elif about.machine:
        way = case.created.get(about.machine)
        made = (way.type, way.pool) if way else ("", "")
        yield words.describe_new(about.machine, *made, about.without)
        yield _describe_times(about, times, "", words.describe_assumption())
    elif about.unserved is None:
        yield words.describe_reason(answers.NO_REASON)
    else:
        yield from _explain_cause(about, about.unserved)
        if about.turn is None and about.ahead is not None:
            yield words.describe_ahead(about.ahead.ahead, about.ahead.higher)
        yield words.NEVER_STARTS if about.never else _explain_start(about, times)


def _explain_start(about: Asked, times: ExpectedTimes) -> str:
    """State when a waiting request starts, and in place of which work."""
    case, turn, after = about.case, about.turn, ""
    works = _find_untimed(about)
    untimed = [_name_work(case, each) for each in works]
    if turn and turn.first and turn.first.end is not None:
        is_only = turn.works == (turn.first,) or turn.is_later
        after = words.THAT if is_only else _name_work(case, turn.first)
        earliest = case.world.time + timedelta(seconds=turn.first.end)
        if times.start is None and times.assumed is None:
            return words.describe_earliest(earliest, after)
        if times.start not in (None, earliest):
            after = ""  # another machine has to be created first
        if after == words.THAT and [_name_work(case, turn.first)] == untimed:
            return _describe_times(about, times, after, words.describe_assumption([words.IT]))
    standing = case.assumed.standing
    ends = [standing[each.worker].free_in for each in works if each.worker in standing]
    assumption = words.describe_assumption(untimed, _write_last(case, ends))
    return _describe_times(about, times, after, assumption)


def _describe_times(about: Asked, times: ExpectedTimes, after: str, assumption: str) -> str:
    start = times.start or times.assumed
    if start is None:
        return words.describe_no_start(_explain_unknown_start(about))
    return words.describe_start(start, after, times.end, "" if times.start else assumption)


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
    own = next(filter(None, map(_read_architecture, required)), "")
    classes = {tag for tag in required if tag.startswith(words.CLASS)}
    return words.describe_needs(task, own, given, sorted(classes - {*given}))


def _read_architecture(tag: str) -> str:
    """Return the architecture that a tag names; empty if it names none."""
    begin = next((each for each in _ARCHITECTURES if tag.startswith(each)), tag)
    return tag.removeprefix(begin)


def _explain_cause(about: Asked, unserved: Unserved) -> Iterator[str]:
    """Yield the sentences about the reason of a wait."""
    case = about.case
    if about.never:
        provided = (case.decider.offers[name].provides for name in case.fleet.pools)
        missing = sorted(frozenset(about.signature.required).difference(*provided))
        architecture = next(filter(None, map(_read_architecture, missing)), "")
        yield (
            words.describe_missing(missing, architecture)
            if missing
            else words.describe_never(unserved.because)
        )
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
    powerful = any(limit.tag in rule.ask for rule in case.fleet.powerful)
    machine = words.describe_machine(limit.tag or limit.desk, is_powerful=powerful)
    named, strange = ([_name_work(case, each) for each in works] for works in (known, unknown))
    begin = ""
    if len(known) == 1 and not known[0].is_running:
        at = case.expected_start(known[0].work) or case.assumed_start(known[0].work)
        begin = words.write_later(at, case.world.time) if at else ""
    yield words.describe_counted(payer, who, limit.most, machine, (named, strange, begin))


def _name_work(case: Case, work: CountedWork) -> str:
    if work.is_running:
        worker = case.workers.get(work.worker)
        package = (worker.work.package if worker and worker.work else "") or words.REQUEST
        build = words.name_build(package, work.work) if work.work else ""
        return words.name_running(build, work.worker)
    found = case.find(work.work)
    return words.name_build(package_of(found[0]) if found else "", work.work)


def _explain_block(case: Case, unserved: Unserved) -> str:
    """Explain the first constraint that stops a request in a pool that fits."""
    first = next((each for each in unserved.blocked if each.path == unserved.path), None)
    first = first or next(iter(unserved.blocked), None)
    if first is None:
        return words.describe_reason(unserved.because)
    codes = {pool: each.code for each in unserved.decisions for pool in each.subject}
    match codes.get(first.pool):
        case NoMachineReason.AT_MAX:
            pool = next(each for each in case.plan.pools if each.pool == first.pool)
            return words.describe_taken(first.pool, pool.max, _count_machines(case, first.pool))
        case NoMachineReason.GUARD if unserved.path == CREATE_LIMIT:
            return words.describe_postponed(first.pool, _count_machines(case, first.pool))
        case NoMachineReason.GUARD:
            return words.describe_guard(first.because)
        case NoMachineReason.CLOSED:
            return words.describe_pool_closed(first.because)
    return words.describe_reason(unserved.because)


def _count_machines(case: Case, name: str) -> words.MachineCounts:
    """Count the machines of a pool that are ready, starting, planned, and postponed."""
    pool = next(each for each in case.plan.pools if each.pool == name)
    standing = case.forecast.standing
    later = [standing.get(each.worker) for each in case.postponed if each.pool == name]
    ends = [worker.free_in if worker else None for worker in later]
    ready, end = pool.machines - pool.starting, _write_last(case, ends)
    return words.MachineCounts(ready, pool.starting, pool.create, len(later), end)
