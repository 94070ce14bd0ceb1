"""What may run on machines that a provider can take away or not have at all."""

from fleet.apply.policy_plugin import Require
from fleet.schema.model import Fleet, Pool


def test_spot_alone_needs_otherwise(fleet: Fleet, require: Require) -> None:
    for name, pool in fleet.pools.items():
        markets = getattr(getattr(pool, "machine", None), "market", None)
        if not isinstance(pool, Pool) or markets != ["spot"]:
            continue
        waits = [tag for tag in pool.provides if _otherwise(fleet, tag) == "wait"]
        require(
            pool.provides and not waits,
            f"{name} buys spot machines alone, so its builds may wait for ever: add the market "
            f"`on-demand`, or `otherwise` to each tag that it provides ({', '.join(waits)})",
            at=("pools", name, "machine", "market"),
        )


def _otherwise(fleet: Fleet, tag: str) -> object:
    """Return what becomes of requests for a tag that is not to be had."""
    declared = [each for pattern, each in fleet.tags.items() if _matches(pattern, tag)]
    return next((each.otherwise for each in declared if each.otherwise != "wait"), "wait")


def _matches(pattern: str, tag: str) -> bool:
    """Say whether this key of `tags` is about a tag: a trailing `*` matches any ending."""
    return tag == pattern or (pattern.endswith("*") and tag.startswith(pattern[:-1]))
