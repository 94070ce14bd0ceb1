"""Report a month, or post a saved comparison of plans as a comment on a merge request.

The comparison is untrusted, because the merge request's pipeline wrote it. It is therefore parsed
as data, and rendered by fleet's own templates.
"""

import argparse
import hashlib
import os
import re
from typing import TypeVar

from pydantic import ValidationError

from fleet.apply.satellites import connected
from fleet.apply.saved_plan import with_unknown_amounts
from fleet.cli.arguments import Parser, add_file, add_json, flag, option
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, PlanRefused, SecretMissing, WrongUsage
from fleet.explain.changes import ComparedPlan
from fleet.model.values import Value, first_mistake
from fleet.ports import Console
from fleet.queues.gitlab import MOST_CHARACTERS, Gitlab
from fleet.report.markdown import cut, document_to_markdown
from fleet.report.plan import plan_to_markdown
from fleet.site import month_command
from fleet.state.confined import is_untrusted
from fleet.state.files import LocalFiles
from fleet.words import figures as words

_TOKEN = "FLEET_GITLAB_TOKEN"  # noqa: S105 - the name of a variable
_Saved = TypeVar("_Saved", bound=Value)
_MIN_LENGTH = 1000
_LIMIT_BYTES = 64 * 1024 * 1024
_CUT_NOTICE = (
    "_Cut here: it may not be longer. The whole report is an artifact of the job `plan` in the "
    "merge request's pipeline._"
)


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet report`."""
    parser.add_argument(
        "plan",
        nargs="?",
        metavar="FILE",
        help="output of `fleet plan --json --base FILE`; printed as Markdown without "
        "--merge-request",
    )
    what = parser.add_mutually_exclusive_group()
    option(
        what,
        "--merge-request",
        "IID",
        f"create or update the comment on this merge request; needs {_TOKEN}",
        kind=_number,
    )
    flag(
        what,
        "--open-merge-requests",
        f"print the numbers of the open merge requests; needs {_TOKEN}",
    )
    option(
        what,
        "--month",
        "YYYY-MM",
        "report the costs, payers and reached limits of this month from the store, without FILE",
        kind=month_command.month,
    )
    option(
        parser,
        "--simulation",
        "JSON",
        "add the output of `fleet simulate --json --against REF`; without FILE, print only this "
        "part",
    )
    add_file(parser)
    parser.add_argument(
        "--format",
        choices=month_command.FORMATS,
        default="text",
        help="format of --month; html is one page with plots (default: text)",
    )
    add_json(parser)
    option(
        parser,
        "--most",
        "N",
        f"maximum number of characters (default: {MOST_CHARACTERS}, GitLab's limit)",
        default=MOST_CHARACTERS,
        kind=_characters,
    )
    option(
        parser,
        "--gitlab",
        "URL",
        "URL of GitLab's API (default: CI_API_V4_URL)",
        default=os.environ.get("CI_API_V4_URL"),
    )
    option(
        parser,
        "--project",
        "ID",
        "id or path of the project (default: CI_PROJECT_ID)",
        default=os.environ.get("CI_PROJECT_ID"),
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report, or write it as a comment of a merge request; return 0."""
    if args.month is not None:
        return month_command.run(args, console)
    if args.json or args.format != "text":
        raise WrongUsage("--json and --format are of --month YYYY-MM")
    if args.open_merge_requests:
        for number in _gitlab(args).open_merge_requests():
            console.out(str(number))
        return 0
    text, fleet = _text(args)
    if args.merge_request is None:
        console.out(cut(text, args.most, _CUT_NOTICE))
        return 0
    marker = f"<!-- fleet report {hashlib.sha256(fleet.encode()).hexdigest()[:16]} -->"
    room = min(args.most, MOST_CHARACTERS) - len(marker) - 1
    done = keep_comment(_gitlab(args), args.merge_request, marker, cut(text, room, _CUT_NOTICE))
    console.out(f"merge request !{args.merge_request}: comment {done}")
    return 0


def _text(args: argparse.Namespace) -> tuple[str, str]:
    """Return the saved comparison as Markdown, and the name of its fleet."""
    simulation, form = None, connected().simulation
    if args.simulation:
        by = "fleet simulate --json --against REF"
        simulation = _read(args.simulation, form().model, "simulation", by)
        if args.plan is None and args.merge_request is None:
            document = form().to_document(simulation)
            return document_to_markdown(document, level=1), simulation.fleet
    if args.plan is None:
        raise WrongUsage("name the FILE that `fleet plan --json --base FILE` printed")
    saved = _read(args.plan, ComparedPlan, "plan", "fleet plan --json --base FILE")
    plan = with_unknown_amounts(saved)
    now, cadence = utc_now(), plan.cadence
    age = "" if cadence is None else words.age(plan.time, now, cadence)
    text = plan_to_markdown(plan, plan.change, age)
    if simulation and simulation.fleet != plan.fleet:
        raise WrongUsage(
            f"{args.simulation} is of fleet {simulation.fleet}, {args.plan} of {plan.fleet}"
        )
    return text + (f"\n{form().to_markdown(simulation)}" if simulation else ""), plan.fleet


def keep_comment(gitlab: Gitlab, merge_request: int, marker: str, text: str) -> str:
    """Create or update the user's only comment with this marker; return the action.

    The user is the owner of the token. Comments of other users stay unchanged.
    """
    body = f"{marker}\n{text}"
    user = gitlab.user()

    def own() -> list[int]:
        found = gitlab.comments(merge_request, user)
        bodies.update({each.id: each.body for each in found})
        return [each.id for each in found if each.body.startswith(marker)]

    bodies: dict[int, str] = {}
    ids = own()
    done = "updated"
    if not ids:
        gitlab.add_comment(merge_request, body)
        # A concurrent job may have added a comment: both jobs keep the oldest.
        ids, done = own(), "added"
    for extra in ids[1:]:
        gitlab.delete_comment(merge_request, extra)
    if ids and bodies[ids[0]].rstrip() == body.rstrip():
        return done if done == "added" else "unchanged"
    if ids:
        gitlab.edit_comment(merge_request, ids[0], body)
    return done


def _number(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a merge request")
    return int(text)


def _characters(text: str) -> int:
    if not text.isdecimal() or int(text) < _MIN_LENGTH:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {_MIN_LENGTH} up")
    return int(text)


def _read(name: str, kind: type[_Saved], noun: str, command: str) -> _Saved:
    """Parse a file that a merge request's pipeline saved; raises FileUnreadable if invalid."""
    content = LocalFiles().read(name, _LIMIT_BYTES)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise FileUnreadable(
            f"{name}: no {noun} of this version of fleet: {first_mistake(error)}; save one with "
            f"`{command}`"
        ) from error


def _gitlab(args: argparse.Namespace) -> Gitlab:
    """Return the GitLab project; raises PlanRefused in pipelines that must not use the token."""
    if is_untrusted():
        raise PlanRefused(
            f"refused: this is a merge request's own pipeline, where {_TOKEN} must not be: let a "
            "job of the default branch report (docs/how-to/run-in-gitlab.md)"
        )
    token = os.environ.get(_TOKEN, "")
    if not token:
        raise SecretMissing(
            f"{_TOKEN} is not set: a project access token with the scope `api` and the role "
            "Reporter, as a variable that is Protected"
        )
    if not args.gitlab or not args.project:
        raise WrongUsage("outside of GitLab's jobs name --gitlab URL and --project ID")
    return Gitlab(args.gitlab, args.project, token)
