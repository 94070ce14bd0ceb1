"""Refuse to change anything by a clock that is probably wrong.

By one that is ahead every machine is idle for long, has expired, and has cost that time.
"""

from datetime import datetime, timedelta

from fleet.errors import PlanRefused
from fleet.model.facts import Listing, QueueReading, World
from fleet.ports import Store
from fleet.schema.units import write_duration

_MOST_SKEW = timedelta(minutes=10)
_MOST_LEAP = timedelta(days=31)
"""A fleet that nobody applied for longer is rarer than a clock that is wrong."""


TRUST = "; if this clock is right, run `fleet apply --trust-clock` once"


def check_skew(store: Store, now: datetime, fix: str = "") -> None:
    """Raise PlanRefused where the clock of the store's server differs by much."""
    theirs = store.server_time()
    if theirs is not None and abs(now - theirs) > _MOST_SKEW:
        skew = write_duration(int(abs(now - theirs).total_seconds()))
        ahead = "ahead of" if now > theirs else "behind"
        raise PlanRefused(
            f"refused, nothing was changed: this computer's clock says {_write(now)}, {skew} "
            f"{ahead} the server of state.store; correct the wrong one (`timedatectl set-ntp "
            f"true`){fix}"
        )


def check_servers(world: World, fix: str = "") -> None:
    """Raise PlanRefused where no server that was asked has about the time of this computer."""
    told = {
        f"{kind} {name}": each.clock_ahead
        for kind, readings in (("queue", world.queues), ("provider", world.providers))
        for name, each in readings.items()
        if isinstance(each, QueueReading | Listing) and each.clock_ahead is not None
    }
    if told and min(map(abs, told.values())) > _MOST_SKEW / timedelta(minutes=1):
        name, minutes = min(told.items(), key=lambda each: abs(each[1]))
        skew = write_duration(abs(minutes) * 60)
        raise PlanRefused(
            f"refused, nothing was changed: this computer's clock says {_write(world.time)}, "
            f"{skew} {'behind' if minutes > 0 else 'ahead of'} the server of {name}, and no "
            "other server agrees with it; correct the wrong one (`timedatectl set-ntp "
            f"true`){fix}"
        )


def check_clock(store: Store, now: datetime) -> None:
    """Raise PlanRefused there, and where the last run was so long ago that the clock may leap."""
    check_skew(store, now, TRUST)
    last = max((datetime.fromisoformat(run["started"]) for run in store.last_runs(1)), default=now)
    if now - last > _MOST_LEAP:
        leap = write_duration(int((now - last).total_seconds()))
        raise PlanRefused(
            f"refused, nothing was changed: this computer's clock says {_write(now)}, {leap} "
            f"after the last run of this fleet ({_write(last)}); compare `date -u`{TRUST}"
        )


def _write(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
