"""Allocations of whole worlds, checked against a program that shares no code with the planner."""

from functools import cache

import pytest
from hypothesis import settings

from bench.worlds import Size, document_of, grouped, scene_of, world_of
from fleet.model.facts import World
from fleet.planner.allocation import Allocation, allocate
from fleet.planner.begin import begin_pool_plans
from fleet.planner.demand import sign_demand
from fleet.planner.formulation import Model, components
from fleet.planner.inventory import take_inventory
from fleet.planner.layout import Layout, lay_out
from fleet.planner.solver import Objective
from fleet.planner.staffing import find_supplies
from fleet.schema.model import Fleet
from tests.builders.independent import find_violations, first_short_rank, machines_needed

_SEEDS = {"laws": range(30), "slow": range(0, 30, 6)}.get(
    settings.get_current_profile_name(), range(0, 12, 6)
)
"""All worlds take several minutes: `nox -s slow-laws` checks the five of the smallest size, and
everyday tests two of them."""
_SIZES = (
    (500, 60, 10, 20),
    (700, 120, 12, 40),
    (1_000, 150, 20, 60),
    (1_500, 200, 24, 80),
    (2_000, 300, 30, 100),
    (4_000, 400, 40, 150),
)
"""Requests, signatures, pools and workers."""


_FEW = Size(140, 60, 10, 10, limited=True)
"""A world in which presolve of HiGHS 1.15.1 removes the best solutions of some ranks."""


@cache
def allocated(seed: int) -> tuple[Layout, Allocation]:
    """Return a world with limits, budgets, `target_wait` and `otherwise`, and its allocation."""
    size = Size(*_SIZES[seed % len(_SIZES)], limited=True, seed=seed)
    scene, document = scene_of(size), document_of(size)
    tags = document["tags"]
    assert isinstance(tags, dict)
    tags["worker:class:powerful"]["otherwise"] = {"after": "30m", "drop": True}
    return allocation_of(Fleet.model_validate(document), world_of(scene))


def allocation_of(fleet: Fleet, world: World) -> tuple[Layout, Allocation]:
    """Return what a world is to be allocated, and its allocation."""
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    supplies = find_supplies(fleet, world, pool_plans)
    demand = sign_demand(fleet, world, supplies)
    layout = lay_out(fleet, world, pool_plans, supplies, demand)
    return layout, allocate(layout.groups, layout.places, layout.rows)


@pytest.mark.parametrize("seed", _SEEDS)
def test_allocation_violates_no_constraint(seed: int) -> None:
    layout, found = allocated(seed)

    assert [*find_violations(layout.groups, layout.places, layout.rows, found)] == []
    needed = machines_needed(layout.groups, layout.places, found)
    assert needed == {place: count for place, count in found.machines.items() if count}


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_rank_can_serve_one_additional_request(seed: int) -> None:
    layout, found = allocated(seed)

    assert first_short_rank(layout.groups, layout.places, layout.rows, found) is None


def test_no_rank_is_short_when_presolve_would_remove_solutions() -> None:
    scene = grouped(scene_of(_FEW))

    layout, found = allocation_of(scene.fleet, world_of(scene))

    assert len(found.unserved) == 60
    assert first_short_rank(layout.groups, layout.places, layout.rows, found) is None


def test_each_rank_is_served_maximally_when_optimized_alone() -> None:
    scene = grouped(scene_of(_FEW))
    layout, found = allocation_of(scene.fleet, world_of(scene))
    open_groups = [each for each in layout.groups if layout.places.keys() & each.fits.keys()]
    served = 0.0

    for component in components(open_groups, layout.places, layout.rows):
        model = Model(component, by_rank=True)
        program = model.program
        ranks = [Objective(program.count_costs(blocks)) for blocks in model.blocks_by_rank]
        solution = program.solve(ranks, serve_all=False)
        assert solution is not None
        served += solution.values[program.totals].sum()

    assert served == sum(found.counts.values())
