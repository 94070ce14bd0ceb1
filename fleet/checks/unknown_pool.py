"""This module finds approvals for a pool that is not there.

Machines of a pool that was removed are still to go, so that an approval past the delete guard may
name a pool that fleet.yaml no longer has; only one that looks misspelt is warned of.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool


def unknown_pool(fleet: Fleet) -> Iterator[Finding]:
    """Require that each approval is for a pool whose machines a guard can keep back."""
    pools = sorted(name for name, pool in fleet.pools.items() if isinstance(pool, Pool))
    for number, approval in enumerate(fleet.approvals):
        if approval.pool in pools:
            continue
        close = get_close_matches(approval.pool, pools, n=1, cutoff=0.8)
        may_be_removed = approval.guard == "delete" and approval.pool not in fleet.pools
        if may_be_removed and not close:
            continue
        yield Finding(
            "unknown-pool",
            f"no pool '{approval.pool}' makes or deletes machines",
            ("approvals", number, "pool"),
            severity="warning" if may_be_removed else "error",
            hint=f"did you mean '{close[0]}'?" if close else _one_of(pools),
        )


def _one_of(pools: list[str]) -> str:
    return f"one of: {', '.join(pools)}" if pools else "remove the approval"
