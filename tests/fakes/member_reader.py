"""A written fake of the port `MemberReader`."""

from collections.abc import Mapping

from fleet.model.facts import Unknown


class FakeMemberReader:
    """Groups that a test makes up; `broken` says why they cannot be read."""

    def __init__(self, groups: Mapping[str, tuple[str, ...]], broken: str = "") -> None:
        self.groups = dict(groups)
        self.broken = broken

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Return the users of each group; Unknown where that cannot be read."""
        return Unknown(unknown=self.broken) if self.broken else self.groups
