"""Sentences of `fleet explain`: why a request waits, or why a pool or worker has its state."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from fleet.model.orders import Freeze
from fleet.model.plan import Blocked
from fleet.schema.findings import Path, yaml_key
from fleet.schema.units import write_time
from fleet.words.sentence import Sentence

_NAMED = 3
"""Maximum number of requests that a sentence names."""
_VERBS = {"keep": "stays", "create": "is created", "drain": "drains", "delete": "is deleted"}

# Requests

UNTIMED = "the workers that fit have work of unknown duration: no history, no `durations`"
UNTIMED_WORK = "the end of the work that counts to the limit is unknown"
ASSUMED = "assumed: 1h for work of unknown duration (no history); set `durations` to correct it"
TOO_FAR = "the work before it takes more than ten years"
NONE_FITS = "no existing or planned worker fits"
NO_REASON = "no reason recorded"
UNREAD_QUEUE = "its queue could not be read"
UNREPAIRED = "no machine is started for it before the repair, whose time is unknown"
SHORT_RECORD = "recorded for less than a day"
explain_nameless = Sentence[str](
    "has no name ({missing}), so no `match` of `powerful` or `durations` applies"
)
describe_unservable = Sentence[str, str](
    "no worker of this fleet can ever run {requests}: {reason}"
)
explain_unseen_worker = Sentence[str](
    "worker {worker}, which runs it next, is currently not listed"
)
explain_sampled_turn = Sentence[int](
    "after the listed requests it would start in {wait:duration}, but its queue was only partly "
    "read, and other requests may come first"
)
explain_dropped = Sentence[str](
    "waited longer than `otherwise.after` of tag {tag}, so it may run without it"
)
explain_ruled_tag = Sentence[str, str, str]("asks for {tag} by {rule}: {origin}")
explain_stored_tag = Sentence[str, str, str](
    "otherwise.drop of tag {name} has no effect: queue {queue} stored {tag} with the request "
    "and assigns it only to workers that provide {tag}"
)
explain_other_task = Sentence[str, str, str | None, str](
    "pattern {pattern} matches {name}, but the rule is for task {ruled}, not for {task}"
)
explain_tag_rule = Sentence[str, str]("{tag} by {rule}")
explain_waived_tag = Sentence[bool, str, str, datetime](
    "[{waived:if}waited {after} for {tag}: may run without {tag} since {until:time}]"
    "[{waived:unless}may run without {tag} from {until:time}, after waiting {after}]"
)
describe_wait = Sentence[str, bool, str](
    "request {request} waits: [{never:if}no worker of this fleet can ever run it: ]{reason}"
)
describe_stopped = Sentence[int, bool, str](
    "{count:build} [{lasting:if}can never start]"
    "[{lasting:unless}{count:gets|get} no machine yet]: {reason}"
)
count_waiting = Sentence[int]("{count} {count:request waits|requests wait}")


def describe_enforcement(tag: str, claims: Sequence[str], by: str, queue: str, reason: str) -> str:
    """Name the system that enforces a tag, its exclusivity or its limit at a queue, and why."""
    first, are = ", ".join(claims[:-1]), "are" if claims[1:] or claims[0] == "limits" else "is"
    named = " and ".join(filter(None, (first, claims[-1])))
    what = "" if [*claims] == ["tag"] else f" {named} {are}"
    return f"{tag}:{what} {by} at {queue}: {reason}"


# Pools

describe_pool_size = Sentence[str, int, int, str](
    "pool {pool} wants {wanted:machine} (max {most}): {reason}"
)
explain_least = Sentence[int, int]("not {fewer}: workers.min is {least}")
explain_leaving = Sentence[int]("not {fewer}: its machines are already drained or deleted")
explain_kept = Sentence[int, str, str](
    "not {fewer}, although no more requests would wait: {worker}: {reason}"
)
explain_stopped = Sentence[int, str, str]("not {more}, although {waits} that would fit: {reason}")
explain_blind = Sentence[int, str]("not {more}: {reason}")
explain_group = Sentence[str, str, int, str, int, int](
    "queue {queue}: {waits} with priority {priority} for {required}: {used} served by "
    "existing workers, {made} by new machines"
)


def explain_lost(fewer: int, lost: Sequence[str]) -> str:
    """Name the currently served requests that would wait if the pool had `fewer` machines."""
    others = " and others" if len(lost) > _NAMED else ""
    return f"not {fewer}: with workers.max {fewer}, {_name_harmed(lost)}{others}"


def name_harmed(requests: Sequence[str]) -> str:
    """Name the currently served requests that would wait after an edit."""
    return f" (but {_name_harmed(requests)})"


def _name_harmed(requests: Sequence[str]) -> str:
    many = "1 request that is" if len(requests) == 1 else f"{len(requests)} requests that are"
    return f"{many} served now would wait: {', '.join(requests[:_NAMED])}"


def explain_idle(more: int, cost: str, full: int | None, *, sure: bool) -> str:
    """Explain that an additional machine would be idle. `full` is the maximum it would exceed."""
    limit = "" if full is None else f"workers.max is {full}, and "
    price = f" at {cost}" if cost else ""
    known = "request" if sure else "known request"
    return f"not {more}: {limit}it would be idle{price}; no {known} waits that it could serve"


# Workers

UNKNOWN_WORK_END = "end of its work unknown: no history, and no `durations` for its task"
UNKNOWN_TICKET_END = "end of its ticket unknown: `durations` has no `any`"
explain_boot = Sentence[datetime, datetime](
    "expected up at {up:time}; failed if not up at {failed:time}"
)
explain_idle_end = Sentence[str, str, datetime](
    "{key} ({stated}) is reached at {end:time}; then deleted unless needed"
)
explain_idle_ended = Sentence[str, str, datetime](
    "{key} ({stated}) was reached at {end:time}; then deleted unless needed"
)
explain_age_end = Sentence[str, str, datetime]("{key} ({stated}) reached at {end:time}")
explain_uses_end = Sentence[int, int | str](
    "deleted after {most:request}; finished so far: {finished}"
)
explain_work_end = Sentence[datetime]("expected end of its work: {end:time}")
await_hold = Sentence[datetime, str, str](
    "nothing to do: the hold ends at {until:time}; ask {by} before you end it with `fleet "
    "hold {machine} --end`, which gives its worker work again"
)
end_own_hold = Sentence[str, datetime](
    "`fleet hold {machine} --end`: the next `fleet apply` deletes it; without the command, "
    "the first one after {until:time}"
)
read_console = Sentence[str]("`fleet machine console {machine}` prints its console")


def describe_worker(
    worker: str, verdict: Literal["keep", "create", "drain", "delete"], reason: str, *, held: bool
) -> str:
    """State the decision on a worker and the reason. `held` adds that a guard withholds it."""
    suffix = " (withheld by a guard in this run)" if held else ""
    return f"worker {worker} {_VERBS[verdict]}: {reason}{suffix}"


# Images, tags, rules and names

NO_VERSION = "no version yet"
EXISTING = "baked elsewhere"
ALLOWED = "it is a rule of the allow-list"
LIST_TAGS = "`fleet tags list` has all tags"
describe_rule = Sentence[str, str, str, Sequence[str]](
    "rule {key}: builds{only} that match {match} get {asked:listed}"
)
describe_check = Sentence[str]("rule {name} of `fleet validate`")
count_matches = Sentence[str, int]("{name} names {count:object}")
describe_image = Sentence[str, bool, Sequence[str]](
    "image {name}[{declared:unless} is not in fleet.yaml]"
    "[{declared:if}: pools that boot it: {pools:listed}]"
    "[{declared:if}{pools:unless}: no pool boots it]"
)
describe_tag = Sentence[str, Sequence[str]](
    "tag {name}: [provided by {pools:listed}][{pools:unless}no pool provides it]"
)
count_asking = Sentence[int]("{count:waiting request} {count:asks|ask} for it")
suggest_build = Sentence[str, str, Sequence[str]](
    "no build of {name} waits; `fleet tags explain {build}` tries one: [{rules:listed} matches it]"
    "[{rules:unless}no rule of `powerful` matches it]"
)
# Edits

LAST_CHOICE = "; last choice: this raises a limit that your team set itself"
ask_for_tags = Sentence[Sequence[str]]("have the request ask for {tags:comma}")
explain_freed = Sentence[Sequence[str]](
    ": other requests move to pool {pools:listed}, which frees a machine for this one"
)


def describe_edit(path: Path, old: str, new: str, *, is_raise: bool, is_claim: bool) -> str:
    """State the old and new value of a key; `new` is empty if the edit removes the key.

    A claim sets a column of a look-up, which fleet cannot check.
    """
    if not new:
        return f"remove {yaml_key(path)}"
    before = f" from {old}" if old else ""
    edit = f"{'raise' if is_raise else 'set'} {yaml_key(path)}{before} to {new}"
    return f"{edit}, if that is the {path[-1]} of {path[-2]}" if is_claim else edit


def describe_list_edit(
    path: Path, added: Sequence[str], gone: Sequence[str], *, is_claim: bool
) -> str:
    """State the entries that an edit adds to a list and removes from it."""
    key = yaml_key(path)
    said = [f"add {', '.join(added)} to {key}"] if added else []
    said += [f"remove {', '.join(gone)} from {key}"] if gone else []
    return " and ".join(said) + (", if its workers provide it" if is_claim else "")


# Orders and waits for a time

describe_persons_order = Sentence[str, str](
    "{said}; it ends by itself then; ask {by} to end it earlier"
)
await_retry = Sentence[datetime]("the first `fleet apply` after {until:time} tries again")


def await_freeze(order: Freeze, command: str) -> str:
    """State when a freeze ends, its author and reason, and the command that ends it earlier."""
    if order.is_precaution:
        return f"fleet freezes {order.what} until it can read its store; `{command}` shows why"
    return (
        f"the freeze of {order.what} ends at {write_time(order.until)} ({order.reason}); ask "
        f"{order.by} before you end it with `{command}`"
    )


def await_budget(count: int, blocked: Blocked) -> str:
    """State how many requests a budget leaves without a machine, why, and until when."""
    end = f"; the next period begins at {write_time(blocked.until)}" if blocked.until else ""
    return f"{count_waiting(count)}: {blocked.because}{end}"
