"""A machine type that is out of stock on one market, in a pool that is full on the other."""

from pathlib import Path

import pytest

from tests.rigs.trial import Trial, fleet_yaml

TYPES = (
    "types: {m8: {cores: 8, memory: 32GiB, disk: 200GiB, price: 1 EUR/h, spot: 0.3 EUR/h,"
    " spot_stock: 0}}"
)
POOL = (
    "{{provider: desk, machine: {{type: m8, market: [spot, on-demand]}}, image: trixie,"
    " workers: {{max: {most}}}{more}}}"
)
MAX = ["pools", "small", "workers", "max"]
BUDGET = ["pools", "small", "budget", "per_day"]
STOCK = ["pools", "small", "machine"]


@pytest.mark.parametrize(
    ("most", "more", "keys"),
    [
        (1, "", [MAX]),  # the limit stops both markets
        (4, ", budget: {per_day: 3 EUR}", [STOCK, BUDGET]),  # spot would be cheap enough
    ],
)
def test_request_names_stock_only_when_stock_would_help(
    project: Path, most: int, more: str, keys: list[list[str]]
) -> None:
    trial = Trial(project)
    pools = {"small": POOL.format(most=most, more=more)}
    trial.write(fleet_yaml(pools=pools, desk=TYPES, more="durations: {any: 1h}\n"))
    trial.init()
    trial.wait_for("1", "2")
    trial.do("apply")

    plan = trial.plan()

    assert [each["action"] for each in plan["actions"]] == ["create"]
    (unserved,) = plan["unserved"]
    assert [each["path"] for each in unserved["blocked"]] == keys
