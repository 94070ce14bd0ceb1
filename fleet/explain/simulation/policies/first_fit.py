"""First fit by price, like Karpenter's: a machine for what waits, none for what is idle.

Source: kubernetes-sigs/karpenter, documentation of scheduling and disruption: pending pods go to
existing nodes, to those that start, then to a new one, of the NodePool of most weight and of the
cheapest type that fits; `consolidateAfter: 0s` removes an empty node at once. One request takes
one machine, as everywhere here. Launches are not limited per pass.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet.explain.simulation.policies.scaling import View, Waiting, Wanted


def first_fit(views: Sequence[View], waiting: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want a machine for each request that fits none there is, the cheapest with room."""
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
