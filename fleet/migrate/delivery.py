"""`fleet export debusine --apply`: plan and write the changes of a task configuration.

Entries of fleet have a separate path, by which fleet recognizes them.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.errors import PlanRefused, SourceUnreachable
from fleet.model.values import canonical_json
from fleet.queues.debusine.task_rules import Counts, TaskRules
from fleet.schema.model import RefuseDelete
from fleet.schema.units import write_count
from fleet.tagrules.export import Entry, listed

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
    """The pending change in a workspace; `held` has all entries of the workspace."""

    place: str
    path: str
    held: Sequence[Entry]
    entries: Sequence[Entry]

    @property
    def before(self) -> list[Entry]:
        """Return fleet's entries from before the change, sorted by position."""
        own = [entry for entry in self.held if entry.get("path") == self.path]
        return [_plain(entry) for entry in sorted(own, key=lambda each: each.get("position") or 0)]

    @property
    def others(self) -> list[Entry]:
        """Return the stored entries of other authors, unchanged."""
        return [entry for entry in self.held if entry.get("path") != self.path]

    @property
    def added(self) -> int:
        """Return the number of entries to add."""
        return (_effects(self.entries) - _effects(self.before)).total()

    @property
    def deleted(self) -> int:
        """Return the number of stored entries of fleet that no rule needs now."""
        return (_effects(self.before) - _effects(self.entries)).total()

    @property
    def summary(self) -> str:
        """Return the number of entries to add, to delete, and to give another comment."""
        written, there = (Counter(map(canonical_json, e)) for e in (self.entries, self.before))
        comments = (written - there).total() - self.added
        more = f", {write_count(comments, 'comment')} changed" if comments else ""
        return f"{self.added} added, {self.deleted} deleted{more}"

    @property
    def kept(self) -> int:
        """Return the number of fleet's entries whose content and position do not change."""
        return sum(entry in self.held for entry in self.to_post()[len(self.others) :])

    @property
    def is_empty(self) -> bool:
        """Return whether no entry would change."""
        return self.before == list(self.entries)

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff of fleet's entries, before and after the change."""
        before, after = (listed(each).splitlines() for each in (self.before, self.entries))
        name = f"{self.place}/{self.path}"
        return difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")

    def to_post(self) -> list[Entry]:
        """Return all entries after the change; entries of other authors are unchanged."""
        mine = [
            {**_DEFAULTS, **entry, "path": self.path, "position": position}
            for position, entry in enumerate(self.entries)
        ]
        return [*self.others, *mine]

    def refusal(self, limit: RefuseDelete, let_pass: int) -> str:
        """Return why the guard refuses this number of deletions; empty if it allows them."""
        known = len(self.before)
        most = max(1, min(limit.count, known * limit.share // 100))
        if self.deleted <= max(most, let_pass):
            return ""
        return (
            f"{self.place}: would delete {self.deleted} of the {known} entries that fleet wrote; "
            f"guards.refuse.delete allows {most}; to allow it: `--delete-up-to {self.deleted}`"
        )


def _effects(entries: Iterable[Entry]) -> Counter[str]:
    """Count equal entries, ignoring their comments, which contain line numbers."""
    return Counter(
        canonical_json({key: value for key, value in entry.items() if key != "comment"})
        for entry in entries
    )


def _plain(entry: Entry) -> Entry:
    """Return an entry without its default values, as an export writes it."""
    return {
        key: entry[key]
        for key in _ORDER
        if key in entry and entry[key] != _DEFAULTS.get(key, object())
    }


@dataclass(frozen=True)
class Delivered:
    """The result of several deliveries: one line for each completed delivery, and the failure."""

    done: tuple[str, ...]
    failed: str = ""

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 if done, 1 if failed before any change, 5 if partly done."""
        return (5 if self.done else 1) if self.failed else 0


def deliver(deliveries: Sequence[tuple[TaskRules, Delivery]]) -> Delivered:
    """Write all changes; raises PlanRefused before the first write if a dry run differs."""
    due = [(book, delivery) for book, delivery in deliveries if not delivery.is_empty]
    for book, delivery in due:
        _dry_run(book, delivery)
    done: list[str] = []
    for book, delivery in due:
        try:
            # Check again: posting would replace entries that were pushed in the meantime.
            _dry_run(book, delivery)
            counted = book.post(delivery.place, delivery.to_post(), dry_run=False)
            done.append(f"{delivery.place}: {delivery.summary}")
            _check_done(delivery, counted)
            _read_back(book, delivery)
        except (SourceUnreachable, PlanRefused) as error:
            if isinstance(error, PlanRefused) and not done:
                raise
            return Delivered(tuple(done), str(error))
    return Delivered(tuple(done))


def _dry_run(book: TaskRules, delivery: Delivery) -> None:
    """Raise PlanRefused if a dry run at the server changes entries that fleet did not write."""
    counted = book.post(delivery.place, delivery.to_post(), dry_run=True)
    if other := _discrepancy(delivery, counted):
        raise PlanRefused(
            f"refused, nothing changed at {delivery.place}: the server would change {other}: "
            "concurrent update; retry"
        )


def _check_done(delivery: Delivery, counted: Counts) -> None:
    """Raise SourceUnreachable if the server changed entries that fleet did not write."""
    if other := _discrepancy(delivery, counted):
        raise SourceUnreachable(
            f"{delivery.place}: the server changed {other}: a concurrent push may be lost; push "
            "it again"
        )


def _discrepancy(delivery: Delivery, counted: Counts) -> str:
    """Describe the server's changes if they differ from the delivery; else return ""."""
    own = len(delivery.held) - len(delivery.others) - delivery.kept
    changed = counted.removed + counted.updated
    if changed == own and counted.unchanged == len(delivery.others) + delivery.kept:
        return ""
    return f"{changed} entries, of which fleet wrote {own}"


def _read_back(book: TaskRules, delivery: Delivery) -> None:
    now = Delivery(delivery.place, delivery.path, book.stored(delivery.place), delivery.entries)
    if not now.is_empty or any(entry not in now.others for entry in delivery.others):
        raise SourceUnreachable(
            f"{delivery.place}: the entries read back differ from those written: concurrent "
            "update; see `fleet export debusine --diff`"
        )
