"""Run fleet beside a Resalloc: the same tickets, simulated machines."""

import argparse
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from fleet.apply.config import Config, load_config, read_seconds
from fleet.apply.loop import Run, Schedule, keep_running
from fleet.apply.parallel import Parallelism, default_jobs
from fleet.apply.run import RunOptions, apply_once
from fleet.apply.selection import Selection
from fleet.apply.timer import Signals
from fleet.apply.wire import find_desk
from fleet.cli.arguments import Parser, add_json, add_verb, add_verbs, option
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, WrongUsage
from fleet.migrate.shadow import (
    Look,
    Mirror,
    ResallocDatabase,
    days_of,
    days_to_json,
    days_to_text,
    look_of,
)
from fleet.model.values import first_mistake
from fleet.ports import Console
from fleet.schema.model import Fleet, HooksPool, Provider
from fleet.state.files import LocalFiles
from fleet.state.store import store_of
from fleet.tickets.store import DatabaseTickets


def arguments(parser: Parser) -> None:
    """Declare what `fleet shadow` takes."""
    actions = add_verbs(parser)
    watch = add_verb(
        actions, "run", "repeat the tickets of a Resalloc on simulated machines, and record both"
    )
    watch.add_argument(
        "--resalloc",
        required=True,
        metavar="FILE",
        help="a file with the URL of its database, as in `db_url`; the database is only read",
    )
    watch.add_argument(
        "--log", required=True, metavar="FILE", help="append one line per observation to FILE"
    )
    option(watch, "--every", "DURATION", "observe this often (default: 20s)", default="20s")
    watch.add_argument(
        "--for", dest="most", metavar="DURATION", help="stop after this long, as in --for 7d"
    )
    option(watch, "--queue", "NAME", "the queue of kind tickets, if fleet.yaml has several")
    report = add_verb(actions, "report", "summarise a log by day", config=False)
    report.add_argument("log", metavar="FILE", help="the log of `fleet shadow run`")
    add_json(report)


_FOLDER = ".fleet-shadow"
"""Where a shadow keeps its state, beside its fleet.yaml."""
_MOST_BYTES = 500 * 1000 * 1000
_MOST_URL_BYTES = 10_000
_LOOK = b'{"time":'
"""The beginning of each line of a log."""


def run(args: argparse.Namespace, console: Console, signals: Signals | None = None) -> int:
    """Observe a Resalloc, or report by day."""
    if args.action == "report":
        days = days_of(_read(args.log))
        console.out(days_to_json(days) if args.json else days_to_text(days))
        return 0
    every = read_seconds("--every", args.every)
    most = None if args.most is None else read_seconds("--for", args.most)
    config = load_config(args, console)
    _refuse_real(config.fleet)
    config = _apart(config)
    _repair(Path(args.log))
    url = LocalFiles().read(args.resalloc, _MOST_URL_BYTES).decode(errors="replace").strip()
    options = RunOptions(Selection(), Parallelism(default_jobs()), signals or Signals())
    shadow = _Shadow(args, config, console, options)
    database = ResallocDatabase(url)
    schedule = Schedule(every, most)
    return keep_running(lambda: shadow.look(database, every), schedule, console, options.signals)


class _Shadow:
    """The fleet that repeats what a Resalloc is asked for."""

    def __init__(
        self, args: argparse.Namespace, config: Config, console: Console, options: RunOptions
    ) -> None:
        name, desk = find_desk(config.fleet, args.queue)
        store = store_of(config.fleet, args.file)
        store.init()
        self._terms = options
        self._file, self._log = args.file, Path(args.log)
        self._config, self._console = config, console
        self._mirror = Mirror(DatabaseTickets(store.begin, name), most=desk.most_open)
        self._before: datetime | None = None
        self._opened = 0
        """Tickets since the last recorded look: a run may fail."""

    def look(self, database: ResallocDatabase, every: int) -> Run:
        """Mirror the tickets, apply, and record both sides; print a day when it is over."""
        seen = database.read()
        self._opened += self._mirror.follow(seen, utc_now())
        applied = apply_once(self._config, self._file, self._console, lambda _: None, self._terms)
        now, before = applied.plan.time, self._before or applied.plan.time
        # A gap between looks counts for two looks at most.
        seconds = min(max(round((now - before).total_seconds()), 0), 2 * every)
        waiting = self._mirror.waiting()
        look = look_of(seen, applied.plan, waiting=waiting, opened=self._opened, seconds=seconds)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(look.model_dump_json() + "\n")
        if before.date() != now.date():
            days = days_of(_read(str(self._log)))
            self._console.out(days_to_text(d for d in days if d.date == f"{before:%Y-%m-%d}"))
        self._before, self._opened = now, 0
        return Run(applied.exit_code)


def _refuse_real(fleet: Fleet) -> None:
    """Raise WrongUsage where an apply of this fleet.yaml would change anything real."""
    kinds = {
        **{f"providers.{n}": _kind_of(p) for n, p in fleet.providers.items()},
        **{f"pools.{n}": "hooks" for n, p in fleet.pools.items() if isinstance(p, HooksPool)},
        **{f"queues.{n}": q.kind for n, q in fleet.queues.items()},
    }
    real = [key for key, kind in kinds.items() if kind not in ("sim", "tickets", "world")]
    if real:
        raise WrongUsage(
            f"{real[0]} is of kind {kinds[real[0]]}, and a shadow must change nothing real: use "
            "a fleet.yaml with providers of kind sim and a queue of kind tickets"
        )


def _kind_of(provider: Provider) -> str:
    """Return a provider's kind, and its engine where that is a program of its own."""
    is_plain = provider.engine == "embedded"
    return provider.kind if is_plain else f"{provider.kind} with the engine {provider.engine}"


def _apart(config: Config) -> Config:
    """Return a fleet.yaml with a state of its own, apart from a fleet of the same name."""
    places = {"backend": f"file://{_FOLDER}", "store": f"sqlite:///{_FOLDER}/store.db"}
    state = config.fleet.state.model_copy(update=places)
    return replace(config, fleet=config.fleet.model_copy(update={"state": state}))


def _repair(log: Path) -> None:
    """End the last line of a log, which a killed run may have cut."""
    if not log.exists():
        return
    _read(str(log))
    with log.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if file.read() not in (b"", b"\n"):
            file.write(b"\n")


def _read(name: str) -> list[Look]:
    """Return the looks of a log; lines that a killed run has cut are skipped."""
    *lines, _ = LocalFiles().read(name, _MOST_BYTES).split(b"\n")
    return [_look(name, at, line) for at, line in enumerate(lines, 1) if not _is_torn(line)]


def _look(name: str, number: int, line: bytes) -> Look:
    try:
        return Look.model_validate_json(line)
    except ValidationError as error:
        raise FileUnreadable(
            f"{name}:{number}: not a line of a log of `fleet shadow run`: "
            f"{first_mistake(error, 'it')}; delete the line, or name another file"
        ) from None


def _is_torn(line: bytes) -> bool:
    return _LOOK.startswith(line[: len(_LOOK)]) and not line.endswith(b"}}")
