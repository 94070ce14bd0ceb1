"""Report a month, or post a saved comparison of plans as a comment on a merge request.

The comparison is untrusted, because the merge request's pipeline wrote it. It is therefore parsed
as data, and rendered by fleet's own templates.
"""

import argparse
import hashlib
import os
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import TypeVar

from pydantic import ValidationError

from fleet.apply.config import load_config
from fleet.apply.satellites import connected
from fleet.apply.saved_plan import with_unknown_amounts
from fleet.cli.arguments import FILE, JSON, argument, exclusive, flag, option
from fleet.cli.output import show
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, PlanRefused, SecretMissing, WrongUsage
from fleet.explain.changes import ComparedPlan
from fleet.explain.history import HOLDS, SlotGrid, fold
from fleet.model.values import Value, first_mistake
from fleet.planner.ledger import Period
from fleet.ports import Console, Since
from fleet.queues.gitlab import MOST_CHARACTERS, Gitlab
from fleet.report.html import document_to_html
from fleet.report.markdown import cut, document_to_markdown
from fleet.report.plan import plan_to_markdown
from fleet.schema.model import Fleet
from fleet.site.charges import MonthRecords, days_of, month_at, month_report, name_month
from fleet.site.money import month_blocks, month_to_csv
from fleet.state.confined import is_untrusted
from fleet.state.files import LocalFiles
from fleet.state.store import Store, store_of
from fleet.words import figures as words

FORMATS = ("text", "markdown", "html", "csv")
_HOUR = timedelta(hours=1)
_SLOT = timedelta(hours=4)
_LAST = 12


def month(text: str) -> date:
    """Return the first day of a month such as 2026-11; raises ArgumentTypeError if invalid."""
    found = re.fullmatch(r"(2[01][0-9]{2})-([0-9]{2})", text)
    if not found or not 1 <= int(found[2]) <= _LAST:
        raise argparse.ArgumentTypeError(f"{text!r} is no month; write it as 2026-11")
    return date(int(found[1]), int(found[2]), 1)


def report_month(args: argparse.Namespace, console: Console) -> int:
    """Print the report of a month; return 0."""
    fleet = load_config(args, console).fleet
    store = store_of(fleet, args.file)
    period = month_at(fleet, args.month)
    if period.start > utc_now():
        raise WrongUsage(
            f"--month {args.month:%Y-%m} is in the future; give the current or an earlier month"
        )
    report = month_report(fleet, period, _read_records(fleet, period, store))
    if args.format == "csv" and not args.json:
        console.out(month_to_csv(report))
    elif args.format == "html" and not args.json:
        count = -((report.start - report.end) // _SLOT)
        hold = HOLDS * timedelta(seconds=fleet.cadence)
        samples = store.samples(report.start - hold, report.end)
        points = [(each.at, each.fleet) for each in samples]
        # The time after the last sample is unknown.
        machines = fold(points, SlotGrid(report.start, _SLOT, count, hold))
        console.out(document_to_html(month_blocks(report, machines, _SLOT)))
    elif args.format == "markdown" and not args.json:
        console.out(document_to_markdown(month_blocks(report), level=1))
    else:
        show(args, console, report, month_blocks(report), piped=None)
    return 0


def _read_records(fleet: Fleet, period: Period, store: Store) -> MonthRecords:
    currency = fleet.money.currency

    def ledger_of(part: Period) -> Since:
        return Since(hour=part.end - _HOUR, day=part.start, month=part.start)

    ledger, since = store.ledger(ledger_of(period), currency), store.charged_since()
    until = ledger.charged_until

    def cost_of(day: Period) -> Decimal | None:
        if since is None or until is None or since >= day.end or until <= day.start:
            return None
        charges = store.ledger(ledger_of(day), currency).charges
        return sum((each.money[-1] for each in charges), Decimal(0))

    log = store.read_log(period.start)
    return MonthRecords.model_validate(
        {
            "charges": ledger.charges,
            "days": tuple(map(cost_of, days_of(fleet, period))),
            "charged_since": since,
            "charged_until": until if since is not None and since < period.end else None,
            "tallies": store.tallies(name_month(fleet, period)),
            "log": tuple(each for each in log if each.at < period.end),
        }
    )


_TOKEN = "FLEET_GITLAB_TOKEN"  # noqa: S105 - the name of a variable
_Saved = TypeVar("_Saved", bound=Value)
_MIN_LENGTH = 1000
_LIMIT_BYTES = 64 * 1024 * 1024
_CUT_NOTICE = (
    "_Cut here: it may not be longer. The whole report is an artifact of the job `plan` in the "
    "merge request's pipeline._"
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report, or write it as a comment of a merge request; return 0."""
    if args.month is not None:
        return report_month(args, console)
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
    api = args.gitlab or os.environ.get("CI_API_V4_URL")
    project = args.project or os.environ.get("CI_PROJECT_ID")
    if not api or not project:
        raise WrongUsage("outside of GitLab's jobs name --gitlab URL and --project ID")
    return Gitlab(api, project, token)


ARGUMENTS = (
    argument(
        "plan",
        nargs="?",
        metavar="FILE",
        help="output of `fleet plan --json --base FILE`; printed as Markdown without "
        "--merge-request",
    ),
    exclusive(
        option(
            "--merge-request",
            "IID",
            f"create or update the comment on this merge request; needs {_TOKEN}",
            kind=_number,
        ),
        flag(
            "--open-merge-requests",
            f"print the numbers of the open merge requests; needs {_TOKEN}",
        ),
        option(
            "--month",
            "YYYY-MM",
            "report the costs, payers and reached limits of this month from the store, without "
            "FILE",
            kind=month,
        ),
    ),
    option(
        "--simulation",
        "JSON",
        "add the output of `fleet simulate --json --against REF`; without FILE, print only this "
        "part",
    ),
    FILE,
    argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="format of --month; html is one page with plots (default: text)",
    ),
    JSON,
    option(
        "--most",
        "N",
        f"maximum number of characters (default: {MOST_CHARACTERS}, GitLab's limit)",
        default=MOST_CHARACTERS,
        kind=_characters,
    ),
    option("--gitlab", "URL", "URL of GitLab's API (default: CI_API_V4_URL)"),
    option("--project", "ID", "id or path of the project (default: CI_PROJECT_ID)"),
)
