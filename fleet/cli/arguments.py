"""This module is what every verb of the command line is made of: its parser, common options.

Each verb is carried out by the module of its name: `fleet image list` by commands/image_list.py.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Parser(argparse.ArgumentParser):
    """Answers wrong usage with the usage of the verb it was of, and what was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse overloads it
        """Refuse what is left over here, where argparse would leave it to the whole program."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            meant = self._meant(left[0])
            hint = f"; did you mean {meant}?" if meant else ""
            self.error(f"unrecognized arguments: {' '.join(left)}{hint}")
        return known, left

    def _meant(self, argument: str) -> str:
        """Return the option that was probably meant, or nothing."""
        options = self._option_string_actions
        if argument.endswith((".yaml", ".yml")) and "--file" in options:
            return f"--file {argument}"
        if not argument.startswith("--"):
            return ""
        from fleet.schema.findings import nearest

        return nearest(argument.partition("=")[0], options)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        from fleet.schema.findings import nearest

        choices = list(map(str, action.choices or ()))
        meant = nearest(str(value), choices) if choices and value not in choices else ""
        if meant:
            raise argparse.ArgumentError(
                action,
                f"invalid choice: {value!r}; did you mean {meant!r}? "
                f"(choose from {', '.join(map(repr, choices))})",
            )
        super()._check_value(action, value)


if TYPE_CHECKING:
    # argparse exports no public name for what add_subparsers returns
    Verbs = argparse._SubParsersAction[Parser]  # noqa: SLF001


def add_verb(verbs: Verbs, name: str, help_text: str, *, config: bool = True) -> Parser:
    """Add a verb, with the option that names its fleet.yaml."""
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    if config:
        parser.add_argument(
            "-f",
            "--file",
            default="fleet.yaml",
            metavar="FILE",
            help="the configuration (default: fleet.yaml)",
        )
    return parser


def add_world(parser: argparse.ArgumentParser) -> None:
    """Add the option that reads facts from a file."""
    parser.add_argument(
        "--world",
        metavar="FILE",
        help="read facts from a file recorded by `fleet observe`, or HISTORY.zst@TIME",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


_PORTS = 1 << 16


def add_exchange(verbs: Verbs) -> None:
    """Add what is written for other systems, read from them, and simulated of them."""
    _export(verbs)
    _import(verbs)
    _debusine(verbs)
    _sim(verbs)


def _export(verbs: Verbs) -> None:
    parser = add_verb(verbs, "export", "write rules for the queue that assigns work", config=False)
    targets = parser.add_subparsers(dest="target", metavar="QUEUE", required=True)
    debusine = add_verb(targets, "debusine", "write Debusine task-configuration entries")
    debusine.add_argument(
        "--task",
        action="append",
        metavar="NAME",
        help="the Debusine task that `powerful` is about (default: sbuild); may be repeated",
    )
    copr = add_verb(targets, "copr", "write the option EXTRA_BUILDCHROOT_TAGS of Copr's frontend")
    how = debusine.add_mutually_exclusive_group()
    how.add_argument(
        "--diff",
        action="store_true",
        help="show what --apply would change at the servers; exit 3 where they differ",
    )
    how.add_argument(
        "--apply", action="store_true", help="write the entries to the servers (queues.NAME.rules)"
    )
    debusine.add_argument(
        "--delete-up-to",
        type=int,
        default=0,
        metavar="N",
        help="with --apply: let so many deletions pass at each place",
    )
    copr.add_argument(
        "--patch",
        metavar="FILE",
        help="write a unified diff that puts the list into FILE, Copr's configuration",
    )
    for target in (debusine, copr):
        target.add_argument("--out", metavar="FILE", help="write it to FILE instead")


def _import(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "import", "write a fleet.yaml from what another system has", config=False
    )
    # `import` is no name that a Python module can have.
    parser.set_defaults(command="import_")
    sources = parser.add_subparsers(dest="source", metavar="SYSTEM", required=True)
    for name, what, help_text in (
        ("resalloc", "POOLS.YAML", "read the pools of a Resalloc server"),
        ("copr", "CONF", "read the allow-list in the configuration of Copr's frontend"),
        ("debusine", "POOLS.YAML", "read the worker pools of a Debusine server"),
    ):
        source = add_verb(sources, name, help_text, config=False)
        live = name == "debusine"
        source.add_argument(
            "path", nargs="?" if live else None, metavar=what, help="the file to read"
        )
        source.add_argument(
            "--fleet",
            default="imported",
            metavar="NAME",
            help="the name of the fleet (default: imported)",
        )
        source.add_argument("--out", metavar="FILE", help="write fleet.yaml to FILE instead")
        source.add_argument(
            "--json", metavar="FILE", help="also write every change of meaning as JSON to FILE"
        )
        if name == "copr":
            add_world(source)
        if name == "debusine":
            _server(source)


def _server(source: Parser) -> None:
    source.add_argument(
        "--dsn-env",
        metavar="VARIABLE",
        help="ask the server's database in place of a file: this environment variable holds the "
        "DSN of a read-only PostgreSQL role",
    )
    source.add_argument(
        "--admin",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="ask the server in place of a file: the command that runs debusine-admin there, as "
        "in --admin ssh HOST debusine-admin; everything after it belongs to it",
    )


def _debusine(verbs: Verbs) -> None:
    parser = add_verb(verbs, "debusine", "prepare a Debusine server for fleet", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    grants = add_verb(
        actions,
        "grants",
        "print the SQL for a role that reads demand and workers; changes nothing",
    )
    grants.add_argument(
        "--admin", action="store_true", help="for the role that also changes workers (admin.dsn)"
    )
    grants.add_argument("--role", metavar="NAME", help="its name (default: fleet_ro or fleet_rw)")
    grants.add_argument(
        "--check",
        action="store_true",
        help="ask the database that fleet.yaml names what its role lacks or has too much",
    )
    grants.add_argument("--queue", metavar="NAME", help="with --check: only this queue")
    add_json(grants)


def _sim(verbs: Verbs) -> None:
    parser = add_verb(verbs, "sim", "simulate a cloud's API on this computer", config=False)
    clouds = parser.add_subparsers(dest="cloud", metavar="CLOUD", required=True)
    help_text = "serve Hetzner Cloud's API for trials without an account; Ctrl-C ends it"
    hcloud = add_verb(clouds, "hcloud", help_text, config=False)
    hcloud.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="N",
        help="where to listen, on this computer only (default: any port that is free)",
    )
    hcloud.add_argument(
        "--state", metavar="FILE", help="keep what exists in FILE, and begin with what it holds"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) >= _PORTS:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to {_PORTS - 1}")
    return int(text)


STATES = (
    *("up", "ready", "idle", "busy", "starting", "assumed", "draining", "deaf"),
    *("disconnected", "failed", "disabled", "stopped", "never-registered", "unrecorded"),
    *("missing", "unfinished", "undeleted", "static", "unknown"),
)


def add_machine(verbs: Verbs) -> None:
    """Add `fleet machine` and its actions."""
    parser = add_verb(verbs, "machine", "list, delete and forget machines", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add_verb(actions, "list", "list machines: state, what they run, since when, cost")
    _pool(listing.add_argument, "only those of this pool; may be repeated")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        metavar="STATE",
        help="only those in this state; may be repeated. `up`: connected, busy or not; `ready`: "
        f"idle; else one of {', '.join(STATES[2:])}",
    )
    add_world(listing)
    add_json(listing)
    delete = add_verb(actions, "delete", "delete machines: drain, then delete what runs nothing")
    delete.add_argument(
        "machine", nargs="*", metavar="NAME", help="its name, as plan and status show it"
    )
    _pool(delete.add_argument, "machines of this pool; with --unused or --all; may be repeated")
    which = delete.add_mutually_exclusive_group()
    which.add_argument("--unused", action="store_true", help="those that run nothing")
    which.add_argument("--all", action="store_true", help="all; busy ones are only drained")
    delete.add_argument(
        "--apply", action="store_true", help="do it; left out: only show what would go"
    )
    add_json(delete)
    forget = add_verb(
        actions, "forget", "take a machine that its provider no longer has out of its stack"
    )
    forget.add_argument("machine", metavar="NAME", help="its name, as plan and status show it")


def _pool(add: Callable[..., object], said: str) -> None:
    add("--pool", action="append", default=[], metavar="NAME", help=said)


def add_serve(verbs: Verbs) -> None:
    """Add the verb `serve`."""
    parser = add_verb(verbs, "serve", "give out machines to clients of Resalloc, and apply")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:49100",
        metavar="ADDRESS:PORT",
        help="where to listen; elsewhere than on this computer with --tokens and --certificate "
        "(default: 127.0.0.1:49100, port 0: a free one)",
    )
    parser.add_argument(
        "--queue", metavar="NAME", help="which queue of tickets, where fleet.yaml has several"
    )
    parser.add_argument(
        "--every",
        default="20s",
        metavar="DURATION",
        help="apply at least so often; a ticket that is taken or closed does not wait for it "
        "(default: 20s)",
    )
    parser.add_argument(
        "--apart",
        default="1s",
        metavar="DURATION",
        help="begin runs so far apart on average; five may follow at once (default: 1s)",
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="who may ask: a client a line, NAME TOKEN; each has only its own tickets",
    )
    parser.add_argument(
        "--certificate", metavar="FILE", help="listen over TLS with this chain, in PEM"
    )
    parser.add_argument(
        "--key", metavar="FILE", help="the certificate's private key (default: in the same file)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the outcome of each run as JSON"
    )


def add_shadow(verbs: Verbs) -> None:
    """Add the verb `shadow` and its actions."""
    parser = add_verb(
        verbs, "shadow", "say what fleet would have done in a Resalloc's place", config=False
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    watch = add_verb(
        actions, "run", "repeat a Resalloc's tickets with simulated machines, and record both"
    )
    watch.add_argument(
        "--resalloc",
        required=True,
        metavar="FILE",
        help="a file with the address of its database, as in `db_url`; it is only read",
    )
    watch.add_argument(
        "--log", required=True, metavar="FILE", help="add a line for each look to FILE"
    )
    watch.add_argument(
        "--every", default="20s", metavar="DURATION", help="look so often (default: 20s)"
    )
    watch.add_argument(
        "--for", dest="most", metavar="DURATION", help="look no longer, as in --for 7d"
    )
    watch.add_argument(
        "--queue", metavar="NAME", help="which queue of tickets, where fleet.yaml has several"
    )
    report = add_verb(actions, "report", "print each day of a log", config=False)
    report.add_argument("log", metavar="FILE", help="what `fleet shadow run` wrote")
    add_json(report)


def add_ticket(verbs: Verbs) -> None:
    """Add the verb `ticket` and its actions."""
    parser = add_verb(
        verbs, "ticket", "ask for a machine by its tags, and give it back", config=False
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _open(add_verb(actions, "open", "open a ticket and print its id"))
    for name, help_text in (
        ("check", "print the answer of a ticket that is ready; exit 1 while it is not"),
        ("wait", "wait until a ticket is ready and print its answer"),
        ("show", "show a ticket: its tags, what the rules add, what it waits for"),
        ("close", "close a ticket: what it has, or what starts for it, is let go"),
    ):
        action = add_verb(actions, name, help_text)
        action.add_argument("ticket", metavar="ID", help="as `ticket open` printed it")
        _common(action)
        if name == "show":
            add_json(action)
        else:
            _ticket_server(action)
        if name == "close":
            action.add_argument(
                "--built",
                action="store_true",
                help="its build (`open --build`) ran there from start to end and succeeded: how "
                "long that took counts for later builds of the package",
            )
        if name == "wait":
            action.add_argument(
                "--for", dest="most", metavar="DURATION", help="wait no longer, as in --for 30m"
            )
    listing = add_verb(actions, "list", "list the open tickets")
    _queue(listing)
    add_json(listing)


def _open(parser: Parser) -> None:
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        required=True,
        metavar="TAG",
        help="a tag that the machine has to provide; may be repeated",
    )
    parser.add_argument(
        "--sandbox", default="", metavar="NAME", help="only its tickets may get the machine again"
    )
    parser.add_argument(
        "--owner", metavar="NAME", help="whose turn it is, and whose limits count (default: user)"
    )
    parser.add_argument(
        "--build",
        metavar="NAME",
        help="of which build it is, OWNER/PROJECT/CHROOT/PACKAGE: the rules of `powerful` and "
        "`derive` act on it",
    )
    parser.add_argument("--team", default="", metavar="NAME", help="whose budget it is")
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="higher comes first (default: 0)"
    )
    parser.add_argument(
        "--background", action="store_true", help="it comes after what is not in the background"
    )
    parser.add_argument(
        "--lease",
        metavar="DURATION",
        help="it expires when it was neither checked nor waited for for so long",
    )
    _common(parser)
    _ticket_server(parser)


def _ticket_server(parser: Parser) -> None:
    parser.add_argument(
        "--server",
        metavar="URL",
        help="ask the `fleet serve` at this address, as in https://HOST:49100, in place of the "
        "fleet of fleet.yaml; it is told tags and sandbox only",
    )
    parser.add_argument(
        "--netrc",
        metavar="FILE",
        help="with --server: where its token is, `machine HOST login NAME password TOKEN`, "
        "readable by its owner alone (default: ~/.netrc)",
    )


def _common(parser: Parser) -> None:
    parser.add_argument("--user", metavar="NAME", help="who asks (default: who runs this)")
    _queue(parser)


def _queue(parser: Parser) -> None:
    parser.add_argument(
        "--queue", metavar="NAME", help="which queue of tickets, where fleet.yaml has several"
    )


_ALL = 100


def add_version_verbs(actions: Verbs) -> None:
    """Add what moves versions."""
    _promote(actions)
    _rollback(actions)
    _prune(actions)
    _due(actions)


def _promote(actions: Verbs) -> None:
    action = add_verb(
        actions, "promote", "make a tested version the one that machines boot, or the candidate"
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "version",
        nargs="?",
        metavar="VERSION",
        help="one version of it (default: the newest that passed its test)",
    )
    action.add_argument(
        "--candidate",
        type=_share,
        metavar="SHARE",
        help="on this share of each pool's workers, as in 20%%, beside the current version: one "
        "worker, or at most so many",
    )
    _foreseen(action)


def _rollback(actions: Verbs) -> None:
    action = add_verb(
        actions,
        "rollback",
        "take the latest promotion back: a candidate's, else the current version's",
    )
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    _foreseen(action)


def _prune(actions: Verbs) -> None:
    action = add_verb(
        actions, "prune", "delete versions that no machine, pool, plan or approval refers to"
    )
    action.add_argument(
        "image", nargs="?", metavar="NAME", help="of this image only (default: of every one)"
    )
    action.add_argument(
        "--plan",
        action="append",
        default=[],
        metavar="FILE",
        help="keep what a plan saved in FILE makes machines with; may be repeated",
    )
    action.add_argument(
        "--forgotten",
        action="append",
        default=[],
        metavar="ID",
        help="also delete what a place holds under ID and no version remembers; may be repeated",
    )
    action.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    add_json(action)


def _due(actions: Verbs) -> None:
    action = add_verb(actions, "due", "say which images need building, and why")
    action.add_argument(
        "--gitlab-child-pipeline",
        metavar="FILE",
        help="also write a child pipeline for GitLab to FILE, with a job for each of them",
    )
    add_json(action)


def _foreseen(action: Parser) -> None:
    """Add the options of what says which machines are replaced because of it."""
    action.add_argument(
        "--dry-run", action="store_true", help="only show what would move and be replaced"
    )
    add_json(action)


def _share(text: str) -> int:
    number = text.removesuffix("%")
    if not (number.isdecimal() and 1 <= int(number) <= _ALL):
        raise argparse.ArgumentTypeError(f"expected a share from 1% to 100%, not {text}")
    return int(number)


def add_image(verbs: Verbs) -> None:
    """Add what is done with images."""
    parser = add_verb(verbs, "image", "look after images and their versions", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _list(actions)
    _show(actions)
    _build(actions)
    _test(actions)
    _publish(actions)
    add_version_verbs(actions)


def _list(actions: Verbs) -> None:
    add_json(add_verb(actions, "list", "list images and their versions: state, age, where"))


def _show(actions: Verbs) -> None:
    action = add_verb(actions, "show", "show all that is remembered of an image's versions")
    _named(action)
    add_json(action)


def _build(actions: Verbs) -> None:
    action = add_verb(actions, "build", "bake a new version of an image")
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "--at",
        metavar="PLACE",
        help="not on this computer: on a temporary machine of a provider of kind hcloud, as a "
        "snapshot; or by a Debusine queue's own task for images, as a disk",
    )
    action.add_argument(
        "--mirror",
        metavar="URL",
        help="the Debian archive this computer bakes from, in place of the recipe's (default: "
        "FLEET_MIRROR); the image keeps it as its source",
    )
    action.add_argument(
        "--snapshot",
        action="store_true",
        help="that archive is one of an earlier day: take its lists although they expired",
    )
    action.add_argument(
        "--raw", action="store_true", help="keep the uncompressed disk too, as disk.raw"
    )
    action.add_argument(
        "--check-reproducible",
        action="store_true",
        help="bake a second time from nothing, and show which files differ and why",
    )
    action.add_argument(
        "--on",
        metavar="QUEUE",
        help="the same as --at QUEUE, also where a provider has that name",
    )
    action.add_argument(
        "--workspace",
        metavar="[SCOPE/]NAME",
        help="at a queue: the workspace of the work request (default: the server's own, in the "
        "first scope of the queue)",
    )
    add_json(action)


def _publish(actions: Verbs) -> None:
    action = add_verb(actions, "publish", "upload a version to providers and stores")
    _named(action)
    action.add_argument(
        "--to",
        action="append",
        metavar="PLACE",
        help="only there: a provider of fleet.yaml, or a URL as in file:///srv/images or "
        "s3://BUCKET/PREFIX (default: images.NAME.publish)",
    )
    action.add_argument(
        "--clean",
        action="store_true",
        help="publish nothing; remove what runs that died more than six hours ago left there",
    )
    add_json(action)


def _test(actions: Verbs) -> None:
    action = add_verb(actions, "test", "look into a built image, and boot it where that is asked")
    _named(action)
    action.add_argument(
        "--boot",
        action="store_true",
        help="also boot it under QEMU until its worker registers with a token and asks for work, "
        "at a server that is made for this test",
    )
    action.add_argument(
        "--queue",
        metavar="NAME",
        help="with --boot: register at this queue of fleet.yaml, and do one piece of its work",
    )
    action.add_argument(
        "--limit",
        metavar="DURATION",
        default="10m",
        help="with --boot: how long the worker may take (default: 10m)",
    )
    action.add_argument(
        "--accelerator",
        choices=["auto", "kvm", "tcg"],
        default="auto",
        help="with --boot: kvm, or tcg, which needs none; auto tries whether kvm works",
    )
    add_json(action)


def _named(action: Parser) -> None:
    """Add the arguments that name an image and, where one is meant, a version of it."""
    action.add_argument("image", metavar="NAME", help="the image, as fleet.yaml calls it")
    action.add_argument(
        "version", nargs="?", metavar="VERSION", help="one version of it, as in 20261121T203000Z"
    )


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


def _validate(verbs: Verbs) -> None:
    parser = add_verb(verbs, "validate", "check fleet.yaml and say what is wrong, all at once")
    add_world(parser)
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


def _schema(verbs: Verbs) -> None:
    parser = add_verb(verbs, "schema", "print a published JSON Schema", config=False)
    parser.add_argument(
        "document",
        nargs="?",
        default="fleet",
        choices=["fleet", "world", "plan", "findings"],
        help="of which document (default: fleet)",
    )
    parser.add_argument("--out", metavar="FILE", help="write it to FILE instead")


def _observe(verbs: Verbs) -> None:
    parser = add_verb(verbs, "observe", "record everything a decision rests on, without secrets")
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


def _plan(verbs: Verbs) -> None:
    parser = add_verb(verbs, "plan", "say which machines should exist, at what cost and why")
    add_world(parser)
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


def _apply(verbs: Verbs) -> None:
    parser = add_verb(verbs, "apply", "make it so: observe, plan, guard, then change machines")
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


def _status(verbs: Verbs) -> None:
    parser = add_verb(verbs, "status", "show pools and workers: state, image, work, money")
    add_world(parser)
    add_json(parser)
    parser.add_argument("--site", metavar="DIR", help="write static status pages to DIR")
    parser.add_argument(
        "--heartbeat",
        action="store_true",
        help="only say whether somebody still runs fleet apply, for monitoring: 0 yes, 1 no",
    )


def _doctor(verbs: Verbs) -> None:
    parser = add_verb(verbs, "doctor", "ask whether everything that fleet.yaml names works")
    add_json(parser)


def _explain(verbs: Verbs) -> None:
    parser = add_verb(verbs, "explain", "say why a request waits, a pool wants N, a worker stays")
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
    add_world(parser)
    add_json(parser)


def _tags(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "tags", "say where tags come from, and who enforces them", config=False
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = add_verb(actions, "explain", "say where each tag of a request comes from")
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
    add_world(action)
    add_json(action)
    listing = add_verb(
        actions, "list", "list every tag and who enforces it: scheduler, capacity, nobody"
    )
    add_json(listing)


def _state(verbs: Verbs) -> None:
    parser = add_verb(verbs, "state", "look after what must outlive a run", config=False)
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
        action = add_verb(actions, name, help_text)
        if name in ("show", "orphans", "rebuild"):
            add_json(action)
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


def _sweep(verbs: Verbs) -> None:
    parser = add_verb(
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
    add_json(parser)


def _adopt(verbs: Verbs) -> None:
    parser = add_verb(verbs, "adopt", "take machines that exist into a pool, only labelled")
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
    add_json(parser)


def _prices(verbs: Verbs) -> None:
    parser = add_verb(verbs, "prices", "look after the price catalogue", config=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = add_verb(actions, "check", "compare the prices that plans rest on with the providers'")
    add_json(check)


def _completion(verbs: Verbs, whole: argparse.ArgumentParser) -> None:
    parser = add_verb(verbs, "completion", "print a shell completion script", config=False)
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="for which shell")
    parser.set_defaults(parser=whole)
