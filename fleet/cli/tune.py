"""Propose settings of pools for a target or a budget, simulated over recorded demand."""

import argparse
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from posixpath import dirname

from pydantic import BaseModel, ValidationError

from fleet.apply.config import Config, load_config
from fleet.cli.arguments import Parser, add_file, add_json, count, duration, option
from fleet.cli.output import show
from fleet.cli.recorded import Recorded, add_history, recorded
from fleet.errors import FileUnreadable, WrongUsage
from fleet.explain.simulation.knobs import Ladder, Places, find_ladders, fleet_at, write_place
from fleet.explain.simulation.trials import Goal, Trial, held_back, learned, read_history
from fleet.explain.simulation.tuning import Search, conclude
from fleet.model.digests import config_digest
from fleet.model.facts import Unknown
from fleet.model.prices import convert
from fleet.model.values import Moment, Value
from fleet.ports import Console
from fleet.queues.recorded import world_of
from fleet.report.tables import tables_to_html, tables_to_lines
from fleet.report.tuning import tuning_tables
from fleet.schema.edit import NotEditable, PatchedFiles, write_diff, write_keys
from fleet.schema.findings import nearest
from fleet.schema.load import load
from fleet.schema.model import Fleet
from fleet.schema.units import MONEY_PATTERN, write_duration
from fleet.state.files import LocalFiles

_MOST = 200
_START = re.compile(r"(?P<share>[1-9][0-9]?|100)%:(?P<time>.+)")
_LIMIT = 100_000_000


def arguments(parser: Parser) -> None:
    """Declare what `fleet tune` takes."""
    add_file(parser)
    add_history(parser)
    goal = parser.add_mutually_exclusive_group(required=True)
    option(
        goal,
        "--start",
        "SHARE:TIME",
        "cost least where so many requests start within this time, as 95%%:10m",
        kind=_start,
    )
    option(
        goal,
        "--budget",
        "MONEY",
        "wait least for this much money per day, as '20 EUR'",
        kind=_money,
    )
    parser.add_argument(
        "--class",
        dest="only",
        choices=["powerful", "ordinary"],
        help="only requests of this class count (default: all)",
    )
    parser.add_argument(
        "--key",
        dest="keys",
        action="append",
        metavar="KEY",
        help="a key that may change, as pools.builders.workers.max or 'pools.*.retire.idle_after';"
        " may be repeated (default: workers.max, workers.min, workers.spare and retire.idle_after"
        " of each pool; machine types only where a KEY names them)",
    )
    option(
        parser,
        "--most",
        "N",
        f"end the search after so many simulations (default: {_MOST})",
        default=_MOST,
        kind=count(1, 999_999),
    )
    option(
        parser,
        "--within",
        "DURATION",
        "also end the search after this time, as in 10m; with --resume a second run goes on",
        kind=duration,
    )
    option(
        parser,
        "--resume",
        "FILE",
        "keep what was simulated in FILE, and go on from there if it exists",
    )
    option(parser, "--html", "FILE", "also write a page with a plot to FILE, without scripts")
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print what to change and what it is worth; exit 1 where no moment can be used."""
    began = time.monotonic()

    def is_over() -> bool:
        return args.within is not None and time.monotonic() - began >= args.within

    config = load_config(args, console)
    goal = _goal(args, config.fleet)
    editor = _Editor(config, args.file)
    ladders = _chosen(args.keys, config.fleet, editor)
    records = recorded(args, config.fleet)
    console.progress(f"reading {records.name}")
    span = _span_of(records, timedelta(seconds=config.fleet.cadence))
    history = read_history(records.worlds(), span.split)
    if isinstance(history, Unknown):
        raise FileUnreadable(f"{records.name}: {history.unknown}")
    kept = _Kept.open(
        args.resume, Resumable(history=span.digest, goal=goal, version=version("fleet-reconciler"))
    )
    first = kept.remembering(0, learned(history, goal), console)
    last = kept.remembering(1, held_back(history, goal, first), console)
    if first(config.fleet).per_day is None:
        raise WrongUsage(
            "the price of a machine is unknown, so no settings can be compared: state "
            "machine.price (`fleet prices check` names what has none)"
        )
    found = Search(config.fleet, ladders, goal, first, args.most, is_over).run()
    tuning = conclude(found, history, last, editor.diff(ladders, found.best))
    report = tuning_tables(tuning)
    if args.html:
        LocalFiles().write_text(args.html, tables_to_html(report))
    show(args, console, tuning, tables_to_lines(report))
    if tuning.patch and not args.json:
        # At the end, so that `git apply` takes it.
        console.out(f"\n\n{tuning.patch}")
    return 0


# options


def _start(text: str) -> tuple[int, int]:
    """Return percent and seconds."""
    found = _START.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no share and time, as 95%:10m")
    return int(found["share"]), duration(found["time"])


def _money(text: str) -> tuple[Decimal, str]:
    if not re.fullmatch(MONEY_PATTERN, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no amount with its currency, as '20 EUR'")
    amount, currency = text.split(" ")
    return Decimal(amount), currency


def _goal(args: argparse.Namespace, fleet: Fleet) -> Goal:
    if args.start:
        share, seconds = args.start
        return Goal(share=share, seconds=seconds, only=args.only)
    amount, currency = args.budget
    budget = convert(fleet, amount, currency)
    if budget is None:
        raise WrongUsage(
            f"--budget: fleet.yaml states no exchange rate for {currency}; write it in "
            f"{fleet.money.currency}"
        )
    return Goal(share=95, budget=budget, only=args.only)


def _chosen(patterns: list[str] | None, fleet: Fleet, editor: "_Editor") -> tuple[Ladder, ...]:
    """Return the ladders that may be changed; raises WrongUsage where there is none."""
    known = find_ladders(fleet)
    for pattern in patterns or ():
        if not any(fnmatchcase(ladder.key, pattern) for ladder in known):
            meant = nearest(pattern, [ladder.key for ladder in known])
            hint = f"did you mean {meant}?" if meant else _allowed(known)
            raise WrongUsage(f"--key {pattern}: no key that can be tuned; {hint}")
    chosen = [
        ladder
        for ladder in known
        if (
            any(fnmatchcase(ladder.key, each) for each in patterns)
            if patterns
            else not ladder.is_type
        )
    ]
    if not chosen:
        raise WrongUsage("fleet.yaml has no pool whose machines fleet creates and deletes")
    for ladder in chosen:
        editor.refuse_unwritable(ladder)
    return tuple(chosen)


def _allowed(known: tuple[Ladder, ...]) -> str:
    pools = ", ".join(dict.fromkeys(str(ladder.path[1]) for ladder in known))
    return (
        "pools.NAME with workers.max, workers.min, workers.spare, retire.idle_after, machine or "
        f"machine.type can be; NAME is of: {pools}"
    )


class _Editor:
    """Writes settings into the text of fleet.yaml, and makes sure that it says just these."""

    def __init__(self, config: Config, name: str) -> None:
        self._config, self._name = config, name
        self._files = LocalFiles(within=dirname(name))

    def refuse_unwritable(self, ladder: Ladder) -> None:
        """Raise WrongUsage where the text does not let a key be changed alone."""
        other = ladder.today - 1 if ladder.today else ladder.today + 1
        if other < len(ladder.values):
            self.diff((ladder,), (other,))

    def diff(self, ladders: tuple[Ladder, ...], places: Places) -> str:
        """Return a unified diff with these settings."""
        fleet = self._config.fleet
        changed = [
            (ladder, place)
            for ladder, place in zip(ladders, places, strict=True)
            if place != ladder.today
        ]
        keys = ", ".join(ladder.key for ladder, _ in changed)
        values = [(ladder.path, write_place(fleet, ladder, place)) for ladder, place in changed]
        try:
            texts = write_keys(self._name, self._files, values)
        except NotEditable as error:
            raise WrongUsage(
                f"cannot write {keys}: {error}; or choose others with --key"
            ) from error
        wanted = fleet_at(fleet, ladders, places)
        written = load(self._name, PatchedFiles(self._files, texts)).fleet
        if written is None or config_digest(written) != config_digest(wanted):
            raise WrongUsage(
                f"cannot write {keys} alone: what it is written with is used elsewhere too, by an "
                "alias (*…); write it out, or choose others with --key"
            )
        return write_diff(self._files, texts)


# the history


@dataclass(frozen=True)
class _Span:
    split: datetime
    digest: str
    """Of all that is read."""


class _When(BaseModel):
    time: Moment


def _span_of(history: Recorded, cadence: timedelta) -> _Span:
    """Return where the last quarter of a history begins, which holds a run at least."""
    said = hashlib.sha256()
    times: list[datetime] = []
    for content in history.contents():
        try:
            times.append(_When.model_validate_json(content).time)
        except ValidationError:
            world_of(history.name, content)  # says where
            raise
        said.update(hashlib.sha256(content).digest())
    if not times:
        raise FileUnreadable(f"{history.name}: nothing was recorded in this time")
    first, last = min(times), max(times)
    if last - first < 4 * cadence:
        raise FileUnreadable(
            f"{history.name}: {write_duration(last - first)} were recorded, too short to try "
            f"settings over: 4 times `cadence`, {write_duration(4 * cadence)}, is the least, some "
            "days are better"
        )
    return _Span(first + (last - first) * 3 / 4, said.hexdigest())


# what was simulated


class Resumable(Value):
    """What a run of `fleet tune` simulated, for the next one to go on."""

    format: str = "fleet-tuning-resume-1"
    version: str
    history: str
    goal: Goal
    learned: tuple[Trial, ...] = ()
    held_back: tuple[Trial, ...] = ()


@dataclass
class _Kept:
    """Remembers trials by the digest of what was tried, in a file if one is named."""

    name: str | None
    about: Resumable
    trials: tuple[dict[str, Trial], dict[str, Trial]] = field(default_factory=lambda: ({}, {}))

    @classmethod
    def open(cls, name: str | None, about: Resumable) -> "_Kept":
        """Return what a file keeps; raises where it is torn, or of something else."""
        if name is None or not Path(name).exists():
            return cls(name, about)
        content = LocalFiles().read(name, _LIMIT)
        try:
            read = Resumable.model_validate_json(content)
        except ValidationError as error:
            raise FileUnreadable(
                f"{name}: this is no whole file of `fleet tune --resume`; name another, or delete "
                "it to begin from the start"
            ) from error
        for key, of in _PARTS_OF_RESUMABLE.items():
            if getattr(read, key) != getattr(about, key):
                raise WrongUsage(
                    f"{name} is of another {of}; name another file, or delete it to begin from "
                    "the start"
                )
        return cls(name, about, (_by_config(read.learned), _by_config(read.held_back)))

    def remembering(
        self, part: int, simulate: Callable[[Fleet], Trial], console: Console
    ) -> Callable[[Fleet], Trial]:
        """Return what simulates only what is not kept yet, and keeps it."""
        trials = self.trials[part]

        def simulated(fleet: Fleet) -> Trial:
            config = config_digest(fleet)
            if config not in trials:
                console.progress(f"simulation {sum(map(len, self.trials)) + 1}")
                trials[config] = simulate(fleet)
                self._save()
            return trials[config]

        return simulated

    def _save(self) -> None:
        if self.name is not None:
            learned, held_back = (tuple(each.values()) for each in self.trials)
            kept = self.about.altered(learned=learned, held_back=held_back)
            LocalFiles().write_text(self.name, kept.model_dump_json() + "\n")


_PARTS_OF_RESUMABLE = {
    "format": "kind",
    "version": "version of fleet",
    "history": "history",
    "goal": "goal",
}


def _by_config(trials: tuple[Trial, ...]) -> dict[str, Trial]:
    return {trial.config: trial for trial in trials}
