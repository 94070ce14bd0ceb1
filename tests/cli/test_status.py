"""`fleet status`: pools and workers, as text, JSON and pages."""

import re

import pytest

from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml


def test_status_pages_explain_each_request(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(*(str(number) for number in range(1, 11)))

    shown = run_fleet("status", "--site", "site")

    pages = trial.folder / "site/-/status"
    own = (pages / "requests/work%2F9/index.html").read_text()
    queue = (pages / "queue/index.html").read_text()
    assert shown.returncode == 0
    assert "raise pools.builders.workers.max from 4 to 5" in own
    assert re.search(r"see fleet\.yaml:\d+:\d+", own)
    assert re.search(r"<code>pools\.[a-z]+\.workers\.max, fleet\.yaml:\d+:\d+<", queue)
    assert '<a href="../../../-/status/requests/work%252F9/index.html">' in queue
    found = (pages / "requests/index.html").read_text()
    assert found.count('/index.html">work/') == 10


# whether anybody still runs apply


@pytest.mark.parametrize(
    ("limit", "kept", "until"),
    [
        pytest.param("1.50 EUR", "1", "the next period begins at", id="next-period"),
        pytest.param("0.50 EUR", "2", "more than the whole budget", id="never"),
    ],
)
def test_status_and_doctor_name_a_budget_that_leaves_requests_waiting(
    trial: Trial, limit: str, kept: str, until: str
) -> None:
    types = "{m8: {cores: 8, memory: 32GiB, disk: 200GiB, price: 1 EUR/h}}"
    pool = (
        "{provider: desk, machine: m8, image: trixie, workers: {max: 4}, "
        f"budget: {{per_day: {limit}}}}}"
    )
    desk = f"boot: 1s, billing: {{increment: 1h}}, types: {types}"
    trial.write(fleet_yaml(pools={"builders": pool}, desk=desk, more="durations: {any: 10m}\n"))
    trial.wait_for("1", "2")

    status = trial.told("status")
    notices = trial.json("doctor")["findings"]

    line = next(each for each in status.split("\n") if each.startswith("pools.builders.budget"))
    assert line.startswith(f"pools.builders.budget.per_day: {kept} request")
    assert until in " ".join(status.split())
    found = [each for each in notices if each["about"] == "pools.builders.budget.per_day"]
    assert [each["result"] for each in found] == ["notice"]
    assert [each["fix"].partition(" debian")[0] for each in found] == [
        f"fleet explain request work/{'2' if kept == '1' else '1'}"
    ]
