"""This module refuses to change anything by a clock that is probably wrong.

By one that is ahead every machine is idle for long, has expired, and has cost that time.
"""

from datetime import datetime, timedelta

from fleet.errors import PlanRefused
from fleet.ports.store import Store
from fleet.schema.units import write_duration

_MOST_SKEW = timedelta(minutes=10)
_MOST_LEAP = timedelta(days=31)
"""A fleet that nobody applied for longer is rarer than a clock that is wrong."""


def check_skew(store: Store, now: datetime, fix: str = "") -> None:
    """Raise PlanRefused where the clock of the store's server differs by much."""
    theirs = store.server_time()
    if theirs is not None and abs(now - theirs) > _MOST_SKEW:
        skew = write_duration(int(abs(now - theirs).total_seconds()))
        ahead = "ahead of" if now > theirs else "behind"
        raise PlanRefused(
            f"refused, nothing was changed: this computer's clock says {_write(now)}, {skew} "
            f"{ahead} that of the server that holds state.store; set the one that is wrong "
            f"(`timedatectl set-ntp true`){fix}"
        )


def check_clock(store: Store, now: datetime) -> None:
    """Raise PlanRefused there, and where the last run was so long ago that the clock may leap."""
    fix = "; where this one is right, say so once: `fleet apply --trust-clock`"
    check_skew(store, now, fix)
    last = max((datetime.fromisoformat(run["started"]) for run in store.last_runs(1)), default=now)
    if now - last > _MOST_LEAP:
        leap = write_duration(int((now - last).total_seconds()))
        raise PlanRefused(
            f"refused, nothing was changed: this computer's clock says {_write(now)}, {leap} "
            f"after the last run of this fleet ({_write(last)}); compare `date -u`{fix}"
        )


def _write(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
