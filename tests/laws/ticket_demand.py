"""Watch machines on demand: how many runs each saw after its time was over."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.model.tickets import expire
from tests.laws.machine import Made
from tests.laws.ticket_farm import TicketFarm

TAG = "extra_powerful"


@dataclass
class _Unwanted:
    made: Made
    since: datetime
    runs: int = 0


class Demand:
    """What becomes of the machines of a pool once nobody asks for them."""

    def __init__(self, farm: TicketFarm, pool: str, idle: timedelta) -> None:
        self._farm = farm
        self._pool = pool
        self._idle = idle
        self._unwanted: dict[int, _Unwanted] = {}

    def look(self) -> None:
        """Note which machines nobody asks for by now."""
        here = {id(made): made for made in self._farm.made.values() if made.pool == self._pool}
        idle = {key: made for key, made in here.items() if not self._is_wanted(made)}
        self._unwanted = {
            key: self._unwanted.get(key) or _Unwanted(made, self._farm.now)
            for key, made in idle.items()
        }

    def overdue(self) -> list[_Unwanted]:
        """Return the machines whose stated idle time is over."""
        self.look()
        return [each for each in self._unwanted.values() if self._is_over(each)]

    def outlive(self, overdue: list[_Unwanted]) -> int:
        """Count a run that began with these, and return the most that one has outlived."""
        self.look()
        for each in overdue:
            each.runs += 1
        return max((each.runs for each in self._unwanted.values()), default=0)

    def _is_wanted(self, made: Made) -> bool:
        asked = [t for t in self._farm.desk.tickets() if expire(t, self._farm.now).is_open]
        if any(ticket.machine == made.name for ticket in asked):
            return True
        return not self._is_used(made) and any(
            TAG in ticket.tags and not ticket.machine for ticket in asked
        )

    def _is_used(self, made: Made) -> bool:
        known = self._farm.desk.known.get(made.name)
        return bool(known and known.uses and known.since >= made.created_at)

    def _is_over(self, each: _Unwanted) -> bool:
        if not self._is_used(each.made):
            return True
        released = self._farm.desk.known[each.made.name].since
        return self._farm.now - max(each.since, released) >= self._idle
