"""Sentences of `fleet explain`: why a request waits, or why a pool or worker has its state."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from fleet.model.orders import Freeze
from fleet.model.plan import Blocked
from fleet.schema.findings import Path, listed, yaml_key
from fleet.schema.units import write_count, write_duration, write_time

UNTIMED = "the workers that fit have work of unknown duration: no history, no `durations`"
UNTIMED_WORK = "the end of the work that counts to the limit is unknown"
ASSUMED = "assumed: 1h for work of unknown duration (no history); set `durations` to correct it"
TOO_FAR = "the work before it takes more than ten years"
NONE_FITS = "no existing or planned worker fits"
NO_REASON = "no reason recorded"
UNREAD_QUEUE = "its queue could not be read"
UNREPAIRED = "no machine is started for it before the repair, whose time is unknown"
UNKNOWN_WORK_END = "end of its work unknown: no history, and no `durations` for its task"
UNKNOWN_TICKET_END = "end of its ticket unknown: `durations` has no `any`"
SHORT_RECORD = "recorded for less than a day"
_NAMED = 3
"""Maximum number of requests that a sentence names."""
_VERBS = {"keep": "stays", "create": "is created", "drain": "drains", "delete": "is deleted"}


def explain_nameless(missing: str) -> str:
    """State that no pattern of fleet.yaml matches a build without a name."""
    return f"has no name ({missing}), so no `match` of `powerful` or `durations` applies"


def describe_stopped(count: int, reason: str, *, lasting: bool) -> str:
    """State how many builds get no machine; `lasting`: not before fleet.yaml changes."""
    fate = "can never start" if lasting else f"get{'s' if count == 1 else ''} no machine yet"
    return f"{write_count(count, 'build')} {fate}: {reason}"


def describe_wait(request: str, reason: str, *, never: bool) -> str:
    """Explain why a request waits. `never` adds that no worker can ever run it."""
    hopeless = "no worker of this fleet can ever run it: " if never else ""
    return f"request {request} waits: {hopeless}{reason}"


def describe_unservable(requests: str, reason: str) -> str:
    """Explain why no worker can ever run some requests."""
    return f"no worker of this fleet can ever run {requests}: {reason}"


def explain_unseen_worker(worker: str) -> str:
    """State that the worker that will run a request next is currently not listed."""
    return f"worker {worker}, which runs it next, is currently not listed"


def explain_sampled_turn(seconds: int) -> str:
    """State when a request would start if its partly read queue had only the listed requests."""
    return (
        f"after the listed requests it would start in {write_duration(seconds)}, but its queue "
        "was only partly read, and other requests may come first"
    )


def explain_ruled_tag(tag: str, rule: str, origin: str) -> str:
    """Name a tag that a ticket requires, the rule that adds the tag, and why the rule applies."""
    return f"asks for {tag} by {rule}: {origin}"


def explain_stored_tag(tag: str, name: str, queue: str) -> str:
    """Explain why `otherwise.drop` of a tag has no effect: the queue stored the tag."""
    return (
        f"otherwise.drop of tag {name} has no effect: queue {queue} stored "
        f"{tag} with the request and assigns it only to workers that provide {tag}"
    )


def explain_waived_tag(tag: str, after: str, until: datetime, *, waived: bool) -> str:
    """State the time from which a request may run without a tag. `waived`: this time is past."""
    at = write_time(until)
    if waived:
        return f"waited {after} for {tag}: may run without {tag} since {at}"
    return f"may run without {tag} from {at}, after waiting {after}"


def explain_other_task(pattern: str, name: str, ruled: str | None, task: str) -> str:
    """Explain that the pattern of a rule matches a name, but that the rule is for another task."""
    return (
        f"pattern {pattern!r} matches {name}, but the rule is for task "
        f"{ruled}, not for {task or 'a request without a task'}"
    )


def describe_enforcement(tag: str, claims: Sequence[str], by: str, queue: str, reason: str) -> str:
    """Name the system that enforces a tag, its exclusivity or its limit at a queue, and why."""
    first, are = ", ".join(claims[:-1]), "are" if claims[1:] or claims[0] == "limits" else "is"
    named = " and ".join(filter(None, (first, claims[-1])))
    what = "" if [*claims] == ["tag"] else f" {named} {are}"
    return f"{tag}:{what} {by} at {queue}: {reason}"


def describe_pool_size(pool: str, wanted: int, most: int, reason: str) -> str:
    """State the number of machines that a pool should have, its maximum, and the reason."""
    return f"pool {pool} wants {write_count(wanted, 'machine')} (max {most}): {reason}"


def explain_lost(fewer: int, lost: Sequence[str]) -> str:
    """Name the currently served requests that would wait if the pool had `fewer` machines."""
    many = "1 request that is" if len(lost) == 1 else f"{len(lost)} requests that are"
    named = ", ".join(lost[:_NAMED]) + (" and others" if len(lost) > _NAMED else "")
    return f"not {fewer}: with workers.max {fewer}, {many} served now would wait: {named}"


def explain_least(fewer: int, least: int) -> str:
    """State that `workers.min` does not permit `fewer` machines."""
    return f"not {fewer}: workers.min is {least}"


def explain_leaving(fewer: int) -> str:
    """State that the pool cannot have fewer machines, because all are already being removed."""
    return f"not {fewer}: its machines are already drained or deleted"


def explain_kept(fewer: int, worker: str, reason: str) -> str:
    """Explain why a worker is kept although no request needs it."""
    return f"not {fewer}, although no more requests would wait: {worker}: {reason}"


def explain_stopped(more: int, waiting: int, reason: str) -> str:
    """Explain why a pool creates no additional machine although suitable requests wait."""
    return f"not {more}, although {count_waiting(waiting)} that would fit: {reason}"


def explain_blind(more: int, reason: str) -> str:
    """State the unknown fact that prevents the creation of an additional machine in a pool."""
    return f"not {more}: {reason}"


def explain_idle(more: int, cost: str, full: int | None, *, sure: bool) -> str:
    """Explain that an additional machine would be idle. `full` is the maximum it would exceed."""
    limit = "" if full is None else f"workers.max is {full}, and "
    price = f" at {cost}" if cost else ""
    known = "request" if sure else "known request"
    return f"not {more}: {limit}it would be idle{price}; no {known} waits that it could serve"


def count_waiting(count: int) -> str:
    """Return the number of waiting requests, such as "1 request waits" or "3 requests wait"."""
    return "1 request waits" if count == 1 else f"{count} requests wait"


def explain_group(
    queue: str, count: int, priority: int, required: Sequence[str], served: tuple[int, int]
) -> str:
    """State how many equal requests wait, and how many existing and new machines serve."""
    used, made = served
    return (
        f"queue {queue}: {count_waiting(count)} with priority "
        f"{priority} for {listed(required) or 'no tags'}: "
        f"{used} served by existing workers, {made} by new machines"
    )


def describe_worker(
    worker: str, verdict: Literal["keep", "create", "drain", "delete"], reason: str, *, held: bool
) -> str:
    """State the decision on a worker and the reason. `held` adds that a guard withholds it."""
    suffix = " (withheld by a guard in this run)" if held else ""
    return f"worker {worker} {_VERBS[verdict]}: {reason}{suffix}"


def explain_boot(up: datetime, failed: datetime) -> str:
    """State when a machine is expected to be up, and when its boot counts as failed."""
    return f"expected up at {write_time(up)}; failed if not up at {write_time(failed)}"


def explain_idle_end(key: str, stated: str, over: datetime, *, past: bool) -> str:
    """State when an idle worker reaches `key`, its limit of idle time."""
    tense = "was" if past else "is"
    return f"{key} ({stated}) {tense} reached at {write_time(over)}; then deleted unless needed"


def explain_age_end(key: str, stated: str, end: datetime) -> str:
    """State when a machine reaches its maximum age."""
    return f"{key} ({stated}) reached at {write_time(end)}"


def explain_uses_end(most: int, uses: int | None) -> str:
    """State how many requests a worker may run and has run. `uses` is None if unknown."""
    finished = "unknown" if uses is None else uses
    return f"deleted after {write_count(most, 'request')}; finished so far: {finished}"


def explain_work_end(end: datetime) -> str:
    """State the expected end of the current work of a worker."""
    return f"expected end of its work: {write_time(end)}"


def explain_dropped(tag: str) -> str:
    """Explain that a request has waited long enough to run without a tag."""
    return f"waited longer than `otherwise.after` of tag {tag}, so it may run without it"


def explain_tag_rule(tag: str, rule: str) -> str:
    """Name a tag and the rule that adds the tag."""
    return f"{tag} by {rule}"


NO_VERSION = "no version yet"
EXISTING = "baked elsewhere"
ALLOWED = "it is a rule of the allow-list"
LIST_TAGS = "`fleet tags list` has all tags"


def describe_image(name: str, pools: Sequence[str], *, is_declared: bool) -> str:
    """Name the pools that boot an image."""
    if not is_declared:
        return f"image {name} is not in fleet.yaml"
    boots = f"pools that boot it: {listed(pools)}" if pools else "no pool boots it"
    return f"image {name}: {boots}"


def describe_tag(name: str, pools: Sequence[str]) -> str:
    """Name the pools that provide a tag."""
    return f"tag {name}: {f'provided by {listed(pools)}' if pools else 'no pool provides it'}"


def describe_asking(requests: str, count: int) -> str:
    """State the number of waiting requests that require a tag."""
    return f"{requests} {'asks' if count == 1 else 'ask'} for it"


def describe_rule(key: str, match: str, only: str, asked: str) -> str:
    """State the builds that an allow-list rule matches, and the tags that these builds get."""
    return f"rule {key}: builds{only} that match {match} get {asked}"


def suggest_build(name: str, build: str, rules: Sequence[str]) -> str:
    """State that no build of a package waits, the rules that match one, and how to try it."""
    matched = f"{listed(rules)} matches it" if rules else "no rule of `powerful` matches it"
    return f"no build of {name} waits; `fleet tags explain {build}` tries one: {matched}"


def describe_check(name: str) -> str:
    """State that a name is that of a rule of `fleet validate`."""
    return f"rule {name} of `fleet validate`"


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


def ask_for_tags(tags: Sequence[str]) -> str:
    """Tell the user to require further tags."""
    return f"have the request ask for {', '.join(tags)}"


def name_harmed(requests: Sequence[str]) -> str:
    """Name the currently served requests that would wait after an edit."""
    many = "1 request that is" if len(requests) == 1 else f"{len(requests)} requests that are"
    return f" (but {many} served now would wait: {', '.join(requests[:_NAMED])})"


LAST_CHOICE = "; last choice: this raises a limit that your team set itself"


def count_matches(name: str, count: int) -> str:
    """State the number of objects that a name refers to."""
    return f"{name} names {count:,} objects"


def describe_persons_order(said: str, by: str) -> str:
    """State the order of a person, which ends by itself, with its author."""
    return f"{said}; it ends by itself then; ask {by} to end it earlier"


def await_hold(machine: str, by: str, until: datetime) -> str:
    """State when a hold by a person ends, and the command that ends it earlier."""
    return (
        f"nothing to do: the hold ends at {write_time(until)}; ask {by} before you end it with "
        f"`fleet hold {machine} --end`, which gives its worker work again"
    )


def read_console(machine: str) -> str:
    """Return the command that prints the console of a machine."""
    return f"`fleet machine console {machine}` prints its console"


def end_own_hold(machine: str, until: datetime) -> str:
    """Return the command that ends a hold by fleet, which deletes the machine."""
    return (
        f"`fleet hold {machine} --end`: the next `fleet apply` deletes it; without the command, "
        f"the first one after {write_time(until)}"
    )


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


def await_retry(until: datetime) -> str:
    """State the time from which a run tries again to create machines."""
    return f"the first `fleet apply` after {write_time(until)} tries again"


def explain_freed(pools: Sequence[str]) -> str:
    """State why larger pools help a request that does not fit them."""
    return f": other requests move to pool {listed(pools)}, which frees a machine for this one"
