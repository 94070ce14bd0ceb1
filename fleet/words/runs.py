"""Sentences about runs: actions with reasons, unchanged machines, and failures."""

OTHER_DIGEST = (
    "it was not created from this fleet.yaml (the digests differ): rebuild with the fleet.yaml "
    "of its label `commit`, or delete it by hand"
)

LOST_WITH_STORE = "a new store lacks the earlier freezes, holds, approvals, tickets and costs"


def explain_lost_store(listed: str) -> str:
    """Explain why a fleet with machines needs the backup of its store, and name its page."""
    return (
        f"restore the backup of the lost store (docs/how-to/restore-lost-state.md), because "
        f"{listed}; {LOST_WITH_STORE}"
    )


def describe_killed(owner: str, since: str) -> str:
    """State that a run was killed, and the command that finishes its work."""
    return f"a run of {owner}, started {since}, was killed; `fleet apply` finishes its work"


def add_reason(what: str, reason: str) -> str:
    """Return an action, state or object with its reason, separated by a colon."""
    return f"{what}: {reason}"


def add_code(reason: str, code: str) -> str:
    """Append a code in brackets to a reason; unchanged if the code is empty."""
    return f"{reason} [{code}]" if code else reason


def describe_release(pool: str, worker: str, reason: str) -> str:
    """State that a worker is released (disabled, and its request queued again), and why."""
    return f"{pool}: release {worker}: {reason}"


def describe_return(pool: str, worker: str, reason: str) -> str:
    """State that a worker may get work again, and why."""
    return f"{pool}: give back {worker}: {reason}"


def describe_retry(trouble: str) -> str:
    """State why a run failed, and that the next run tries again."""
    return f"run failed, the next one retries: {trouble}"


def explain_missing_pool(pool: str) -> str:
    """State that a pool with machines is missing in fleet.yaml, and how to restore the pool."""
    return f"pool {pool} is not in fleet.yaml: restore it, for example with `mode: drain`"


def describe_left(machine: str, pool: str, reason: str) -> str:
    """State why a rebuild does not add a machine to any stack."""
    return f"{machine} (pool {pool}) not rebuilt: {reason}"


def describe_clock(fault: str, trust: str) -> str:
    """State why `fleet apply` does not trust this computer's clock, and how to override this."""
    return f"`fleet apply` refuses this clock: {fault}{trust}"


def describe_heartbeat(fleet: str, reason: str, *, alive: bool) -> str:
    """State that runs of a fleet continue (`alive`) or have stopped, and why."""
    return f"fleet {fleet} is {'alive' if alive else 'DEAD'}: {reason}"


def describe_location(location: str) -> str:
    """State that a provider's own price list is for another location."""
    return f"its own list is that of {location}"


def explain_place(reason: str, place: str) -> str:
    """Append the position of a key in fleet.yaml to a reason; unchanged if empty."""
    return f"{reason}; see {place}" if place else reason


def explain_guard(reason: str, limit: str, way_out: str) -> str:
    """State why a guard refuses, the position of its limit, and how to proceed."""
    parts = [reason, limit and f"limit: {limit}", way_out and f"to proceed: {way_out}"]
    return "; ".join(filter(None, parts))
