"""`fleet validate`: check fleet.yaml and report all errors in one run."""

import argparse
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from fleet.apply.config import check_file
from fleet.cli.arguments import FILE, WORLD, exclusive, flag, option
from fleet.clock import utc_now
from fleet.schema.findings import Finding, has_errors, in_order, nearest
from fleet.schema.model import Fleet, WorldQueue
from fleet.schema.nodes import NUMBERS
from fleet.schema.source import Document
from fleet.state.files import LocalFiles

if TYPE_CHECKING:
    from fleet.model.facts import World
    from fleet.ports import Console
    from fleet.tagrules.names import RecordedNames


ARGUMENTS = (
    FILE,
    WORLD,
    exclusive(
        flag("--json", "print findings as JSON"),
        flag("--resolved", "print fleet.yaml with templates and includes resolved"),
    ),
    option("--gitlab-code-quality", "FILE", "also write a GitLab code quality report to FILE"),
)


def run(args: argparse.Namespace, console: "Console") -> int:
    """Print findings; return 1 if a finding is an error."""
    from fleet.report.findings import to_gitlab, to_json, to_summary, to_text
    from fleet.report.terminal import WIDTH

    world = None
    if args.world:
        from fleet.queues.recorded import read_world
        from fleet.state.history import RecordedFiles

        world = read_world(args.world, RecordedFiles(console.note))
    recorded = _read_recorded_names(args.world, world, console) if world else None
    today = utc_now().date()
    checked = check_file(args.file, today, recorded=recorded, world=world)
    more = [*_absent(checked.fleet, Path(args.file).parent), *_check_plan(checked.fleet, world)]
    found = [*checked.findings, *map(checked.document.locate, more)]
    findings = in_order(found, args.file)
    if args.gitlab_code_quality:
        LocalFiles().write_text(args.gitlab_code_quality, to_gitlab(findings) + "\n")
    tell = console.note if args.resolved else console.out
    if args.json:
        console.out(to_json(findings))
    else:
        if findings:
            text = to_text(
                findings, checked.document, colour=console.colour, width=console.columns(WIDTH)
            )
            tell(text + "\n")
        tell(to_summary(findings, checked.document))
    if args.resolved and not has_errors(findings):
        console.out(to_yaml(checked.document))
    return 1 if has_errors(findings) else 0


def _absent(fleet: Fleet | None, folder: Path) -> Iterator[Finding]:
    """Yield a warning for each missing recording, because the demand of its queue is unknown."""
    for queue, declared in fleet.queues.items() if fleet else ():
        if isinstance(declared, WorldQueue) and not _is_file(folder / declared.path):
            alike = _most_alike(declared.path, folder)
            yield Finding(
                rule="unreadable-file",
                message=f"no file {declared.path}, so the demand of {queue} is unknown",
                path=("queues", queue, "path"),
                severity="warning",
                hint=f"did you mean '{alike}'?"
                if alike
                else f"where the queue is read, `fleet observe --out {declared.path}` records it",
            )


def _check_plan(fleet: Fleet | None, world: "World | None") -> Iterator[Finding]:
    """Yield the findings about the plan of a recorded world, if fleet.yaml is valid."""
    if fleet is None or world is None or fleet.fleet != world.fleet:
        return
    from fleet.apply.plan import mark_unread
    from fleet.checks import check_planned
    from fleet.explain.costs import find_budget_needs
    from fleet.model.facts import Unknown

    world = mark_unread(world, fleet, Unknown(unknown="not in the recording"))
    yield from check_planned(find_budget_needs(fleet, world))


def _most_alike(path: str, folder: Path) -> str:
    """Return the existing file with the most similar name; empty if no name is similar.

    Search only below this folder, because a merge request must not learn about other files.
    """
    beside = Path(os.path.realpath((folder / path).parent))
    if not beside.is_relative_to(os.path.realpath(folder)):
        return ""
    names: list[str] = []
    with suppress(OSError):
        names = [each.name for each in beside.iterdir() if _is_file(each)]
    close = nearest(Path(path).name, names)
    return str(Path(path).parent / close) if close else ""


def _is_file(path: Path) -> bool:
    # Unlike `Path.is_file`, this is false for an inaccessible or too long path.
    return os.path.isfile(path)  # noqa: PTH113 - see above


def _read_recorded_names(path: str, world: "World", console: "Console") -> "RecordedNames":
    """Return the names of the requests in a recorded world; print a note if it has no names."""
    from fleet.tagrules.names import recorded_names

    recorded = recorded_names(world)
    if not recorded.names:
        why = recorded.nameless or "no request waits"
        console.note(f"{path}: {why}, so no rule of the allow-list was checked")
    return recorded


def to_yaml(document: Document) -> str:
    """Return YAML that parses to the same document, with included files merged."""
    value = dict(document.value) if isinstance(document.value, dict) else {}
    value.pop("include", None)
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """YAML writer that also quotes words that fleet.yaml, unlike PyYAML, reads as numbers."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's own
        """Return True, so that a value shared by several pools is written in full for each."""
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, "|" if "\n" in text else None
    ),
)
for _pattern in NUMBERS:
    _Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _pattern, list("-+.0123456789"))
