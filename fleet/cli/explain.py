"""Explain why a request waits, a pool has its size, a worker stays."""

import argparse

from fleet.apply.config import Config
from fleet.apply.decide import Decision, decide
from fleet.cli.arguments import Parser, add_file, add_json, add_world
from fleet.errors import FleetError
from fleet.explain.pool import explain_pool
from fleet.explain.request import each_request, explain_every, explain_request
from fleet.explain.values import Everything, ExplainedReason, Explanation, Suggestion
from fleet.explain.worker import explain_worker
from fleet.ports import Console
from fleet.report import words
from fleet.report.answers import everything_to_text, explanation_to_text
from fleet.report.json import value_to_json
from fleet.report.terminal import clean
from fleet.schema.findings import Path, nearest


def arguments(parser: Parser) -> None:
    """Declare what `fleet explain` takes."""
    add_file(parser)
    parser.add_argument("kind", choices=["request", "pool", "worker"], help="what to explain")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="ID|NAME",
        help="a request's id, else a name, as plan and status show them",
    )
    parser.add_argument(
        "--all", action="store_true", help="explain every waiting request, in groups"
    )
    add_world(parser)
    add_json(parser)


_SHOWN = 8


class _Usage(FleetError):
    """Arguments that do not go together."""

    exit_code = 2


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one explanation, or that of all that waits; exit 1 if the name is unknown."""
    if args.all != (args.name is None) or (args.all and args.kind != "request"):
        raise _Usage("name what to explain, or use `request --all`")
    decision = decide(args, console)
    if args.all:
        return _explain_all(args, decision, console)
    explanation = _explain(decision, args.kind, args.name)
    if explanation is None:
        raise FleetError(_unknown(decision, args.kind, args.name))
    placed = _with_places(decision.config, explanation)
    console.out(
        value_to_json(placed) if args.json else explanation_to_text(placed, colour=console.colour)
    )
    return 0


def _explain_all(args: argparse.Namespace, decision: Decision, console: Console) -> int:
    everything = explain_every(decision.config.fleet, decision.world, decision.plan)
    placed = _all_with_places(decision.config, everything)
    console.out(
        value_to_json(each_request(placed))
        if args.json
        else everything_to_text(placed, colour=console.colour)
    )
    return 0


def _explain(decision: Decision, kind: str, name: str) -> Explanation | None:
    rests_on = (decision.config.fleet, decision.world, decision.plan)
    if kind == "request":
        return explain_request(*rests_on, name)
    if kind == "pool":
        return explain_pool(*rests_on, name)
    return explain_worker(*rests_on, name)


def _unknown(decision: Decision, kind: str, name: str) -> str:
    plan = decision.plan
    unsure = (*plan.unknown, *map(words.estimated, plan.estimates))
    if kind == "request" and unsure:
        return f"cannot tell whether {name} waits: {unsure[0]}"
    also = " (it may be running, done or blocked)" if kind == "request" else ""
    waits = "waiting request" if kind == "request" else kind
    names = _names(decision, kind)
    # Requests are numbers: the nearest is another, and no misspelling.
    meant = nearest(name, names) if kind != "request" else ""
    hint = f"did you mean '{meant}'? " if meant else ""
    if not names:
        return f"no {waits} {name}{also}; there are none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    known = ", ".join(map(clean, names[:_SHOWN])) + more
    return f"no {waits} {name}{also}; {hint}known: {known}"


def _all_with_places(config: Config, everything: Everything) -> Everything:
    """Return every answer with its lines of fleet.yaml; equal reasons are placed once."""
    known: dict[tuple[ExplainedReason, ...], tuple[ExplainedReason, ...]] = {}
    groups = []
    for group in everything.groups:
        answers = []
        for answer in group.requests:
            if answer.reasons not in known:
                known[answer.reasons] = tuple(with_place(config, r) for r in answer.reasons)
            suggestions = _placed_suggestions(config, answer)
            placed = {"reasons": known[answer.reasons], "suggestions": suggestions}
            answers.append(answer.model_copy(update=placed))
        groups.append(group.model_copy(update={"requests": tuple(answers)}))
    return everything.model_copy(update={"groups": tuple(groups)})


def _with_places(config: Config, explanation: Explanation) -> Explanation:
    reasons = tuple(with_place(config, reason) for reason in explanation.reasons)
    suggestions = _placed_suggestions(config, explanation)
    return explanation.model_copy(update={"reasons": reasons, "suggestions": suggestions})


def _placed_suggestions(config: Config, explanation: Explanation) -> tuple[Suggestion, ...]:
    return tuple(
        suggestion.model_copy(
            update={
                "changes": tuple(
                    change.model_copy(update={"place": place_of(config, change.path)})
                    for change in suggestion.changes
                )
            }
        )
        for suggestion in explanation.suggestions
    )


def with_place(config: Config, reason: ExplainedReason) -> ExplainedReason:
    """Return a reason with the line of fleet.yaml that decides it."""
    if not reason.path:
        return reason
    return reason.model_copy(update={"place": place_of(config, reason.path)})


def place_of(config: Config, path: Path) -> str:
    """Return where a key was written, or that it is a default."""
    document = config.document
    written = document.value if isinstance(document.value, dict) else {}
    if path[0] in written:
        return document.place(path)
    return f"{'.'.join(map(str, path))} (default, not set in {document.name})"


def _names(decision: Decision, kind: str) -> list[str]:
    plan = decision.plan
    return {
        "request": [key for signature in plan.signatures for key in signature.requests],
        "pool": [pool.pool for pool in plan.pools],
        "worker": [worker.worker for worker in plan.workers],
    }[kind]
