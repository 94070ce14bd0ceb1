"""How long what waits in a plan is expected to wait from now on."""

from pydantic import Field

from fleet.explain.forecast import forecast
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.model.values import Value
from fleet.schema.model import Fleet


class Waits(Value):
    """Of requests that wait, how many seconds the half and nearly all of them wait at most.

    An unknown wait counts as longer than every known one.
    """

    half: int | None = Field(None, description="Seconds of p50; None: not known.")
    most: int | None = Field(None, description="Seconds of p95; None: not known.")
    known: int = Field(0, description="Requests whose start is known.")
    of: int = Field(0, description="Requests that wait.")


def find_waits(fleet: Fleet, world: World, plan: Plan) -> Waits:
    """Return the expected waits of a plan."""
    found = forecast(fleet, world, plan)
    starts = sorted(found.starts.values())
    total = len(starts) + len(found.not_known)
    half, most = (_at(starts, total, share) for share in (50, 95))
    return Waits(half=half, most=most, known=len(starts), of=total)


def _at(starts: list[int], total: int, percent: int) -> int | None:
    """Return the smallest wait that so many percent of all requests do not exceed."""
    place = -(-total * percent // 100) - 1
    return starts[place] if 0 <= place < len(starts) else None
