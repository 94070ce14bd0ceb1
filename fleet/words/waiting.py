"""Sentences for the user of a waiting build: why it waits, until when, and the contact."""

from collections.abc import Sequence
from datetime import datetime

from fleet.schema.findings import listed
from fleet.schema.units import write_count, write_time

_PAYERS = {"submitter": "user"}
"""Words for a kind of payer that differ from its key in fleet.yaml."""
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)
_NAMED = 3
"""Maximum number of builds that a sentence names."""
ASSUMING = ", if work of unknown duration takes 1h"
ITSELF = "Nothing to do: it starts by itself."
NOTHING = "Nothing that you can do yourself."


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
    return f"{build} (on {worker})" if build else f"the work of {worker}"


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


def describe_start(start: datetime, after: str, end: datetime | None, *, assumed: bool) -> str:
    """State the expected start and end; `after` is the work that ends first."""
    when = f", when {after} ends" if after else ""
    finished = f"; done about {write_time(end)}" if end else ""
    return f"Starts about {write_time(start)}{when}{ASSUMING if assumed else ''}{finished}."


def describe_earliest(moment: datetime, after: str) -> str:
    """State the earliest start, and the work that ends then."""
    return f"Starts not before {write_time(moment)}, when {after} ends."


def describe_other(pools: Sequence[str], reason: str) -> str:
    """State a further reason of a wait in some pools."""
    return f"Also, pool {listed(pools)}: {reason}."


THAT = "that"
"""The only build that a sentence before names."""


def describe_no_start(reason: str) -> str:
    """State why the start is unknown."""
    return f"Its start is unknown: {reason}."


def describe_line(ahead: int, higher: int, pools: Sequence[str]) -> str:
    """State the number of requests that get a machine of these pools first."""
    first = []
    if higher:
        first.append(f"{higher:,} of higher priority")
    if ahead - higher:
        first.append(f"{ahead - higher:,} of equal priority that waited longer")
    verb = "goes" if ahead == 1 else "go"
    who = f": {' and '.join(first)} {verb} first" if first else ""
    noun = "pools" if pools[1:] else "pool"
    return f"{order(ahead + 1)} in line for {noun} {listed(pools)}{who}"


def say_line(line: str) -> str:
    """Return the position in the queue as a sentence."""
    return f"It is {line}."


def describe_taken(pool: str, count: int, coming: int) -> str:
    """State that all machines of a pool are taken; `coming` of them do not run yet."""
    them = f"All {count:,} machines of pool {pool} are taken"
    if count == 1:
        them = f"The only machine of pool {pool} is taken"
    if not count:
        return f"Pool {pool} may have no machine now (its maximum is 0)."
    new = ""
    if coming:
        part = "it" if count == 1 else f"{coming:,} of them"
        new = f"; {part} {'is' if coming == 1 else 'are'} being created"
    return f"{them} (the pool may have no more){new}."


def describe_counted(
    payer: str,
    who: str,
    most: int,
    machine: str,
    works: tuple[Sequence[str], int, datetime | None],
) -> str:
    """State a used-up limit, the builds that use it, and how many builds have no known user.

    `payer` is the kind of payer, such as `user`, and `who` its name; both empty for a total.
    The time in `works` is the expected start of the only build if it does not run yet.
    """
    named, unknown, begin = works
    kind = _PAYERS.get(payer, payer)
    limit = f"Each {kind}" if payer else "This fleet"
    many = write_count(most, machine)
    builds = listed(named[:_NAMED])
    if named[_NAMED:]:
        builds += f" and {len(named) - _NAMED:,} more"
    whose = f"{who or f'that {kind}'}'s" if payer else ("it" if most == 1 else "they")
    verb = "goes" if len(named) == 1 else "go"
    used = f"; {whose} {verb} to {builds}" if named else ""
    if begin:
        used = f"; {whose} goes first to {builds}, which starts about {write_time(begin)}"
    said = f"{limit} may have {many} at a time{used}."
    if unknown and payer:
        runs = "One machine runs" if unknown == 1 else f"{unknown:,} machines run"
        noun, ends = ("a build", "it ends") if unknown == 1 else ("builds", "they end")
        said += f" {runs} {noun} whose {kind} is unknown: counted to every {kind} until {ends}."
    return said


def describe_wait_for(payer: str, count: int) -> str:
    """State whose builds a request waits for."""
    noun = "build" if count == 1 else "builds"
    if payer == "submitter":
        return f"Waits for your other {noun}."
    if payer:
        return f"Waits for {'another' if count == 1 else 'other'} {noun} of the same {payer}."
    return f"Waits for {'another' if count == 1 else 'other'} {noun}."


WAITS_FOR_UNKNOWN = "Waits for work whose user is unknown."


def describe_missing(tags: Sequence[str], architecture: str) -> str:
    """State the architecture or the tags that no machine of the fleet has."""
    if architecture:
        return f"No machine of this fleet builds {architecture}."
    return f"No machine of this fleet provides {listed(tags)}."


def describe_never(reason: str) -> str:
    """State why no machine can ever run a request."""
    return f"No machine of this fleet can ever run it: {reason}."


def describe_unread(reason: str) -> str:
    """State the unreadable source that a request waits for."""
    return f"Waits until fleet can read everything again: {reason}."


THROTTLED = (
    "Waits its turn: fleet creates only some machines per run, and its machine comes in a later "
    "run."
)


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


def describe_no_contact(fleet: str) -> str:
    """Return the contact of a fleet whose fleet.yaml names none."""
    return f"Ask the maintainers of fleet {fleet}."


def describe_rule_contact(package: str) -> str:
    """Return the question that the contact of an allow-list rule answers."""
    return f"whether {package or 'this build'} needs a powerful machine"


NEVER = "never"
UNLESS = f"{NEVER}, unless the fleet changes"
NO_PACKAGE = "Package unknown"
NO_USER = "User unknown"


def describe_running(worker: str, length: str) -> str:
    """State the worker of a running build, and for how long it has run."""
    since = "" if length == "-" else f" for {length}"
    return f"Runs on {worker}{since}."


def describe_end(end: str) -> str:
    """State the expected end of a running build."""
    return f"runs, done {end}"
