"""Limit an apply to a user's selection: some pools, or a saved plan.

The guards have already checked the whole plan. Unselected pools do not change.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from fleet.apply.saved_plan import find_drift
from fleet.errors import PlanOutdated, WrongUsage
from fleet.model.plan import Plan
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet
from fleet.state.store import Store


@dataclass(frozen=True)
class Selection:
    """The pools or the saved plan that an apply is limited to; by default, no limit."""

    pools: frozenset[str] = frozenset()
    """Pools to change; all if empty."""
    saved: Plan | None = None
    """The saved plan, which the current plan must equal; None if there is no saved plan."""


def part_at_rest(under_way: Mapping[str, Collection[str]], plan: Plan) -> Plan:
    """Return a plan without the pools and machines of running tasks."""
    machines = frozenset(name for names in under_way.values() for name in names)
    return plan.altered(
        **{
            key: tuple(
                each
                for each in getattr(plan, key)
                if each.pool not in under_way and each.worker not in machines
            )
            for key in ("actions", "withheld", "releases", "resumes")
        }
    )


def check_selection(selection: Selection, fleet: Fleet, store: Store) -> None:
    """Raise WrongUsage for unknown pools, PlanOutdated for the saved plan of another fleet."""
    if selection.saved is not None and selection.saved.fleet != fleet.fleet:
        raise PlanOutdated(
            f"refused, nothing was changed: the saved plan is of fleet {selection.saved.fleet}, "
            f"not of fleet {fleet.fleet}"
        )
    known = {*fleet.pools, *(record.pool for record in store.stacks())}
    unknown = sorted(selection.pools - known)
    if unknown:
        meant = nearest(unknown[0], known)
        hint = f"did you mean '{meant}'? " if meant else ""
        raise WrongUsage(
            f"--pool {unknown[0]}: no such pool; {hint}pools of fleet {fleet.fleet}: "
            f"{', '.join(sorted(known)) or 'none'}"
        )


def selected_part(selection: Selection, plan: Plan) -> Plan:
    """Return the selected part of a guarded plan."""
    if not selection.pools:
        return plan
    pools = tuple(each for each in plan.pools if each.pool in selection.pools)
    providers = {each.provider for each in pools if each.mode not in {"observe", "pause"}}
    chosen = {
        key: tuple(each for each in getattr(plan, key) if each.pool in selection.pools)
        for key in (
            *("pools", "actions", "withheld", "releases", "resumes"),
            *("holds", "workers", "approvals"),
        )
    }
    return plan.altered(
        # A promotion changes all pools of its image.
        promotions=(),
        bases=tuple(each for each in plan.bases if each.provider in providers),
        guards=tuple(
            each for each in plan.guards if each.pool is None or each.pool in selection.pools
        ),
        cost_before=sum((each.cost_before for each in pools), Decimal(0)),
        cost_after=sum((each.cost_after for each in pools), Decimal(0)),
        **chosen,
    )


def find_changes(selection: Selection, part: Plan) -> tuple[str, ...]:
    """Return the differences between saved and current plan, within the selection."""
    return find_drift(selected_part(selection, selection.saved), part) if selection.saved else ()
