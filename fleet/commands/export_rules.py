"""This module delivers the rules of fleet.yaml to Debusine's task configuration, or shows how."""

import argparse
import os
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.wiring import lock_owner
from fleet.errors import PlanRefused, WrongUsage
from fleet.exports.debusine import entries_of
from fleet.exports.delivering import Delivery, path_of
from fleet.facts.rules import HeldRules
from fleet.operate.deliver import Delivered, RuleBook, deliver
from fleet.plan.outcome import Outcome
from fleet.ports import Console
from fleet.queues.debusine.task_rules import TaskRules
from fleet.render.words import many
from fleet.schema.model import DebusineQueue, Fleet
from fleet.store.database import DatabaseStore
from fleet.store.places import find_places
from fleet.store.secrets import HostSecrets

_CHANGES = 3


def deliver_rules(args: argparse.Namespace, fleet: Fleet, today: date, console: Console) -> int:
    """Show the difference; with `--apply` write it, under the fleet's lock, and journal it."""
    if not args.apply:
        deliveries = [(book, each) for _, book, each in _deliveries(args, fleet, today)]
        _show(deliveries, console)
        return 0 if all(each.is_empty for _, each in deliveries) else _CHANGES
    clock = SystemClock()
    store = DatabaseStore(find_places(fleet, args.file).store, fleet.fleet)
    started = clock.now()
    with store.lock(lock_owner(), started):
        named = list(_deliveries(args, fleet, today))
        deliveries = [(book, each) for _, book, each in named]
        _show(deliveries, console)
        limit = fleet.guards.refuse.delete
        refusals = [each.refusal(limit, args.delete_up_to) for _, each in deliveries]
        if any(refusals):
            raise PlanRefused(f"refused, nothing was changed: {'; '.join(filter(None, refusals))}")
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
                store.see_rules({f"{name}/{each.place}": (held.digest, clock.now())})
    _tell(delivered, console)
    return delivered.exit_code


def _record(store: DatabaseStore, started: datetime, outcome: Outcome) -> None:
    ended = SystemClock().now()
    store.record_run(started=started, ended=ended, plan="", outcome=outcome.model_dump_json())


def _tell(delivered: Delivered, console: Console) -> None:
    for line in delivered.done:
        console.out(f"Delivered to {line}")
    if delivered.failed:
        console.note(f"fleet: error: {delivered.failed}")


def _show(deliveries: Sequence[tuple[RuleBook, Delivery]], console: Console) -> None:
    for _, delivery in deliveries:
        if delivery.is_empty:
            count = many(len(delivery.entries), "rule")
            console.out(f"{delivery.place}: no change, {count} delivered")
        else:
            console.out("\n".join(delivery.diff()))


def _deliveries(
    args: argparse.Namespace, fleet: Fleet, today: date
) -> Iterator[tuple[str, TaskRules, Delivery]]:
    """Yield what would change at each place; raises WrongUsage where no place is named."""
    secrets = HostSecrets(os.environ, Path(args.file).resolve().parent)
    named = False
    for name, queue in sorted(fleet.queues.items()):
        if not isinstance(queue, DebusineQueue) or queue.rules is None:
            continue
        named = True
        reference = queue.rules.token or (None if args.apply else queue.token)
        if reference is None:
            raise WrongUsage(
                f"queues.{name}.rules.token is missing: writing needs the token of an owner of "
                f"{', '.join(queue.rules.workspaces)}"
            )
        made, _ = entries_of(fleet, today, tuple(args.task or queue.rules.tasks))
        book = TaskRules(queue, queue.rules, secrets.read(reference), path=path_of(fleet))
        for place in queue.rules.workspaces:
            entries = [entry for _, entry in made]
            yield name, book, Delivery(place, path_of(fleet), book.stored(place), entries)
    if not named:
        raise WrongUsage(
            "no Debusine queue of this fleet.yaml says where its rules are: set "
            "queues.NAME.rules: {workspaces: [SCOPE/WORKSPACE]}"
        )
