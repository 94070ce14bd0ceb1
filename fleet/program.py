"""The program: parse the arguments, run the command, and turn errors into exit codes.

Only this module imports both the core and the satellites (optional parts of fleet). It imports
only the module of the requested command.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from posixpath import dirname
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from fleet.apply.satellites import Satellites, ServedPages, SimulationReport, connect
from fleet.cli.arguments import Parser, declare
from fleet.cli.console import TerminalConsole, prepare_streams
from fleet.clock import FIRST_YEAR, LAST_YEAR, utc_now
from fleet.errors import FleetError, WrongUsage

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from fleet.apply.config import PlanResult
    from fleet.apply.satellites import Begin, HandOut, OpenDesk, Promoter
    from fleet.model.images import DueReport, Version
    from fleet.planner.durations import Made
    from fleet.ports import RuleReader
    from fleet.schema.model import CoprRulesFile, CoprRulesUrl, Fleet
    from fleet.schema.source import Files
    from fleet.state.store import Store


class Verb(NamedTuple):
    """The module of a command, and the command's line in `fleet --help`."""

    module: str
    """Name of a module with its arguments, and with `run` or one function per action."""
    help: str
    arguments: str = "ARGUMENTS"
    """Name of the arguments in the module."""


GROUPS = {
    "start": {
        "init": Verb("fleet.migrate.init", "create fleet.yaml and the files that it needs"),
        "import": Verb(
            "fleet.migrate.commands", "convert another system's configuration to fleet.yaml"
        ),
        "validate": Verb("fleet.cli.validate", "check fleet.yaml and list all errors"),
        "doctor": Verb("fleet.cli.doctor", "check connections, credentials and stored state"),
        "schema": Verb("fleet.cli.schema", "print a published JSON Schema"),
        "completion": Verb("fleet.cli.completion", "print a shell completion script"),
        "help": Verb(
            "fleet.cli.help", "print the help of a command, or a page of the documentation"
        ),
    },
    "every day": {
        "plan": Verb("fleet.cli.plan", "show which machines should exist, at what cost and why"),
        "apply": Verb("fleet.cli.apply", "create, drain and delete machines as planned"),
        "status": Verb("fleet.cli.status", "show pools and workers: state, image, work, cost"),
        "explain": Verb(
            "fleet.cli.explain", "explain a request, package, pool, worker, image, rule or tag"
        ),
        "simulate": Verb(
            "fleet.simulate.commands",
            "replay recorded demand, and compare cost and waits before and after a change",
        ),
        "check": Verb(
            "fleet.cli.check",
            "test the plan and fleet.yaml against your policies",
        ),
        "report": Verb(
            "fleet.site.commands",
            "report the costs of a month, or post a plan as a merge request comment",
        ),
    },
    "machines": {
        "machine": Verb(
            "fleet.cli.machine", "list, delete or forget machines, or print a console"
        ),
        "hold": Verb(
            "fleet.cli.orders", "keep a machine for inspection, without new work", "HOLD_ARGUMENTS"
        ),
        "adopt": Verb(
            "fleet.cli.adopt", "adopt existing machines into a pool (changes labels only)"
        ),
    },
    "stop and permit changes": {
        "freeze": Verb(
            "fleet.cli.orders", "stop creations or deletions for a while", "FREEZE_ARGUMENTS"
        ),
        "approve": Verb(
            "fleet.cli.orders",
            "permit changes that a guard withholds, for a while",
            "APPROVE_ARGUMENTS",
        ),
    },
    "images": {
        "image": Verb("fleet.images.commands", "build, test, publish, promote and prune images"),
    },
    "queues and tickets": {
        "tags": Verb("fleet.cli.tags", "show the origin and the enforcement of tags"),
        "export": Verb("fleet.migrate.export", "export tag rules to the queue that assigns work"),
        "debusine": Verb("fleet.cli.debusine", "prepare a Debusine server for fleet"),
        "ticket": Verb("fleet.tickets.commands", "request a machine by tags, and release it"),
        "serve": Verb("fleet.tickets.serve", "serve tickets to Resalloc clients, and apply"),
    },
    "records": {
        "log": Verb("fleet.cli.log", "show or verify the log of all changes"),
        "state": Verb(
            "fleet.cli.state", "create, show, repair, export or import the stored state"
        ),
        "observe": Verb(
            "fleet.cli.observe", "record the facts that a plan needs, without secrets"
        ),
        "prices": Verb("fleet.cli.prices", "compare the prices of plans with those of providers"),
    },
}
"""Heading in `fleet --help` to the commands below the heading."""
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
REMOVED = {
    "panic": "use `fleet freeze --creates --pool NAME --for 4h --reason TEXT`, then `fleet machine"
    " delete --pool NAME --all --apply` (docs/how-to/stop-changes.md#empty-a-pool)",
    "release": "use `fleet hold NAME --end`",
    "shadow": "use `mode: observe` and `fleet plan` (docs/how-to/run-beside-resalloc.md)",
    "sweep": "use `fleet machine delete --expired`",
    "simulate --policy": "use `python -m bench compare` in a clone of the repository"
    " (docs/how-to/run-the-benchmark.md)",
    "tune": "use `fleet simulate --set KEY=VALUE` (docs/how-to/simulate-a-change.md)",
    "undo": "use `fleet machine delete --run ID` or `--since TIME`",
    "unfreeze": "use `fleet freeze --end`",
}
"""Removed command or option to its replacement.

The release after the removal deletes the entry.
"""

_SURROGATES = re.compile("[\udc80-\udcff]")
"""Bytes of a file name or argument that are not UTF-8, as Python represents them in text."""
FIRST = """\
start with `fleet init`; `fleet COMMAND --help` describes a command, and
`fleet help docs/how-to/begin.md` prints a page that a message names
"""
EXIT_CODES = """\
exit codes:
  0  nothing wrong
  1  findings, or something failed
  2  wrong usage
  3  changes are pending (only with --exit-code)
  4  refused: a guard, a missing store or a changed plan (wins over 3)
  5  partly applied: some pools failed, others are done
  130  interrupted; the next apply finishes what this one started
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    prepare_streams()
    connect_satellites()
    console = TerminalConsole()
    given = sys.argv[1:] if argv is None else argv
    verb = next((each for each in given if not each.startswith("-")), "")
    try:
        _refuse_removed(verb, given)
        args = build_parser(verb, alone=verb in given[:1]).parse_args(given)
        _check_clock()
        command = _command(args.command)
        # `beside` starts programs that the command needs before the process is confined.
        with getattr(command, "beside", nullcontext)(args), _confine(args):
            # A command with actions has a function for each action; any other command has `run`.
            code: int = (getattr(args, "carry_out", None) or command.run)(args, console)
        # Policies are programs: `fleet check` runs them after all confined reads have ended.
        if after := getattr(command, "after", None):
            code = after(args, console)
    except FleetError as error:
        told = str(error).split("\n")
        # Later lines are indented, so that no name in a message looks like a line of fleet.
        told[1:] = [line if line.startswith(" ") else f"  {line}" for line in told[1:]]
        told += [f"  see {error.page}"] * (error.page not in str(error))
        console.note("\n".join([f"fleet: error: {told[0]}", *told[1:]]))
        return error.exit_code
    except KeyboardInterrupt:
        begun = "; the next apply finishes what was started" if verb == "apply" else ""
        console.note(f"fleet: interrupted{begun}")
        return 130
    except BrokenPipeError:
        # The reader of the output has ended, so it cannot read an error either.
        return 1
    except UnicodeEncodeError as error:
        if not _SURROGATES.search(error.object):
            raise  # a bug in fleet: no user wrote this name
        shown = error.object.encode(errors="surrogateescape").decode(errors="backslashreplace")
        console.note(f"fleet: error: a name has bytes that are not UTF-8: {shown[:200]!r}")
        return 1
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename is None:  # by os.getcwd()
            error.filename, error.strerror = ".", "this folder was deleted; change to another one"
        if error.filename is None:
            raise  # a bug in fleet: no user can correct this file
        console.note(f"fleet: error: {error.filename}: {error.strerror}")
        return 1
    return code


def connect_satellites() -> None:
    """Register the satellites' functions that the core calls; a call imports the satellite."""
    connect(
        Satellites(
            copr_rules=_read_copr_rules,
            due_images=_find_due_images,
            hand_out=_hand_out,
            open_desk=_open_desk,
            promoter=_promoter,
            served_pages=_serve_pages,
            simulation=_simulation_report,
            write_site=_write_site,
        )
    )


def _read_copr_rules(rules: CoprRulesFile | CoprRulesUrl, name: str, files: Files) -> RuleReader:
    from fleet.migrate.from_copr import CoprAllowList

    return CoprAllowList(rules, name, files)


def _find_due_images(
    fleet: Fleet, versions: Sequence[Version], folder: Path, now: datetime
) -> DueReport:
    from fleet.images.due import find_due
    from fleet.images.role import play_digests

    return find_due(fleet, versions, digests=play_digests(fleet, folder), news={}, now=now)


def _hand_out() -> HandOut:
    from fleet.tickets import rounds

    return rounds


def _open_desk(fleet: Fleet, queue: str, begin: Begin, made: Made) -> OpenDesk:
    from fleet.clock import SystemClock
    from fleet.tickets.desk import StoredTicketDesk
    from fleet.tickets.store import DatabaseTickets

    return StoredTicketDesk(fleet, DatabaseTickets(begin, queue), SystemClock(), made)


def _promoter() -> Promoter:
    from fleet.images import promote

    return promote


def _serve_pages(store: Store) -> ServedPages:
    from fleet.site.content import LivePages

    return LivePages(store)


def _write_site(decision: PlanResult, store: Store | None, folder: str) -> int:
    from fleet.site.content import write_site

    return write_site(decision, store, folder)


def _simulation_report() -> SimulationReport:
    from fleet.simulate.figures import Simulation
    from fleet.simulate.report import simulation_blocks, simulation_to_block

    return SimulationReport(Simulation, simulation_blocks, simulation_to_block)


def _refuse_removed(verb: str, given: Sequence[str]) -> None:
    """Raise WrongUsage, with the replacement, if an argument no longer exists."""
    written = [verb, *(f"{verb} {each.partition('=')[0]}" for each in given)]
    for each in written:
        if each in REMOVED:
            raise WrongUsage(f"`fleet {each}` no longer exists; {REMOVED[each]}")


def _check_clock() -> None:
    """Raise FleetError if the year of the computer's clock is impossible."""
    now = utc_now()
    if not FIRST_YEAR <= now.year < LAST_YEAR:
        raise FleetError(
            f"this computer's clock is wrong: it says {now:%d} {now:%b} {now.year}; set it to a "
            f"time between {FIRST_YEAR} and {LAST_YEAR}"
        )


def _confine(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Let `validate` and `--world` read only files; in a merge request, forbid connections."""
    from fleet.state.confined import confined, is_untrusted, unconnected

    if args.command != "validate" and getattr(args, "world", None) is None:
        return unconnected() if is_untrusted() else nullcontext()

    named = [each.partition(".zst@")[0] for each in vars(args).values() if isinstance(each, str)]
    named += [f"{each}.zst" for each in named]
    folders = [
        dirname(each) or "."
        for each in (getattr(args, "file", ""), getattr(args, "base", ""))
        if each
    ]
    return confined(folders, named)


def build_parser(verb: str | None = None, *, alone: bool = False) -> Parser:
    """Return the parser with the arguments of one command; None: of all commands.

    With `alone`, the parser omits all other commands, because adding the arguments of all commands
    takes longer than reading fleet.yaml.
    """
    parser = _Program(
        prog="fleet",
        description="A declarative reconciler for the build machines of a distribution.",
        epilog=f"{FIRST}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    verbs = parser.verbs = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, known in VERBS.items():
        if alone and verb in VERBS and name != verb:
            continue
        command = verbs.add_parser(name, help=known.help, description=known.help)
        if verb in (None, name):
            declare(command, getattr(_command(name), known.arguments))
    # `completion` and `help` need the arguments of all commands; no command imports this module.
    parser.set_defaults(build_parser=build_parser, commands=[*VERBS])
    return parser


def _command(verb: str) -> ModuleType:
    return importlib.import_module(VERBS[verb].module)


class _Program(Parser):
    """The parser of `fleet`: it lists commands in groups, and its errors have a short usage."""

    verbs: argparse._SubParsersAction[Parser]

    def format_help(self) -> str:
        """Return the help: usage, the commands of each group, and options."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        lines = {each.dest: each for each in self.verbs._choices_actions}  # noqa: SLF001 - argparse has no groups of commands
        for heading, group in GROUPS.items():
            formatter.start_section(heading)
            formatter.add_arguments([lines[name] for name in group if name in lines])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([each for each in self._actions if each.option_strings])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def format_usage(self) -> str:
        """Return the usage line for errors, which is shorter than that of the help."""
        return f"{super().format_usage().rstrip()}; see fleet --help\n"

    def error(self, message: str) -> NoReturn:
        """Print an error; without a command, suggest `fleet init` instead of a long list."""
        first = "; begin a fleet with `fleet init`" if message.endswith(": COMMAND") else ""
        super().error(message + first)


class _Version(argparse.Action):
    """Option that prints the version; the slow importlib.metadata is imported only when used."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002 - argparse's own name
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"fleet {version('fleet-reconciler')}\n")
        parser.exit()
