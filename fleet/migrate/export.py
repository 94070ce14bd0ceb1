"""`fleet export`: write the rules of fleet.yaml in the format of the queue that assigns work.

With `--apply`, also deliver them to the workspaces of a Debusine server.
"""

import argparse
import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from fleet.apply.config import check_file
from fleet.apply.record import RunLog
from fleet.apply.wire import lock_owner
from fleet.cli.arguments import action, actions, exclusive, flag, option, repeated
from fleet.clock import utc_now
from fleet.errors import ConfigInvalid, FileUnreadable, PlanRefused, SourceUnreachable, WrongUsage
from fleet.migrate.from_copr import find_list, read_list
from fleet.model.digests import config_digest
from fleet.model.facts import HeldRules
from fleet.model.history import Outcome
from fleet.model.values import canonical_json
from fleet.ports import Console
from fleet.queues.debusine.task_rules import Counts, TaskRules
from fleet.report.findings import to_summary, to_text
from fleet.schema.findings import has_errors
from fleet.schema.model import DebusineQueue, Fleet, RefuseDelete
from fleet.schema.units import write_count
from fleet.state.files import LocalFiles
from fleet.state.secrets import HostSecrets
from fleet.state.store import Store, store_of
from fleet.tagrules.export import (
    DEFAULT_TASKS,
    Entry,
    entries_of,
    entries_path,
    export_copr,
    export_debusine,
    listed,
    rules_for_copr,
)
from fleet.words.figures import many

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
        # Without default values, as an export writes entries.
        return [
            {k: entry[k] for k in _ORDER if k in entry and entry[k] != _DEFAULTS.get(k, _ORDER)}
            for entry in sorted(own, key=lambda each: each.get("position") or 0)
        ]

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
            _check_written(book, delivery, counted)
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


def _check_written(book: TaskRules, delivery: Delivery, counted: Counts) -> None:
    """Raise SourceUnreachable if the server changed other entries, or stored different ones."""
    if other := _discrepancy(delivery, counted):
        raise SourceUnreachable(
            f"{delivery.place}: the server changed {other}: a concurrent push may be lost; push "
            "it again"
        )
    now = replace(delivery, held=book.stored(delivery.place))
    if not now.is_empty or any(entry not in now.others for entry in delivery.others):
        raise SourceUnreachable(
            f"{delivery.place}: the entries read back differ from those written: concurrent "
            "update; see `fleet export debusine --diff`"
        )


def _discrepancy(delivery: Delivery, counted: Counts) -> str:
    """Describe the server's changes if they differ from the delivery; else return ""."""
    own = len(delivery.held) - len(delivery.others) - delivery.kept
    changed = counted.removed + counted.updated
    if changed == own and counted.unchanged == len(delivery.others) + delivery.kept:
        return ""
    return f"{changed} entries, of which fleet wrote {own}"


_OUT = option("--out", "FILE", "write to FILE instead of standard output")
ARGUMENTS = (
    actions(
        action(
            "debusine",
            "write Debusine task-configuration entries",
            None,
            repeated(
                "--task",
                "NAME",
                "Debusine task that `powerful` applies to (default: sbuild); may be repeated",
            ),
            exclusive(
                flag("--diff", "show the differences from the servers; exit 3 if there are any"),
                flag("--apply", "write the entries to the servers (queues.NAME.rules)"),
            ),
            option(
                "--delete-up-to",
                "N",
                "with --apply: maximum number of deletions per collection (default: 0)",
                default=0,
                kind=int,
            ),
            _OUT,
        ),
        action(
            "copr",
            "write the option EXTRA_BUILDCHROOT_TAGS of Copr's frontend",
            None,
            option("--patch", "FILE", "write a unified diff for FILE, Copr's configuration"),
            _OUT,
        ),
        dest="target",
        metavar="QUEUE",
    ),
)


_LIMIT_BYTES = 10 * 1000 * 1000


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the export; return 1 without writing if the queue cannot express a rule."""
    today = utc_now().date()
    checked = check_file(args.file, today)
    if checked.fleet is None:
        console.note(to_text(checked.findings, checked.document))
        raise ConfigInvalid(to_summary(checked.findings, checked.document))
    digest = config_digest(checked.fleet)
    if args.target == "copr":
        exported = export_copr(checked.fleet, digest, today)
    else:
        tasks = tuple(args.task or DEFAULT_TASKS)
        exported = export_debusine(checked.fleet, digest, today, tasks)
    if exported.findings:
        located = map(checked.document.locate, exported.findings)
        console.note(to_text(located, checked.document))
    if has_errors(exported.findings):
        console.note(f"fleet: error: {args.target}: nothing written, see above")
        return 1
    if args.target == "debusine" and (args.diff or args.apply):
        return deliver_rules(args, checked.fleet, today, console)
    text = exported.text
    if args.target == "copr" and args.patch:
        content = LocalFiles().read(args.patch, _LIMIT_BYTES)
        for lost in find_lost(args.patch, content, checked.fleet, today):
            console.note(f"fleet: warning: {lost}: no rule in {args.file}; deleted")
        text = patch_of(args.patch, content, text)
    if args.out:
        LocalFiles().write_text(args.out, text)
    else:
        console.out(text)
    return 0


_CHANGES = 3


def deliver_rules(args: argparse.Namespace, fleet: Fleet, today: date, console: Console) -> int:
    """Show the changes; with --apply, write them under the fleet's lock and record the run."""
    if not args.apply:
        deliveries = [(book, each) for _, book, each in _deliveries(args, fleet, today)]
        _show(deliveries, console)
        return 0 if all(each.is_empty for _, each in deliveries) else _CHANGES
    store = store_of(fleet, args.file)
    started = utc_now()
    with store.lock(lock_owner(), started):
        named = list(_deliveries(args, fleet, today))
        deliveries = [(book, each) for _, book, each in named]
        _show(deliveries, console)
        limit = fleet.guards.refuse.delete
        refusals = [each.refusal(limit, args.delete_up_to) for _, each in deliveries]
        if any(refusals):
            raise PlanRefused(f"refused, nothing changed: {'; '.join(filter(None, refusals))}")
        store.begin_run(started=started)
        for _, each in deliveries:
            if not each.is_empty:
                store.record_step(started=started, step=f"deliver rules to {each.place}")
        try:
            delivered = deliver(deliveries)
        except PlanRefused as error:
            outcome = Outcome(plan="", refused=(str(error),))
            _record(store, started, outcome)
            raise
        _record(store, started, Outcome(plan="", rules=delivered.done))
        for name, book, each in named:
            held = book.read()[each.place]
            if isinstance(held, HeldRules) and not each.is_empty:
                store.rules.write({f"{name}/{each.place}": (held.digest, utc_now())})
    for line in delivered.done:
        console.out(f"Delivered to {line}")
    if delivered.failed:
        console.note(f"fleet: error: {delivered.failed}")
    return delivered.exit_code


def _record(store: Store, started: datetime, outcome: Outcome) -> None:
    RunLog(store, started, "export").record(outcome)


def _show(deliveries: Sequence[tuple[TaskRules, Delivery]], console: Console) -> None:
    for _, delivery in deliveries:
        if delivery.is_empty:
            count = many(len(delivery.entries), "rule")
            console.out(f"{delivery.place}: no change, {count} delivered")
        else:
            console.out("\n".join(delivery.diff()))


def _deliveries(
    args: argparse.Namespace, fleet: Fleet, today: date
) -> Iterator[tuple[str, TaskRules, Delivery]]:
    """Yield queue, server and change per workspace; raises WrongUsage if no queue has rules."""
    secrets = HostSecrets.beside(args.file)
    named = False
    for name, queue in sorted(fleet.queues.items()):
        if not isinstance(queue, DebusineQueue) or queue.rules is None:
            continue
        named = True
        reference = queue.rules.token or (None if args.apply else queue.token)
        if reference is None:
            raise WrongUsage(
                f"queues.{name}.rules.token is missing: set the token of an owner of "
                f"{', '.join(queue.rules.workspaces)}"
            )
        made, _ = entries_of(fleet, today, tuple(args.task or queue.rules.tasks))
        book = TaskRules(queue, queue.rules, secrets.read(reference), path=entries_path(fleet))
        for place in queue.rules.workspaces:
            entries = [entry for _, entry in made]
            yield name, book, Delivery(place, entries_path(fleet), book.stored(place), entries)
    if not named:
        raise WrongUsage(
            "no Debusine queue has `rules`: set queues.NAME.rules: {workspaces: [SCOPE/WORKSPACE]}"
        )


def patch_of(name: str, content: bytes, exported: str) -> str:
    """Return a unified diff that replaces the list of rules in a file by the exported list."""
    before = content.decode("utf-8-sig").splitlines()
    new = exported.splitlines()
    found = find_list("\n".join(before))
    if found is None:
        after = [*before, "", *new] if before else new
    else:
        first, last = found
        above = before[max(first - 3, 0) : first - 1]
        if len(above) == 2 and above[0].startswith("# Generated by `fleet export copr`"):  # noqa: PLR2004 - the header has two lines
            first -= 2
        after = [*before[: first - 1], *new, *before[last:]]
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def find_lost(name: str, content: bytes, fleet: Fleet, today: date) -> Iterator[str]:
    """Yield the rules of the file that the exported list does not contain, with positions.

    Raises FileUnreadable if the value of an option in the file is not a literal.
    """
    try:
        held = read_list(name, content)
    except FileUnreadable:
        try:
            is_set = find_list(content.decode("utf-8-sig", "replace")) is not None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            is_set = True
        if is_set:
            raise
        return
    ours = {(pattern, tags) for _, pattern, tags in rules_for_copr(fleet, today)}
    for rule in held:
        if (rule.pattern, rule.tags) not in ours:
            place = f"{rule.place.file}:{rule.place.line}"
            yield f"{place}: {rule.pattern} gets {', '.join(rule.tags)}"
