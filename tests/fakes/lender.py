"""This module is a written fake of the port `Lender`."""

from collections.abc import Collection, Mapping, Sequence

from fleet.facts import Machine
from fleet.ports.tickets import Cleaned


class FakeLender:
    """Cleans every machine but those of which it says what the trouble is, and those it cannot."""

    def __init__(self) -> None:
        self.cleaned: list[str] = []
        self.troubles: dict[str, str] = {}
        self.untried: set[str] = set()
        self.doubts: set[str] = set()
        self.told: dict[str, str] = {}

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed."""
        return frozenset(self.doubts)

    def clean(self, machines: Sequence[Machine]) -> Mapping[str, Cleaned]:
        """Clean machines, and remember which."""
        names = [machine.name for machine in machines]
        self.cleaned += [name for name in names if name not in self.untried]
        return {name: self._clean(name) for name in names}

    def _clean(self, name: str) -> Cleaned:
        if name in self.untried:
            return Cleaned("release cannot be started", begun=False)
        return Cleaned(self.troubles.get(name, ""))

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else is known of a machine."""
        return self.told if machine.name not in self.untried else {}
