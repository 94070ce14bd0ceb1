"""Resalloc: keep some machines free, and start one for each ticket of a pool that is on demand.

Source: praiskup/resalloc 825cc7f (v6.3), `Pool` in resallocserver/manager.py: nothing starts
while free and starting ones reach `max_prealloc` (default: 2), or `max`, or `max_starting`; the
queue is not looked at. A pool with `tags_on_demand` preallocates nothing: a ticket that no machine
which is free or starts can take starts one, in the capable pool of highest priority.

In its favour: a machine that a ticket gave back serves the next one until it is idle for
`retire.idle_after`, whoever asks. A machine that was never taken stays, as there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet.explain.simulation.policies.scaling import View, Waiting, Wanted

PREALLOC = 2


def resalloc(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want free machines, and those that tickets started."""
    by_name = {view.pool: view for view in views}
    started: Counter[str] = Counter()
    for group in waiting:
        able = [by_name[pool] for pool in group.pools]
        if not able or not all(view.on_demand for view in able):
            continue
        lacking = group.number - sum(v.idle + v.starting + started[v.pool] for v in able)
        for view in able:
            room = min(view.max - view.total, view.max_starting - view.starting)
            starts = max(0, min(lacking, room - started[view.pool]))
            started[view.pool] += starts
            lacking -= starts
    wanted = {}
    for view in views:
        free = 0 if view.on_demand else PREALLOC - view.idle - view.starting
        create = min(free + started[view.pool], view.max_starting - view.starting)
        kept = 0 if view.on_demand else PREALLOC
        wanted[view.pool] = Wanted(max(0, create), view.busy + kept)
    return wanted
