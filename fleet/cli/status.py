"""`fleet status`: show the pools and workers, with state, image, work and cost."""

import argparse
from contextlib import suppress

from fleet.apply.config import load_config
from fleet.apply.metrics import metrics_of
from fleet.apply.observe import ended_runs
from fleet.apply.plan import note_clock, observe_and_plan
from fleet.apply.satellites import connected
from fleet.cli.arguments import FILE, JSON, WORLD, flag, option
from fleet.clock import utc_now
from fleet.errors import StoreFailed, StoreMissing, WrongUsage
from fleet.explain.case import Case
from fleet.explain.objects import facts_of_workers
from fleet.planner.assembly import judge_heartbeat
from fleet.ports import Console
from fleet.report.json import status_to_json, value_to_json
from fleet.report.plan import status_blocks
from fleet.report.terminal import text_for
from fleet.state.files import LocalFiles
from fleet.state.store import store_of
from fleet.words.runs import describe_heartbeat, describe_killed

ARGUMENTS = (
    FILE,
    WORLD,
    JSON,
    option("--site", "DIR", "write static status pages to DIR"),
    option(
        "--metrics",
        "FILE",
        "write metrics to FILE, for node_exporter's textfile collector",
    ),
    flag(
        "--heartbeat",
        "check that `fleet apply` still runs, for monitoring; exit 1 if not",
    ),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the status, write it as static pages or metrics, or check that runs still happen."""
    if args.heartbeat:
        if args.world or args.site or args.metrics:
            raise WrongUsage("--heartbeat excludes --world, --site and --metrics")
        return _heartbeat(args, console)
    decision = observe_and_plan(args, console)
    plan = decision.plan
    store = None if args.world else store_of(decision.config.fleet, args.file)
    if args.site or args.metrics:
        note_clock(decision, console)
    if args.metrics:
        LocalFiles().write_text(args.metrics, metrics_of(decision, store))
    if args.site:
        count = connected().write_site(decision, store, args.site)
        console.note(f"wrote {count} files to {args.site}; open {args.site}/index.html")
    if args.json:
        fleet, world = decision.config.fleet, decision.world
        facts = facts_of_workers(fleet, world)
        console.out(status_to_json(plan, facts, Case(fleet, world, plan).responsible))
    elif not (args.site or args.metrics):
        with suppress(StoreMissing, StoreFailed):  # the plan names the reason
            if store and (killed := store.killed_holder()):
                console.note(f"fleet: warning: {describe_killed(*killed)}")
        console.out(text_for(console, status_blocks(plan)))
    return 0


def _heartbeat(args: argparse.Namespace, console: Console) -> int:
    """Print, from the store alone, whether `fleet apply` still runs; return 1 if not."""
    fleet = load_config(args, console).fleet
    now = utc_now()
    beat = judge_heartbeat(fleet, ended_runs(store_of(fleet, args.file), now), now)
    text = describe_heartbeat(fleet.fleet, beat.alive, beat.because)
    console.out(value_to_json(beat) if args.json else text)
    return 0 if beat.alive else 1
