"""Debusine's own provisioner: enough workers to clear the queue within an hour.

Source: debusine/server/provisioning.py of Debusine 0.16.2: a task is taken to run for 600 s, all
but the last are to begin within 3,600 s; of each pool in turn that can serve candidates it asks
for max(1, ceil(600 * (tasks - 1) / 3600)), less the workers there are that do the same. Workers
that are idle for ten minutes end, and in a pass that ends any, none is made.

In its favour: workers of every pool count that can serve all that a pool's candidates ask for,
and a pool that never had a worker is started too.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from fleet.explain.simulation.policies.scaling import View, Waiting, Wanted

TASK_SECONDS, LATENCY_SECONDS = 600, 3600


def debusine(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want what clears the queue in an hour, whatever its tasks take."""
    made: dict[str, int] = {}
    for view in sorted(views, key=lambda each: (each.price, each.pool)):
        tasks = sum(group.number for group in waiting if view.pool in group.pools)
        if not tasks:
            continue
        required = max(1, min(ceil(TASK_SECONDS * (tasks - 1) / LATENCY_SECONDS), tasks))
        alike = [
            other
            for other in views
            if all(other.pool in g.pools for g in waiting if view.pool in g.pools)
        ]
        there = sum(other.total + made.get(other.pool, 0) for other in alike)
        made[view.pool] = max(0, min(required - there, view.max - view.total))
    return {pool: Wanted(count) for pool, count in made.items()}
