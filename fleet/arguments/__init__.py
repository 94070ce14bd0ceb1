"""This module is the whole command line; it imports no command."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.arguments.exchange import add_exchange
from fleet.arguments.image import add_image
from fleet.arguments.machine import add_machine
from fleet.arguments.serve import add_serve
from fleet.arguments.shadow import add_shadow
from fleet.arguments.ticket import add_ticket
from fleet.arguments.usage import Parser
from fleet.arguments.usage import add_json as _json
from fleet.arguments.usage import add_verb as _verb
from fleet.arguments.usage import add_world as _world

if TYPE_CHECKING:
    from fleet.arguments.usage import Verbs as _Verbs

EXIT_CODES = """\
exit codes:
  0  nothing wrong
  1  findings, or something failed
  2  wrong usage
  3  changes are pending (only with --exit-code)
  4  refused: a guard, a missing store or a changed plan (wins over 3)
  5  partly applied: some pools failed, others are done
  130  interrupted; what an apply had begun is finished by the next
"""


@functools.cache  # who runs many commands in one process builds it once
def build_parser() -> argparse.ArgumentParser:
    """Return the whole command line, without importing any command."""
    parser = _Program(
        prog="fleet",
        description="A declarative reconciler for the build machines of a distribution.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    verbs = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    _validate(verbs)
    _schema(verbs)
    _observe(verbs)
    _plan(verbs)
    _apply(verbs)
    _status(verbs)
    _doctor(verbs)
    _explain(verbs)
    _tags(verbs)
    add_image(verbs)
    _state(verbs)
    add_machine(verbs)
    _sweep(verbs)
    _adopt(verbs)
    _prices(verbs)
    add_ticket(verbs)
    add_serve(verbs)
    add_shadow(verbs)
    add_exchange(verbs)
    _completion(verbs, parser)
    return parser


class _Program(Parser):
    """Leads whoever names no command, or none that there is, to all of them in its first line."""

    def format_usage(self) -> str:
        """Return the line that wrong usage is answered with; help itself does without."""
        return f"{super().format_usage().rstrip()}; see fleet --help\n"


class _Version(argparse.Action):
    """Look the version up only when asked: importlib.metadata is slow to load."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002 - argparse's own name
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"fleet {version('fleet-reconciler')}\n")
        parser.exit()


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, not {text}")
    return int(text)


def _validate(verbs: _Verbs) -> None:
    parser = _verb(verbs, "validate", "check fleet.yaml and say what is wrong, all at once")
    _world(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print findings as JSON")
    what.add_argument(
        "--resolved",
        action="store_true",
        help="print fleet.yaml with its templates applied and its files included",
    )
    parser.add_argument(
        "--gitlab-code-quality",
        metavar="FILE",
        help="also write a GitLab code quality report to FILE",
    )


def _schema(verbs: _Verbs) -> None:
    parser = _verb(verbs, "schema", "print a published JSON Schema", config=False)
    parser.add_argument(
        "document",
        nargs="?",
        default="fleet",
        choices=["fleet", "world", "plan", "findings"],
        help="of which document (default: fleet)",
    )
    parser.add_argument("--out", metavar="FILE", help="write it to FILE instead")


def _observe(verbs: _Verbs) -> None:
    parser = _verb(verbs, "observe", "record everything a decision rests on, without secrets")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE", help="write it to FILE instead")
    where.add_argument(
        "--append",
        metavar="FILE",
        help="add it to the compressed history in FILE instead, as in history.jsonl.zst",
    )
    parser.add_argument(
        "--pseudonyms",
        action="store_true",
        help="put names made up anew in place of people: requesters, users of groups, sandboxes. "
        "Without it what is recorded holds personal data",
    )


def _plan(verbs: _Verbs) -> None:
    parser = _verb(verbs, "plan", "say which machines should exist, at what cost and why")
    _world(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the plan as JSON")
    form.add_argument("--markdown", action="store_true", help="print the plan as Markdown")
    parser.add_argument(
        "--base",
        metavar="FILE",
        help="also say what differs from the plan of this fleet.yaml, as of the target branch; "
        "one that cannot be read stops nothing, and the plan says so",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="also save the plan as JSON to FILE, for `fleet apply FILE`; without what differs",
    )
    parser.add_argument(
        "--gitlab-terraform-report",
        metavar="FILE",
        help="also write a GitLab terraform report to FILE",
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 3 when changes are pending"
    )


def _apply(verbs: _Verbs) -> None:
    parser = _verb(verbs, "apply", "make it so: observe, plan, guard, then change machines")
    parser.add_argument(
        "plan",
        nargs="?",
        metavar="PLAN",
        help="a plan saved by `fleet plan --out`: refuse, with the difference, where the plan of "
        "now is another",
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="NAME",
        help="change only this pool; may be repeated. Guards still count the whole fleet",
    )
    parser.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="change at most N pools of the real engine at once (default: one per CPU, 2 to 8)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the outcome as JSON; with --every, that of each run on a line of its own",
    )
    parser.add_argument(
        "--every",
        metavar="DURATION",
        help="apply again and again, as in --every 60s; Ctrl-C or SIGTERM ends it",
    )
    parser.add_argument(
        "--for",
        dest="most",
        metavar="DURATION",
        help="with --every: begin no run later than this after the first, as in --for 14m",
    )
    parser.add_argument(
        "--until-quiet",
        action="store_true",
        help="with --every: end when nothing is to do and nothing is on the way",
    )
    parser.add_argument(
        "--trust-clock",
        action="store_true",
        help="apply once though the clock differs by much from the last run's or the server's",
    )


def _status(verbs: _Verbs) -> None:
    parser = _verb(verbs, "status", "show pools and workers: state, image, work, money")
    _world(parser)
    _json(parser)
    parser.add_argument("--site", metavar="DIR", help="write static status pages to DIR")
    parser.add_argument(
        "--heartbeat",
        action="store_true",
        help="only say whether somebody still runs fleet apply, for monitoring: 0 yes, 1 no",
    )


def _doctor(verbs: _Verbs) -> None:
    parser = _verb(verbs, "doctor", "ask whether everything that fleet.yaml names works")
    _json(parser)


def _explain(verbs: _Verbs) -> None:
    parser = _verb(verbs, "explain", "say why a request waits, a pool wants N, a worker stays")
    parser.add_argument("kind", choices=["request", "pool", "worker"], help="what to explain")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="ID|NAME",
        help="a request's id, else a name, as plan and status show them",
    )
    parser.add_argument(
        "--all", action="store_true", help="every waiting request, in groups, in place of an id"
    )
    _world(parser)
    _json(parser)


def _tags(verbs: _Verbs) -> None:
    parser = _verb(verbs, "tags", "say where tags come from, and who enforces them", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = _verb(actions, "explain", "say where each tag of a request comes from")
    action.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="OWNER/PROJECT/CHROOT/PACKAGE, or SCOPE/WORKSPACE/ARCHITECTURE/SOURCE of Debusine",
    )
    action.add_argument("--request", metavar="ID", help="a request that waits, in place of a name")
    action.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="as if its user asked for this tag; may be repeated",
    )
    action.add_argument("--user", metavar="NAME", help="as if this user had made it")
    action.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="as if that user were in this group; may be repeated",
    )
    _world(action)
    _json(action)
    listing = _verb(
        actions, "list", "list every tag and who enforces it: scheduler, capacity, nobody"
    )
    _json(listing)


def _state(verbs: _Verbs) -> None:
    parser = _verb(verbs, "state", "look after what must outlive a run", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("init", "create the store (once per fleet)"),
        ("show", "say where store and stacks live and what they hold"),
        ("orphans", "list machines that no stack knows, and stack entries without a machine"),
        ("rebuild", "make lost state anew from the marks of machines; nothing is deleted"),
        ("export", "write all that the fleet remembers to a file: its store and its stacks"),
        ("import", "put what such a file holds where fleet.yaml keeps state"),
        ("forget-machine", "the same as `fleet machine forget`"),
        ("unlock", "take away the locks of runs that died, of the fleet and of its stacks"),
    ):
        action = _verb(actions, name, help_text)
        if name in ("show", "orphans", "rebuild"):
            _json(action)
        if name == "rebuild":
            action.add_argument(
                "--apply", action="store_true", help="do it; left out: only show what would be"
            )
        if name == "forget-machine":
            action.add_argument(
                "machine", metavar="NAME", help="its name, as plan and status show it"
            )
        if name == "export":
            action.add_argument("--out", metavar="FILE", required=True, help="the file to write")
        if name == "import":
            action.add_argument("source", metavar="FILE", help="the file to read")
        if name == "unlock":
            action.add_argument(
                "--holder",
                metavar="WHO",
                help="the holder of a lock, as it is named, that you know to be dead",
            )
        if name == "init":
            action.add_argument(
                "--forget-stack", metavar="STACK", help="give up a stack whose state is lost"
            )


def _sweep(verbs: _Verbs) -> None:
    parser = _verb(
        verbs, "sweep", "let go of machines that no run of fleet apply vouches for any more"
    )
    parser.add_argument(
        "--expired",
        action="store_true",
        required=True,
        help="those whose expiry is over: each run extends it (`expire_after` in fleet.yaml)",
    )
    parser.add_argument(
        "--apply", action="store_true", help="do it; left out: only show what would go"
    )
    _json(parser)


def _adopt(verbs: _Verbs) -> None:
    parser = _verb(verbs, "adopt", "take machines that exist into a pool, only labelled")
    parser.add_argument(
        "--select",
        required=True,
        metavar="KEY=VALUE",
        help="those whose label KEY at the provider is exactly VALUE",
    )
    parser.add_argument("--pool", required=True, metavar="NAME", help="the pool that gets them")
    parser.add_argument(
        "--outdated",
        action="store_true",
        help="also those that are not what the pool makes today: they are replaced in their turn",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be adopted")
    _json(parser)


def _prices(verbs: _Verbs) -> None:
    parser = _verb(verbs, "prices", "look after the price catalogue", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = _verb(actions, "check", "compare the prices that plans rest on with the providers'")
    _json(check)


def _completion(verbs: _Verbs, whole: argparse.ArgumentParser) -> None:
    parser = _verb(verbs, "completion", "print a shell completion script", config=False)
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="for which shell")
    parser.set_defaults(parser=whole)
