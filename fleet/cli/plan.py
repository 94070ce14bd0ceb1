"""Show which machines should exist, at what cost and why."""

import argparse
from dataclasses import replace

from fleet.apply.config import Config
from fleet.apply.decide import Decision, decide, load_base, plan_for, priced
from fleet.apply.timer import SystemClock
from fleet.cli.arguments import Parser, add_file, add_world
from fleet.explain.changes import (
    Comparison,
    compare,
    find_config_changes,
    find_image_changes,
    find_renames,
    find_rest,
    find_unseen,
    rename_pools,
)
from fleet.model.digests import config_digest
from fleet.model.facts import Unknown
from fleet.model.plan import Plan
from fleet.ports import Console
from fleet.report import words
from fleet.report.json import plan_to_json, plan_to_terraform_report
from fleet.report.plan_markdown import plan_to_markdown
from fleet.report.plan_text import plan_to_text
from fleet.schema.model import Fleet
from fleet.state.files import LocalFiles


def arguments(parser: Parser) -> None:
    """Declare what `fleet plan` takes."""
    add_file(parser)
    add_world(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the plan as JSON")
    form.add_argument("--markdown", action="store_true", help="print the plan as Markdown")
    parser.add_argument(
        "--base",
        metavar="FILE",
        help="also show the differences from the plan of this fleet.yaml, as of the target "
        "branch; if it cannot be read, the plan says so",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="also save the plan as JSON to FILE, for `fleet apply FILE`; without the differences",
    )
    parser.add_argument(
        "--gitlab-terraform-report",
        metavar="FILE",
        help="also write a GitLab terraform report to FILE",
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 3 when changes are pending"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the plan; exit 4 when a guard refuses, 1 when a source was silent, 3 if asked."""
    decision = decide(args, console)
    plan = decision.plan
    change = _change(args.base, decision, console) if args.base else None
    if args.out:
        LocalFiles().write_text(args.out, plan_to_json(plan))
    if args.gitlab_terraform_report:
        LocalFiles().write_text(args.gitlab_terraform_report, plan_to_terraform_report(plan))
    now, cadence = SystemClock().now(), decision.config.fleet.cadence
    age = words.age(plan.time, now, cadence) if args.world else ""
    console.out(_rendered(args, console, plan, change, age))
    if plan.is_refused:
        return 4
    if plan.unknown:
        return 1
    return 3 if args.exit_code and not plan.is_quiet else 0


def _change(name: str, decision: Decision, console: Console) -> Comparison:
    """Return what differs from the plan of another fleet.yaml; that one stops nothing."""
    base = load_base(name)
    if isinstance(base, Config) and base.fleet.fleet != decision.plan.fleet:
        base = Unknown(
            unknown=f"{name} is of fleet {base.fleet.fleet}, not of fleet {decision.plan.fleet}"
        )
    if isinstance(base, Unknown):
        console.note(f"fleet: warning: cannot compare with the base: {base.unknown}")
        return base
    base, head = priced(base, decision.world), decision.config.fleet
    renames = find_renames(base.fleet, head)
    renamed = rename_pools(base.fleet, renames)
    planned = plan_for(replace(base, fleet=renamed), decision.world)
    found = compare(
        _with_config(planned, base.fleet),
        decision.plan,
        unseen=find_unseen(renamed, decision.world),
        config=find_config_changes(renamed, head),
        renames=renames,
    )
    more = {
        "images": find_image_changes(renamed, head, decision.world, decision.plan),
        "rest_before": find_rest(renamed, planned),
        "rest_after": find_rest(head, decision.plan),
    }
    return found.model_copy(update=more)


def _with_config(plan: Plan, fleet: Fleet) -> Plan:
    """Return a plan that names this fleet.yaml as what it was made of."""
    digests = plan.digests.model_copy(update={"config": config_digest(fleet)})
    return plan.model_copy(update={"digests": digests})


def _rendered(
    args: argparse.Namespace, console: Console, plan: Plan, change: Comparison | None, age: str
) -> str:
    if args.json:
        return plan_to_json(plan, change)
    if args.markdown:
        return plan_to_markdown(plan, change, age)
    return plan_to_text(plan, colour=console.colour, change=change, age=age)
