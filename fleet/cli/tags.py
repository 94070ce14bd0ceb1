"""`fleet tags`: show the origin and the enforcement of tags."""

import argparse

from fleet.apply.config import Config, load_config, with_places
from fleet.apply.plan import load_world, note_clock, observe_and_plan
from fleet.apply.wire import read_members, read_rules
from fleet.cli.arguments import JSON, WORLD, action, actions, argument, option, repeated
from fleet.cli.output import show
from fleet.clock import utc_now
from fleet.errors import FleetError, WrongUsage
from fleet.explain.case import Case
from fleet.explain.tags import (
    Subject,
    TagsExplanation,
    explain_tags,
    list_tags,
    queues_of,
    request_of_name,
)
from fleet.model.facts import Request, World
from fleet.planner.demand import judge_of
from fleet.ports import Console
from fleet.report.answers import tag_list_to_lines, tags_blocks
from fleet.tagrules.derive import NOTHING, context_of
from fleet.words import figures as words


def _explain(args: argparse.Namespace, console: Console) -> int:
    """Print every tag of a request; raises FleetError if the request is unknown."""
    if (args.name is None) == (args.request is None):
        raise WrongUsage("give either a name (OWNER/PROJECT/CHROOT/PACKAGE) or --request ID")
    if args.request is not None and (args.tag or args.user or args.group or args.task):
        raise WrongUsage("--tag, --user, --group and --task need a name; a --request has its own")
    config, found = (
        _explain_waiting(args, console) if args.request else _explain_new(args, console)
    )
    placed = with_places(config, found)
    show(args, console, placed, tags_blocks(placed))
    return 0


def _list(args: argparse.Namespace, console: Console) -> int:
    config = load_config(args, console)
    placed = with_places(config, list_tags(config.fleet), at="key")
    show(args, console, placed, tag_list_to_lines(placed), piped=None)
    return 0


def _explain_waiting(args: argparse.Namespace, console: Console) -> tuple[Config, TagsExplanation]:
    """Explain the tags of a waiting request, including the tags that its queue reports."""
    decision = observe_and_plan(args, console)
    note_clock(decision, console)
    fleet, world = decision.config.fleet, decision.world
    case = Case(fleet, world, decision.plan)
    name = args.request.partition("#")[0]
    keys = [each for each in case.requests if name in (each, each.partition("/")[2])]
    if not keys:
        plan = decision.plan
        unsure = (*plan.unknown, *map(words.estimated, plan.estimates))
        hint = f"; {unsure[0]}" if unsure else " (it may be running, done or blocked)"
        raise FleetError(f"no waiting request {args.request}{hint}")
    queue, (request, demand) = keys[0].partition("/")[0], case.requests[keys[0]]
    asking = judge_of(fleet, world).ask_of(request, context_of(fleet, queue, demand))
    subject = Subject(f"{queue}/{request.id}", request, (queue,), queue)
    return decision.config, explain_tags(fleet, world, subject, asking)


def _explain_new(args: argparse.Namespace, console: Console) -> tuple[Config, TagsExplanation]:
    """Explain the tags that a new request of this name would have."""
    config = load_config(args, console)
    fleet = config.fleet
    named = request_of_name(fleet, args.name, args.task)
    if named is None:
        raise WrongUsage(
            f"{args.name}: expected four parts, OWNER/PROJECT/CHROOT/PACKAGE of Copr or "
            "SCOPE/WORKSPACE/ARCHITECTURE/SOURCE of Debusine"
        )
    request = Request.model_validate(
        named.model_dump()
        | {
            "required": (*named.required, *args.tag),
            "asked": dict(named.asked) | dict.fromkeys(args.tag, "user"),
            "requester": args.user,
            "groups": tuple(args.group),
        }
    )
    world = (
        load_world(args, config.fleet, console)
        if args.world
        else World(
            fleet=config.fleet.fleet,
            time=utc_now(),
            members=read_members(config.fleet, args.file),
            queues=read_rules(config.fleet, args.file),
        )
    )
    asking = judge_of(fleet, world).ask_of(request, NOTHING)
    subject = Subject(args.name, request, queues_of(fleet, request))
    return config, explain_tags(fleet, world, subject, asking)


ARGUMENTS = (
    actions(
        action(
            "explain",
            "show the origin of each tag of a request",
            _explain,
            argument(
                "name",
                nargs="?",
                metavar="NAME",
                help="OWNER/PROJECT/CHROOT/PACKAGE, or SCOPE/WORKSPACE/ARCHITECTURE/SOURCE of "
                "Debusine",
            ),
            option("--request", "ID", "id of a waiting request, instead of NAME"),
            repeated("--tag", "TAG", "assume that the user requested this tag; may be repeated"),
            option("--user", "NAME", "assume that this user made the request"),
            repeated("--group", "NAME", "assume that the user is in this group; may be repeated"),
            option(
                "--task",
                "TASK",
                "assume this task (default: the one that builds packages, sbuild at Debusine)",
            ),
            WORLD,
            JSON,
        ),
        action(
            "list",
            "list all tags and their enforcement: scheduler, capacity or none",
            _list,
            JSON,
        ),
    ),
)
