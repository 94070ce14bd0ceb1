"""This module carries out one run of apply: lock, observe, plan, guard, change, record."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from fleet.commands.asking import Together
from fleet.commands.clock import SystemClock
from fleet.commands.config import Config
from fleet.commands.crew import Pace, crewed
from fleet.commands.signals import Signals
from fleet.commands.wiring import configure_sims, lock_owner, look, plan_for, priced, wire
from fleet.facts import World
from fleet.operate.apply import apply_plan, rivalry
from fleet.operate.base import lay_bases, lay_for_saved
from fleet.operate.clocks import TRUST, check_clock, check_servers
from fleet.operate.expiry import extend_expiries
from fleet.operate.handing import Seen, hand_out_all, note_waits
from fleet.operate.journal import journalled
from fleet.operate.observe import Sources, remember_rules
from fleet.operate.order import Order, check_order, find_changes, idle_part, ordered_part
from fleet.operate.promoting import promote_all
from fleet.plan import Create, Plan
from fleet.plan.outcome import Outcome, StackOutcome
from fleet.ports import Asking, Console
from fleet.ports.store import Store
from fleet.render.journal import said_of_begun
from fleet.render.progress import Progress
from fleet.schema.model import Fleet


@dataclass(frozen=True)
class Applied:
    """What one run planned, and what became of it."""

    plan: Plan
    outcome: Outcome

    @property
    def exit_code(self) -> int:
        """Return the outcome's; 1 also where a source was silent or a person has to look."""
        return self.outcome.exit_code or (1 if self.plan.unknown or self.plan.attention else 0)


@dataclass(frozen=True)
class Terms:
    """What one run may do, at which pace, and how it hears that it is to end."""

    order: Order = field(default_factory=Order)
    pace: Pace = field(default_factory=Pace)
    signals: Signals = field(default_factory=Signals)
    trusts_clock: bool = False
    """Whether a person said that this computer's clock is right."""


def apply_once(
    config: Config, file: str, console: Console, show: Callable[[Plan], None], terms: Terms
) -> Applied:
    """Apply what a plan made under the lock says; `show` gets the plan before anything changes."""
    started = (clock := SystemClock()).now()
    beside = terms.pace.background
    wired = _wire(config, file, terms)
    lock = wired.store.lock(lock_owner(), started)
    crew = crewed(config.fleet, file, wired, terms.pace, console.note)
    with crew as (sources, cut), beside.locked(lock) if beside else lock as died:
        if died:
            console.note(_said_of_dead(died, sources.store))
        _begin(config.fleet, sources, terms, started)
        note = partial(_note, sources.store, started)
        config, world = _see(config, sources, console, terms, note)
        edges = journalled(sources, note)
        lay = partial(lay_bases, config.fleet, sources=edges, tell=console.note, order=terms.order)
        troubles: tuple[StackOutcome, ...] = ()
        if terms.order.saved is None:
            with terms.signals.changing():
                world, troubles = lay(world)
        plan = idle_part(
            sources.crew.under_way, ordered_part(terms.order, plan_for(config, world))
        )
        note_waits(config.fleet, world, plan, sources)
        show(plan)
        tell = _teller(plan, console)
        with terms.signals.changing(cut):
            drift = find_changes(terms.order, plan)
            if terms.order.saved is not None and not drift:
                anew = partial(plan_for, config)
                world, troubles, drift = lay_for_saved(terms.order, world, lay, anew)
            if drift:
                outcome = Outcome(plan=plan.digests.plan, stacks=troubles, outdated=drift)
            else:
                extend_expiries(config.fleet, world, sources, console.note)
                promote = partial(promote_all, plan, sources.store, clock.now(), note, tell)
                promoted = () if rivalry(world, plan) else promote()
                outcome = apply_plan(config.fleet, world, plan, edges, tell)
                stacks = (*troubles, *outcome.stacks)
                outcome = outcome.model_copy(update={"stacks": stacks, "promoted": promoted})
            sources.store.record_run(
                started=started,
                ended=clock.now(),
                plan=plan.digests.plan,
                outcome=outcome.model_dump_json(),
            )
        if beside:
            beside.seen = Seen(config.fleet, world, sources, _left(plan, sources), started)
    return Applied(plan, outcome)


def _wire(config: Config, file: str, terms: Terms) -> Sources:
    wired = wire(config.fleet, file, looks=True, beside=terms.pace.background)
    return replace(wired, is_ending=terms.signals.is_ending)


def _left(plan: Plan, sources: Sources) -> Collection[str]:
    """Return the machines that were let go of, or on which something was being done."""
    let_go = {each.worker for each in plan.actions if not isinstance(each, Create)}
    return let_go.union(*sources.crew.under_way.values())


def _begin(fleet: Fleet, sources: Sources, terms: Terms, started: datetime) -> None:
    check_order(terms.order, fleet, sources.store)
    if not terms.trusts_clock:
        check_clock(sources.store, started)
    sources.store.begin_run(started=started)
    configure_sims(fleet, sources)


def _said_of_dead(died: str, store: Store) -> str:
    begun = said_of_begun(store.last_runs(1))
    return f"took over the lock of {died}, which died; finishing what it began{begun}"


def _see(
    config: Config, sources: Sources, console: Console, terms: Terms, note: Callable[[str], None]
) -> tuple[Config, World]:
    """Return the world with tickets served, and the configuration at the prices of it."""
    asking = _asking(sources, console, terms, note)
    seen = look(config, replace(sources, asking=asking), console)
    if not terms.trusts_clock:
        check_servers(seen, TRUST)
    config = priced(config, seen)
    with terms.signals.changing():
        world = hand_out_all(config.fleet, seen, sources, console.note, note)
    remember_rules(world, sources.store)
    return config, world


def _asking(
    sources: Sources, console: Console, terms: Terms, note: Callable[[str], None]
) -> Callable[[], Asking]:
    """Return what asks sources; while one is slow, tickets get what the run before saw free."""
    beside = terms.pace.background
    if beside is None or beside.seen is None:
        return sources.asking
    # A run that does not come to its end leaves nothing to go by.
    seen, beside.seen = beside.seen, None
    with terms.signals.changing():
        _, *before = sources.store.last_runs(2)
    terms.signals.end_if_asked()
    if not before or before[0]["started"] != seen.started.isoformat():
        return sources.asking

    def hand_out() -> None:
        with terms.signals.changing():
            if seen.hand_out(sources.crew, SystemClock().now(), console.note, note):
                beside.given()
        terms.signals.end_if_asked()

    return partial(Together, meanwhile=hand_out)


def _teller(plan: Plan, console: Console) -> Callable[[str], None]:
    """Return what says each step in a line, and to who watches how far that is."""
    progress = Progress(plan)

    def tell(text: str) -> None:
        console.note(text)
        progress.hear(text)
        show()

    def show() -> None:
        if said := str(progress):
            console.progress(said)

    show()
    return tell


def _note(store: Store, started: datetime, step: str) -> None:
    store.record_step(started=started, step=step)
