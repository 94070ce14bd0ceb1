"""Delete the machines that runs created and that were never busy."""

import argparse
from datetime import datetime, timedelta
from functools import partial

from fleet.apply.config import load_config
from fleet.apply.sweep import CreationWindow, Deletion, run_deletion, undo_creations
from fleet.apply.wire import wire
from fleet.cli.arguments import Parser, add_file, add_json, duration, flag, option, repeated
from fleet.clock import utc_now
from fleet.errors import FleetError
from fleet.ports import Console
from fleet.state.store import Store

_RUNS = 10_000
_MADE = 10_000


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet undo`."""
    add_file(parser)
    when = parser.add_mutually_exclusive_group(required=True)
    option(when, "--run", "ID", "what the run created that began then, as `fleet log` prints it")
    option(when, "--since", "TIME", "what was created within this time, as 30m", kind=duration)
    repeated(parser, "--pool", "NAME", "only in this pool; repeatable")
    flag(parser, "--apply", "delete them (default: only show them)")
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Show the machines to delete, or drain and delete them like `fleet machine delete`."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    now = utc_now()
    since, until = (
        _time_of(sources.store, args.run, now)
        if args.run
        else (now - timedelta(seconds=args.since), now)
    )
    latest: dict[str, datetime] = {}
    for attempt in sources.store.attempts(_MADE):
        latest[attempt.worker] = max(attempt.at, latest.get(attempt.worker, attempt.at))
    # A name that a later run reused is another machine.
    made = frozenset(worker for worker, at in latest.items() if since <= at <= until)
    window = CreationWindow(since, until, made, frozenset(args.pool))
    undo = partial(undo_creations, window=window)
    deletion = Deletion(undo, "fleet apply", frozenset(), may_stay=True)
    return run_deletion(args, console, config, sources, deletion)


def _time_of(store: Store, run: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and end of a run; a killed one ends at the start of the next."""
    runs = store.last_runs(_RUNS)
    begins = [each["started"] for each in runs]
    wanted = run.replace(" UTC", "").replace(" ", "T").removesuffix("Z")
    found = [number for number, begin in enumerate(begins) if begin.startswith(wanted)]
    if len(found) != 1:
        what = f"{len(found)} runs began" if found else "no run began"
        latest = ", ".join(begins[:3]) or "none"
        raise FleetError(f"nothing was changed: {what} at {run}; the latest: {latest}")
    (number,) = found
    ended = runs[number]["ended"] or (begins[number - 1] if number else "")
    since = datetime.fromisoformat(begins[number])
    return since, datetime.fromisoformat(ended) if ended else now
