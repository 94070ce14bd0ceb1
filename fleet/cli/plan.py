"""`fleet plan`: show the machines that should exist, their cost, and the reasons."""

import argparse

from fleet.apply.plan import compare_with, load_base, observe_and_plan, reading_base
from fleet.cli.arguments import BASE, FILE, WORLD, exclusive, flag, option
from fleet.clock import utc_now
from fleet.ports import Console
from fleet.report.json import plan_to_lines, plan_to_terraform_report
from fleet.report.markdown import document_to_markdown
from fleet.report.plan import plan_blocks
from fleet.report.terminal import text_for, visible
from fleet.state.files import LocalFiles
from fleet.words import figures as words

ARGUMENTS = (
    FILE,
    WORLD,
    exclusive(
        flag("--json", "print the plan as JSON"),
        flag("--markdown", "print the plan as Markdown"),
    ),
    BASE,
    option(
        "--out",
        "FILE",
        "also save the plan to FILE for `fleet apply FILE`, without the comparison",
    ),
    option("--gitlab-terraform-report", "FILE", "also write a GitLab terraform report to FILE"),
    flag("--verbose", "also print the digests of the plan and its inputs, as with --out"),
    flag("--exit-code", "exit with 3 if changes are pending"),
)


beside = reading_base


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the plan; exit 4 if a guard refuses, 1 if a source is unknown, 3 with --exit-code."""
    # A comparison of two configurations needs no world.
    decision = observe_and_plan(args, console, needs_world=not args.base)
    plan = decision.plan
    change = None
    if args.base:
        change = compare_with(load_base(args, plan.fleet), decision, console)
    if args.out:
        LocalFiles().write_lines(args.out, map(visible, plan_to_lines(plan)))
    if args.gitlab_terraform_report:
        LocalFiles().write_text(args.gitlab_terraform_report, plan_to_terraform_report(plan))
    cadence = decision.config.fleet.cadence if args.world and not decision.unread else None
    age = "" if cadence is None else words.age(plan.time, utc_now(), cadence)
    if decision.unread:
        age = f"Nothing was observed: {decision.unread}"
    if args.json:
        for lines in plan_to_lines(plan, change, cadence):
            console.out(lines)
    else:
        blocks = plan_blocks(plan, change, age, digests=args.verbose or bool(args.out))
        text = document_to_markdown(blocks) if args.markdown else text_for(console, blocks)
        console.out(text)
    if plan.is_refused:
        return 4
    if plan.unknown:
        return 1
    return 3 if args.exit_code and not plan.is_quiet else 0
