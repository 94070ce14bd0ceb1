"""The answer for the user of a waiting build: why it waits, and until when.

The sentences state the decisions and figures that the other parts of an explanation state.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.turns import ENDING, CountedWork, LimitTurn
from fleet.explain.values import GivenRule
from fleet.model.decisions import NoMachineReason
from fleet.model.plan import CREATE_LIMIT, Signature, Unserved
from fleet.planner.fitting import asked_by
from fleet.tagrules.names import package_of
from fleet.words import waiting as words

ARCHITECTURE = "worker:build-arch:"
_ARCHITECTURES = (ARCHITECTURE, "arch_")
"""Beginnings of the tags of an architecture, at Debusine and at Copr."""


class ExpectedTimes(NamedTuple):
    """The expected times of a request; None if unknown."""

    start: datetime | None
    assumed: datetime | None
    """The start if work of unknown duration takes the usual time."""
    end: datetime | None
    no_start: str = ""
    """The reason why both starts are unknown."""


class WaitingReason(NamedTuple):
    """The reason of a wait as data, and facts that only the caller knows."""

    unserved: Unserved
    never: bool
    unread: tuple[str, ...]
    """Nouns for the unreadable sources of machines."""


def describe_wait(
    case: Case, signature: Signature, key: str, why: WaitingReason, times: ExpectedTimes
) -> tuple[str, ...]:
    """Return the answer about a request without a machine, in sentences."""
    known, turn = (None, None) if why.unread else (case.turns.get(key), _find_turn(case, key))
    said = [*_explain(case, signature, why, turn)]
    if turn is None and key in case.line and (times.start or times.assumed):
        said.append(words.describe_ahead(*case.line[key]))
    if why.never:
        return (*said, words.NEVER_STARTS)
    after = ""
    if turn and turn.first:
        is_only = turn.works == (turn.first,) or _is_later(turn)
        after = words.THAT if is_only else _name_work(case, turn.first)
    if turn and turn.first and turn.first.end is not None:
        earliest = case.world.time + timedelta(seconds=turn.first.end)
        if (times.start or times.assumed) is None:
            return (*said, words.describe_earliest(earliest, after))
        if times.start is not None and times.start != earliest:
            after = ""  # another machine has to be created first
    works = _find_untimed(case, signature, known)
    untimed = [_name_work(case, each) for each in works]
    if after == words.THAT and turn and turn.first and [_name_work(case, turn.first)] == untimed:
        return (*said, *_describe_times(times, after, words.describe_assumption([words.IT])))
    standing = case.assumed.standing
    ends = [standing[each.worker].free_in for each in works if each.worker in standing]
    assumption = words.describe_assumption(untimed, _write_last(case, ends))
    return (*said, *_describe_times(times, after, assumption))


def _find_turn(case: Case, key: str) -> LimitTurn | None:
    """Return the turn of a request at a limit, by assumed durations if its start is unknown."""
    turn = case.turns.get(key)
    return turn if turn is None or turn.first else case.assumed_turns.get(key, turn)


def name_own_build(case: Case, key: str) -> str:
    """Return the build of the same user in whose place a request starts; empty if none."""
    turn = _find_turn(case, key)
    if turn is None or turn.first is None or turn.use.limit.of != "submitter":
        return ""
    is_own = _is_later(turn) or turn.first in _counted_works(turn)
    return _name_work(case, turn.first) if is_own else ""


def _find_untimed(case: Case, signature: Signature, turn: LimitTurn | None) -> list[CountedWork]:
    """Return the running work of unknown duration that a request waits for."""
    works = [each for each in turn.works if each.end is None] if turn else []
    asked = asked_by(case.fleet, signature)
    for name, worker in case.forecast.standing.items() if turn is None else ():
        is_untimed = worker.works and worker.free_in is None
        if is_untimed and signature.queue in worker.alike[0] and asked.fits(worker.alike[1]):
            works.append(CountedWork(None, name, case.verdicts[name].running or "", True))
    return [each for each in works if each.is_running]


def _write_last(case: Case, seconds: Sequence[int | None]) -> str:
    """Return the last of some moments, in seconds from now; empty if one is unknown."""
    known, now = [each for each in seconds if each is not None], case.world.time
    if not known or len(known) < len(seconds):
        return ""
    return words.write_later(now + timedelta(seconds=max(known)), now)


def describe_next(
    case: Case, signature: Signature, key: str, without: str, times: ExpectedTimes
) -> tuple[str, ...]:
    """Return the answer about a request with an existing or new worker, in sentences."""
    worker = case.worker_of(signature, key)
    if worker is not None:
        state = case.verdicts[worker].state if worker in case.verdicts else ""
        seen = worker in case.seen
        said = words.describe_next(worker, state, without, is_seen=seen)
    else:
        worker = signature.by_create.get(key) or signature.by_worker[key]
        way = case.created.get(worker)
        made = (way.type, way.pool) if way else ("", "")
        said = words.describe_new(worker, *made, without)
    return (said, *_describe_times(times, "", words.describe_assumption()))


def describe_needs(case: Case, signature: Signature, key: str, rules: Sequence[GivenRule]) -> str:
    """Return the task, the architecture and the machine that a request needs."""
    found = case.find(key)
    task = (found[0].task or "") if found else ""
    given = sorted({tag for rule in rules for tag in rule.ask if tag in signature.required})
    own = next(filter(None, map(_read_architecture, signature.required)), "")
    classes = [tag for tag in signature.required if tag.startswith(words.CLASS)]
    return words.describe_needs(task, own, given, sorted({*classes} - {*given}))


def _read_architecture(tag: str) -> str:
    """Return the architecture that a tag names; empty if it names none."""
    begin = next((each for each in _ARCHITECTURES if tag.startswith(each)), tag)
    return tag.removeprefix(begin)


def _describe_times(times: ExpectedTimes, after: str, assumption: str) -> Iterator[str]:
    start = times.start or times.assumed
    if start is None:
        yield words.describe_no_start(times.no_start)
        return
    yield words.describe_start(start, after, times.end, "" if times.start else assumption)


def _explain(
    case: Case, signature: Signature, why: WaitingReason, turn: LimitTurn | None
) -> Iterator[str]:
    """Yield the sentences about the reason of a wait."""
    unserved = why.unserved
    missing = _find_missing(case, signature) if why.never else ()
    if missing:
        architecture = next(filter(None, map(_read_architecture, sorted(missing))), "")
        yield words.describe_missing(sorted(missing), architecture)
    elif why.never:
        yield words.describe_never(unserved.because)
    elif why.unread:
        yield words.describe_unread(why.unread)
        yield words.REPAIR_FIRST
    elif turn is not None:
        yield from _explain_limit(case, turn)
        for each in () if turn.is_alone else unserved.decisions:
            if each.code not in ENDING and each.message:
                yield words.describe_other(each.subject, each.message)
    else:
        yield _explain_block(case, unserved)


def _find_missing(case: Case, signature: Signature) -> frozenset[str]:
    """Return the required tags that no pool provides."""
    provided = (case.decider.offers[name].provides for name in case.fleet.pools)
    return frozenset(signature.required).difference(*provided)


def _explain_limit(case: Case, turn: LimitTurn) -> Iterator[str]:
    """Yield the limit that stops a request, and the work that counts to it."""
    limit = turn.use.limit
    payer = "" if limit.of == "total" else limit.of
    known, unknown = _counted_works(turn), turn.works[:0]
    if turn.first and _is_later(turn):
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


def _counted_works(turn: LimitTurn) -> list[CountedWork]:
    """Return the work that counts, without work of unknown payers if the limit has a payer."""
    if turn.use.limit.of == "total":
        return [*turn.works]
    return [*turn.works[: len(turn.use.workers[0])], *turn.works[turn.use.taken :]]


def _is_later(turn: LimitTurn) -> bool:
    """Return True if only work of unknown payers counts now, and a build of the payer is next."""
    is_total, first = turn.use.limit.of == "total", turn.first
    return not (is_total or first is None or first in turn.works or _counted_works(turn))


def _name_work(case: Case, work: CountedWork) -> str:
    if work.is_running:
        package = case.packages.get(work.worker) or words.REQUEST
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
