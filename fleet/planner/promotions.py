"""Promote image versions by `images.NAME.promote`, and find waiting versions and costs.

A candidate is evaluated by the boots since it became a candidate: `guards.boot_failures` stops it.
A stopped candidate is retired, because the guard ignores boots older than a day.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from fleet.model.facts import World
from fleet.model.images import ImageVersion, State, WaitingVersion
from fleet.model.plan import Promotion, Reason
from fleet.model.pool_limits import boot_of, pace_of
from fleet.model.prices import Tariff, bill, billing_of
from fleet.planner.failures import join_stops, stopped_boots
from fleet.planner.images import NextVersion, find_standing
from fleet.planner.pool_plan import PoolPlan
from fleet.schema.model import Fleet
from fleet.words import images as words

Found = Promotion | WaitingVersion


def find_promotions(
    fleet: Fleet, world: World, pool_plans: Mapping[str, PoolPlan]
) -> Iterator[Found]:
    """Yield the image versions to promote in this run, and the versions that wait."""
    if not world.versions:
        return
    for name in sorted(fleet.images):
        standing = find_standing(fleet, name, world.versions, world.queues, world.time)
        if standing is not None:
            pools = [each for each in pool_plans.values() if each.pool and each.pool.image == name]
            yield _judge(fleet, world, standing, pools)


def _judge(fleet: Fleet, world: World, standing: NextVersion, pools: list[PoolPlan]) -> Found:
    version = standing.version
    for each in pools if standing.is_on_trial else ():
        stops = stopped_boots(fleet.guards.boot_failures, each.memory, each.name)
        if stopped := stops.get(version.ids.get(each.inventory.provider, "")):
            stop = words.explain_stop_in_pool(each.name, join_stops([*stopped.values()]).summary)
            return _promotion(version, "retired", Reason.BOOT_FAILED, stop, pools)
    modes = {pool_plan.pool.mode for pool_plan in pools if pool_plan.pool}
    is_still = standing.becomes and modes and modes <= {"observe", "pause"}
    if is_still or standing.becomes is None:
        return standing.waiting(words.explain_modes(sorted(modes)) if is_still else "")
    if not standing.is_on_trial:
        known = (each for each in world.versions if each.image == version.image)
        serving = (each.version for each in known if each.state == "current")
        newer = words.explain_newer(sorted(version.ids), max(serving, default=None))
        becoming = version.altered(share=standing.share)
        return _promotion(becoming, standing.becomes, Reason.NEWER_VERSION, newer, pools)
    if unread := [
        each.name for each in pools if not each.inventory.listed or each.inventory.blind
    ]:
        return standing.waiting(words.explain_unknown_machines(unread[0]))
    # The finished boots since the version entered its current state.
    tries = [
        attempt
        for each in pools
        for attempt in each.memory.by_pool.get(each.name, ())
        if attempt.image == version.ids.get(each.inventory.provider)
        if version.since and attempt.at >= version.since
        if attempt.result in ("registered", "failed")
    ]
    failed = sum(attempt.result == "failed" for attempt in tries)
    if failed == len(tries) and (tries or any(pool_plan.inventory.units for pool_plan in pools)):
        return standing.waiting(words.explain_no_boots(failed))
    because = words.explain_came_up(world.time - standing.since, len(tries), failed)
    return _promotion(version, "current", Reason.CANDIDATE_CAME_UP, because, pools)


def _promotion(
    version: ImageVersion, now: State, reason: Reason, because: str, pools: list[PoolPlan]
) -> Promotion:
    replaced = {pool_plan.name: _count_replaced(pool_plan, version, now) for pool_plan in pools}
    costs = [_cost(pool_plan, replaced[pool_plan.name]) for pool_plan in pools]
    known = [cost for cost in costs if cost is not None]
    return Promotion(
        image=version.image,
        version=version.version,
        was=version.state,
        now=now,
        share=version.share if now == "candidate" else 0,
        reason=reason,
        because=because,
        replaces=tuple(
            pace_of(pool_plan.pool).replaced(pool_plan.name, replaced[pool_plan.name])
            for pool_plan in pools
            if pool_plan.pool and replaced[pool_plan.name]
        ),
        cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def _count_replaced(pool_plan: PoolPlan, version: ImageVersion, now: State) -> int:
    """Count the machines of a pool that are replaced once the version has its new state."""
    booted = version.ids.get(pool_plan.inventory.provider)
    machines = [unit.machine for unit in pool_plan.inventory.units if unit.machine]
    own = sum(machine.image == booted for machine in machines)
    if now == "retired":
        return own
    if booted is None:
        return 0
    if now == "candidate":
        wanted = max(1, len(machines) * version.share // 100) if machines else 0
        return max(0, wanted - own)
    return len(machines) - own


def _cost(pool_plan: PoolPlan, machines: int) -> Decimal | None:
    """Return the maximum cost of running old and new machines together; None if unknown."""
    if not machines or pool_plan.pool is None:
        return Decimal(0)
    if pool_plan.price is None:
        return None
    billing = billing_of(pool_plan.fleet, pool_plan.inventory.provider)
    tariff = Tariff(pool_plan.price, billing.increment, billing.minimum)
    return bill(tariff, boot_of(pool_plan.pool).expected) * machines
