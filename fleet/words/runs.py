"""Sentences about runs: actions with reasons, unchanged machines, and failures."""

from fleet.words.sentence import Sentence

OTHER_DIGEST = (
    "it was not created from this fleet.yaml (the digests differ): rebuild with the fleet.yaml "
    "of its label `commit`, or delete it by hand"
)

LOST_WITH_STORE = "a new store lacks the earlier freezes, holds, approvals, tickets and costs"


explain_lost_store = Sentence[str](
    "restore the backup of the lost store (docs/how-to/restore-lost-state.md), because {reason}; "
    + LOST_WITH_STORE
)

describe_killed = Sentence[str, str](
    "a run of {owner}, started {since}, was killed; `fleet apply` finishes its work"
)
add_reason = Sentence[str, str]("{what}: {reason}")


def add_code(reason: str, code: str) -> str:
    """Append a code in brackets to a reason; unchanged if the code is empty."""
    return f"{reason} [{code}]" if code else reason


describe_release = Sentence[str, str, str]("{pool}: release {worker}: {reason}")
describe_return = Sentence[str, str, str]("{pool}: give back {worker}: {reason}")
describe_retry = Sentence[str]("run failed, the next one retries: {trouble}")
explain_missing_pool = Sentence[str](
    "pool {pool} is not in fleet.yaml: restore it, for example with `mode: drain`"
)
describe_left = Sentence[str, str, str]("{machine} (pool {pool}) not rebuilt: {reason}")
describe_clock = Sentence[str, str]("`fleet apply` refuses this clock: {fault}{trust}")
describe_heartbeat = Sentence[str, bool, str](
    "fleet {fleet} is [{alive:if}alive][{alive:unless}DEAD]: {reason}"
)
describe_location = Sentence[str]("its own list is that of {location}")
explain_place = Sentence[str, str]("{reason}[; see {place}]")


def explain_guard(reason: str, limit: str, way_out: str) -> str:
    """State why a guard refuses, the position of its limit, and how to proceed."""
    parts = [reason, limit and f"limit: {limit}", way_out and f"to proceed: {way_out}"]
    return "; ".join(filter(None, parts))
