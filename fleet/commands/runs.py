"""This module carries out an apply, once or again and again, and prints what became of it."""

import argparse
import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from fleet.commands.applying import Applied, Terms, apply_once
from fleet.commands.background import Background
from fleet.commands.clock import SystemClock
from fleet.commands.config import Config, load_config, refuse_throwaway_state, to_config
from fleet.commands.crew import Pace, default_jobs, early_helpers
from fleet.commands.loading import check_file
from fleet.commands.options import read_seconds
from fleet.commands.signals import Signals
from fleet.engines.helper_process import HelperProcess
from fleet.errors import WrongUsage
from fleet.operate.loop import Rhythm, Run, find_on_the_way, keep_applying
from fleet.operate.order import Order
from fleet.plan import Plan
from fleet.plan.saved import LIMIT_BYTES, read_plan
from fleet.ports import Console
from fleet.render.findings import to_text
from fleet.render.outcome_text import outcome_to_text
from fleet.render.to_text import plan_to_text
from fleet.schema.model import Fleet
from fleet.store.files import LocalFiles


def run_as_told(
    args: argparse.Namespace,
    console: Console,
    signals: Signals | None,
    process: HelperProcess | None,
) -> int:
    """Apply as the arguments say, with the helper's process that was started before."""
    rhythm = _rhythm(args)
    order = _order(args)
    config = load_config(args, console)
    refuse_throwaway_state(config.fleet, args.file)
    early = nullcontext() if rhythm else early_helpers(config.fleet, args.file, process)
    with early as helpers:
        pace = Pace(args.jobs or default_jobs(), helpers)
        terms = Terms(order, pace, signals or Signals(), args.trust_clock)
        if rhythm is None:
            return run_once(config, args, console, terms)
        return run_again(config, args, console, rhythm, terms)


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
    if args.trust_clock:
        raise WrongUsage("--trust-clock is for one run: apply once with it, then leave it out")
    most = None if args.most is None else read_seconds("--for", args.most)
    return Rhythm(read_seconds("--every", args.every), most, until_quiet=args.until_quiet)


def run_once(config: Config, args: argparse.Namespace, console: Console, terms: Terms) -> int:
    """Apply once and return the exit code."""

    def show(plan: Plan) -> None:
        if not args.json:
            console.out(plan_to_text(plan, colour=console.colour))

    with terms.signals.heard():
        applied = apply_once(config, args.file, console, show, terms)
    if args.json:
        from fleet.render.to_json import value_to_json

        console.out(value_to_json(applied.outcome))
    else:
        console.out(outcome_to_text(applied.outcome, applied.plan, colour=console.colour))
    terms.signals.end_if_asked()
    return applied.exit_code


def run_again(
    config: Config, args: argparse.Namespace, console: Console, rhythm: Rhythm, terms: Terms
) -> int:
    """Apply in this rhythm until that is over; return the exit code."""
    runs = Runs(args, console, config, terms)
    return keep_running(runs.run, rhythm, console, terms.signals)


def keep_running(
    run: Callable[[], Run],
    rhythm: Rhythm,
    console: Console,
    signals: Signals,
    background: Background | None = None,
) -> int:
    """Run in this rhythm until it is over or somebody asks to end; return the exit code.

    What goes on in the background is done first.
    """
    with signals.heard():
        try:
            code = keep_applying(rhythm, run, SystemClock(), signals, console.note)
        except KeyboardInterrupt:
            if signals.was_cut:
                raise
            if background is None or not background.under_way:
                console.note("ended as asked; nothing was being changed")
            code = 0
        finally:
            if background is not None:
                _finish(background, console, signals)
    if signals.was_cut:
        raise KeyboardInterrupt
    return code


def _finish(background: Background, console: Console, signals: Signals) -> None:
    if background.under_way:
        console.note(
            f"ending once this is done: {', '.join(background.under_way)}; asked again, it is "
            "cancelled"
        )
    with signals.changing(background.cut):
        background.finish()
    for outcome in background.ended():
        error = f": {outcome.error}" if outcome.error else ""
        console.note(f"{outcome.pool}: {outcome.result}{error}")


class Runs:
    """The runs of one loop: each with the fleet.yaml of its moment, if that is valid."""

    def __init__(
        self, args: argparse.Namespace, console: Console, config: Config, terms: Terms
    ) -> None:
        self.watch: Callable[[], None] = lambda: None
        """Called when a run knows what it is to do, and has given out what was free."""
        self._args = args
        self._console = console
        self._config = config
        self._terms = terms
        self._refused = ""
        self._last_code: int | None = None

    @property
    def fleet(self) -> Fleet:
        """Return what fleet.yaml said when it was last read and valid."""
        return self._config.fleet

    def run(self) -> Run:
        """Apply once, with what fleet.yaml says now."""
        # Who asks to end meanwhile is heard after it: a file would be left open.
        with self._terms.signals.changing():
            is_current = self._reload()
        self._terms.signals.end_if_asked()
        applied = apply_once(self._config, self._args.file, self._console, self._show, self._terms)
        code = applied.exit_code or (0 if is_current else 1)
        changed = any(each.created or each.deleted for each in applied.outcome.stacks)
        run = Run(code, tuple(find_on_the_way(applied.plan)), changed)
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
        if config.fleet == self._config.fleet:
            # What was worked out for it stays true.
            config = replace(config, fleet=self._config.fleet)
        if self._refused or config.fleet is not self._config.fleet:
            self._console.note(f"{self._args.file} has changed; from now on that is applied")
            if self._terms.pace.background:
                self._terms.pace.background.seen = None
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
        self.watch()
        if plan.actions and not self._args.json:
            self._console.out(plan_to_text(plan, colour=self._console.colour))

    def _tell(self, applied: Applied, run: Run) -> None:
        """Print what became of a run; one like that before it in a line."""
        plan, outcome = applied.plan, applied.outcome
        if self._args.json:
            self._console.out(outcome.model_dump_json())
            return
        if not plan.actions and not run.changed and run.code == self._last_code:
            on_the_way = ", ".join(run.on_the_way) or "nothing"
            left = sum(each.count for each in plan.unserved)
            unserved = f"; not served (`fleet plan` says why): {left}" if left else ""
            said = f"{plan.time:%H:%M:%S}Z nothing changed; on the way: {on_the_way}"
            self._console.out(said + unserved)
            return
        if not plan.actions and not run.changed:
            self._console.out(plan_to_text(plan, colour=self._console.colour))
        self._console.out(outcome_to_text(outcome, plan, colour=self._console.colour))


def _is_same(new: Fleet, old: Fleet) -> bool:
    """Say whether an edit leaves whose machines these are, and where that is recorded."""
    return (new.fleet, new.state) == (old.fleet, old.state)
