"""Sentences for the user of a waiting build: why it waits, until when, and the contact."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from fleet.schema.findings import listed
from fleet.schema.units import write_count, write_time
from fleet.words.figures import duration

_PAYERS = {"submitter": "user"}
"""Words for a kind of payer that differ from its key in fleet.yaml."""
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)
_NAMED = 3
"""Maximum number of builds that a sentence names."""
NOTHING = "Nothing that you can do yourself."


def describe_choice(behind: str) -> str:
    """State what the user of a build can do; `behind` is an own build that goes first."""
    choice = f" Or cancel {behind} if this build is more urgent." if behind else ""
    return f"Nothing to do: it starts by itself.{choice}"


REQUEST = "request"
"""The noun for running work whose package is unknown."""


def order(number: int) -> str:
    """Return an ordinal number, for example "27th"."""
    ending = "th" if number % 100 in _TEENS else _ORDINALS.get(number % 10, "th")
    return f"{number:,}{ending}"


def name_build(package: str, request: str) -> str:
    """Return the package and id of a build."""
    return " ".join(filter(None, (package, request)))


def name_request(package: str, request: str, user: str) -> str:
    """Return the package, id and user of a build, for example "chromium debian/102 (ada)"."""
    return name_build(package, request) + (f" ({user})" if user else "")


def name_running(build: str, worker: str) -> str:
    """Return a running build and its worker."""
    return f"{build} on {worker}" if build else f"the work of {worker}"


def describe_next(worker: str, state: str, without: str, *, is_seen: bool) -> str:
    """State the worker that serves a request next, and its state."""
    if not is_seen:
        return f"Next for {worker}, which is not listed now{without}."
    first = {"starting": ", which is booting", "busy": ", when its present work ends"}
    return f"Next for {worker}{first.get(state, '')}{without}."


def describe_new(worker: str, kind: str, pool: str, without: str) -> str:
    """State the new machine that serves a request."""
    machine = f"{kind} of pool {pool}" if kind else "a machine that is being created"
    return f"Gets a new machine: {worker} ({machine}){without}."


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


def describe_earliest(moment: datetime, after: str) -> str:
    """State the earliest start, and the work that ends then."""
    return f"Starts not before {write_time(moment)}, when {after} ends."


def describe_other(pools: Sequence[str], reason: str) -> str:
    """State a further reason of a wait in some pools."""
    return f"Also, pool {listed(pools)}: {reason}."


THAT = "that"
"""The only build that a sentence before names."""
IT = "it"
"""The same in parentheses."""


def describe_no_start(reason: str) -> str:
    """State why the start is unknown."""
    return f"Its start is unknown: {reason}."


def describe_ahead(ahead: int, higher: int) -> str:
    """State how many builds get a machine first."""
    if not ahead:
        return "It is first in line."
    builds = f"{ahead:,} {'build' if ahead == 1 else 'builds'}"
    go = "goes before it" if ahead == 1 else "go before it"
    if higher == ahead:
        return f"{builds} of higher priority {go}."
    return f"{builds} {go}" + (f", {higher:,} of higher priority." if higher else ".")


def describe_place(ahead: int, pools: Sequence[str]) -> str:
    """State the position of a request among those for the same pools."""
    return f"{order(ahead + 1)} in line for {'pools' if pools[1:] else 'pool'} {listed(pools)}"


class MachineCounts(NamedTuple):
    """Numbers of machines of a pool: ready, starting, planned, and postponed to later runs."""

    ready: int
    starting: int
    created: int
    later: int
    end: str
    """The time at which the last postponed machine is up; empty if unknown."""

    def describe(self) -> str:
        """Return the numbers in words."""
        forms = ("now", "starting", "soon", f"by {self.end}" if self.end else "later")
        numbers = zip(self[:4], forms, strict=True)
        return ", ".join(f"{n:,} {form}" for n, form in numbers if n) or "0 now"


def describe_taken(pool: str, most: int, counts: MachineCounts) -> str:
    """State the maximum of a pool, and how many of its machines exist, or when they are up."""
    if not most:
        return f"Pool {pool} may have no machine now (its maximum is 0)."
    return (
        f"Waits for its turn: pool {pool} may have {write_count(most, 'machine')} "
        f"({counts.describe()})."
    )


def describe_postponed(pool: str, counts: MachineCounts) -> str:
    """State that a later run creates the machine of a request."""
    return f"Waits for its machine: pool {pool} grows step by step ({counts.describe()})."


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
    many = write_count(most, machine)
    builds = _list_builds(named)
    whose = f"{who or f'that {kind}'}'s" if payer else ("it" if most == 1 else "they")
    verb = "goes" if len(named) == 1 else "go"
    used = f"; {whose} {verb} to {builds}" if named else ""
    if begin:
        used = f"; {whose} goes first to {builds}, from about {begin}"
    said = f"{limit} may have {many} at a time{used}."
    if unknown and payer:
        ending, counts = (
            ("s", "are unknown, so they count")
            if unknown[1:]
            else ("", "is unknown, so it counts")
        )
        said += f" The {kind}{ending} of {_list_builds(unknown)} {counts} to every {kind}."
    return said


def _list_builds(builds: Sequence[str]) -> str:
    more = [f"{len(builds) - _NAMED:,} more"] if builds[_NAMED:] else []
    return listed([*builds[:_NAMED], *more])


def describe_wait_for(payer: str, who: str, count: int) -> str:
    """State whose builds a request waits for."""
    noun = "build" if count == 1 else "builds"
    if payer == "submitter" and who:
        return f"Waits for {who}'s other {noun}."
    if payer:
        return f"Waits for {'another' if count == 1 else 'other'} {noun} of the same {payer}."
    return f"Waits for {'another' if count == 1 else 'other'} {noun}."


WAITS_FOR_UNKNOWN = "Waits for work whose user is unknown."


def describe_no_gain(edits: Sequence[str], *, is_complete: bool) -> str:
    """State the edits that do not help; not `is_complete`: a search stopped before its end."""
    said = f"None of these starts it sooner: {'; '.join(edits)}." if edits else NO_GAIN
    return said if is_complete else f"{said} Not all edits were checked."


NO_GAIN = "No edit of fleet.yaml was found that starts it sooner."


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


def describe_missing(tags: Sequence[str], architecture: str) -> str:
    """State the architecture or the tags that no machine of the fleet has."""
    if architecture:
        return f"No machine of this fleet builds {architecture}."
    return f"No machine of this fleet provides {listed(tags)}."


def describe_never(reason: str) -> str:
    """State why no machine can ever run a request."""
    return f"No machine of this fleet can ever run it: {reason}."


def describe_unread(sources: Sequence[str]) -> str:
    """State the unreadable sources that a request waits for."""
    return f"fleet cannot read {listed(sources)}."


def describe_repair(reason: str) -> str:
    """State the unreadable source to repair, and the effect of the repair."""
    return f"Repair this, then the next run plans the build: {reason}"


STATE = "its state"
REPAIR_FIRST = "The administrators of the build machines must repair this first."
NEVER_STARTS = "This build never starts unless the fleet changes."


def describe_guard(reason: str) -> str:
    """State the guard that withholds the machine of a request."""
    return f"A safety check of fleet holds its machine back: {reason}."


def describe_pool_closed(reason: str) -> str:
    """State why a pool, which the reason names first, creates no machine."""
    return f"{reason[:1].upper()}{reason[1:]}."


def describe_reason(reason: str) -> str:
    """State another reason of a wait."""
    return f"Waits: {reason}."


def describe_machine(tag: str, *, is_powerful: bool) -> str:
    """Return the noun for a machine with a tag."""
    return "powerful machine" if is_powerful else f"{tag.removeprefix(CLASS)} machine"


CLASS = "worker:class:"
"""The beginning of the tags of a class of machines, at Debusine."""


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


FLEET = "machines and limits of this fleet"


NO_CONTACT = "the status pages name no person to ask: fleet.yaml has no `contact`"


def describe_no_contact(fleet: str) -> str:
    """Return the contact of a fleet whose fleet.yaml names none."""
    return f"Ask the maintainers of fleet {fleet}."


def describe_rule_contact(package: str) -> str:
    """Return the question that the contact of an allow-list rule answers."""
    return f"whether {package or 'this build'} needs a powerful machine"


NEVER = "never"
UNLESS = f"{NEVER}, unless the fleet changes"


def describe_running(worker: str, length: str) -> str:
    """State the worker of a running build, and for how long it has run."""
    since = "" if length == "-" else f" for {length}"
    return f"Runs on {worker}{since}."


def describe_end(end: str) -> str:
    """State the expected end of a running build."""
    return f"runs, done {end}"
