"""This module plans what `fleet export debusine --apply` changes in a task configuration.

Fleet's entries have a path of their own, so that no other is ever mistaken for one of them.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.canonical import canonical_json
from fleet.exports.debusine import Entry, listed
from fleet.schema.model import Fleet, RefuseDelete
from fleet.schema.units import write_count

_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("subject", "context", "template")),
    **{key: [] for key in ("tags_provided", "tags_required", "provide_tags", "require_tags")},
    **{key: [] for key in ("use_templates", "delete_values", "lock_values")},
    "default_values": {},
    "override_values": {},
    "comment": "",
}


_ORDER = (
    *("task_type", "task_name", "subject", "context", "template"),
    *("tags_provided", "tags_required", "provide_tags", "require_tags"),
    *("use_templates", "delete_values", "default_values", "override_values", "lock_values"),
    "comment",
)


@dataclass(frozen=True)
class Delivery:
    """What would change at one place; `held` are all entries there, as they are stored."""

    place: str
    path: str
    held: Sequence[Entry]
    entries: Sequence[Entry]

    @property
    def before(self) -> list[Entry]:
        """Return what fleet wrote there, in its order."""
        own = [entry for entry in self.held if entry.get("path") == self.path]
        return [_plain(entry) for entry in sorted(own, key=lambda each: each.get("position") or 0)]

    @property
    def others(self) -> list[Entry]:
        """Return what fleet did not write, as it is stored."""
        return [entry for entry in self.held if entry.get("path") != self.path]

    @property
    def added(self) -> int:
        """Return how many entries are new."""
        return (_effects(self.entries) - _effects(self.before)).total()

    @property
    def deleted(self) -> int:
        """Return how many entries of fleet are there for no rule any more."""
        return (_effects(self.before) - _effects(self.entries)).total()

    @property
    def said(self) -> str:
        """Return what is added and deleted, and what only gets another comment."""
        written, there = (Counter(map(canonical_json, e)) for e in (self.entries, self.before))
        comments = (written - there).total() - self.added
        more = f", {write_count(comments, 'comment')} changed" if comments else ""
        return f"{self.added} added, {self.deleted} deleted{more}"

    @property
    def kept(self) -> int:
        """Return how many entries of fleet stay as they are stored, position included."""
        return sum(entry in self.held for entry in self.to_post()[len(self.others) :])

    @property
    def is_empty(self) -> bool:
        """Say whether nothing would change."""
        return self.before == list(self.entries)

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff of the file that fleet's entries are."""
        before, after = (listed(each).splitlines() for each in (self.before, self.entries))
        name = f"{self.place}/{self.path}"
        return difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")

    def to_post(self) -> list[Entry]:
        """Return all entries as they are to be: those of others just as they are stored."""
        mine = [
            {**_DEFAULTS, **entry, "path": self.path, "position": position}
            for position, entry in enumerate(self.entries)
        ]
        return [*self.others, *mine]

    def refusal(self, limit: RefuseDelete, let_pass: int) -> str:
        """Return why so many deletions are refused; empty where they are not."""
        known = len(self.before)
        most = max(1, min(limit.count, known * limit.share // 100))
        if self.deleted <= max(most, let_pass):
            return ""
        return (
            f"{self.place}: {self.deleted} of the {known} entries that fleet wrote would be "
            f"deleted, and guards.refuse.delete allows {most}; if that is meant: "
            f"`--delete-up-to {self.deleted}`"
        )


def path_of(fleet: Fleet) -> str:
    """Return the path of a fleet's entries, as a checkout of the task configuration has it."""
    return f"fleet/{fleet.fleet}.yaml"


def _effects(entries: Iterable[Entry]) -> Counter[str]:
    """Return what entries do: a comment names a rule by its place, which others shift."""
    return Counter(
        canonical_json({key: value for key, value in entry.items() if key != "comment"})
        for entry in entries
    )


def _plain(entry: Entry) -> Entry:
    """Return an entry without what is left out of an export."""
    return {
        key: entry[key]
        for key in _ORDER
        if key in entry and entry[key] != _DEFAULTS.get(key, object())
    }
