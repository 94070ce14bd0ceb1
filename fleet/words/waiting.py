"""Sentences for the user of a waiting build: why it waits, until when, and the contact."""

from collections.abc import Sequence
from datetime import datetime

from fleet.schema.findings import listed
from fleet.schema.units import write_count, write_time
from fleet.words.figures import duration
from fleet.words.sentence import Sentence

_PAYERS = {"submitter": "user"}
"""Words for a kind of payer that differ from its key in fleet.yaml."""
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)
_NAMED = 3
"""Maximum number of builds that a sentence names."""
CLASS = "worker:class:"
"""The beginning of the tags of a class of machines, at Debusine."""

REQUEST = "request"
"""The noun for running work whose package is unknown."""
THAT = "that"
"""The only build that a sentence before names."""
IT = "it"
"""The same in parentheses."""
STATE = "its state"
NEVER = "never"
UNLESS = f"{NEVER}, unless the fleet changes"
FLEET = "machines and limits of this fleet"
NO_CONTACT = "the status pages name no person to ask: fleet.yaml has no `contact`"

NOTHING = "Nothing that you can do yourself."
WAITS_FOR_UNKNOWN = "Waits for work whose user is unknown."
NO_GAIN = "No edit of fleet.yaml was found that starts it sooner."
REPAIR_FIRST = "The administrators of the build machines must repair this first."
NEVER_STARTS = "This build never starts unless the fleet changes."
name_work_of = Sentence[str]("the work of {worker}")
name_running = Sentence[str, str]("{build} on {worker}")
describe_rule_contact = Sentence[str]("whether {package} needs a powerful machine")
describe_unseen = Sentence[str, str]("Next for {worker}, which is not listed now{without}.")
describe_next = Sentence[str, str, str]("Next for {worker}{first}{without}.")
describe_new = Sentence[str, str, str]("Gets a new machine: {worker} ({machine}){without}.")
name_machine = Sentence[str, str]("{type} of pool {pool}")
BEING_CREATED = "a machine that is being created"
describe_earliest = Sentence[datetime, str]("Starts not before {start:time}, when {after} ends.")
describe_no_start = Sentence[str]("Its start is unknown: {reason}.")
describe_other = Sentence[Sequence[str], str]("Also, pool {pools:listed}: {reason}.")
describe_taken = Sentence[str, int, str](
    "Waits for its turn: pool {pool} may have {most:machine} ({counts})."
)
describe_no_machines = Sentence[str]("Pool {pool} may have no machine now (its maximum is 0).")
describe_postponed = Sentence[str, str](
    "Waits for its machine: pool {pool} grows step by step ({counts})."
)
describe_missing_architecture = Sentence[str]("No machine of this fleet builds {architecture}.")
describe_missing_tags = Sentence[Sequence[str]]("No machine of this fleet provides {tags:listed}.")
describe_never = Sentence[str]("No machine of this fleet can ever run it: {reason}.")
describe_unread = Sentence[Sequence[str]]("fleet cannot read {sources:listed}.")
describe_repair = Sentence[str]("Repair this, then the next run plans the build: {reason}")
describe_guard = Sentence[str]("A safety check of fleet holds its machine back: {reason}.")
describe_reason = Sentence[str]("Waits: {reason}.")
describe_no_contact = Sentence[str]("Ask the maintainers of fleet {fleet}.")
describe_running = Sentence[str, str]("Runs on {worker}{length}.")
describe_end = Sentence[str]("runs, done {end}")
describe_choice = Sentence[str](
    "Nothing to do: it starts by itself.[ Or cancel {behind} if this build is more urgent.]"
)
name_build = Sentence[str, str, str]("[{package} ]{request}[ ({user})]")


def describe_start(start: datetime, after: str, end: datetime | None, assumption: str) -> str:
    """State the expected start and end; `after` is the work that ends first."""
    when = f", when {after} ends" if after else ""
    finished = f"; done about {write_later(end, start)}" if end else ""
    return f"Starts about {write_time(start)}{when}{finished}{assumption}."


def write_later(moment: datetime, known: datetime) -> str:
    """Return a time, without the date if that is the date of a known time."""
    return f"{moment:%H:%M}" if moment.date() == known.date() else write_time(moment)


def describe_assumption(works: Sequence[str] = (), end: str = "") -> str:
    """State that the times assume an hour for work of unknown duration, and its end."""
    named = _list_builds(works) or "work of unknown duration"
    if not end:
        return f" (assumed: {named} {'take' if works[1:] else 'takes'} 1h)"
    ends = f"run first, end by {end}" if works[1:] else f"runs first, ends at {end}"
    return f" (assumed: {named}, which {ends})"


def describe_ahead(ahead: int, higher: int) -> str:
    """State how many builds get a machine first."""
    if not ahead:
        return "It is first in line."
    builds, go = ("build", "goes") if ahead == 1 else ("builds", "go")
    if higher == ahead:
        return f"{ahead:,} {builds} of higher priority {go} before it."
    others = f", {higher:,} of higher priority." if higher else "."
    return f"{ahead:,} {builds} {go} before it{others}"


def describe_place(ahead: int, pools: Sequence[str]) -> str:
    """State the position of a request among those for the same pools."""
    place, ending = ahead + 1, "th"
    if place % 100 not in _TEENS:
        ending = _ORDINALS.get(place % 10, ending)
    return f"{place:,}{ending} in line for {'pools' if pools[1:] else 'pool'} {listed(pools)}"


def count_machines(ready: int, starting: int, created: int, later: int, end: str) -> str:
    """State the numbers of machines of a pool: ready, starting, planned, and of later runs.

    `end` is the time at which the last of later runs is up; empty if unknown.
    """
    forms = ("now", "starting", "soon", f"by {end}" if end else "later")
    numbers = zip((ready, starting, created, later), forms, strict=True)
    return ", ".join(f"{n:,} {form}" for n, form in numbers if n) or "0 now"


def describe_counted(
    payer: str,
    who: str,
    most: int,
    machine: str,
    works: tuple[Sequence[str], Sequence[str], str],
) -> str:
    """State a used-up limit, the builds that use it, and the builds without a known user.

    `payer` is the kind of payer, such as `user`, and `who` its name; both empty for a total.
    The time in `works` is the expected start of the only build if it does not run yet.
    """
    named, unknown, begin = works
    kind = _PAYERS.get(payer, payer)
    limit = f"Each {kind}" if payer else "This fleet"
    builds = _list_builds(named)
    whose = f"{who or f'that {kind}'}'s" if payer else ("it" if most == 1 else "they")
    verb = "goes" if len(named) == 1 else "go"
    used = f"; {whose} {verb} to {builds}" if named else ""
    if begin:
        used = f"; {whose} goes first to {builds}, from about {begin}"
    said = f"{limit} may have {write_count(most, machine)} at a time{used}."
    if not unknown or not payer:
        return said
    are = (
        "s of {} are unknown, so they count" if unknown[1:] else " of {} is unknown, so it counts"
    )
    return f"{said} The {kind}{are.format(_list_builds(unknown))} to every {kind}."


def _list_builds(builds: Sequence[str]) -> str:
    more = [f"{len(builds) - _NAMED:,} more"] if builds[_NAMED:] else []
    return listed([*builds[:_NAMED], *more])


def describe_wait_for(payer: str, who: str, count: int) -> str:
    """State whose builds a request waits for."""
    other, noun = ("another", "build") if count == 1 else ("other", "builds")
    if payer == "submitter" and who:
        return f"Waits for {who}'s other {noun}."
    return f"Waits for {other} {noun}{f' of the same {payer}' if payer else ''}."


describe_no_gain = Sentence[str, bool](
    "[None of these starts it sooner: {edits}.][{edits:unless}" + NO_GAIN + "]"
    "[{complete:unless} Not all edits were checked.]"
)


def describe_gain(edits: str, start: datetime | None, now: datetime | None) -> str:
    """State the start that edits permit, and by how much it is earlier than the start now."""
    if start is None:
        return edits
    # The gain is the difference of the times that the page shows.
    shown, then = (each.replace(second=0, microsecond=0) for each in (now or start, start))
    earlier = f", {duration(shown - then)} earlier" if now else ""
    return f"{edits}: starts about {write_later(start, now or start)}{earlier}"


def describe_price(harms: int, *, is_last: bool, is_guard: bool) -> str:
    """State the disadvantages of edits; `harms` is the number of builds that would wait."""
    waits = f"{write_count(harms, 'other build')} would wait"
    said = ((is_guard, "loosens a safety check"), (is_last, "last choice"), (harms, waits))
    named = ", ".join(text for is_true, text in said if is_true)
    return f" ({named})" if named else ""


def describe_pool_closed(reason: str) -> str:
    """State why a pool, which the reason names first, creates no machine."""
    return f"{reason[:1].upper()}{reason[1:]}."


def describe_needs(
    task: str, architecture: str, given: Sequence[str], classes: Sequence[str]
) -> str:
    """State the task and architecture of a request, and the tags of a special machine.

    `given` are the tags that the allow-list gives the request, `classes` the other ones.
    """
    said = " on ".join(filter(None, (task, architecture)))
    powerful = f"a powerful machine ({listed(given)})" if given else ""
    other = f"a machine with {listed(classes)}" if classes else ""
    return ", ".join(filter(None, (said, powerful, other)))
