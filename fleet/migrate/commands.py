"""`fleet import`: write fleet.yaml from another system's configuration, and report changes."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from fleet.apply.config import check_file
from fleet.cli.arguments import WORLD, action, actions, argument, option
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, FleetError, WrongUsage
from fleet.migrate.from_copr import import_copr
from fleet.migrate.from_debusine import import_debusine
from fleet.migrate.from_resalloc import import_resalloc
from fleet.migrate.reading import LIMIT, Imported, changes_to_json, changes_to_text
from fleet.ports import Console
from fleet.queues.debusine.database import list_by_command, list_by_sql
from fleet.queues.recorded import read_world
from fleet.report.findings import to_text
from fleet.schema.findings import has_errors
from fleet.schema.model import EnvSecret
from fleet.schema.source import check_size
from fleet.schema.units import FLEET_NAME_PATTERN, follows
from fleet.state.files import LocalFiles, replace_file
from fleet.state.history import RecordedFiles
from fleet.state.secrets import HostSecrets
from fleet.tagrules.names import recorded_names

_COMMON = (
    option("--fleet", "NAME", "name of the fleet (default: imported)", default="imported"),
    option("--out", "FILE", "write fleet.yaml to FILE instead of standard output"),
    option("--json", "FILE", "also write all changes of meaning as JSON to FILE"),
)
ARGUMENTS = (
    actions(
        action(
            "resalloc",
            "read the pools of a Resalloc server",
            None,
            argument("path", metavar="POOLS.YAML", help="file to read"),
            *_COMMON,
            has_config=False,
        ),
        action(
            "copr",
            "read the allow-list in the configuration of Copr's frontend",
            None,
            argument("path", metavar="CONF", help="file to read"),
            *_COMMON,
            WORLD,
            has_config=False,
        ),
        action(
            "debusine",
            "read the worker pools of a Debusine server",
            None,
            argument("path", nargs="?", metavar="POOLS.YAML", help="file to read"),
            *_COMMON,
            option(
                "--dsn-env",
                "VARIABLE",
                "read the database of the server; VARIABLE is the environment variable with the "
                "DSN of a read-only PostgreSQL role",
            ),
            argument(
                "--admin",
                nargs=argparse.REMAINDER,
                metavar="COMMAND",
                help="run debusine-admin by this command, the rest of the line, for example "
                "--admin ssh HOST debusine-admin",
            ),
            has_config=False,
        ),
        dest="source",
        metavar="SYSTEM",
    ),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Write fleet.yaml; return 1 without writing if the input file is unreadable."""
    if not follows(FLEET_NAME_PATTERN, args.fleet):
        raise WrongUsage(f"--fleet {args.fleet}: expected a name like debian-ci")
    imported = import_from(args, console)
    if imported is None or imported.text is None:
        return 1
    if args.out:
        _write_scripts(Path(args.out).parent, imported.scripts)
    if args.json:
        LocalFiles().write_text(args.json, changes_to_json(imported.changes))
    if args.out:
        LocalFiles().write_text(args.out, imported.text)
    else:
        console.out(imported.text)
    return 0


def import_from(args: argparse.Namespace, console: Console) -> Imported | None:
    """Report the changes, and return the import; if it failed, report errors and return None."""
    name, content = _content(args)
    imported = _import(args, name, content, console)
    if imported.text is None:
        console.note(to_text(imported.findings, imported.document, colour=False))
        console.note(f"fleet: error: {name}: nothing written, see above")
        return None
    check_text(imported.text)
    if imported.changes:
        console.note(changes_to_text(imported.changes))
    return imported


def _content(args: argparse.Namespace) -> tuple[str, bytes]:
    """Return the name and the content of the source: a file, or the listing of a server."""
    if args.source != "debusine":
        return args.path, LocalFiles().read(args.path, LIMIT)
    ways = [args.path, args.dsn_env, args.admin]
    if sum(way is not None for way in ways) != 1 or args.admin == []:
        raise WrongUsage(
            "give one source of worker pools: POOLS.YAML, --dsn-env VARIABLE or --admin COMMAND"
        )
    if args.path is not None:
        return args.path, LocalFiles().read(args.path, LIMIT)
    if args.admin is not None:
        return "worker_pool list", list_by_command(args.admin, limit=LIMIT)
    secrets = HostSecrets(os.environ, Path())
    return "db_workerpool", list_by_sql(
        secrets.read(EnvSecret.model_construct(env=args.dsn_env)), limit=LIMIT
    )


def _import(args: argparse.Namespace, name: str, content: bytes, console: Console) -> Imported:
    match args.source:
        case "resalloc":
            # A pipe or a device has no folder for scripts.
            out = args.out and Path(args.out)
            has_folder = bool(out) and (out.is_file() or not out.exists())
            return import_resalloc(name, content, args.fleet, with_scripts=has_folder)
        case "copr":
            recorded = None
            if args.world:
                recorded = recorded_names(read_world(args.world, RecordedFiles(console.note)))
            return import_copr(name, content, args.fleet, recorded)
        case _:
            return import_debusine(name, content, args.fleet)


def _write_scripts(folder: Path, scripts: Iterable[tuple[str, str]]) -> None:
    """Write programs next to fleet.yaml; raises FleetError if one exists with other content."""
    found = [(folder / path, text.encode()) for path, text in scripts]
    try:
        for path, content in found:
            if (path.is_symlink() or path.exists()) and path.read_bytes() != content:
                raise FleetError(
                    f"{path}: exists with other content, nothing was written; move it away, or "
                    "choose another folder with --out"
                )
        for path, content in found:
            path.parent.mkdir(exist_ok=True)
            replace_file(path, content, mode=0o755)
    except OSError as error:
        raise FileUnreadable(f"cannot write {error.filename}: {error.strerror}") from error


def check_text(text: str) -> None:
    """Raise FleetError if `fleet validate` would refuse the text."""
    checked = check_file("fleet.yaml", utc_now().date(), _Written(text))
    if has_errors(checked.findings):
        wrong = [finding for finding in checked.findings if finding.severity == "error"]
        told = to_text(wrong, checked.document)
        raise FleetError(f"the result is not valid:\n\n{told}")


class _Written(LocalFiles):
    """File access in a folder, in which a given text replaces the content of fleet.yaml."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def read(self, name: str, limit: int) -> bytes:
        if name != "fleet.yaml":
            return super().read(name, limit)
        content = self._text.encode()
        check_size(name, len(content), limit)
        return content
