"""Sentences of a plan about problems, warnings and unknown facts."""

from collections.abc import Collection

from fleet.model.facts import QueueSample
from fleet.model.tickets import UNKNOWN_USER
from fleet.schema.findings import some_of
from fleet.schema.units import write_count, write_duration
from fleet.words import lives
from fleet.words.limits import TOO_LARGE
from fleet.words.sentence import Sentence

IN_NO_STACK = "listed by its provider and billed, but in no stack"
WITHOUT_TAGS = f"billed, but {lives.DEAF}"
STOPPED = f"may be billed, but {lives.STOPPED}"
FAILED = f"billed, but {lives.FAILED}"
NOT_REGISTERED = "billed, but its worker did not register in time"
PARTLY_READ = "only partly read"

describe_attention = Sentence[str, str]("{problem}; see {page}")
describe_image = Sentence[str, str]("pool {pool}: {problem}")
describe_machine = Sentence[str, str]("{name}: {trouble}; `fleet explain worker {name}`")


def describe_removed_queue(queue: str, busy: int, waiting: int) -> str:
    """State that a ticket queue with open tickets is not in fleet.yaml, and what to do."""
    return (
        f"ticket queue {queue} is not in fleet.yaml, but has open tickets: {busy:,} with a "
        f"machine, {waiting:,} that wait; restore it until they are closed"
    )


def describe_lost_ticket(name: str, ticket: str | None, desk: str | None) -> str:
    """State what to do with a machine that is kept for a ticket of a lost store."""
    kept = f"{name}: billed, and kept for a ticket of a lost store"
    if ticket is None:
        return f"{kept}; the next `fleet apply` opens a replacement ticket and prints its id"
    return (
        f"{kept}; when it is no longer used: "
        f"fleet ticket close {ticket} --queue {desk} --user {UNKNOWN_USER}"
    )


def describe_absence(name: str, worker: str, running: str | None, away: int) -> str:
    """State the seconds since a disconnected worker was last seen, and what to do."""
    seen = f"its worker is not connected (last seen {write_duration(away)} ago)"
    if running is None:
        return (
            f"{name}: {seen}, nor is any other worker of its queue; `fleet explain worker {name}`"
        )
    return (
        f"{name}: runs request {running}, but {seen}; "
        f"if it does not return: debusine-admin worker disable {worker}"
    )


def describe_reserving(queue: str, count: int) -> str:
    """State that requests of unknown duration reserve budget for this and the next period."""
    return (
        f"{write_count(count, 'request')} of queue {queue} without a known duration: each "
        "reserves budget to the end of this period and the next; set `durations` by task"
    )


describe_target_wait = Sentence[str, int](
    "target_wait of pool {pool} has no effect on {count:request} without a known duration: each "
    "gets its own machine; set `durations` by task"
)


def describe_unknown_demand(queue: str, trouble: str, *, effect: bool = False) -> str:
    """Explain why the demand of a queue is unknown. `effect` adds that no machine is deleted."""
    what = " (no machine is deleted in the pools that serve it)" if effect else ""
    return f"demand of queue {queue} is unknown: {trouble}{what}"


describe_unknown_images = Sentence[str](
    "versions of images are unknown: {reason} (no machine is created or replaced)"
)


def describe_unknown(reason: str, *, creates: bool) -> str:
    """State an unknown fact about a pool, and the actions that therefore do not happen."""
    return f"{reason} (no machine is {'deleted' if creates else 'created or deleted'} there)"


describe_unknown_price = Sentence[str, str](
    "the price of {kind} is unknown; {machine} counts as 0"
)


def describe_heartbeat(age: int | None, cadence: int, *, alive: bool) -> str:
    """State that the last finished run started `age` seconds ago (None: no run has finished)."""
    states = f"cadence is {write_duration(cadence)}"
    if age is None:
        return f"`fleet apply` has not finished a run yet; {states}"
    more = "" if alive else "; run `fleet apply` on a schedule"
    return f"the last finished run started {write_duration(max(age, 0))} ago; {states}{more}"


def describe_late_runs(cadence: int, runs: int, seen: int) -> str:
    """Warn that runs are less frequent than `cadence`. `seen`: median seconds between runs."""
    which = f"the last {runs} runs were" if runs > 1 else "the last run was"
    return (
        f"cadence is {write_duration(cadence)}, but {which} {write_duration(seen)} "
        f"{'apart' if runs > 1 else 'ago'}: idle times, paid hours and estimates assume the "
        "cadence; run `fleet apply` more often, or correct `cadence`"
    )


def describe_rank_gap(count: int, priority: int, *, low: bool) -> str:
    """State how many requests of a priority may wait longer than necessary."""
    who = f"{write_count(count, 'request')} of priority {priority}"
    who += " and tags of low priority" if low else ""
    return (
        f"up to {who} may wait longer than necessary: another allocation of requests of equal or "
        f"higher priority might serve them; {TOO_LARGE}"
    )


def describe_rivals(queue: str, rivals: Collection[str]) -> str:
    """Warn that a queue creates machines itself, with the command to disable its worker pools."""
    pools = ", ".join(sorted(rivals))
    return (
        f"queue {queue} also creates machines for the same requests, in its own worker pools "
        f"{pools}; to disable them on its server: debusine-admin worker_pool disable NAME"
    )


def describe_stored_tags(queue: str, tag: str, count: int) -> str:
    """Explain why `otherwise` of a tag has no effect on requests of a queue."""
    return (
        f"tags.{tag}.otherwise has no effect on {write_count(count, 'request')} of queue "
        f"{queue}: the queue stored the tag with each, and assigns them only to workers "
        "that have it"
    )


def describe_reading(queue: str, sample: QueueSample, max_age: int, *, long: bool) -> str:
    """State the unreadable requests of a queue and, if `long`, the number of unread requests."""
    parts = []
    if sample.unreadable:
        names = some_of([f"{id_} ({why})" for id_, why in sorted(sample.unreadable.items())])
        count = write_count(len(sample.unreadable), "request")
        parts.append(f"{count} unreadable: {names}; correct or abort them in the queue")
    if long:
        left = sorted(sample.unlisted.items())
        scopes = ", ".join(f"{count:,} in {scope}" for scope, count in left)
        total = sample.listed + sum(sample.unlisted.values())
        parts.append(
            f"{sample.listed:,} of about {total:,} pending requests read "
            f"in time, the newest of each scope (not read: {scopes}); "
            f"above about {sample.longest:,}, read it over SQL (queues.{queue}.read): "
            f"guards.demand_max_age is {write_duration(max_age)}"
        )
    return "; ".join(parts)
