"""This module says what should be: reconcile(fleet, world) -> Plan, total and deterministic.

Permuting any input changes nothing, and equal inputs give byte-identical plans.
The table of steps is the body of `reconcile`, in this order.
"""

from fleet.allocate import allocate
from fleet.budgets import judge_budgets
from fleet.census import take_census
from fleet.demand import sign_demand
from fleet.draft import Draft
from fleet.facts import Unknown, World
from fleet.failures import find_lost, recall
from fleet.headroom import Headroom
from fleet.image_choice import choose_image
from fleet.layout import lay_out
from fleet.making import (
    NOTHING_SHARED,
    digests_of,
    options_of,
    taken_names,
    why_closed,
    wont_make,
    worker_names,
)
from fleet.plan import Plan
from fleet.recognition import with_begun
from fleet.schema.model import Fleet, Pool
from fleet.shared import shared_settings
from fleet.staffing import staff
from fleet.steps.failed import (
    delete_deaf,
    delete_disconnected,
    delete_failed,
    delete_stopped,
    let_go_of_failed,
)
from fleet.steps.interrupted import finish_interrupted
from fleet.steps.outdated import mark_outdated
from fleet.steps.replace import replace_due
from fleet.steps.surplus import dismiss_booting, release_surplus
from fleet.steps.unwanted import delete_drained, drain_above_max, drain_unwanted_pool
from fleet.steps.warm import keep_warm
from fleet.steps.worn import mark_worn
from fleet.supplies import find_supplies
from fleet.tagrules import offer_of_pool
from fleet.verdicts import Decided, assemble


def reconcile(fleet: Fleet, world: World) -> Plan:
    """Return what should be done about this world, and why."""
    drafts = _begin(fleet, world)
    for draft in drafts.values():
        finish_interrupted(draft)
        delete_failed(world, draft)
        delete_deaf(draft)
        delete_stopped(draft)
        delete_disconnected(world, draft)
        let_go_of_failed(draft)
        mark_outdated(draft)
        mark_worn(world, draft)
        delete_drained(draft)
        drain_unwanted_pool(draft)
        drain_above_max(world, draft)
    supplies = find_supplies(fleet, world, drafts)
    demand = sign_demand(fleet, world, supplies)
    layout = lay_out(fleet, world, drafts, supplies, demand)
    allocation = allocate(layout.groups, layout.places, layout.rows)
    service = staff(drafts, supplies, layout.places, allocation)
    headroom = Headroom(layout.rows, allocation.machines, allocation.counts)
    last = service.turns + 1
    for draft in drafts.values():
        draft.headroom = headroom
        keep_warm(draft, turn=last)
        replace_due(world, draft, turn=last)
        release_surplus(world, draft)
        dismiss_booting(world, draft)
    budgets = judge_budgets(layout.accounts, allocation.machines, headroom.kept, allocation.counts)
    decided = Decided(demand, service, budgets, allocation.proof)
    return assemble(fleet, world, drafts, decided)


def _begin(fleet: Fleet, world: World) -> dict[str, Draft]:
    taken = taken_names(fleet, world)
    drafts = {}
    censuses = take_census(fleet, world)
    memory = recall(fleet, world, censuses)
    for name, census in censuses.items():
        choice = choose_image(fleet, world, memory, name)
        pool = fleet.pools.get(name)
        shared = shared_settings(fleet, world, census.provider)
        known = NOTHING_SHARED if isinstance(shared, Unknown) else shared
        options = options_of(fleet, memory, name, choice, known)
        draft = Draft(
            fleet=fleet,
            census=with_begun(fleet, census, options, choice),
            pool=pool if isinstance(pool, Pool) else None,
            names=worker_names(fleet, name, taken),
            closed=wont_make(fleet, census, choice, shared),
            options=options,
            lost=find_lost(memory, census),
            choice=choice,
        )
        if draft.pool is not None:
            draft.offer = offer_of_pool(fleet, name, choice.images)
        if not draft.closed:
            draft.digests = digests_of(fleet, draft.options, choice)
            draft.closed = why_closed(draft.options)
        drafts[name] = draft
    return drafts
