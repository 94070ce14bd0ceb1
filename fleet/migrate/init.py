"""`fleet init`: write the files of a new fleet's repository, and create its store."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet.apply.config import load_config
from fleet.cli.arguments import argument, flag, option
from fleet.cli.doctor import find_missing
from fleet.clock import utc_now
from fleet.errors import AlreadyThere, FleetError, WrongUsage
from fleet.migrate.commands import check_text, import_from
from fleet.migrate.reading import Imported
from fleet.ports import Console
from fleet.schema.model import Fleet
from fleet.schema.units import FLEET_NAME_PATTERN, follows
from fleet.state.files import DRAFT_PREFIX, create_files, locked_folder
from fleet.state.storage import shipped_folder
from fleet.state.store import store_of

QUEUES = {
    "recorded": "a recording of three builds, to try fleet without a server",
    "debusine": "a Debusine server",
    "copr": "a Copr, whose backend gets machines by tickets (fleet serve)",
    "tickets": "tickets that clients of Resalloc ask for (fleet serve)",
}
CLOUDS = {
    "sim": "simulated machines, to try fleet without an account",
    "local": "processes on this computer",
    "hcloud": "servers at Hetzner",
    "aws": "instances at Amazon EC2",
}
SIZES = {
    "small": "2 cores",
    "medium": "8 cores",
    "big": "32 cores",
}
Queue = Literal["recorded", "debusine", "copr", "tickets"]
Cloud = Literal["sim", "local", "hcloud", "aws"]
Size = Literal["small", "medium", "big"]

PAID = frozenset({"hcloud", "aws"})
"""Clouds that `fleet init` does not combine with a recorded queue, because they cost money."""
URLS = {"debusine": "https://debusine.example.org", "copr": "https://copr.example.org"}
"""Kind of queue to the URL of an example server."""


@dataclass(frozen=True)
class StarterChoices:
    """The user's choices for a new fleet."""

    fleet: str
    queue: Queue = "recorded"
    cloud: Cloud = "sim"
    size: Size = "medium"
    url: str = ""
    scope: str = "debian"

    @property
    def address(self) -> str:
        """Return the URL of the queue's server; an example if the user gave no URL."""
        return self.url or URLS.get(self.queue, "")


def _fill(template: str, choice: StarterChoices) -> str:
    """Fill a template of the folder `templates` with the choices."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fleet.migrate"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - files of YAML and text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{template}.j2").render(
        fleet=choice.fleet,
        queue=choice.queue,
        cloud=choice.cloud,
        size=choice.size,
        cores=SIZES[choice.size],
        is_paid=choice.cloud in PAID,
        is_named=choice.address != URLS.get(choice.queue),
        url=json.dumps(choice.address),
        scope=json.dumps(choice.scope),
    )


EXAMPLES: Mapping[str, str] = {
    "demo": "fleet validate",
    "tutorial": "fleet help tutorial",
    "waiting": "fleet help why-does-my-build-wait",
    "powerful": "fleet help allow-a-powerful-build",
    "refusal": "fleet help read-a-refusal",
    "draining": "fleet help drain-a-pool",
    "history": "fleet help simulate-a-change",
    "resalloc": "fleet help move-from-resalloc",
    "debusine-pools": "fleet help import",
    "debusine-rules": "fleet help export",
}
"""Folder in `examples/` to the next command; `fleet help` prints the example's page."""
_DOCTOR = "fleet doctor  (names the steps that are still missing)"
_SYSTEMS = ("resalloc", "copr", "debusine")
_MAX_ANSWERS = 5
_PROGRAM: int | None = 0o755
_CONFIG = "fleet.yaml"
_STORE = ".fleet/store.db"
_KINDS: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "queue": ("Where does work wait?", QUEUES, "recorded"),
    "cloud": ("Where do machines come from?", CLOUDS, "sim"),
    "size": ("How big is a machine?", SIZES, "medium"),
}


ARGUMENTS = (
    *(
        argument(
            f"--{name}",
            choices=tuple(choices),
            help=f"{question} {', '.join(f'`{each}` ({what})' for each, what in choices.items())}"
            f"; default: {default}, or asked at a terminal",
        )
        for name, (question, choices, default) in _KINDS.items()
    ),
    option("--fleet", "NAME", "name of the fleet (default: builds)", default="builds"),
    option(
        "--url",
        "URL",
        f"address of the Debusine or Copr server (default: {URLS['debusine']})",
    ),
    option("--scope", "SCOPE", "scope at the Debusine server (default: debian)"),
    flag("--yes", "use the defaults without asking"),
    argument(
        "--example",
        choices=tuple(EXAMPLES),
        metavar="NAME",
        help="write only the files that a page of the documentation uses: "
        + ", ".join(f"`{name}` ({page})" for name, page in EXAMPLES.items()),
    ),
    argument(
        "--from",
        dest="source",
        nargs=2,
        metavar=("SYSTEM", "FILE"),
        help="convert a file of resalloc, copr or debusine, as `fleet import` does",
    ),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Write all files or none; raises AlreadyThere (exit code 4) if one of the files exists."""
    if args.example:
        return _write_example(args, console)
    if not follows(FLEET_NAME_PATTERN, args.fleet):
        raise WrongUsage(f"--fleet {args.fleet}: expected a name like debian-ci")
    _refuse_together(args)
    if args.source:
        imported = _import_config(args, console)
        if imported is None or imported.text is None:
            return 1
        scripts = {name: (text.encode(), _PROGRAM) for name, text in imported.scripts}
        made = scripts | _files(imported.text, StarterChoices(args.fleet, "tickets"))
        unfinished = any(each.kind == "to-do" for each in imported.changes)
        next_steps = [*["edit fleet.yaml: see each `to-do` above"] * unfinished, "fleet plan"]
    else:
        _refuse_early(args.fleet)
        choice = _choose(args, console)
        text = _fill("fleet.yaml", choice)
        check_text(text)
        made = _files(text, choice)
        next_steps = _fill("steps", choice).splitlines()
    # With a lock, the second of two concurrent commands sees all files of the first.
    with locked_folder(Path()):
        _refuse_existing(made)
        new = create_files(made)
        try:
            fleet, store = _create_store(console, made)
        except FleetError:
            for path in new:
                path.unlink(missing_ok=True)
            raise
        for left in Path().glob(f"{DRAFT_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
    console.out(f"wrote {', '.join(sorted(made))}; store {store} created")
    next_steps = [_DOCTOR, *find_missing(fleet), *next_steps]
    console.out("Next:\n" + "\n".join(f"  {n}. {each}" for n, each in enumerate(next_steps, 1)))
    return 0


def _write_example(args: argparse.Namespace, console: Console) -> int:
    """Write the files of an example from the documentation."""
    given = [name for name in (*_KINDS, "url", "scope", "source") if getattr(args, name)]
    if given:
        raise WrongUsage(f"--example excludes --{given[0].replace('source', 'from')}")
    files = sorted((shipped_folder("examples") / args.example).iterdir())
    made: dict[str, tuple[bytes, int | None]] = {
        path.name: (path.read_bytes(), None) for path in files
    }
    with locked_folder(Path()):
        if there := [path for path in map(Path, made) if os.path.lexists(path)]:
            raise _already(there)
        create_files(made)
    console.out(f"wrote {', '.join(made)}\nNext: {EXAMPLES[args.example]}")
    return 0


def _refuse_together(args: argparse.Namespace) -> None:
    if args.source is None:
        if args.queue not in {None, *URLS} and args.url:
            raise WrongUsage(f"--url is about a server of {' or '.join(URLS)}, not {args.queue}")
        if args.queue not in {None, "debusine"} and args.scope:
            raise WrongUsage(f"--scope is about a Debusine server, not {args.queue}")
        return
    if args.source[0] not in _SYSTEMS:
        raise WrongUsage(
            f"--from {args.source[0]}: expected one of {', '.join(_SYSTEMS)}, and a file"
        )
    given = [name for name in (*_KINDS, "url", "scope") if getattr(args, name) is not None]
    if given:
        raise WrongUsage(f"--from excludes --{given[0]}: the file says it")


def _choose(args: argparse.Namespace, console: Console) -> StarterChoices:
    given: dict[str, Any] = {name: getattr(args, name) for name in _KINDS}
    if (args.url or args.scope) and given["queue"] is None:
        given["queue"] = "debusine"
    paid = given["cloud"] in PAID
    if paid and given["queue"] == "recorded":
        raise WrongUsage(
            f"--queue recorded --cloud {given['cloud']}: a recording buys no machines; choose "
            "another queue, or --cloud sim or local"
        )
    asks = console.can_ask and not args.yes
    for name, (question, choices, usual) in _KINDS.items():
        default = usual
        if given[name] is not None:
            continue
        unfit: Collection[str] = ()
        if name == "queue" and paid:
            unfit, default = {"recorded"}, "debusine"
        if name == "cloud" and given["queue"] == "recorded":
            unfit = PAID
        given[name] = _ask(console, question, choices, unfit, default) if asks else default
    more = {name: getattr(args, name) for name in ("url", "scope") if getattr(args, name)}
    return StarterChoices(args.fleet, **given, **more)


def _ask(
    console: Console,
    question: str,
    choices: Mapping[str, str],
    unfit: Collection[str],
    default: str,
) -> str:
    """Return a user's choice, given by name, number or prefix; `default` if the answer is empty.

    After any other answer, print the reason and ask the question again.
    """
    names = [name for name in choices if name not in unfit]
    listed = [f"  {n}. {name}: {choices[name]}" for n, name in enumerate(names, 1)]
    expected = f"answer with a number from 1 to {len(names)}, or a name"
    console.note("\n".join([question, *listed]))
    for _ in range(_MAX_ANSWERS):
        console.note(f"Number or name [{default}]:")
        line = sys.stdin.readline()
        if not line:
            break
        answer = line.strip().lower()
        if not answer:
            return default
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        meant = [name for name in names if name.startswith(answer)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            console.note(f"{answer!r} may be {' or '.join(meant)}; {expected}")
        elif answer in unfit:
            console.note(f"{answer!r} does not fit: a recording buys no machines; {expected}")
        else:
            console.note(f"{answer!r} is not one of them; {expected}")
    raise WrongUsage(f"expected one of {', '.join(names)}; nothing was written")


def _import_config(args: argparse.Namespace, console: Console) -> Imported | None:
    system, path = args.source
    asked = argparse.Namespace(
        source=system,
        path=path,
        fleet=args.fleet,
        out="fleet.yaml",
        world=None,
        dsn_env=None,
        admin=None,
    )
    _refuse_early(args.fleet)
    return import_from(asked, console)


def _files(text: str, choice: StarterChoices) -> dict[str, tuple[bytes, int | None]]:
    """Map the path of each file to its content and mode; fleet.yaml is the last."""
    names = [".gitignore", ".gitlab-ci.yml", "README.md"]
    names += ["world.json"] if choice.queue == "recorded" else []
    written = {name: _fill(name, choice) for name in names} | {"fleet.yaml": text}
    return {name: (content.encode(), None) for name, content in written.items()}


def _refuse_existing(made: Mapping[str, tuple[bytes, int | None]]) -> None:
    """Raise AlreadyThere if a file exists, unless an interrupted run wrote it."""
    there = {path for path in map(Path, (*made, _STORE)) if os.path.lexists(path)}
    ours = {path for path in there if _has_contents(path, made)}
    others = there - ours
    if Path(_CONFIG) in ours:
        # Its store may be incomplete; a complete store is refused when it is opened.
        others -= {Path(_STORE)}
    if others:
        raise _already(there if Path(_CONFIG) in others else others)


def _refuse_early(fleet: str) -> None:
    """Refuse existing files before any question, unless an interrupted run wrote them."""
    made = _files("", StarterChoices(fleet, "tickets"))
    ours = [name for name in made if name != _CONFIG and _has_contents(Path(name), made)]
    if len(ours) < len(made) - 1:
        _refuse_existing(made)


def _already(there: Iterable[Path]) -> AlreadyThere:
    return AlreadyThere(
        f"{', '.join(sorted(map(str, there)))}: there already, nothing was written; begin in "
        "an empty folder, or move away what is there"
    )


def _has_contents(path: Path, made: Mapping[str, tuple[bytes, int | None]]) -> bool:
    try:
        return path.is_file() and path.read_bytes() == made[str(path)][0]
    except (OSError, KeyError):
        return False


def _create_store(console: Console, made: Iterable[str]) -> tuple[Fleet, str]:
    fleet = load_config(argparse.Namespace(file="fleet.yaml"), console).fleet
    store = store_of(fleet, "fleet.yaml")
    if not store.init(utc_now()):
        raise _already(path for path in map(Path, (*made, _STORE)) if os.path.lexists(path))
    return fleet, store.address
