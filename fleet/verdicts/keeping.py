"""This module says why a worker stays to which nothing is done."""

from fleet.census.readiness import why_late
from fleet.census.units import (
    DEAF_SAID,
    FAILED_SAID,
    STOPPED_SAID,
    State,
    Unit,
)
from fleet.draft import Draft, is_going
from fleet.plan import Reason
from fleet.schema.model import Pool
from fleet.schema.units import write_duration

_PLAIN: dict[State, tuple[Reason, str]] = {
    State.STARTING: (Reason.STARTING, "its machine boots"),
    State.ASSUMED: (Reason.NO_REGISTRY, "no registry says whether it is busy"),
    State.DEAF: (Reason.DEAF, DEAF_SAID),
    State.STOPPED: (Reason.STOPPED, STOPPED_SAID),
    State.FAILED: (
        Reason.LIVECHECK_FAILED,
        f"{FAILED_SAID}; no registry says whether it is busy",
    ),
    State.DISCONNECTED: (Reason.DISCONNECTED, "its worker is not connected"),
    State.UNRECORDED: (Reason.NOT_KNOWN, "the provider lists it, its stack does not know it"),
    State.MISSING: (Reason.NOT_KNOWN, "its stack knows it, the provider does not list it"),
}


def why_kept(draft: Draft, unit: Unit, staying: int) -> tuple[Reason, str]:
    """Return why a worker stays; `staying` is how many of its pool do."""
    if unit.state is State.BUSY:
        running = unit.worker.running if unit.worker else None
        last = ", and gets nothing new: it goes when that has ended" if is_going(unit) else ""
        away = ", but is not connected" if unit.worker and unit.worker.away else ""
        work = f"request {running}" if running else "something"
        return Reason.BUSY, f"it runs {work}{away}{last}"
    if unit.name in draft.used:
        return Reason.SERVES_WAITING, f"it is counted for request {draft.used[unit.name]}"
    if unit.state is State.NEVER_REGISTERED and unit.name not in draft.kept:
        return Reason.NEVER_REGISTERED, why_late(draft.pool)
    return draft.kept.get(unit.name) or _PLAIN.get(unit.state) or _why_idle(draft, staying)


def _why_idle(draft: Draft, staying: int) -> tuple[Reason, str]:
    if draft.census.frozen:
        return Reason.NOT_KNOWN, draft.census.frozen[0]
    if draft.census.sampled:
        return Reason.NOT_KNOWN, (
            f"queue {draft.census.sampled[0]} was only sampled: more waits there than is known"
        )
    if draft.pool is not None and draft.pool.mode == "pause":
        return Reason.POOL_PAUSED, "its pool has mode: pause"
    if draft.pool is None or draft.on_demand:
        return Reason.IDLE_RECENTLY, "it is idle"
    return _why_warm(draft.pool, staying)


def _why_warm(pool: Pool, staying: int) -> tuple[Reason, str]:
    workers = pool.workers
    if staying <= workers.min:
        return Reason.KEPT_FOR_MIN, f"workers.min is {workers.min}"
    if workers.spare:
        return Reason.KEPT_SPARE, f"workers.spare is {workers.spare}"
    patience = write_duration(pool.retire.idle_after)
    return Reason.IDLE_RECENTLY, f"idle for less than retire.idle_after ({patience})"
