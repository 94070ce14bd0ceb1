"""This module begins the draft of each pool: what it has, what it could make, what goes anyway.

What goes whatever waits gets no new work, so that this comes before anything is given out.
"""

from fleet.model.facts import Unknown, World
from fleet.planner.failures import find_lost, recall
from fleet.planner.images import choose_image
from fleet.planner.inventory import take_census
from fleet.planner.lifecycle.failed import (
    delete_deaf,
    delete_disconnected,
    delete_failed,
    delete_stopped,
    let_go_of_failed,
)
from fleet.planner.lifecycle.interrupted import finish_interrupted
from fleet.planner.lifecycle.orphans import let_go_of_orphans
from fleet.planner.lifecycle.outdated import mark_outdated, mark_worn
from fleet.planner.lifecycle.returned import let_go_of_returned
from fleet.planner.lifecycle.unwanted import delete_drained, drain_above_max, drain_unwanted_pool
from fleet.planner.machine_inputs import (
    NOTHING_SHARED,
    digests_of,
    known_names,
    options_of,
    why_closed,
    wont_make,
    worker_names,
)
from fleet.planner.pool_plan import Draft
from fleet.planner.recognition import with_begun
from fleet.planner.shared_stacks import shared_settings
from fleet.schema.model import Fleet, Pool
from fleet.tagrules import offer_of_pool


def begin(fleet: Fleet, world: World) -> dict[str, Draft]:
    """Return the drafts of all pools, with what goes that is not for want of work."""
    drafts = _begin(fleet, world)
    for draft in drafts.values():
        finish_interrupted(draft)
        delete_failed(world, draft)
        delete_deaf(draft)
        delete_stopped(draft)
        delete_disconnected(world, draft)
        let_go_of_failed(draft)
        let_go_of_orphans(world, draft)
        mark_outdated(draft)
        mark_worn(world, draft)
        delete_drained(draft)
        let_go_of_returned(world, draft)
        drain_unwanted_pool(draft)
        drain_above_max(world, draft)
    return drafts


def _begin(fleet: Fleet, world: World) -> dict[str, Draft]:
    remembered = known_names(fleet, world)
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
            census=with_begun(fleet, census, options, choice, memory.by_pool.get(name, ())),
            pool=pool if isinstance(pool, Pool) else None,
            names=worker_names(fleet, name, remembered),
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
