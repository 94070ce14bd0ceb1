"""Run a fleet's own policies over its plan and its configuration."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from posixpath import dirname, join

from fleet.apply.config import Config
from fleet.apply.plan import compare_with, load_base, observe_and_plan, reading_base
from fleet.apply.policies import (
    FOLDER,
    PolicyProcess,
    find_failures,
    find_policies,
    policy_process,
)
from fleet.cli.arguments import Parser, add_base, add_file, add_world, flag, option
from fleet.errors import WrongUsage
from fleet.model.policies import PolicyFile
from fleet.ports import Console
from fleet.report.findings import to_gitlab, to_json, to_text
from fleet.report.json import plan_to_json
from fleet.report.policies import policies_to_junit, policies_to_output, policies_to_summary
from fleet.schema.findings import in_order
from fleet.state.files import LocalFiles


def arguments(parser: Parser) -> None:
    """Declare what `fleet check` takes."""
    add_file(parser)
    add_world(parser)
    add_base(parser)
    option(
        parser,
        "--policies",
        "FOLDER",
        "where the policies are (default: policies beside fleet.yaml)",
    )
    flag(parser, "--json", "print findings as JSON")
    option(
        parser, "--gitlab-code-quality", "FILE", "also write a GitLab code quality report to FILE"
    )
    option(parser, "--junit", "FILE", "also write a JUnit report to FILE")


@contextmanager
def beside(args: argparse.Namespace) -> Iterator[None]:
    """Start the process that runs policies, before this one may start none any more."""
    with reading_base(args), policy_process() as args.process:
        yield


def run(args: argparse.Namespace, console: Console) -> int:
    """Print what policies find; exit 1 when there is anything."""
    folder = args.policies or join(dirname(args.file), FOLDER)
    if args.policies and not Path(folder).is_dir():
        raise WrongUsage(f"--policies {folder}: there is no such folder")
    found = find_policies(folder)
    decision = observe_and_plan(args, console)
    base = load_base(args, decision.plan.fleet) if args.base else None
    change = None if base is None else compare_with(base, decision, console)
    given = {
        "fleet": json.dumps(decision.config.document.value),
        "base": json.dumps(base.document.value) if isinstance(base, Config) else None,
        "plan": plan_to_json(decision.plan, change),
        "world": decision.world.model_dump_json(),
    }
    names = [name for name, broken in found.items() if broken is None]
    ran = _run(args.process, names, given, console) if names else ()
    judged = {each.file: each for each in (*ran, *filter(None, found.values()))}
    files = [judged[name] for name in found]
    document = decision.config.document
    findings = in_order(find_failures(files, document), args.file)
    if args.gitlab_code_quality:
        LocalFiles().write_text(args.gitlab_code_quality, to_gitlab(findings) + "\n")
    if args.junit:
        LocalFiles().write_text(args.junit, policies_to_junit(files))
    for line in policies_to_output(files):
        console.note(line)
    if args.json:
        console.out(to_json(findings))
    else:
        if findings:
            console.out(to_text(findings, document, colour=console.colour) + "\n")
        summary = policies_to_summary(files) if files else f"no policy in {folder}/"
        console.out(summary)
    return 1 if findings else 0


def _run(
    process: PolicyProcess, names: Sequence[str], given: Mapping[str, str | None], console: Console
) -> Sequence[PolicyFile]:
    """Run policies, saying where the kernel lends no hand to keep them in."""
    console.progress("running policies")
    ran = process.run(names, given)
    without = [
        *(["namespaces"] if not ran.means.network else []),
        *(["Landlock"] if not ran.means.files else []),
    ]
    if without:
        console.note(
            f"fleet: note: no {' and no '.join(without)} here: Python's audit events alone keep "
            "policies from the network and from files"
        )
    return ran.files
