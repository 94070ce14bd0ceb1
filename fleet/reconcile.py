"""This module says what should be: reconcile(fleet, world) -> Plan, total and deterministic.

Permuting any input changes nothing, and equal inputs give byte-identical plans.
The table of steps is the body of `begin`, then that of `reconcile`, in this order.
"""

from fleet.allocate import allocate
from fleet.budgets import judge_budgets
from fleet.catalogue.listed import with_price_lists
from fleet.demand import sign_demand
from fleet.draft.headroom import Headroom
from fleet.draft.layout import lay_out
from fleet.draft.limits import judge_limits
from fleet.draft.staffing import staff
from fleet.draft.supplies import find_supplies
from fleet.facts import World
from fleet.plan import Plan
from fleet.schema.model import Fleet
from fleet.steps.drafting import begin
from fleet.steps.replace import replace_due
from fleet.steps.returned import let_go_of_returned
from fleet.steps.surplus import dismiss_booting, release_surplus
from fleet.steps.warm import keep_warm
from fleet.verdicts import Decided, assemble


def reconcile(fleet: Fleet, world: World) -> Plan:
    """Return what should be done about this world, and why."""
    fleet = with_price_lists(fleet, world)
    drafts = begin(fleet, world)
    supplies = find_supplies(fleet, world, drafts)
    demand = sign_demand(fleet, world, supplies)
    layout = lay_out(fleet, world, drafts, supplies, demand)
    allocation = allocate(layout.groups, layout.places, layout.rows)
    service = staff(drafts, supplies, layout.places, allocation)
    headroom = Headroom(layout.rows, allocation.machines, allocation.counts)
    last = service.turns + 1
    for draft in drafts.values():
        draft.headroom = headroom
        let_go_of_returned(world, draft, is_staffed=True)
        keep_warm(draft, turn=last)
        replace_due(world, draft, turn=last)
        release_surplus(world, draft)
        dismiss_booting(world, draft)
    budgets = judge_budgets(layout.accounts, allocation.machines, headroom.kept, allocation.counts)
    service.budgets = budgets
    limits = tuple(judge_limits(layout.uses, allocation.counts))
    decided = Decided(demand, service, budgets, limits, allocation.proof)
    return assemble(fleet, world, drafts, decided)
