"""Who answers for a large pool: `lookups.owners` of fleet.yaml names them.

lookups:
  owners:
    builders: {first: ada, second: grace}
"""

from fleet.apply.policy_plugin import Require
from fleet.schema.model import Fleet, Pool

MOST_WITHOUT, OWNERS = 20, 2


def test_large_pool_has_two_owners(fleet: Fleet, require: Require) -> None:
    owners = fleet.lookups.get("owners", {})
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool) or pool.workers.max <= MOST_WITHOUT:
            continue
        named = set(owners.get(name, {}).values())
        require(
            len(named) >= OWNERS,
            f"{name} may have {pool.workers.max} machines and {len(named)} owners: above "
            f"{MOST_WITHOUT} it needs {OWNERS} in lookups.owners.{name}",
            at=("pools", name, "workers", "max"),
        )
