"""This module makes it so, once or again and again: lock, observe, plan, guard, change, record."""

import argparse
import gc
import os
from pathlib import Path

from fleet.commands.applying import Applied, Terms, apply_once
from fleet.commands.clock import SystemClock
from fleet.commands.crew import Pace, default_jobs
from fleet.commands.loading import check_file
from fleet.commands.options import read_seconds
from fleet.commands.signals import Signals
from fleet.commands.wiring import Config, load_config, to_config
from fleet.errors import PlanRefused, WrongUsage
from fleet.operate.loop import Rhythm, Run, find_on_the_way, keep_applying
from fleet.operate.order import Order
from fleet.plan import Plan
from fleet.ports import Console
from fleet.render.findings import to_text
from fleet.render.outcome_text import outcome_to_text
from fleet.render.to_json import outcome_to_json
from fleet.render.to_text import plan_to_text
from fleet.saved import LIMIT_BYTES, read_plan
from fleet.schema.model import Fleet
from fleet.store.files import LocalFiles
from fleet.store.places import find_places


def run(args: argparse.Namespace, console: Console, signals: Signals | None = None) -> int:
    """Apply what a plan made under the lock says, and print the outcome."""
    rhythm = _rhythm(args)
    order = _order(args)
    config = load_config(args, console)
    _refuse_throwaway_state(config.fleet, args.file)
    signals = signals or Signals()
    pace = Pace(args.jobs or default_jobs(), in_haste=rhythm is None)
    terms = Terms(order, pace, signals)
    if rhythm is not None:
        return _loop(_Runs(args, console, config, terms), rhythm, console, signals)

    def show(plan: Plan) -> None:
        if not args.json:
            console.out(plan_to_text(plan, colour=console.colour))

    with signals.heard():
        applied = apply_once(config, args.file, console, show, terms)
    console.out(
        outcome_to_json(applied.outcome)
        if args.json
        else outcome_to_text(applied.outcome, applied.plan, colour=console.colour)
    )
    if signals.is_ending():
        raise KeyboardInterrupt
    return applied.exit_code


def _order(args: argparse.Namespace) -> Order:
    """Return what is to be applied: the pools named, the plan that was saved."""
    if args.plan is None:
        return Order(frozenset(args.pool))
    if args.every is not None:
        raise WrongUsage("a saved plan is applied once: leave --every out")
    content = LocalFiles().read(args.plan, LIMIT_BYTES)
    return Order(frozenset(args.pool), read_plan(args.plan, content))


def _rhythm(args: argparse.Namespace) -> Rhythm | None:
    """Return how often to apply; None: once."""
    if args.every is None:
        if args.most is not None or args.until_quiet:
            raise WrongUsage("--for and --until-quiet say when a loop ends: add --every")
        return None
    most = None if args.most is None else read_seconds("--for", args.most)
    return Rhythm(read_seconds("--every", args.every), most, until_quiet=args.until_quiet)


def _loop(runs: "_Runs", rhythm: Rhythm, console: Console, signals: Signals) -> int:
    with signals.heard():
        try:
            code = keep_applying(rhythm, runs.run, SystemClock(), signals, console.note)
        except KeyboardInterrupt:
            if signals.was_cut:
                raise
            console.note("ended as asked; nothing was being changed")
            return 0
    if signals.was_cut:
        raise KeyboardInterrupt
    return code


class _Runs:
    """The runs of one loop: each with the fleet.yaml of its moment, if that is valid."""

    def __init__(
        self, args: argparse.Namespace, console: Console, config: Config, terms: Terms
    ) -> None:
        self._args = args
        self._console = console
        self._config = config
        self._terms = terms
        self._refused = ""
        self._last_code: int | None = None

    def run(self) -> Run:
        """Apply once, with what fleet.yaml says now."""
        is_current = self._reload()
        applied = apply_once(self._config, self._args.file, self._console, self._show, self._terms)
        code = applied.exit_code or (0 if is_current else 1)
        run = Run(code, tuple(find_on_the_way(applied.plan)))
        # A loop runs for months, and by itself it looks for garbage hardly ever. Whoever asks to
        # end meanwhile is heard after it: what is raised while garbage goes is lost.
        with self._terms.signals.changing():
            gc.collect()
        self._tell(applied, run)
        self._last_code = code
        return run

    def _reload(self) -> bool:
        """Take up what fleet.yaml and its included files say now.

        False where this loop cannot go on with that: then it goes on with what it has.
        """
        checked = check_file(self._args.file, SystemClock().now().date())
        config = to_config(checked)
        if config is None:
            return self._go_on(to_text(checked.findings, checked.document))
        if not _is_same(config.fleet, self._config.fleet):
            return self._go_on(
                f"{self._args.file} says another `fleet` or `state` now: to a running loop that "
                "is another fleet; end it and start it again"
            )
        if self._refused or config.fleet != self._config.fleet:
            self._console.note(f"{self._args.file} has changed; from now on that is applied")
        self._config, self._refused = config, ""
        return True

    def _go_on(self, why: str) -> bool:
        """Say once why what is written now is not taken up; the fleet is not left alone for it."""
        if why != self._refused:
            said = f"going on with what {self._args.file} said before"
            self._console.note(f"{why}\n{said}")
        self._refused = why
        return False

    def _show(self, plan: Plan) -> None:
        if plan.actions and not self._args.json:
            self._console.out(plan_to_text(plan, colour=self._console.colour))

    def _tell(self, applied: Applied, run: Run) -> None:
        """Print what became of a run; one like that before it in a line."""
        plan, outcome = applied.plan, applied.outcome
        if self._args.json:
            self._console.out(outcome.model_dump_json())
            return
        if not plan.actions and run.code == self._last_code:
            on_the_way = ", ".join(run.on_the_way) or "nothing"
            self._console.out(f"{plan.time:%H:%M:%S}Z nothing changed; on the way: {on_the_way}")
            return
        if not plan.actions:
            self._console.out(plan_to_text(plan, colour=self._console.colour))
        self._console.out(outcome_to_text(outcome, plan, colour=self._console.colour))


def _is_same(new: Fleet, old: Fleet) -> bool:
    """Say whether an edit leaves whose machines these are, and where that is recorded."""
    return (new.fleet, new.state) == (old.fleet, old.state)


def _refuse_throwaway_state(fleet: Fleet, config: str) -> None:
    """Refuse state that a CI job would lose with its checkout."""
    checkout = os.environ.get("CI_PROJECT_DIR")
    if not checkout:
        return
    for path in find_places(fleet, config).local():
        if path.resolve().is_relative_to(Path(checkout).resolve()):
            raise PlanRefused(
                f"refused: state at {path} is inside this job's checkout and would be lost with "
                "it; set state.backend and state.store to a place that outlives the job "
                "(docs/how-to/run-in-gitlab.md)"
            )
