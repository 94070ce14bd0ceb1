"""What asks sources one after the other, with all the time that they take."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from fleet.errors import FleetError
from fleet.model.facts import Unknown

T = TypeVar("T")


class FakeSourceReader:
    """Asks one source after the other."""

    def __call__(
        self,
        kind: str,  # noqa: ARG002 - the port's own argument
        asked: Mapping[str, Callable[[], T]],
    ) -> dict[str, T | Unknown]:
        """Return what each tells."""
        told: dict[str, T | Unknown] = {}
        for name in sorted(asked):
            try:
                told[name] = asked[name]()
            except FleetError as error:
                told[name] = Unknown(unknown=str(error))
        return told
