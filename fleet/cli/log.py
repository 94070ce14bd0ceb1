"""`fleet log`: show author, time and reason of changes, or verify that no entry was removed."""

import argparse
from collections import deque
from collections.abc import Iterator

from fleet.apply.config import load_config
from fleet.cli.arguments import FILE, JSON, SPAN, argument, count, moment_of, option, repeated
from fleet.cli.output import show_text
from fleet.clock import utc_now
from fleet.errors import WrongUsage
from fleet.model.log import KEPT, Chain, LogEntry, find_breaks, has_mark, read_mark
from fleet.ports import Console
from fleet.report.outcome import log_to_lines
from fleet.report.terminal import text_for
from fleet.state.store import store_of

_LAST = 100


ARGUMENTS = (
    FILE,
    *(
        repeated(name, name[2:].upper(), f"only entries of this {what}; may be repeated")
        for name, what in (
            ("--pool", "pool"),
            ("--machine", "machine"),
            ("--kind", "kind: run, create, drain, delete, freeze, hold, approve, promote ..."),
            ("--run", "run, as the log prints it"),
            ("--by", "person"),
        )
    ),
    *SPAN,
    option(
        "--last",
        "N",
        f"at most the last N entries (default: {_LAST}; 0: all)",
        default=_LAST,
        kind=count(0, 1_000_000),
    ),
    argument(
        "--verify",
        nargs="?",
        const="",
        metavar="NUMBER:DIGEST",
        help="check that no entry was removed, changed or moved, and print NUMBER:DIGEST of the "
        "last one; with the NUMBER:DIGEST of an earlier check, also look for that entry",
    ),
    JSON,
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the selected entries, or verify the log."""
    fleet = load_config(args, console).fleet
    store = store_of(fleet, args.file)
    if args.verify is not None:
        chain = store.log_chain()
        breaks = [*find_breaks(chain), *_find_lost(args.verify, chain)]
        shown_chain = {
            "whole": not breaks,
            "head": str(chain.head),
            "entries": len(chain.links),
            "removed_by_retention": chain.anchor.number,
            "breaks": breaks,
        }
        first = f"entries {chain.anchor.number + 1} to {chain.head.number}"
        first = first if chain.links else "no entries"
        whole = f"{first}: nothing removed or changed\nlast: {chain.head}"
        broken = "\n  ".join(["the log is not what was written:", *breaks])
        show_text(args, console, shown_chain, broken if breaks else whole)
        return 1 if breaks else 0
    now = utc_now()
    since, until = moment_of(args.since, now), moment_of(args.until, now)
    found = [
        e for e in store.read_log(since) if _is_asked(e, args) and (not until or e.at < until)
    ]
    shown = list(deque(found, args.last or None))
    earlier = len(found) - len(shown)
    if args.json:
        entries = [each.model_dump(mode="json") for each in shown]
        show_text(args, console, {"earlier": earlier, "entries": entries}, "")
    else:
        console.out(text_for(console, log_to_lines(shown, fleet.money.currency, earlier)))
    return 0


def _is_asked(entry: LogEntry, args: argparse.Namespace) -> bool:
    asked = (
        (args.pool, entry.pool),
        (args.machine, entry.machine),
        (args.kind, entry.kind),
        (args.run, entry.run),
        (args.by, entry.origin.by),
    )
    return all(not wanted or value in wanted for wanted, value in asked)


def _find_lost(noted: str, chain: Chain) -> Iterator[str]:
    """Yield a fault if the entry that an earlier check printed is missing or different."""
    if not noted:
        return
    mark = read_mark(noted)
    if mark is None:
        raise WrongUsage(
            f"--verify {noted}: expected NUMBER:DIGEST as an earlier `fleet log --verify` printed "
            "it, at least 16 digits of the digest"
        )
    found = has_mark(chain, mark)
    if found is None:
        yield f"entry {mark.number} cannot be verified: it is older than {KEPT.days} days"
    elif not found:
        yield f"entry {mark.number} is not the one that was noted ({mark.digest})"
