"""`fleet check`: run a fleet's policy tests on its plan and its configuration."""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from posixpath import dirname, join

from fleet.apply.config import Config
from fleet.apply.plan import compare_with, load_base, note_clock, observe_and_plan, reading_base
from fleet.apply.policies import FOLDER, find_failures, find_policies, run_policies
from fleet.cli.arguments import BASE, FILE, WORLD, flag, option
from fleet.errors import Confined, FleetError, WrongUsage, add_extra
from fleet.ports import Console
from fleet.report.findings import (
    policies_to_junit,
    policies_to_summary,
    to_gitlab,
    to_json,
    to_text,
)
from fleet.report.json import plan_to_json
from fleet.report.terminal import WIDTH
from fleet.schema.findings import in_order
from fleet.state.confined import is_untrusted
from fleet.state.files import LocalFiles

_MAX_LINES = 20
"""Maximum printed lines of a policy's output."""
_MAX_COLUMNS = 200


ARGUMENTS = (
    FILE,
    WORLD,
    BASE,
    option(
        "--policies",
        "FOLDER",
        "folder of the policies, which pytest runs with your rights (default: policies/ next to "
        "fleet.yaml; required in the job of a merge request)",
    ),
    flag("--json", "print findings as JSON"),
    option("--gitlab-code-quality", "FILE", "also write a GitLab code quality report to FILE"),
    option("--junit", "FILE", "also write a JUnit report to FILE"),
)


beside = reading_base


def run(args: argparse.Namespace, console: Console) -> int:
    """Find the policies and compute the plan for the policies; `after` then runs them."""
    folder = args.policies or join(dirname(args.file), FOLDER)
    if args.policies and not Path(folder).is_dir():
        raise WrongUsage(f"--policies {folder}: folder not found")
    args.found = find_policies(folder)
    if args.found and not args.policies and is_untrusted():
        raise Confined(
            "policies not run: this is a merge request, and they are programs of it; in a job "
            f"of their own, run `fleet check --policies {folder}`"
        )
    if args.found and find_spec("pytest") is None:
        raise FleetError(f"policies need pytest, which is not installed: {add_extra('policies')}")
    decision = observe_and_plan(args, console)
    note_clock(decision, console)
    base = load_base(args, decision.plan.fleet) if args.base else None
    change = None if base is None else compare_with(base, decision, console)
    args.document = decision.config.document
    args.facts = {
        "fleet": json.dumps(decision.config.document.value),
        "base": json.dumps(base.document.value) if isinstance(base, Config) else None,
        "plan": plan_to_json(decision.plan, change),
        "world": decision.world.model_dump_json(),
    }
    return 0


def after(args: argparse.Namespace, console: Console) -> int:
    """Run the policies and print their findings; return 1 if a policy fails."""
    console.progress("running policies")
    ran = run_policies(args.found, args.facts)
    findings = in_order(find_failures(ran.tests, args.document), args.file)
    if args.gitlab_code_quality:
        LocalFiles().write_text(args.gitlab_code_quality, to_gitlab(findings) + "\n")
    if args.junit:
        LocalFiles().write_text(args.junit, policies_to_junit(ran.tests))
    for line in ran.output.splitlines()[:_MAX_LINES]:
        console.note(f"policies: {line[:_MAX_COLUMNS]}")
    if args.json:
        console.out(to_json(findings))
    else:
        if findings:
            text = to_text(
                findings, args.document, colour=console.colour, width=console.columns(WIDTH)
            )
            console.out(text + "\n")
        folder = args.policies or join(dirname(args.file), FOLDER)
        none = f"no policy in {folder}/"
        console.out(policies_to_summary(args.found, ran.tests) if args.found else none)
    return 1 if findings else 0
