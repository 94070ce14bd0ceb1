"""This module says what a fleet costs once a change has settled: nothing is replaced any more.

Machines that are busy now count, at the price of what replaces them, with min and spare beside
them. What is idle beyond that, on demand, or made for requests that wait is gone at rest.
"""

from decimal import Decimal

from fleet.catalogue import billing_of
from fleet.changes import Rest
from fleet.guard.withholding import held_by
from fleet.plan import Plan, PoolVerdict
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.vocabulary import Vocabulary

HOURS_PER_MONTH = Decimal(730)


def find_rest(fleet: Fleet, plan: Plan) -> Rest | None:
    """Return what a fleet costs at rest; None where a machine's price is not known."""
    hour = month = Decimal(0)
    for verdict in plan.pools:
        pool = fleet.pools.get(verdict.pool)
        machines = _machines(fleet, pool, verdict) if isinstance(pool, Pool) else 0
        if machines and {"price", "machines"} & set(verdict.not_known):
            return None
        cap = billing_of(fleet, verdict.provider or "").month
        hours = HOURS_PER_MONTH if cap is None else min(HOURS_PER_MONTH, Decimal(cap))
        hour += machines * verdict.price
        month += machines * verdict.price * hours
    return Rest(hour=hour, month=month)


def _machines(fleet: Fleet, pool: Pool, verdict: PoolVerdict) -> int:
    """Return how many machines a pool has at rest."""
    if pool.mode == "drain" or any(map(Vocabulary(fleet).is_on_demand, verdict.provides)):
        return 0
    if pool.mode != "apply":
        return held_by(verdict)  # nothing changes there
    return min(pool.workers.max, max(pool.workers.min, verdict.busy + pool.workers.spare))
