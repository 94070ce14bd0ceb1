"""This module says which machines should exist, at what cost and why."""

import argparse

from fleet.commands.wiring import decide
from fleet.plan import Plan
from fleet.ports import Console
from fleet.render.to_gitlab import plan_to_terraform_report
from fleet.render.to_json import plan_to_json
from fleet.render.to_markdown import plan_to_markdown
from fleet.render.to_text import plan_to_text
from fleet.store.files import LocalFiles


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the plan; exit 4 when a guard refuses, 1 when a source was silent, 3 if asked."""
    plan = decide(args, console).plan
    if args.out:
        LocalFiles().write_text(args.out, plan_to_json(plan))
    if args.gitlab_terraform_report:
        LocalFiles().write_text(args.gitlab_terraform_report, plan_to_terraform_report(plan))
    console.out(_rendered(args, console, plan))
    if plan.is_refused:
        return 4
    if plan.unknown:
        return 1
    return 3 if args.exit_code and not plan.is_quiet else 0


def _rendered(args: argparse.Namespace, console: Console, plan: Plan) -> str:
    if args.json:
        return plan_to_json(plan)
    if args.markdown:
        return plan_to_markdown(plan)
    return plan_to_text(plan, colour=console.colour)
