"""`fleet export`: write the rules of fleet.yaml in the format of the queue that assigns work."""

import argparse
import difflib
from collections.abc import Iterator, Sequence
from datetime import date, datetime

from fleet.apply.config import check_file
from fleet.apply.record import RunLog
from fleet.apply.wire import lock_owner
from fleet.cli.arguments import Parser, add_verb, flag, option, repeated
from fleet.clock import utc_now
from fleet.errors import ConfigInvalid, FileUnreadable, PlanRefused, WrongUsage
from fleet.migrate.delivery import Delivery, deliver
from fleet.migrate.from_copr import find_list, read_list
from fleet.model.digests import config_digest
from fleet.model.facts import HeldRules
from fleet.model.outcome import Outcome
from fleet.ports import Console
from fleet.queues.debusine.task_rules import TaskRules
from fleet.report.findings import to_summary, to_text
from fleet.schema.findings import has_errors
from fleet.schema.model import DebusineQueue, Fleet
from fleet.state.files import LocalFiles
from fleet.state.secrets import HostSecrets
from fleet.state.store import Store, store_of
from fleet.tagrules.export import (
    DEFAULT_TASKS,
    Exported,
    entries_of,
    entries_path,
    export_copr,
    export_debusine,
    rules_for_copr,
)
from fleet.words.figures import many


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet export`."""
    targets = parser.add_subparsers(dest="target", metavar="QUEUE", required=True)
    debusine = add_verb(targets, "debusine", "write Debusine task-configuration entries")
    repeated(
        debusine,
        "--task",
        "NAME",
        "Debusine task that `powerful` applies to (default: sbuild); may be repeated",
    )
    copr = add_verb(targets, "copr", "write the option EXTRA_BUILDCHROOT_TAGS of Copr's frontend")
    how = debusine.add_mutually_exclusive_group()
    flag(how, "--diff", "show the differences from the servers; exit 3 if there are any")
    flag(how, "--apply", "write the entries to the servers (queues.NAME.rules)")
    option(
        debusine,
        "--delete-up-to",
        "N",
        "with --apply: maximum number of deletions per collection (default: 0)",
        default=0,
        kind=int,
    )
    option(copr, "--patch", "FILE", "write a unified diff for FILE, Copr's configuration")
    for target in (debusine, copr):
        option(target, "--out", "FILE", "write to FILE instead of standard output")


_LIMIT_BYTES = 10 * 1000 * 1000


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the export; return 1 without writing if the queue cannot express a rule."""
    today = utc_now().date()
    checked = check_file(args.file, today)
    if checked.fleet is None:
        console.note(to_text(checked.findings, checked.document))
        raise ConfigInvalid(to_summary(checked.findings, checked.document))
    exported = _export(args, checked.fleet, today)
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


def _export(args: argparse.Namespace, fleet: Fleet, today: date) -> Exported:
    digest = config_digest(fleet)
    if args.target == "copr":
        return export_copr(fleet, digest, today)
    return export_debusine(fleet, digest, today, tuple(args.task or DEFAULT_TASKS))


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
        if _is_header(before, first):
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


def _is_header(lines: list[str], first: int) -> bool:
    above = lines[max(first - 3, 0) : first - 1]
    return len(above) == 2 and above[0].startswith("# Generated by `fleet export copr`")  # noqa: PLR2004 - it has two lines
