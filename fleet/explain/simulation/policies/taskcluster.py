"""Taskcluster's worker manager: a ratio of what waits and has no worker.

Source: services/worker-manager/src/estimator.js and its documentation, "scaling": desired =
max(minCapacity, min(maxCapacity, (pending - idle) * scalingRatio + existing)), scalingRatio 1 by
default. A task names its worker pool: here the cheapest that can serve it. A worker ends itself
after its own idle time-out, here `retire.idle_after`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet.explain.simulation.policies.scaling import View, Waiting, Wanted

RATIO = 1.0


def taskcluster(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want one machine for each task that no idle worker will take."""
    pending: Counter[str] = Counter()
    for group in waiting:
        if group.pools:
            pending[group.pools[0]] += group.number
    return {
        view.pool: Wanted(
            # Machines that start count as capacity, and not as idle: each task asks again.
            max(0, int((pending[view.pool] - view.idle - view.starting) * RATIO))
        )
        for view in views
    }
