"""This module uses up approvals: for exactly what was applied, and for each machine once.

They are spent before a pool's first change. A run that is killed afterwards leaves its machines
spent, by name and id: the next run finds them again and spends nothing twice. What was surely not
done is taken back; where that is not sure it stays spent, so that no approval lets more pass than
its count.
"""

from collections.abc import Mapping, Sequence

from fleet.facts import Stack, Unknown
from fleet.guard_results import ApprovalVerdict
from fleet.plan import Action, Create, Drain, StackOutcome
from fleet.ports import Store

Spent = Mapping[str, Mapping[str, str]]
"""Approval to the workers it was used for, each with what tells its machine from a later one."""


def spend(
    store: Store,
    approvals: Sequence[ApprovalVerdict],
    actions: Sequence[Action],
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


def undone(
    actions: Sequence[Action], outcome: StackOutcome, after: Stack | Unknown | None
) -> frozenset[str]:
    """Return the workers to which surely nothing happened; `after` is their stack now."""
    done = {*outcome.created, *outcome.drained, *outcome.deleted}
    left = [action for action in actions if action.worker not in done]
    drains = [action.worker for action in left if isinstance(action, Drain)]
    # The first that failed may have reached its queue; those behind it were not tried.
    names = set(drains[1:] if outcome.result == "failed" else drains)
    if not isinstance(after, Unknown):
        held = {worker.name for worker in after.workers} | after.ids.keys() if after else set()
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


def _machine(action: Action, stack: Stack | None) -> str:
    """Return what tells a machine from a later one of the same name."""
    if isinstance(action, Create):
        return f"{action.worker}@{stack.serial if stack else 0}"
    return f"{action.worker}:{stack.ids.get(action.worker, '') if stack else ''}"
