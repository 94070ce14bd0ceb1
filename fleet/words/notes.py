"""Sentences of a plan about problems, warnings and unknown facts."""

from collections.abc import Sequence

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
describe_removed_queue = Sentence[str, int, int](
    "ticket queue {queue} is not in fleet.yaml, but has open tickets: {busy:,} with a machine, "
    "{waiting:,} that wait; restore it until they are closed"
)
describe_lost_ticket = Sentence[str, str | None, str | None](
    "{name}: billed, and kept for a ticket of a lost store; [{ticket:unless}the next `fleet "
    "apply` opens a replacement ticket and prints its id][when it is no longer used: fleet ticket "
    "close {ticket} --queue {desk} --user " + UNKNOWN_USER + "]"
)
describe_absence = Sentence[str, str | None, int, str](
    "{name}: [runs request {running}, but ]its worker is not connected (last seen {away:duration} "
    "ago)[{running:if}; if it does not return: debusine-admin worker disable {worker}]"
    "[{running:unless}, nor is any other worker of its queue; `fleet explain worker {name}`]"
)
describe_reserving = Sentence[int, str](
    "{count:request} of queue {queue} without a known duration: each reserves budget to the end "
    "of this period and the next; set `durations` by task"
)
describe_target_wait = Sentence[str, int](
    "target_wait of pool {pool} has no effect on {count:request} without a known duration: each "
    "gets its own machine; set `durations` by task"
)
describe_unknown_demand = Sentence[str, str, bool](
    "demand of queue {queue} is unknown: {trouble}"
    "[{effect:if} (no machine is deleted in the pools that serve it)]"
)
describe_unknown_images = Sentence[str](
    "versions of images are unknown: {reason} (no machine is created or replaced)"
)
describe_unknown = Sentence[str, bool](
    "{reason} (no machine is [{creates:unless}created or ]deleted there)"
)
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


describe_rank_gap = Sentence[int, int, bool](
    "up to {count:request} of priority {priority}[{low:if} and tags of low priority] may wait "
    "longer than necessary: another allocation of requests of equal or higher priority might "
    "serve them; " + TOO_LARGE
)
describe_rivals = Sentence[str, Sequence[str]](
    "queue {queue} also creates machines for the same requests, in its own worker pools "
    "{pools:comma}; to disable them on its server: debusine-admin worker_pool disable NAME"
)
describe_stored_tags = Sentence[str, int, str](
    "tags.{tag}.otherwise has no effect on {count:request} of queue {queue}: the queue stored the "
    "tag with each, and assigns them only to workers that have it"
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
