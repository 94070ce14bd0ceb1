"""This module finds fleets whose engine cannot record any machine, for want of a passphrase."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, StaticPool


def state_without_passphrase(fleet: Fleet) -> Iterator[Finding]:
    """Warn where an apply would make no machine: the real engine encrypts what it records."""
    if fleet.state.passphrase is not None:
        return
    used = {pool.provider for pool in fleet.pools.values() if not isinstance(pool, StaticPool)}
    for name, provider in fleet.providers.items():
        if name in used and provider.engine == "pulumi":
            yield Finding(
                "state-without-passphrase",
                f"the engine of provider '{name}' encrypts what it records, and no passphrase is "
                "named for it: `fleet apply` makes no machine there",
                ("providers", name),
                severity="warning",
                at="key",
                hint="add `state: {passphrase: {env: FLEET_PASSPHRASE}}`",
            )
