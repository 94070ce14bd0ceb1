"""`fleet simulate`: replay recorded demand under this fleet.yaml, or compare two fleet.yamls."""

import argparse
import re

from fleet.apply.config import load_config
from fleet.apply.plan import load_base, reading_base
from fleet.cli.arguments import FILE, argument, exclusive, flag, option
from fleet.cli.output import show
from fleet.cli.recorded import HISTORY, recorded
from fleet.errors import FileUnreadable
from fleet.model.facts import Unknown
from fleet.ports import Console
from fleet.report.html import document_to_html
from fleet.report.markdown import document_to_markdown
from fleet.simulate.replay import SimulationInputs, read_events, simulate
from fleet.simulate.report import simulation_blocks
from fleet.state.files import LocalFiles
from fleet.state.history import find_torn_end

beside = reading_base


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the result; raises FileUnreadable if no recorded moment is complete."""
    config = load_config(args, console)
    history = recorded(args, config.fleet)
    if history.file and (torn := find_torn_end(history.file)):
        console.note(f"fleet: warning: {torn}")
    task = SimulationInputs(config.fleet, args.seed)
    before = task if args.changes else None
    if args.base:
        loaded = load_base(args, config.fleet.fleet)
        if isinstance(loaded, Unknown):
            named = "" if isinstance(args.revision, Unknown | None) else f" {args.base}"
            raise FileUnreadable(f"cannot compare with --against{named}: {loaded.unknown}")
        before = SimulationInputs(loaded.fleet, args.seed)
    if args.changes:
        changed = load_config(args, console, "\n".join(args.changes))
        task = SimulationInputs(changed.fleet, args.seed)
    console.progress(f"replaying {history.name}")
    told = read_events(history.worlds())
    against = args.base or args.file
    found = simulate(task, told, before, against=against, changed=args.changes)
    if isinstance(found, Unknown):
        raise FileUnreadable(f"{history.name}: {found.unknown}")
    report = [*simulation_blocks(found, latest=args.until is None)]
    if args.html:
        LocalFiles().write_text(args.html, document_to_html(report))
    if args.markdown:
        console.out(document_to_markdown(report, level=1))
    else:
        show(args, console, found, report, piped=None)
    return 0


def _change(text: str) -> str:
    """Return the argument KEY=VALUE in the form `KEY: VALUE`; KEY may be a dotted path."""
    found = re.fullmatch(r"([^\s.=]+(?:\.[^\s.=]+){0,30})=(.*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, as cadence=5m")
    return f"{found[1]}: {found[2]}"


ARGUMENTS = (
    FILE,
    *HISTORY,
    argument(
        "--against",
        dest="base",
        metavar="REF",
        help="the configuration before the change: a git revision of fleet.yaml, for example "
        "origin/main, or a file",
    ),
    argument(
        "--set",
        dest="changes",
        metavar="KEY=VALUE",
        type=_change,
        action="append",
        default=[],
        help="change a key, for example pools.builders.retire.idle_after=1h; may be repeated. "
        "Without --against, compare with the unchanged fleet.yaml",
    ),
    option(
        "--seed",
        "N",
        "seed of the random spot interruptions (default: 0)",
        default=0,
        kind=int,
    ),
    option("--html", "FILE", "also write an HTML page with plots to FILE"),
    exclusive(flag("--json", "print JSON"), flag("--markdown", "print Markdown")),
)
