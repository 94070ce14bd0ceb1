"""Sentences about the reasons to create, keep, drain, replace or delete a machine."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from fleet.model.plan import Action, Create, Reason
from fleet.schema.findings import some_of
from fleet.schema.units import write_duration
from fleet.words.sentence import Sentence

FAILED = "failed by its provider: its livechecks or `new` failed"
DEAF = "its worker has not reported its tags, so it gets no work"
STOPPED = "its machine is stopped"
GONE = "its machine is gone"
NEVER_CAME = "its machine stopped before its worker registered; its token is revoked first"
REGISTRATION_LOST = "its worker's registration is gone from its queue; its token is revoked first"
CAME_TOO_LATE = "its token expired before its worker registered"
DRAINED = "drained and idle"
IDLE = "idle"
ON_DEMAND_IDLE = "idle, and no request asks for this on-demand pool"
UNNEEDED_BOOT = "no waiting request needs it"
REQUESTS_STOPPED = "a limit or budget now stops the waiting requests that fit it"
POOL_REMOVED = "its pool was removed from fleet.yaml"
POOL_DRAINING = "its pool has mode: drain"
POOL_PAUSED = "its pool has mode: pause"
OLDER_CONFIG = "created from an older configuration"
REPLACEMENT_BOOTS = "its replacement is booting"
REPLACEMENT_FIRST = "its replacement is created first"
NO_ROOM_YET = "no room yet for its replacement"
NO_SPARE_CREATED = "no spare machine is created while requests wait for this pool"
CREATION_INTERRUPTED = "an apply started to create it, and still runs or was interrupted"
DELETION_INTERRUPTED = "an apply started to delete it, and still runs or was interrupted"
DELETION_FAILED = "its deletion failed and is tried again"
DELETED_UNLISTED = "an earlier apply started to delete it, and its provider no longer lists it"
DELETION_STARTED = "an earlier run started to delete it"
REQUESTED = "requested by `fleet machine delete`"
NO_SWEEP_CREATION = "a sweep creates no machine"
HOLD_OVER = "its hold is over, and no rule deletes it"
STATIC = "static machine: fleet does not change it"
STATIC_POOL = "its machines are static: fleet does not change them"
MACHINE_GONE = "its machine is gone; its registration is kept as history"
STRANDED = "it has no valid token"
NEVER_USED = "has a token, but no machine: the token is revoked"
UNKNOWN_PRICE = "no price is known"
NO_MACHINE = "it has no machine"
LISTED_ONLY = "listed by its provider, but not in its stack"
RECORDED_ONLY = "in its stack, but not listed by its provider"
BOOTS = "its machine is booting"
UNREPORTED = "no queue reports whether it is busy"
NOT_CONNECTED = "its worker is not connected"
FAILED_UNSEEN = f"{FAILED}; {UNREPORTED}"
_REVOKED = "; its token is revoked first"


def join(*sentences: str) -> str:
    """Join the sentences that are not empty with semicolons."""
    return "; ".join(filter(None, sentences))


explain_requests = Sentence[str, int](
    "request {first}[ and {more} more wait][{more:unless} waits] and no free worker fits "
    "[{more:if}them][{more:unless}it]"
)


def describe_served(action: Action) -> str:
    """Name the requests that a new machine serves; empty if it serves no request."""
    serves = action.serves if isinstance(action, Create) else ()
    return f"for {some_of(serves, shown=2)}" if serves else ""


def reason_beside_served(action: Action) -> str:
    """Return the reason of an action; empty if the text of `describe_served` suffices."""
    return "" if action.reason is Reason.REQUESTS_WAIT else action.because


describe_figure = Sentence[str, int]("workers.{key} is {count}")
explain_worker = Sentence[str]("pool {pool} has a worker that fits")
explain_new_machine = Sentence[str]("pool {pool} creates a machine that fits")
explain_moved = Sentence[Sequence[str], Collection[str]](
    "this change moves {requests:some} to pool {pools:comma}"
)
explain_lacking = Sentence[int, str]("{lacking} {lacking:is|are} not created[: {stop}]")
explain_paid = Sentence[int, int, int](
    "paid for another {paid:duration}, including the time of its deletion; a later run can delete "
    "it in time (cadence is {cadence:duration}, deleting takes up to {deleting:duration})"
)
explain_idle = Sentence[int, str, str]("idle for {idle:duration}, {key} is {stated}")
explain_short_idle = Sentence[str, str]("idle for less than {key} ({stated})")
explain_excess = Sentence[int, int]("the pool has {machines:machine}, workers.max is {most}")
explain_disabled = Sentence[str | None](
    "its worker is disabled[; request {returned} goes back to the queue]"
)
explain_stopped = Sentence[str | None](STOPPED + "[; request {returned} goes back to the queue]")


explain_deaf = Sentence[int](DEAF + ", for more than {grace:duration}")
explain_disconnected = Sentence[int](
    "its worker is idle and not connected (last seen {away:duration} ago); other workers of its "
    "queue are connected"
)
explain_broken = Sentence[str]("{failure}, and its worker is not connected")
explain_silent_port = Sentence[int](
    "the port of its `ready` did not answer the last {misses} checks"
)
explain_lost_port = Sentence[int]("its port {port} no longer answers")
explain_late = Sentence[int | None, int, bool](
    "[its port {port} did not answer within ready.within]"
    "[{port:unless}its worker did not register within boot.deadline] ({within:duration})"
    "[{revoked:if}" + _REVOKED + "]"
)


def explain_failed_boot(failure: str) -> str:
    """State why a machine failed to boot."""
    return f"did not boot: {failure.removesuffix(_REVOKED)}"


describe_hold = Sentence[str]("held {said}")
explain_held_boot = Sentence[int, str]("held for {seconds:duration}: {failure}")
explain_unread_orders = Sentence[str]("orders of operators are unknown: {reason}")
explain_unread = Sentence[str, str]("{record} are unknown: {reason}")
explain_absent = Sentence[datetime, int, int, int, str, bool](
    RECORDED_ONLY + " since {since:time}: missing from {lists:complete list}; gone after {least} "
    "in {after:duration} (providers.{provider}.gone)"
    "[{works:if}; its livecheck succeeds, so it is kept]"
)
explain_gone = Sentence[str, str | None](RECORDED_ONLY + ": {reason}[; ticket {ticket} fails]")
explain_lists = Sentence[int, int, str](
    "missing from {lists:complete list} in {lasted:duration} (providers.{provider}.gone)"
)
explain_undeleted = Sentence[datetime]("deleting since {since:time}: its provider still lists it")
explain_unmade = Sentence[str, str](
    "[{failed}][{failed:unless}an earlier apply was interrupted before creating it]; no machine "
    "is listed; [{closed}][{closed:unless}no longer needed]"
)
explain_again = Sentence[str, bool](
    "[{failed}; ][{failed:if}{exists:if}its provider lists it now]"
    "[{failed:if}{exists:unless}tried again][{failed:unless}" + CREATION_INTERRUPTED + "]"
)
explain_replacement = Sentence[str, str]("replaces {old}: {reason}")
explain_no_room = Sentence[str]("{reason}; workers.max leaves no room to replace it first")
explain_turn = Sentence[int]("waits for its turn (replace.at_a_time is {share}%)")
explain_window = Sentence[datetime, str](
    "the next of replace.windows opens {opens:%Y-%m-%d %H:%M} {zone}"
)
explain_unknown_zones = Sentence[Sequence[str]](
    "no window of replace.windows opens: time zone {zones:comma} is unknown here"
)
explain_canary = Sentence[int]("a candidate of its image takes {share}% of the pool's workers")
explain_other_image = Sentence[str, Iterable[str]]("boots image {booted}, current is {images:or}")
explain_other_type = Sentence[str, Iterable[str]]("machine type is {kind}, current is {types:or}")
explain_age = Sentence[int, str]("machine is {age:duration} old, retire.max_age is {stated}")
explain_uses = Sentence[int, str]("finished {uses:request}, retire.max_uses is {stated}")
explain_returned = Sentence[bool](
    "its ticket ended and no other may use this machine: [{reusable:if}`reuse` is over]"
    "[{reusable:unless}its pool has no `reuse`]"
)
explain_reuse_over = Sentence[int, str, int](
    "no ticket of its sandbox came for {idle:duration}, reuse.{key} is {most:duration}"
)
explain_no_reuse = Sentence[str]("its ticket ended and `reuse` no longer allows another: {reason}")
explain_sandbox = Sentence[str, int](
    "kept for the next ticket of its sandbox, reuse.{key} is {most:duration}"
)
explain_busy_orphan = Sentence[str | None]("in no stack: deleted when ticket {ticket} ends")


def explain_orphan(held: str | None, delay: timedelta, drained: timedelta | None) -> str:
    """Explain that a machine is listed but in no stack, and when the machine is deleted.

    `held`: the ticket of a stopped machine. `drained`: the time since fleet drained it, or None.
    """
    whose = "no ticket uses it"
    if held is not None:
        whose = f"held by ticket {held}, but the machine is stopped"
    listed = f"listed by its provider, but in no stack, and {whose}"
    if drained is None:
        return f"{listed}; deleted if a listing in {write_duration(delay)} confirms it"
    ago = f"{listed}; drained {write_duration(drained)} ago"
    return f"{ago}, deleted after {write_duration(delay)}" if drained < delay else ago


def explain_release(trouble: str, running: str | None, *, ticket: bool = False) -> str:
    """State what the release of a worker ends: its ticket, its request or only its token."""
    if ticket:
        return f"{GONE}: ticket {running} fails"
    if running is not None:
        return f"{trouble}: request {running} goes back to the queue"
    return f"{trouble}: its token is disabled"


explain_unseen = Sentence[str]("its stack knows it; {blind}")
explain_busy = Sentence[str | None, bool, str | None, bool](
    "[runs request {running}][{running:unless}is busy][{away:if}, but is not connected]"
    "[{held:unless}{going:if}; gets no new work and is deleted afterwards][; held {held}]"
)
explain_reserved = Sentence[str]("reserved for request {request}")
explain_partly_read = Sentence[str]("queue {queue} only partly read: scale-down paused")
explain_requested_creation = Sentence[str]("created {when}, " + REQUESTED)
explain_expired = Sentence[timedelta]("expired {age:duration} ago (not renewed by `fleet apply`)")
explain_stay = Sentence[str, str]("{reason}; kept: {stop}")
