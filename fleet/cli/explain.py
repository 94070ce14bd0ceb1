"""Explain waiting requests, the size of a pool, kept workers, and the effect of rules."""

import argparse
from datetime import timedelta

from fleet.apply.config import load_config
from fleet.apply.decision import PlanResult
from fleet.apply.places import with_places
from fleet.apply.plan import note_clock, observe_and_plan
from fleet.cli.arguments import (
    Parser,
    add_file,
    add_json,
    add_world,
    flag,
    moment_of,
    option,
    past_time,
)
from fleet.cli.output import show
from fleet.cli.recorded import RecordedMoments
from fleet.clock import utc_now
from fleet.errors import FleetError, WrongUsage
from fleet.explain.gains import UNUSED_AFTER, find_gains
from fleet.explain.pool import explain_pool
from fleet.explain.request import Case, each_request, explain_every, explain_request
from fleet.explain.values import Explanation
from fleet.explain.worker import explain_worker
from fleet.model.facts import Unknown
from fleet.ports import Console
from fleet.report.answers import everything_blocks, explanation_blocks
from fleet.report.gains import gains_blocks
from fleet.report.terminal import shown
from fleet.schema.findings import nearest, some_of
from fleet.words import figures as words


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet explain`."""
    add_file(parser)
    parser.set_defaults(began=utc_now())
    kinds = ["request", "pool", "worker", "powerful"]
    # Without a metavar, the error about a missing kind would not list the kinds.
    named = f"{{{','.join(kinds)}}}"
    parser.add_argument("kind", choices=kinds, metavar=named, help="kind of object to explain")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="ID|NAME",
        help="id or package of a request; name of a pool or worker",
    )
    flag(parser, "--all", "explain every waiting request, in groups")
    add_world(parser)
    option(
        parser,
        "--history",
        "FILE",
        "with powerful: a history of `fleet observe --append` (default: the history in the store)",
    )
    parser.add_argument(
        "--from",
        dest="since",
        type=past_time,
        metavar="TIME",
        help="with powerful: start time, for example 14d or 2026-11-01 (default: 90 days ago)",
    )
    add_json(parser)


_SHOWN = 8


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one explanation, or those of all waiting requests; exit 1 if the name is unknown."""
    if args.kind == "powerful":
        return _explain_powerful(args, console)
    if args.history or args.since:
        raise WrongUsage("--history and --from are for `fleet explain powerful`")
    if args.all != (args.name is None) or (args.all and args.kind != "request"):
        shown = "" if args.kind == "request" else ", as `fleet status` shows it"
        raise WrongUsage(f"name the {args.kind}{shown}, or use `request --all`")
    decision = observe_and_plan(args, console)
    note_clock(decision, console)
    if args.all:
        return _explain_all(args, decision, console)
    explanation = _explain(decision, args.kind, args.name)
    if explanation is None:
        raise FleetError(_describe_unknown(decision, args.kind, args.name))
    placed = with_places(decision.config, explanation)
    show(args, console, placed, explanation_blocks(placed))
    return 0


def _explain_powerful(args: argparse.Namespace, console: Console) -> int:
    """Print the packages that would gain from a rule, and the rules that no build uses."""
    if args.name is not None or args.all or args.world:
        raise WrongUsage("`fleet explain powerful` takes --history FILE, and no name or --world")
    config = load_config(args, console)
    since = moment_of(args.since, args.began)
    if since is None and not args.history:
        since = args.began - UNUSED_AFTER - timedelta(days=1)  # all of the first day
    until = None if args.history else args.began
    history = RecordedMoments(config.fleet, args.file, args.history or "", since, until)
    console.progress(f"reading {history.name}")
    found = find_gains(config.fleet, history.worlds())
    if isinstance(found, Unknown):
        raise FleetError(f"{history.name}: {found.unknown}")
    placed = with_places(config, found)
    show(args, console, placed, gains_blocks(placed))
    return 0


def _explain_all(args: argparse.Namespace, decision: PlanResult, console: Console) -> int:
    everything = explain_every(decision.config.fleet, decision.world, decision.plan)
    placed = with_places(decision.config, everything)
    show(args, console, each_request(placed), everything_blocks(placed))
    return 0


def _explain(decision: PlanResult, kind: str, name: str) -> Explanation | None:
    rests_on = (decision.config.fleet, decision.world, decision.plan)
    if kind == "request":
        return explain_request(*rests_on, name)
    if kind == "pool":
        return explain_pool(*rests_on, name)
    return explain_worker(*rests_on, name)


def _describe_unknown(decision: PlanResult, kind: str, name: str) -> str:
    plan = decision.plan
    if kind == "request":
        meant = Case(decision.config.fleet, decision.world, plan).named(name)
        if meant:
            return (
                f"{name} names {len(meant):,} requests: {_list_names(meant)}; explain one of them"
            )
    # A plan lists unread queues first; other unknowns hide no request.
    unsure = (*plan.unknown[: len(plan.unread)], *map(words.estimated, plan.estimates))
    if kind == "request" and unsure:
        return f"cannot tell whether {name} waits: {unsure[0]}"
    also = " (it may be running, done or blocked)" if kind == "request" else ""
    waits = "waiting request" if kind == "request" else kind
    names = _names(decision, kind)
    # Requests are numbers, so a similar one is no misspelling.
    near = nearest(name, names) if kind != "request" else ""
    hint = f"did you mean '{near}'? " if near else ""
    if not names:
        return f"no {waits} {name}{also}; no {waits} exists"
    return f"no {waits} {name}{also}; {hint}known: {_list_names(names)}"


def _list_names(names: list[str]) -> str:
    return shown(some_of(names, shown=_SHOWN))


def _names(decision: PlanResult, kind: str) -> list[str]:
    plan = decision.plan
    return {
        "request": [key for signature in plan.signatures for key in signature.requests],
        "pool": [pool.pool for pool in plan.pools],
        "worker": [worker.worker for worker in plan.workers],
    }[kind]
