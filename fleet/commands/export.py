"""This module writes fleet.yaml's rules in the words of the queue that assigns the work."""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleet.commands.loading import Checked, check_file
from fleet.errors import ConfigInvalid
from fleet.exports.result import Exported
from fleet.render.findings import to_summary, to_text
from fleet.schema.findings import has_errors
from fleet.store.files import LocalFiles

if TYPE_CHECKING:
    from datetime import date

    from fleet.ports import Console
    from fleet.schema.model import Fleet

_LIMIT_BYTES = 10 * 1000 * 1000


def run(args: argparse.Namespace, console: "Console") -> int:
    """Write the export; exit 1, writing nothing, where it would not be true."""
    today = datetime.now(tz=UTC).date()
    checked = check_file(args.file, today)
    if checked.fleet is None:
        console.note(to_text(checked.findings, checked.document))
        raise ConfigInvalid(to_summary(checked.findings, checked.document))
    exported = _export(args, checked.fleet, today)
    if exported.findings:
        console.note(_told(exported, checked))
    if has_errors(exported.findings):
        console.note(f"fleet: error: {args.target}: nothing written, see above")
        return 1
    if args.target == "debusine" and (args.diff or args.apply):
        from fleet.commands.export_rules import deliver_rules

        return deliver_rules(args, checked.fleet, today, console)
    text = exported.text
    if args.target == "copr" and args.patch:
        from fleet.commands.copr_patch import find_lost, patch_of

        content = LocalFiles().read(args.patch, _LIMIT_BYTES)
        for lost in find_lost(args.patch, content, checked.fleet, today):
            console.note(f"fleet: warning: {lost}: no rule of {args.file} gives it; deleted")
        text = patch_of(args.patch, content, text)
    if args.out:
        LocalFiles().write_text(args.out, text)
    else:
        console.out(text)
    return 0


def _export(args: argparse.Namespace, fleet: "Fleet", today: "date") -> Exported:
    from fleet.plan.digests import config_digest

    digest = config_digest(fleet)
    if args.target == "copr":
        from fleet.exports.copr import export_copr

        return export_copr(fleet, digest, today)
    from fleet.exports.debusine import DEFAULT_TASKS, export_debusine

    return export_debusine(fleet, digest, today, tuple(args.task or DEFAULT_TASKS))


def _told(exported: Exported, checked: Checked) -> str:
    return to_text(map(checked.document.locate, exported.findings), checked.document)
