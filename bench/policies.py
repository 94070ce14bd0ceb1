"""Decide as others do, as their documentation and code say, in a simulation of fleet's.

A policy of others answers what it wants of each pool; `scaling` carries that out with fleet's own
plans of pools, so that names, prices, boots and deletions are the same for all. What differs is
what a function here says, with its source. Each is simplified in its favour where it is not
modelled whole.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from bench.scaling import View, Waiting, Wanted, scaled
from fleet.simulate.replay import Decide, decide


def fixed(views: Sequence[View], _: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Keep `workers.max` machines of each pool all the time: a fixed fleet.

    What a distribution does that rents its builders by the month.
    """
    return {view.pool: Wanted(view.max - view.total, view.max) for view in views}


PREALLOC = 2


def resalloc(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Keep some machines free, and start one per ticket in pools on demand, as Resalloc does.

    Source: praiskup/resalloc 825cc7f (v6.3), `Pool` in resallocserver/manager.py: nothing starts
    while free and starting ones reach `max_prealloc` (default: 2), or `max`, or `max_starting`;
    the queue is not looked at. A pool with `tags_on_demand` preallocates nothing: a ticket that no
    machine which is free or starts can take starts one, in the capable pool of highest priority.

    In its favour: a machine that a ticket gave back serves the next one until it is idle for
    `retire.idle_after`, for any client. A machine that was never taken stays, as there.
    """
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


RATIO = 1.0


def taskcluster(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want a ratio of what waits and has no worker, as Taskcluster's worker manager does.

    Source: services/worker-manager/src/estimator.js and its documentation, "scaling": desired =
    max(minCapacity, min(maxCapacity, (pending - idle) * scalingRatio + existing)), scalingRatio 1
    by default. A task names its worker pool: here the cheapest that can serve it. A worker ends
    itself after its own idle time-out, here `retire.idle_after`.
    """
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


TASK_SECONDS, LATENCY_SECONDS = 600, 3600


def debusine(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want enough workers to clear the queue within an hour, as Debusine's provisioner does.

    Source: debusine/server/provisioning.py of Debusine 0.16.2: a task is taken to run for 600 s,
    all but the last are to begin within 3,600 s; of each pool in turn that can serve candidates it
    asks for max(1, ceil(600 * (tasks - 1) / 3600)), less the workers there are that do the same.
    Workers that are idle for ten minutes end, and in a pass that ends any, none is made.

    In its favour: workers of every pool count that can serve all that a pool's candidates ask for,
    and a pool that never had a worker is started too.
    """
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


MIN_READY = 2


def nodepool(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Keep a few nodes ready, and want one for each request beyond them, as Nodepool does.

    Source: zuul/nodepool, documentation of `labels` (min-ready, max-ready-age) and of node
    requests: each request is fulfilled by a ready node or by one that is launched for it, in the
    first provider that can; nodes that were taken of those ready are launched again.

    In its favour: a node serves more than one request, until it is idle for `retire.idle_after`.
    """
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


def first_fit(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want a machine for what waits, the cheapest that fits, and none idle, as Karpenter does.

    Source: kubernetes-sigs/karpenter, documentation of scheduling and disruption: pending pods go
    to existing nodes, to those that start, then to a new one, of the NodePool of most weight and
    of the cheapest type that fits; `consolidateAfter: 0s` removes an empty node at once. One
    request takes one machine, as everywhere here. Launches are not limited per pass.
    """
    free = {view.pool: view.idle + view.starting for view in views}
    room = {view.pool: view.max - view.total for view in views}
    made: Counter[str] = Counter()
    for group in waiting:
        left = group.number
        for stock in (free, room):
            for pool in group.pools:
                taken = max(0, min(left, stock[pool]))
                stock[pool] -= taken
                left -= taken
                if stock is room:
                    made[pool] += taken
    return {pool: Wanted(count) for pool, count in made.items()}


POLICIES: Mapping[str, Decide] = {
    "fleet": decide,
    "fixed": scaled(fixed),
    "resalloc": scaled(resalloc),
    "taskcluster": scaled(taskcluster),
    "debusine": scaled(debusine, idle_after=600),
    "nodepool": scaled(nodepool),
    "first-fit": scaled(first_fit, idle_after=1),
}
