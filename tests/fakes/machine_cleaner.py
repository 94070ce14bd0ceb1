"""A written fake of the port `MachineCleaner`."""

from collections.abc import Collection, Mapping, Sequence

from fleet.model.facts import Machine
from fleet.ports import Cleaned


class FakeMachineCleaner:
    """Cleans every machine but those of which it says what the trouble is, and those it cannot."""

    def __init__(self) -> None:
        self.cleaned: list[str] = []
        self.troubles: dict[str, str] = {}
        self.untried: set[str] = set()
        self.doubts: set[str] = set()
        self.told: dict[str, str] = {}
        self.works: dict[str, bool] = {}
        self.forgotten: list[str] = []

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed."""
        return frozenset(self.doubts)

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine, and remember which."""
        name = machine.name
        if name in self.untried:
            return Cleaned("release cannot be started", begun=False)
        self.cleaned.append(name)
        return Cleaned(self.troubles.get(name, ""))

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else is known of a machine."""
        return self.told if machine.name not in self.untried else {}

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Return whether machines work, as far as it was told."""
        return {each.id: self.works[each.id] for each in machines if each.id in self.works}

    def forget(self, name: str) -> None:
        """Forget a machine."""
        self.forgotten.append(name)
