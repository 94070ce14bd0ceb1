"""Nodepool: a few nodes ready, and a node for each request beyond them.

Source: zuul/nodepool, documentation of `labels` (min-ready, max-ready-age) and of node requests:
each request is fulfilled by a ready node or by one that is launched for it, in the first provider
that can; nodes that were taken of those ready are launched anew.

In its favour: a node serves more than one request, until it is idle for `retire.idle_after`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet.explain.simulation.policies.scaling import View, Waiting, Wanted

MIN_READY = 2


def nodepool(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want a node for each request, and those that are to be ready."""
    by_name = {view.pool: view for view in views}
    asked: Counter[str] = Counter()
    for group in waiting:
        left = group.number
        for pool in group.pools:
            taken = min(left, max(0, by_name[pool].max - by_name[pool].total - asked[pool]))
            asked[pool] += taken
            left -= taken
    wanted = {}
    for view in views:
        ready = 0 if view.on_demand else MIN_READY
        lacking = asked[view.pool] + ready - view.idle - view.starting
        wanted[view.pool] = Wanted(max(0, lacking), view.busy + ready)
    return wanted
