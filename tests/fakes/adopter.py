"""A written adopter: machines that are there, found by label and marked."""

from collections.abc import Sequence

from fleet.errors import SourceUnreachable
from fleet.model.facts import FoundMachine, WorkerInputs


class FakeAdopter:
    """Finds what it was given; `silent` makes it fail."""

    def __init__(self, *found: FoundMachine) -> None:
        self.found = list(found)
        self.silent = False

    def find(self, key: str, value: str) -> Sequence[FoundMachine]:
        """Return what carries a label."""
        self._answer()
        return [each for each in self.found if each.labels.get(key) == value]

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Give a machine more labels."""
        self._answer()
        for index, each in enumerate(self.found):
            if each.machine.id == machine_id:
                labels = each.labels | inputs.labels
                self.found[index] = each.altered(labels=labels)
                return
        raise SourceUnreachable(f"there is no machine {machine_id}")

    def _answer(self) -> None:
        if self.silent:
            raise SourceUnreachable("the provider does not answer")
