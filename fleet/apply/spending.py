"""Spend approvals: for exactly what was applied, once per machine; and charge the ledger.

They are spent before a pool's first change, for machines by name and id. What was surely not done
is taken back. A run that is killed in between leaves machines spent to which nothing happened: the
next run sees that, does not count them, and spends nothing twice. Where it is not sure they count,
so that no approval lets more pass than its count.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from fleet.apply.timer import MAX_SKEW
from fleet.model.facts import Stack, Unknown, Worker, WorkerState, World
from fleet.model.outcome import StackOutcome
from fleet.model.plan import Action, ApprovalVerdict, Create, Drain, Release
from fleet.planner.inventory import PoolInventory
from fleet.planner.ledger import charge_all, gap_of, periods
from fleet.ports import Charging, Store, Tell
from fleet.schema.model import Fleet

Spent = Mapping[str, Mapping[str, str]]
"""Approval to the workers it was used for, each with what tells its machine from a later one."""


def spend(
    store: Store,
    approvals: Sequence[ApprovalVerdict],
    actions: Sequence[Action | Release],
    stack: Stack | None,
) -> Spent:
    """Use up the approvals that let these actions pass, and return for what."""
    machines = {action.worker: _machine(action, stack) for action in actions}
    spent = {
        approval.digest: {name: machines[name] for name in approval.passes if name in machines}
        for approval in approvals
    }
    spent = {digest: names for digest, names in spent.items() if names}
    for digest, names in spent.items():
        store.spend(digest, tuple(names.values()))
    return spent


def used_so_far(
    spent: Mapping[str, Sequence[str]],
    stacks: Mapping[str, Stack | Unknown] | Unknown,
    readings: Iterable[Sequence[Worker] | Unknown | None],
) -> dict[str, int]:
    """Return how many machines each approval has let pass, those that are untouched left out."""
    going: set[str] = set()
    for workers in readings:
        if isinstance(workers, Unknown):
            return {digest: len(machines) for digest, machines in spent.items()}
        going |= {
            w.machine or w.name
            for w in workers or ()
            if w.draining or w.state is WorkerState.DISABLED
        }
    known = {} if isinstance(stacks, Unknown) else stacks
    return {
        digest: sum(
            isinstance(stacks, Unknown) or not _untouched(m, known, going) for m in machines
        )
        for digest, machines in spent.items()
    }


def _untouched(
    machine: str, stacks: Mapping[str, Stack | Unknown], going: Collection[str]
) -> bool:
    """Say whether what a machine was spent for has surely not begun."""
    pool, _, rest = machine.partition("/")
    stack = stacks.get(pool)
    if isinstance(stack, Unknown):
        return False
    name, is_made, serial = rest.partition("@")
    if is_made:
        held = stack.names if stack else set()
        return serial == str(stack.serial if stack else 0) and name not in held
    name, _, identity = rest.partition(":")
    is_kept = stack is not None and any(worker.name == name for worker in stack.workers)
    return stack is not None and is_kept and stack.ids.get(name) == identity and name not in going


def undone(
    actions: Sequence[Action], outcome: StackOutcome, after: Stack | Unknown | None
) -> frozenset[str]:
    """Return the workers to which surely nothing happened; `after` is their stack now."""
    left = [action for action in actions if action.worker not in outcome.done]
    drains = [action.worker for action in left if isinstance(action, Drain)]
    # The first that failed may have reached its queue; those behind it were not tried.
    names = set(drains[1:] if outcome.result == "failed" else drains)
    if not isinstance(after, Unknown):
        held = after.names if after else set()
        names |= {
            action.worker
            for action in left
            if not isinstance(action, Drain)
            and isinstance(action, Create) == (action.worker not in held)
        }
    return frozenset(names)


def refund(store: Store, spent: Spent, names: frozenset[str]) -> None:
    """Take back what approvals were used for where nothing was done."""
    for digest, machines in spent.items():
        back = tuple(machine for name, machine in machines.items() if name in names)
        if back:
            store.refund(digest, back)


def _machine(action: Action | Release, stack: Stack | None) -> str:
    """Return what tells a machine from a later one of the same name."""
    if isinstance(action, Create):
        return f"{action.pool}/{action.worker}@{stack.serial if stack else 0}"
    return f"{action.pool}/{action.worker}:{stack.ids.get(action.worker, '') if stack else ''}"


def charge_ledger(  # noqa: PLR0913 - what was seen, and where to write it
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    store: Store,
    tell: Tell,
    *,
    may_revert: bool,
) -> None:
    """Charge the time since the ledger was last charged, before anything is changed.

    Where this run is killed before that, the next one charges the time of both. Only a run whose
    clock was compared with earlier runs may revert charges for hours that have not begun.
    """
    ledger = world.ledger
    if isinstance(ledger, Unknown):
        return
    if ledger.charged_until is not None and world.time <= ledger.charged_until:
        if may_revert:
            _take_back(fleet, world.time, ledger.charged_until, store, tell)
        return
    charged = charge_all(fleet, world, inventories)
    charging = Charging(
        since=ledger.charged_until,
        until=world.time,
        currency=fleet.money.currency,
        entries=charged.entries,
        tallies=charged.tallies,
        payers=charged.payers,
    )
    late = gap_of(world)
    if late:
        tell(late)
    if not store.charge(charging):
        tell("another run charged the ledger; nothing was charged twice")


def _take_back(fleet: Fleet, now: datetime, until: datetime, store: Store, tell: Tell) -> None:
    """Revert the charges of a run for hours that have not started; those of this hour stay.

    If the clocks of two runs differ by at most MAX_SKEW, the hour has started for one of them.
    """
    end = periods(fleet, now)[0].end
    if until <= max(end, now + MAX_SKEW):
        return
    tell(
        f"the ledger was charged until {until:%Y-%m-%d %H:%M} UTC, later than now, by a run "
        "whose clock was ahead; charges for later hours are reverted"
    )
    store.charge(Charging(since=until, until=end, currency=fleet.money.currency))
