"""Explain an object by its name: a request, package, pool, worker, image, rule or tag."""

import argparse
from datetime import timedelta

from fleet.apply.config import load_config, with_places
from fleet.apply.plan import load_world, note_clock, observe_and_plan
from fleet.cli.arguments import FILE, JSON, WORLD, argument, flag, moment_of, option, past_time
from fleet.cli.output import show
from fleet.cli.recorded import RecordedMoments
from fleet.clock import utc_now
from fleet.errors import FleetError, WrongUsage
from fleet.explain.builds import UNUSED_AFTER, find_gains
from fleet.explain.case import Case
from fleet.explain.objects import EXPLAINERS, NAMES, suggest_build
from fleet.explain.request import by_outcome, explain_every
from fleet.explain.values import Matches
from fleet.model.facts import Unknown
from fleet.ports import Console
from fleet.report.answers import every_blocks, explanation_blocks, gains_blocks, matches_blocks
from fleet.report.terminal import shown
from fleet.schema.findings import nearest, some_of
from fleet.words import figures as words

_KINDS = ("request", "package", *[kind for kind in EXPLAINERS if kind != "request"], "powerful")
ARGUMENTS = (
    FILE,
    argument(
        "kind",
        metavar=f"{{{','.join(_KINDS)}}}|NAME",
        help="a name of any of these kinds, or a kind before its name",
    ),
    argument(
        "name",
        nargs="?",
        metavar="ID|NAME",
        help="id or package of a request; name of a pool or worker",
    ),
    flag("--all", "explain every waiting request, in groups"),
    WORLD,
    option(
        "--history",
        "FILE",
        "with powerful: a history of `fleet observe --append` (default: the history in the store)",
    ),
    argument(
        "--from",
        dest="since",
        type=past_time,
        metavar="TIME",
        help="with powerful: start time, for example 14d or 2026-11-01 (default: 90 days ago)",
    ),
    JSON,
)


_SHOWN = 8
_MAX_NAMES = 5
"""Maximum known names per kind in the error about a name of unknown kind."""


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the explanations of a name; raises FleetError if the name is unknown."""
    if args.kind == "powerful":
        return _explain_powerful(args, console)
    if args.history or args.since:
        raise WrongUsage("--history and --from are for `fleet explain powerful`")
    is_package = args.kind == "package" and args.name is not None
    args.kind = "request" if is_package else str(args.kind)
    is_kind = args.kind in EXPLAINERS
    if args.name is not None and not is_kind:
        raise WrongUsage(f"{shown(args.kind)} is no kind: {', '.join(_KINDS)}")
    if is_kind and (args.all != (args.name is None) or (args.all and args.kind != "request")):
        where = "" if args.kind == "request" else ", as `fleet status` shows it"
        raise WrongUsage(f"name the {args.kind}{where}, or use `request --all`")
    if args.all and not is_kind:
        raise WrongUsage("--all is for `fleet explain request --all`")
    decision = observe_and_plan(args, console)
    note_clock(decision, console)
    case = Case(decision.config.fleet, decision.world, decision.plan)
    if args.all:
        every = with_places(decision.config, explain_every(case))
        show(args, console, every, every_blocks(every, by_outcome(case)))
        return 0
    kinds, name = ([args.kind], args.name) if is_kind else (EXPLAINERS, args.kind)
    found = tuple(each for kind in kinds for each in EXPLAINERS[kind](case, name))
    if not found:
        unknown = _describe_unknown(case, args.kind, name) if is_kind else ""
        raise FleetError(unknown or _describe_unknown_name(case, name))
    if is_kind and len(found) == 1:
        placed = with_places(decision.config, found[0])
        show(args, console, placed, explanation_blocks(placed))
        return 0
    matches = Matches(fleet=case.fleet.fleet, name=name, matches=found)
    all_placed = with_places(decision.config, matches)
    show(args, console, all_placed, matches_blocks(all_placed))
    return 0


def _explain_powerful(args: argparse.Namespace, console: Console) -> int:
    """Print packages that would benefit from an allow-list rule, and the unused rules."""
    if args.name is not None or args.all or (args.world and args.history):
        raise WrongUsage("`fleet explain powerful` takes --history or --world FILE, and no name")
    config = load_config(args, console)
    began = utc_now()
    since = moment_of(args.since, began)
    if since is None and not args.history:
        since = began - UNUSED_AFTER - timedelta(days=1)  # include the whole first day
    until = None if args.history else began
    if args.world:
        found = find_gains(config.fleet, [load_world(args, config.fleet, console)])
    else:
        history = RecordedMoments(config.fleet, args.file, args.history or "", since, until)
        console.progress(f"reading {history.name}")
        found = find_gains(config.fleet, history.worlds())
    if isinstance(found, Unknown):
        record = "`fleet apply` records each run, `fleet observe --append FILE` records to a file"
        raise FleetError(f"{history.name}: {found.unknown}; {record}")
    placed = with_places(config, found)
    show(args, console, placed, gains_blocks(placed))
    return 0


def _describe_unknown(case: Case, kind: str, name: str) -> str:
    """Return the error for an unknown name of one kind, with the known names."""
    if unsure := _find_unknown(case, kind):
        whether = f"{name} waits" if kind == "request" else f"there is a {kind} {name}"
        return f"cannot tell whether {whether}: {unsure}"
    also = " (it may be running, done or blocked)" if kind == "request" else ""
    noun = "waiting request" if kind == "request" else kind
    names = NAMES[kind](case)
    # Ids of requests are numbers, so a similar number is no misspelling.
    near = nearest(name, names) if kind != "request" else ""
    hint = f"did you mean '{near}'? " if near else ""
    if not names:
        return f"no {noun} {name}{also}; no {noun} exists"
    return f"no {noun} {name}{also}; {hint}known: {shown(some_of(names, shown=_SHOWN))}"


def _find_unknown(case: Case, kind: str) -> str:
    """Return the reason why some objects of a kind are unknown; empty if all are known."""
    plan = case.plan
    if kind == "request":
        # The first entries of a plan's `unknown` are its unread queues; others hide no request.
        unsure = (*plan.unknown[: len(plan.unread)], *map(words.estimated, plan.estimates))
        return next(iter(unsure), "")
    if kind == "worker":
        return next(iter(plan.unknown), "")
    return ""


def _describe_unknown_name(case: Case, name: str) -> str:
    """Return the error for a name of unknown kind, with similar names of each kind."""
    if unsure := _find_unknown(case, "request") or _find_unknown(case, "worker"):
        return f"cannot tell whether there is anything named {name}: {unsure}"
    names = {kind: find(case) for kind, find in NAMES.items()}
    near = nearest(name, [each for kind, found in names.items() for each in found])
    suggested = "" if near else suggest_build(case, name)
    hint = f"did you mean '{near}'? " if near else f"{suggested}; " if suggested else ""
    known = "; ".join(
        f"{kind}s {some_of(found, shown=_MAX_NAMES)}" for kind, found in names.items() if found
    )
    return shown(f"nothing waits, runs or is declared as {name}; {hint}known: {known}")
