"""This module checks fleet.yaml and says everything that is wrong with it at once."""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleet.commands.loading import check_file
from fleet.schema.findings import has_errors
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
    if args.gitlab_code_quality:
        LocalFiles().write_text(args.gitlab_code_quality, to_gitlab(checked.findings) + "\n")
    if args.json:
        console.out(to_json(checked.findings))
    else:
        if checked.findings:
            console.out(to_text(checked.findings, checked.document, colour=console.colour) + "\n")
        console.out(to_summary(checked.findings, checked.document))
    return 1 if has_errors(checked.findings) else 0


def _recorded(world: str, console: "Console") -> "Recorded":
    """Return the names of what waited in a recorded world, saying so where there are none."""
    from fleet.queues.world import read_world
    from fleet.store.history import RecordedFiles
    from fleet.tagrules.names import recorded_names

    recorded = recorded_names(read_world(world, RecordedFiles(console.note)))
    if not recorded.names:
        console.note(f"{world}: no request has a name, so no rule of the allow-list was compared")
    return recorded
