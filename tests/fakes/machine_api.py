"""A written machine_api: machines by id, with their expiry."""

from collections.abc import Collection
from datetime import datetime

from fleet.errors import SourceUnreachable


class FakeMachineApi:
    """Keeps expiries; `silent` makes it fail."""

    def __init__(self, *machines: str) -> None:
        self.expiries: dict[str, datetime | None] = dict.fromkeys(machines)
        self.silent = False

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Note an expiry."""
        self._answer()
        self.expiries |= {name: until for name in machines if name in self.expiries}

    def delete(self, machine_id: str) -> None:
        """Delete a machine."""
        self._answer()
        self.expiries.pop(machine_id, None)

    def _answer(self) -> None:
        if self.silent:
            raise SourceUnreachable("the provider does not answer")
