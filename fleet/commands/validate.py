"""This module checks fleet.yaml and says everything that is wrong with it at once."""

import argparse
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.commands.loading import check_file
from fleet.schema.findings import Finding, has_errors, in_order
from fleet.schema.model import Fleet, WorldQueue
from fleet.store.files import LocalFiles

if TYPE_CHECKING:
    # The ports bring the facts with them, which validate does not need.
    from fleet.ports import Console
    from fleet.tagrules.names import Recorded


def run(args: argparse.Namespace, console: "Console") -> int:
    """Print findings and return 1 when any is an error."""
    from fleet.render.findings import to_gitlab, to_json, to_summary, to_text

    recorded = _recorded(args.world, console) if args.world else None
    checked = check_file(args.file, datetime.now(tz=UTC).date(), recorded=recorded)
    absent = map(checked.document.locate, _absent(checked.fleet, Path(args.file).parent))
    findings = in_order([*checked.findings, *absent], args.file)
    if args.gitlab_code_quality:
        LocalFiles().write_text(args.gitlab_code_quality, to_gitlab(findings) + "\n")
    tell = console.note if args.resolved else console.out
    if args.json:
        console.out(to_json(findings))
    else:
        if findings:
            tell(to_text(findings, checked.document, colour=console.colour) + "\n")
        tell(to_summary(findings, checked.document))
    if args.resolved and not has_errors(findings):
        from fleet.render.resolved import to_yaml

        console.out(to_yaml(checked.document))
    return 1 if has_errors(findings) else 0


def _absent(fleet: Fleet | None, folder: Path) -> Iterator[Finding]:
    """Yield the recordings that are not there: what waits in these queues is not known."""
    for queue, declared in fleet.queues.items() if fleet else ():
        if isinstance(declared, WorldQueue) and not _is_file(folder / declared.path):
            yield Finding(
                rule="unreadable-file",
                message=f"there is no file {declared.path}, so what waits in {queue} is unknown",
                path=("queues", queue, "path"),
                severity="warning",
                hint="record it with `fleet observe --out`, where the queue can be read",
            )


def _is_file(path: Path) -> bool:
    # Unlike `Path.is_file`, of a path that may not be looked at, or is too long, no.
    return os.path.isfile(path)  # noqa: PTH113 - see above


def _recorded(world: str, console: "Console") -> "Recorded":
    """Return the names of what waited in a recorded world, saying so where there are none."""
    from fleet.queues.world import read_world
    from fleet.store.history import RecordedFiles
    from fleet.tagrules.names import recorded_names

    recorded = recorded_names(read_world(world, RecordedFiles(console.note)))
    if not recorded.names:
        console.note(f"{world}: no request has a name, so no rule of the allow-list was compared")
    return recorded
