"""A budget of a pool whose machines run several requests in turn, before and after an apply."""

from pathlib import Path

import pytest

from tests.rigs.trial import Trial, fleet_yaml

HOURLY = (
    "boot: 1m, billing: {increment: 1h},"
    " types: {m8: {cores: 8, memory: 32GiB, disk: 200GiB, price: 1 EUR/h}}"
)
POOL = (
    "{{provider: desk, machine: m8, image: trixie, provides: [small], workers: {{max: 2}},"
    " target_wait: 1h, budget: {{per_day: {limit} EUR}}}}"
)
DURATIONS = "durations: {any: 10m}\n"


@pytest.mark.parametrize(("requests", "machines"), [(4, 1), (8, 2)])
def test_requests_stay_served_after_apply_when_machines_run_several(
    project: Path, requests: int, machines: int
) -> None:
    trial = Trial(project)
    pools = {"small": POOL.format(limit=5)}
    trial.write(fleet_yaml(pools=pools, desk=HOURLY, more=DURATIONS))
    trial.init()
    trial.wait_for(*map(str, range(requests)))
    before = trial.plan()

    trial.apply()
    after = trial.plan()

    assert len(trial.machines()) == machines
    assert [after["unserved"], after["actions"]] == [[], []]
    keys = ("spent", "reserved", "planned")
    for plan in (before, after):
        used = [float(period[key]) for period in plan["budgets"] for key in keys]
        assert sum(used) == 2 * machines  # two billed hours of each machine, today or tomorrow
