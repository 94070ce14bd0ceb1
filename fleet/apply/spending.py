"""Spend approvals for exactly the applied actions, once per machine; charge the ledger.

Approvals are spent before a pool's first change, for machines by name and id. They are refunded
for actions that certainly did not happen. A run that is killed in between leaves approvals spent
for unchanged machines. The next run does not count these uses, and spends no approval twice.
Doubtful uses count, so that no approval permits more actions than its count.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.apply.timer import MAX_SKEW
from fleet.model.facts import Stack, Unknown, Worker, WorkerState, World
from fleet.model.history import StackOutcome
from fleet.model.plan import Action, ApprovalVerdict, Create, Drain, Release
from fleet.planner.inventory import PoolInventory
from fleet.planner.ledger import charge_all, gap_of, periods
from fleet.ports import Charging, Tell
from fleet.schema.model import Fleet
from fleet.schema.units import write_time

if TYPE_CHECKING:
    from fleet.state.store import Store

Spent = Mapping[str, Mapping[str, str]]
"""Approval to its workers, and each worker to an id that distinguishes its machine from a later
machine."""


def spend(
    store: "Store",
    approvals: Sequence[ApprovalVerdict],
    actions: Sequence[Action | Release],
    stack: Stack | None,
) -> Spent:
    """Spend the approvals that permit these actions; return the uses of each approval."""
    machines = {action.worker: _machine_key(action, stack) for action in actions}
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
    """Map each approval to the number of its uses, without uses for unchanged machines."""
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
            isinstance(stacks, Unknown) or not _is_untouched(m, known, going) for m in machines
        )
        for digest, machines in spent.items()
    }


def _is_untouched(
    machine: str, stacks: Mapping[str, Stack | Unknown], going: Collection[str]
) -> bool:
    """Return True if the action for which an approval was spent has certainly not started."""
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
    """Return the workers that are certainly unchanged. `after` is the pool's current stack."""
    left = [action for action in actions if action.worker not in outcome.done]
    drains = [action.worker for action in left if isinstance(action, Drain)]
    # The first drain that failed may have reached its queue; later drains were not tried.
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


def refund(store: "Store", spent: Spent, names: frozenset[str]) -> None:
    """Refund the uses of approvals for these workers, whose actions were not done."""
    for digest, machines in spent.items():
        back = tuple(machine for name, machine in machines.items() if name in names)
        if back:
            store.refund(digest, back)


def _machine_key(action: Action | Release, stack: Stack | None) -> str:
    """Return an id that distinguishes a machine from later machines of the same name."""
    if isinstance(action, Create):
        return f"{action.pool}/{action.worker}@{stack.serial if stack else 0}"
    return f"{action.pool}/{action.worker}:{stack.ids.get(action.worker, '') if stack else ''}"


def charge_ledger(  # noqa: PLR0913 - observed values, and where to record them
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory],
    store: "Store",
    tell: Tell,
    *,
    may_revert: bool,
) -> None:
    """Charge payers for the time since the last charge, before any change of this run.

    If this run is killed earlier, the next run charges the time of both runs. `may_revert` permits
    reverting charges for hours that have not started, if this run has compared its clock.
    """
    ledger = world.ledger
    if isinstance(ledger, Unknown):
        return
    if ledger.charged_until is not None and world.time <= ledger.charged_until:
        # A run whose clock was ahead charged hours that have not started. If the clocks of two
        # runs differ by at most MAX_SKEW, the hour has started for one run.
        end = periods(fleet, world.time)[0].end
        if may_revert and ledger.charged_until > max(end, world.time + MAX_SKEW):
            tell(
                f"the ledger was charged until {write_time(ledger.charged_until)}, later than "
                "now, by a run whose clock was ahead; charges for later hours are reverted"
            )
            back = Charging(since=ledger.charged_until, until=end, currency=fleet.money.currency)
            store.charge(back)
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
