"""This module compares when `fleet apply` ran with how often fleet.yaml says it does.

A run counts when it came to its end: one that hangs, or always dies, looks after nothing.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from fleet.facts import Unknown, World
from fleet.facts.values import Value
from fleet.plan import Warning_
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration

RULE = "cadence-and-runs"
REMEMBERED = 5
"""How many of the latest runs are looked at."""
_LATE = 2
_DEAD = 3
"""So many times `cadence`: the runs are too far apart; nobody runs it any more."""


class Heartbeat(Value):
    """Whether somebody still runs `fleet apply`, and the sentence that says so."""

    alive: bool
    because: str


def judge_heartbeat(fleet: Fleet, runs: Sequence[datetime], now: datetime) -> Heartbeat:
    """Return whether runs still come: the last one at most three times `cadence` ago."""
    cadence = f"cadence is {write_duration(fleet.cadence)}"
    if not runs:
        return Heartbeat(alive=False, because=f"no run of fleet apply has ended yet; {cadence}")
    age = int((now - max(runs)).total_seconds())
    alive = age <= _DEAD * fleet.cadence
    said = f"the last run that ended began {write_duration(max(age, 0))} ago"
    more = "" if alive else "; nobody looks after this fleet"
    return Heartbeat(alive=alive, because=f"{said}; {cadence}{more}")


def warn_of_cadence(fleet: Fleet, world: World) -> Iterator[Warning_]:
    """Yield where runs come much further apart than `cadence`, by the middle of the latest."""
    if isinstance(world.runs, Unknown) or not world.runs:
        return
    latest = sorted(world.runs)[-REMEMBERED:]
    # The time since the last one is no shorter than the next distance will be.
    apart = [int((b - a).total_seconds()) for a, b in pairwise(latest)]
    since = int((world.time - latest[-1]).total_seconds())
    seen = int(median([*apart, since])) if apart else since
    if seen > _LATE * fleet.cadence:
        runs = f"the last {len(latest)} runs were" if apart else "the last run was"
        yield Warning_(
            rule=RULE,
            message=f"cadence is {write_duration(fleet.cadence)}, but {runs} "
            f"{write_duration(seen)} {'apart' if apart else 'ago'}: idle times, paid hours and "
            "estimates are planned for the first; run `fleet apply` more often, or write what is "
            "true",
        )
