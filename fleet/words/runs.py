"""Sentences of one run and of its records: actions with their reasons, machines left unchanged."""

OTHER_DIGEST = (
    "it was not created from this fleet.yaml (the digests differ): rebuild with the fleet.yaml "
    "of its label `commit`, or delete it by hand"
)


def add_reason(what: str, reason: str) -> str:
    """Return an action, a state or an object with its reason."""
    return f"{what}: {reason}"


def add_code(reason: str, code: str) -> str:
    """Return a reason with its code."""
    return f"{reason} [{code}]" if code else reason


def describe_release(pool: str, worker: str, reason: str) -> str:
    """State the release of a worker, and why."""
    return f"{pool}: release {worker}: {reason}"


def describe_return(pool: str, worker: str, reason: str) -> str:
    """State the worker that gets work again, and why."""
    return f"{pool}: give back {worker}: {reason}"


def describe_retry(trouble: str) -> str:
    """Explain why a run failed."""
    return f"run failed, the next one retries: {trouble}"


def explain_missing_pool(pool: str) -> str:
    """State the pool whose machines are left unchanged."""
    return f"pool {pool} is not in fleet.yaml: restore it, for example with `mode: drain`"


def describe_left(machine: str, pool: str, reason: str) -> str:
    """State a machine that no stack gets, and why."""
    return f"{machine} (pool {pool}) not rebuilt: {reason}"


def describe_clock(fault: str, trust: str) -> str:
    """Explain why an apply refuses the clock of this computer, with the way to trust it."""
    return f"`fleet apply` refuses this clock: {fault}{trust}"


def describe_heartbeat(fleet: str, reason: str, *, alive: bool) -> str:
    """State whether runs go on, and why."""
    return f"fleet {fleet} is {'alive' if alive else 'DEAD'}: {reason}"


def describe_location(location: str) -> str:
    """State the other location of a price list."""
    return f"its own list is that of {location}"


def explain_place(reason: str, place: str) -> str:
    """State a reason with the place in fleet.yaml that decides; place empty: without one."""
    return f"{reason}; see {place}" if place else reason


def explain_guard(reason: str, limit: str, way_out: str) -> str:
    """Explain why a guard refuses, with its limit in fleet.yaml and the way out, if any."""
    parts = [reason, limit and f"limit: {limit}", way_out and f"to proceed: {way_out}"]
    return "; ".join(filter(None, parts))
