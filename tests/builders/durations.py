"""Two sizes of machines, and for how long builds take on each."""

from collections.abc import Mapping
from types import MappingProxyType

from fleet.schema.model import Fleet
from tests.builders import a_pool, a_sim_fleet

HOUR, DAY = 3600, 86_400
TYPES = {
    "norm": {"cores": 8, "memory": "32GiB", "disk": "240GiB", "price": "0.08 EUR/h"},
    "mons": {"cores": 64, "memory": "256GiB", "disk": "960GiB", "price": "0.40 EUR/h"},
}


def two_sizes(
    stated: object,
    deadline: str | None = None,
    speeds: Mapping[str, str] = MappingProxyType({}),
    **pool: object,
) -> Fleet:
    """Return a fleet of small and of powerful machines, billed by the hour."""
    types = {name: sold | {"speed": speeds.get(name)} for name, sold in TYPES.items()}
    sold = {"kind": "sim", "billing": {"increment": "1h"}, "types": types}
    return a_sim_fleet(
        providers={"desk": sold},
        queues={"debian": {"kind": "world", "path": "w.json", "deadline": deadline}},
        durations={"sbuild": stated},
        cadence="10m",
        pools={
            "normal": a_pool(provider="desk", machine="norm", **pool),
            "powerful": a_pool(provider="desk", machine="mons", **pool),
        },
    )
