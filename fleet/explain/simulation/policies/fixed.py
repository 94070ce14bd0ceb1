"""A fixed fleet: `workers.max` machines of each pool, all the time.

What a distribution does that rents its builders by the month.
"""

from collections.abc import Mapping, Sequence

from fleet.explain.simulation.policies.scaling import View, Waiting, Wanted


def fixed(views: Sequence[View], _: Sequence[Waiting]) -> Mapping[str, Wanted]:
    """Want as many as there may be."""
    return {view.pool: Wanted(view.max - view.total, view.max) for view in views}
