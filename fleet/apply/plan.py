"""Load fleet.yaml, observe the world and plan, for all commands that show a plan."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from fleet.apply.config import Config, PlanResult, check_file, load_config
from fleet.apply.observe import Sources, observe
from fleet.apply.timer import TRUST, find_clock_faults
from fleet.checks import rule_of
from fleet.checks.machines import missing_price, old_prices, unknown_machine_type
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, StoreFailed, StoreMissing, WrongUsage
from fleet.explain.builds import find_reach
from fleet.explain.changes import (
    Comparison,
    compare,
    find_image_changes,
    find_renames,
    find_rest,
    find_unseen,
    find_verdict,
    rename_pools,
)
from fleet.explain.costs import BuildCosts, compare_builds
from fleet.explain.edits import FleetEdits, find_config_changes
from fleet.explain.sensitive import find_sensitive
from fleet.guard import guard
from fleet.model.digests import config_digest
from fleet.model.facts import QueueReading, Unknown, World
from fleet.model.plan import CLOCK_RULE, Plan, Warning_
from fleet.model.price_lists import with_price_lists
from fleet.observation import Observation, observing
from fleet.planner.inventory import PoolInventory
from fleet.ports import Console
from fleet.queues.recorded import read_world, world_of
from fleet.reconcile import reconcile
from fleet.schema.findings import Path, yaml_key
from fleet.schema.model import Fleet
from fleet.schema.source import Document
from fleet.state.history import EARLIER_PERIOD, MAX_EARLIER, RecordedFiles
from fleet.state.revision import is_file_name, read_revision
from fleet.words import figures as words
from fleet.words.runs import add_reason, describe_clock


@contextmanager
def reading_base(args: argparse.Namespace) -> Iterator[None]:
    """Read the git revision in `--base` before the sandbox prevents git from starting."""
    args.revision = None
    if args.base and not is_file_name(args.base):
        try:
            args.revision = read_revision(args.base, args.file)
        except FileUnreadable as error:
            args.revision = Unknown.of(error)
    yield


def load_base(args: argparse.Namespace, fleet: str) -> Config | Unknown:
    """Return the fleet.yaml of `--base`; Unknown with the reason if it is unusable."""
    if isinstance(args.revision, Unknown):
        return args.revision
    name, files = (args.file, args.revision) if args.revision else (args.base, None)
    checked = check_file(name, utc_now().date(), files)
    if checked.fleet is None:
        errors = [finding for finding in checked.findings if finding.severity == "error"]
        is_read = errors[0].rule != "unreadable-file"
        place = errors[0].span if is_read and errors[0].span else name
        more = f" (and {words.many(len(errors) - 1, 'more error')})" if errors[1:] else ""
        return Unknown(unknown=add_reason(str(place), errors[0].message) + more)
    if checked.fleet.fleet != fleet:
        return Unknown(unknown=f"{name} is of fleet {checked.fleet.fleet}, not of fleet {fleet}")
    return Config(checked.fleet, checked.document, ())


def observe_and_plan(
    args: argparse.Namespace, console: Console, *, needs_world: bool = True
) -> PlanResult:
    """Load fleet.yaml, observe the world or read the recorded world of `--world`, and plan.

    If the recording is unusable and `needs_world` is False, the world is unknown.
    """
    config, unread, store = load_config(args, console), "", None
    try:
        if args.world:
            world = load_world(args, config.fleet, console)
        else:
            # This is slow to import, and a recorded world needs no queue, cloud or store.
            from fleet.apply.wire import wire

            sources = wire(config.fleet, args.file)
            world, store = observe_with_progress(config, sources, console), sources.store
    except (FileUnreadable, WrongUsage) as error:
        if needs_world or not args.world:
            raise
        unread = str(error)
        console.note(f"fleet: error: {unread}")
        world = _unknown_world(config.fleet, unread)
    config = priced(config, world)
    decided = PlanResult(config, world, plan_for(config, world), args.world or "", unread, store)
    return _warn_of_clock(decided)


def load_world(args: argparse.Namespace, fleet: Fleet, console: Console) -> World:
    """Return the recorded world. Raises WrongUsage if it belongs to another fleet."""
    world = read_world(args.world, RecordedFiles(console.note))
    if world.fleet != fleet.fleet:
        raise WrongUsage(
            f"{args.world} was recorded by fleet {world.fleet}, and {args.file} is fleet "
            f"{fleet.fleet}; record one with `fleet observe --file {args.file} --out FILE`"
        )
    said = f"not in the recording {args.world}; to have them in one: `fleet observe --out FILE`"
    return mark_unread(world, fleet, Unknown(unknown=said))


def mark_unread(world: World, fleet: Fleet, unknown: Unknown) -> World:
    """Return a world in which unread sources of fleet.yaml are Unknown instead of missing."""
    unread = QueueReading(demand=unknown, workers=unknown)
    queues = dict.fromkeys(fleet.queues, unread) | world.queues
    providers = dict.fromkeys(fleet.providers, unknown) | world.providers
    return world.altered(queues=queues, providers=providers)


def _unknown_world(fleet: Fleet, because: str) -> World:
    unknown = Unknown(unknown=because)
    world = World(
        fleet=fleet.fleet,
        time=utc_now(),
        stacks=unknown,
        images=unknown,
        ledger=unknown,
        approved=unknown,
        members=unknown,
        runs=unknown,
    )
    return mark_unread(world, fleet, unknown)


def _load_past(decision: PlanResult, console: Console) -> list[World]:
    """Return earlier worlds of this fleet, the oldest first.

    If one of these worlds is unreadable, print a warning and return none of them.
    """
    name, world = decision.recorded, decision.world
    try:
        if name:
            earlier = RecordedFiles(console.note).earlier(name, world.time)
        else:
            earlier = _recent(decision)
        worlds = [world_of(name or "the store", content) for content in earlier]
    except (FileUnreadable, StoreFailed) as error:
        console.note(f"fleet: warning: earlier moments are left out: {error}")
        return []
    return [each for each in worlds if each.fleet == world.fleet]


def _warn_of_clock(decision: PlanResult) -> PlanResult:
    """Return a plan with a warning for each clock fault that `fleet apply` would refuse."""
    fleet, world, store = decision.config.fleet, decision.world, decision.store
    faults: tuple[str, ...] = ()
    if store is not None and not isinstance(world.runs, Unknown):
        # If the store fails, an apply does not reach this check.
        with suppress(StoreFailed, StoreMissing):
            faults = find_clock_faults(fleet, store, world)
    warnings = (Warning_(rule=CLOCK_RULE, message=describe_clock(each, TRUST)) for each in faults)
    plan = decision.plan
    return replace(decision, plan=plan.altered(warnings=(*warnings, *plan.warnings)))


def note_clock(decision: PlanResult, console: Console) -> None:
    """Print the warnings about the clock, for output formats that show no warnings."""
    for said in words.clock(decision.plan):
        console.note(f"fleet: warning: {said}")


def _recent(decision: PlanResult) -> list[bytes]:
    """Return the stored worlds of the last 30 days until one interval before this world."""
    store, now = decision.store, decision.world.time
    until = now - timedelta(seconds=decision.config.fleet.cadence)
    with suppress(StoreMissing):  # a new fleet has no past
        if store is not None:
            return [*store.some_moments(now - EARLIER_PERIOD, until, MAX_EARLIER)]
    return []


def observe_with_progress(config: Config, sources: Sources, console: Console) -> World:
    """Observe the world and show progress; the adapters' remarks become part of the world."""
    console.progress(f"reading queues, providers and stacks of fleet {config.fleet.fleet}")
    with observing(Observation()) as observation:
        world = observe(config.fleet, sources, utc_now())
    return world.altered(remarks=observation.remarks())


def observe_and_print(config: Config, sources: Sources, console: Console) -> World:
    """Observe the world for a command that shows no plan, and print the adapters' remarks."""
    world = observe_with_progress(config, sources, console)
    for remark in world.remarks:
        console.note(remark)
    return world


def can_confirm(console: Console) -> bool:
    """Return True if a user sees the output and can answer; False if it goes to a pipe."""
    return console.can_ask and console.columns(None) is not None


def is_confirmed(console: Console, question: str) -> bool:
    """Ask a user; return True if the answer is yes."""
    return console.ask(f"{question} yes/no: ").lower() in {"y", "yes"}


def priced(config: Config, world: World) -> Config:
    """Return the configuration with the world's prices, without warnings that they resolve."""
    fleet = with_price_lists(config.fleet, world)
    if fleet is config.fleet:
        return config
    still = {
        config.document.place(each.path, each.at)
        for check in (unknown_machine_type, missing_price)
        for each in check(fleet)
    }
    answered = {rule_of(unknown_machine_type), rule_of(missing_price)}
    kept = [w for w in config.warnings if w.rule not in answered or w.place in still]
    return replace(config, fleet=fleet, warnings=tuple(kept))


def plan_for(
    config: Config, world: World, inventories: Mapping[str, PoolInventory] | None = None
) -> Plan:
    """Return the guarded plan for a world, with the warnings about fleet.yaml."""
    config = priced(config, world)
    plan = guard(config.fleet, reconcile(config.fleet, world, inventories))
    keys = sorted({path[:2] for path in plan.cited if path}, key=str)
    # Key to the name of the included file that defines the key.
    included = {
        yaml_key(key): file
        for key in keys
        if (file := config.document.span(key).file) != config.document.name
    }
    # The plan itself has a notice about the old prices that it uses.
    warnings = (each for each in config.warnings if each.rule != rule_of(old_prices))
    # The text shows only the first warnings, so those of this run come first.
    return plan.altered(warnings=(*plan.warnings, *warnings), included=included)


def compare_with(base: Config | Unknown, decision: PlanResult, console: Console) -> Comparison:
    """Compare with the plan of another fleet.yaml; if it is unusable, print a warning."""
    if isinstance(base, Unknown):
        console.note(f"fleet: warning: cannot compare with the base: {base.unknown}")
        return base
    world, plan, document = decision.world, decision.plan, decision.config.document
    base, head = priced(base, world), decision.config.fleet
    renames = find_renames(base.fleet, head)
    renamed = rename_pools(base.fleet, renames)
    edits = FleetEdits(renamed, head)
    planned = plan_for(replace(base, fleet=renamed), world)
    found = compare(
        planned.altered(digests=planned.digests.altered(config=config_digest(base.fleet))),
        plan,
        unseen=find_unseen(renamed, head, world),
        config=find_config_changes(edits),
        renames=renames,
    )
    has_rules = any(each.path[0] == "powerful" for each in edits.found)
    past = _load_past(decision, console) if has_rules and not decision.unread else []
    # Only equal expected durations make both sides comparable.
    timed = renamed.model_copy(update={"durations": head.durations})
    costs = BuildCosts(timed, world, planned), BuildCosts(head, world, plan)
    reach = find_reach(edits, (*past, world), *costs)
    edited = [each.path for each in edits.found]
    lost = {key for each in found.requests if not each.served for key in each.requests}
    waiting = compare_builds(world, *costs, edited, lost)
    return found.altered(
        images=find_image_changes(renamed, head, world, plan),
        rest_before=find_rest(renamed, planned),
        rest_after=find_rest(head, plan),
        allow_list=reach,
        sensitive=tuple(
            each.altered(place=_place(document, each.path))
            for each in find_sensitive(edits, reach, planned)
        ),
        builds=waiting.builds,
        stopped=waiting.stopped,
        verdict=find_verdict(found, world, (renamed, planned), (head, plan), waiting.moved),
    )


def _place(document: Document, path: Path) -> str:
    """Return the position of a key. A provider's key may be in the `hooks` of a pool."""
    span = document.span(path)
    if path[0] == "providers" and document.span(path[:2]) == document.span(path[:1]):
        span = document.span(("pools", path[1], "hooks", *path[2:]))
    return str(span)
