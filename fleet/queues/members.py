"""Read the members of user groups, for limits on groups."""

from collections.abc import Mapping

from fleet.errors import FileUnreadable
from fleet.model.facts import Unknown
from fleet.schema.nodes import parse
from fleet.schema.source import Files

_LIMIT_BYTES = 10 * 1000 * 1000


class FileMembers:
    """A YAML or JSON file that maps each group to a list of users."""

    def __init__(self, name: str, files: Files) -> None:
        self._name = name
        self._files = files

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Map each group to its users; Unknown with a reason if the file is unreadable."""
        try:
            text = self._files.read(self._name, _LIMIT_BYTES).decode("utf-8-sig")
        except FileUnreadable as error:
            return Unknown.of(error)
        except UnicodeDecodeError as error:
            return Unknown(unknown=f"{self._name}: not UTF-8 text: {error.reason}")
        parsed = parse(text, self._name)
        if parsed.findings:
            first = parsed.findings[0]
            return Unknown(unknown=f"{first.span}: {first.message}")
        value = parsed.root.plain() if parsed.root else None
        if not isinstance(value, dict):
            return Unknown(unknown=f"{self._name}: expected a mapping of groups to lists of users")
        for group, users in value.items():
            if not isinstance(group, str) or not _is_list_of_names(users):
                wrong = f"{self._name}: group {group!r} needs a list of user names"
                return Unknown(unknown=wrong)
        return {group: tuple(users) for group, users in value.items()}


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)
