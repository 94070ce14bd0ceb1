"""What a change of fleet.yaml does, one sentence per test: both plans are made of one world."""

from decimal import Decimal
from pathlib import Path

import pytest

from fleet.explain.changes import Changes, compare, find_renames, find_unseen, rename_pools
from fleet.model.facts import Demand, World
from fleet.model.plan import Create
from fleet.schema.model import Fleet
from tests.builders import (
    a_listing,
    a_plan,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.deciding import fleet_with, with_machines
from tests.builders.decisions import Case, world_of
from tests.builders.queue_worlds import planned
from tests.builders.sentences import tells

PRICE = Decimal("0.0777")


def waiting(count: int) -> World:
    return a_sim_world(requests=tuple(a_request(id=str(100 + n)) for n in range(count)))


def made_by(fleet: Fleet, count: int) -> World:
    """Return a world with a worker of this fleet.yaml for each request that waits."""
    world = waiting(count)
    created = [a for a in planned(fleet, world).actions if isinstance(a, Create)]
    workers = [a_worker(name=a.worker, machine=a.worker, since=ago(minutes=1)) for a in created]
    there = a_sim_world(*workers).altered(queues=world.queues)
    made = created[0].inputs
    return with_machines(there, type=made.type, digest=made.labels["digest"])


def changes(base: Fleet, head: Fleet, world: World) -> Changes:
    return compare(planned(base, world), planned(head, world))


def differences(change: Changes) -> list[tuple[str, str, str, str]]:
    return [
        (pool.pool, each.key, each.before, each.after)
        for pool in change.pools
        for each in pool.differences
    ]


CASES = [*read_blocks(Path(__file__).parent / "changes")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_change_has_the_effects_of_its_case(case: Block) -> None:
    change = change_of(*case.parts)

    assert describe(change) == case.result
    for about, words in case.because:
        (found,) = change.requests if about == "request" else change.actions
        assert tells(found.because, *words.split())


def change_of(base: str, head: str, world: str) -> Changes:
    """Return what a change does in a world, all three as in `tests/planner/decisions/`."""
    before, after = (Case("", pool, world, "", ()).fleet for pool in (base, head))
    return changes(before, after, world_of(world))


def describe(change: Changes) -> str:
    """Return the differences in actions, requests, pools, guards and cost."""
    parts = [
        f"{each.pool} {each.action} {each.type or 'machines'} {each.reason}"
        f"{' withheld' if each.withheld else ''} {each.before} to {each.after}"
        + (f" ({' '.join(name[-1] for name in each.workers)})" if each.workers else "")
        for each in change.actions
    ]
    parts += [
        f"{'served' if each.served else 'unserved'} {' '.join(each.requests)}"
        + (f" at {'.'.join(map(str, each.path))}" if each.path else "")
        for each in change.requests
    ]
    parts += [f"{each.pool} {each.change}" for each in change.pools]
    parts += [
        f"{key} {before} to {after}"
        for _, key, before, after in differences(change)
        if key != "provides"
    ]
    parts += [f"guard {each.guard} {each.before} to {each.after}" for each in change.guards]
    if change.cost_before != change.cost_after:
        parts.append(f"cost {change.cost_before} to {change.cost_after}")
    quiet = [
        "quiet" if change.is_quiet else "not quiet",
        *(["same"] if change.same_config else []),
    ]
    return "; ".join((*parts, *quiet))


def test_comparison_names_machines_outdated_by_change() -> None:
    base, head = fleet_with(max=2), fleet_with(max=2, machine="ccx63")
    there = made_by(base, 2)

    change = changes(base, head, there)

    assert [(each.pool, each.outdated, each.workers) for each in change.outdated] == [
        ("builders", True, ("debian-ci-builders-0001", "debian-ci-builders-0002"))
    ]
    assert (change.actions, change.cost_before) == ((), change.cost_after)
    assert not change.is_quiet


def test_comparison_omits_machines_outdated_in_both() -> None:
    there = made_by(fleet_with(max=2, machine="ccx63"), 2)

    assert changes(fleet_with(max=2), fleet_with(max=3), there).outdated == ()


def test_comparison_reports_machine_that_newly_needs_attention() -> None:
    base, head = a_plan(), a_plan(attention=("debian-ci-builders-0001: it costs money",))

    change = compare(base, head)

    assert change.attention == ("debian-ci-builders-0001: it costs money",)
    assert not change.is_quiet


# what cannot be compared


def test_queue_of_base_only_is_unknown() -> None:
    base = a_sim_fleet(queues={"debian": {"kind": "tickets"}, "old": {"kind": "tickets"}})

    unseen = find_unseen(base, a_sim_fleet(), waiting(0))

    (queue,) = unseen
    assert queue.startswith("queue old ")


def test_comparison_names_source_unknown_only_after_change() -> None:
    head = a_sim_fleet(guards={"demand_max_age": "1m"})
    stale = Demand(read_at=ago(minutes=5), requests=(a_request(),))
    world = a_sim_world(queues={"debian": a_reading(demand=stale, workers=None)})

    change = changes(a_sim_fleet(), head, world)

    assert change.unknown
    assert all(tells(text, "only", "change", "debian") for text in change.unknown)
    assert change.requests == ()


def test_comparison_omits_stack_without_pool() -> None:
    world = a_sim_world(
        providers={"desk": a_listing(workers=())}, stacks={"gone": a_stack(provider="desk")}
    )

    assert changes(fleet_with(), fleet_with(), world).pools == ()


def renamed(base: Fleet, head: Fleet, world: World) -> Changes:
    """Return what a change does in a world that was observed by the new names of its pools."""
    renames = find_renames(base, head)
    assert isinstance(world.stacks, dict)
    stacks = {renames.get(pool, pool): stack for pool, stack in world.stacks.items()}
    seen = world.altered(stacks=stacks)
    before = planned(rename_pools(base, renames), seen)
    return compare(before, planned(head, seen), renames=renames)


def makers(**limits: object) -> Fleet:
    pool = a_pool(provider="desk", previously="builders", **limits)
    return a_sim_fleet(pools={"makers": pool})


def test_renamed_pool_with_higher_max_creates_the_difference() -> None:
    world = made_by(fleet_with(max=1), 2).altered(queues=waiting(2).queues)

    change = renamed(fleet_with(max=1), makers(max=2), world)

    assert [(each.pool, each.before, each.after) for each in change.actions] == [("makers", 0, 1)]
    assert change.cost_after - change.cost_before == PRICE


def test_approval_of_renamed_pool_is_renamed() -> None:
    spared = {"guard": "delete", "pool": "builders", "count": 1, "reason": "x"}
    base = a_sim_fleet(
        pools={"builders": a_pool(provider="desk")},
        approvals=[{**spared, "expires": "2027-01-01"}],
    )

    named = rename_pools(base, {"builders": "makers"})

    assert [each.pool for each in named.approvals] == ["makers"]
    assert list(named.pools) == ["makers"]


@pytest.mark.parametrize("head", [a_sim_fleet(), makers()])
def test_pool_is_not_renamed_when_new_name_existed(head: Fleet) -> None:
    both = a_sim_fleet(
        pools={"builders": a_pool(provider="desk"), "makers": a_pool(provider="desk")}
    )

    assert find_renames(both, head) == {}
