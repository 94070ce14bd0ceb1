"""`fleet status`: pools and workers, as text, JSON and pages."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml


def test_status_lists_pools_and_workers_with_their_figures(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1", "2")
    trial.apply()
    trial.age(hours=1)
    trial.cloud.assign("trial-builders-0001", "1")

    shown = run_fleet("status")

    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[1].startswith("0.1554 EUR/h; 2 requests wait")
    assert [line.split()[:7] for line in lines if line.startswith("builders ")] == [
        ["builders", "1", "1", "0", "0", "4", "0.1554"]
    ]
    workers = [line.split() for line in lines if line.startswith("  trial-builders-")]
    assert [worker[:3] for worker in workers] == [
        ["trial-builders-0001", "busy", "1"],
        ["trial-builders-0002", "idle", "-"],
    ]
    assert [worker[-3:] for worker in workers] == [["trixie", "ccx33", "0.0777"]] * 2


def test_status_has_same_content_as_json(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    shown = run_fleet("status", "--json")

    status = json.loads(shown.stdout)
    assert shown.returncode == 0
    assert [worker["worker"] for worker in status["workers"]] == ["trial-builders-0001"]
    assert [pool["pool"] for pool in status["pools"]] == ["big", "builders"]


def test_status_creates_folder_for_pages(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    shown = run_fleet("status", "--site", "public/fleet")

    site = trial.folder / "public/fleet"
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr.startswith("wrote ")
    assert "trial-builders-0001" in (site / "-/status/workers/index.html").read_text()


def test_status_pages_explain_each_request(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(*(str(number) for number in range(1, 11)))

    shown = run_fleet("status", "--site", "site")

    pages = trial.folder / "site/-/status"
    own = (pages / "requests/work%2F9/index.html").read_text()
    queue = (pages / "queue/index.html").read_text()
    assert shown.returncode == 0
    assert "raise pools.builders.workers.max from 4 to 5" in own
    assert re.search(r"see <code>fleet\.yaml:\d+:\d+", own)
    assert re.search(r"<code>pools\.[a-z]+\.workers\.max, fleet\.yaml:\d+:\d+<", queue)
    assert '<a href="../../../-/status/requests/work%252F9/index.html">' in queue
    found = (pages / "requests/index.html").read_text()
    assert found.count('/index.html">work/') == 10


@pytest.mark.usefixtures("trial")
def test_status_reports_unwritable_pages(run_fleet: RunFleet) -> None:
    failed = run_fleet("status", "--site", "fleet.yaml")

    assert failed.returncode == 1
    assert failed.stderr.startswith("fleet: error: fleet.yaml/")
    assert failed.stderr.count("\n") == 1


def test_status_is_unknown_when_sources_are_silent(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / "world.json").unlink()
    trial.cloud.path.parent.mkdir(exist_ok=True)
    trial.cloud.path.write_text("{}")

    shown = run_fleet("status")
    status = json.loads(run_fleet("status", "--json").stdout)

    assert "EUR/h;" not in shown.stdout
    assert tells(shown.stdout, "big", "builders", "unknown")
    assert (status["cost_per_hour"], status["unread"]) == (None, ["work"])
    assert {pool["busy"] for pool in status["pools"]} == {None}


def test_status_of_recorded_world_reads_only_the_recording(
    trial: Trial, run_fleet: RunFleet, tmp_path: Path
) -> None:
    trial.wait_for("1")
    trial.apply()
    seen = tmp_path / "seen.json"
    run_fleet("observe", "--out", seen)
    trial.cloud.path.unlink()

    shown = run_fleet("status", "--world", seen)

    assert shown.returncode == 0
    assert "trial-builders-0001" in shown.stdout


# whether anybody still runs apply


def test_heartbeat_is_alive_after_recent_run(trial: Trial, run_fleet: RunFleet) -> None:
    trial.apply()

    beat = run_fleet("status", "--heartbeat")

    assert (beat.returncode, beat.stderr) == (0, "")
    assert re.fullmatch(r"fleet trial .*\balive\b.* \ds .*\bcadence .*\b10m\n", beat.stdout)


def test_heartbeat_is_dead_when_no_apply_ran(trial: Trial) -> None:
    code, said = trial.do("status", "--heartbeat", "--json")

    assert code == 1
    beat = json.loads(said)
    assert beat == {"alive": False, "because": beat["because"]}
    assert tells(beat["because"], "`fleet apply`", "cadence", "10m")


def test_heartbeat_reads_only_the_store(trial: Trial) -> None:
    trial.apply()
    (trial.folder / "world.json").unlink()
    (trial.folder / ".fleet/sim-desk.json").write_text("rubbish")

    assert trial.do("status", "--heartbeat")[0] == 0


def test_status_reports_runs_rarer_than_cadence(trial: Trial) -> None:
    trial.write(fleet_yaml(more="cadence: 1s\n"))
    store = trial.store()
    now = datetime.now(UTC)
    for minutes in (90, 60, 30):
        began = now - timedelta(minutes=minutes)
        store.record_run(started=began, ended=began, plan="p", outcome="{}")

    _, said = trial.do("status")

    assert tells(said, "late", "cadence", "1s", "3 runs", "30m")
    assert tells(trial.do("plan")[1], "cadence", "1s", "3 runs", "30m")


@pytest.mark.parametrize("option", ["--world", "--site"])
def test_heartbeat_is_wrong_usage_with_recording_or_site(trial: Trial, option: str) -> None:
    code, said = trial.do("status", "--heartbeat", option, "world.json")

    assert code == 2
    assert said.startswith("fleet: error: --heartbeat ")


@pytest.mark.parametrize(
    ("limit", "kept", "until"),
    [
        pytest.param("1.50 EUR", "1", "the next period begins at", id="next-period"),
        pytest.param("0.50 EUR", "2", "more than the whole budget", id="never"),
    ],
)
def test_status_and_doctor_name_a_budget_that_leaves_requests_waiting(
    trial: Trial, run_fleet: RunFleet, limit: str, kept: str, until: str
) -> None:
    types = "{m8: {cores: 8, memory: 32GiB, disk: 200GiB, price: 1 EUR/h}}"
    pool = (
        "{provider: desk, machine: m8, image: trixie, workers: {max: 4}, "
        f"budget: {{per_day: {limit}}}}}"
    )
    desk = f"boot: 1s, billing: {{increment: 1h}}, types: {types}"
    trial.write(fleet_yaml(pools={"builders": pool}, desk=desk, more="durations: {any: 10m}\n"))
    trial.wait_for("1", "2")

    status = run_fleet("status").stdout
    notices = json.loads(run_fleet("doctor", "--json").stdout)["findings"]

    line = next(each for each in status.split("\n") if each.startswith("pools.builders.budget"))
    assert line.startswith(f"pools.builders.budget.per_day: {kept} request")
    assert until in " ".join(status.split())
    found = [each for each in notices if each["about"] == "pools.builders.budget.per_day"]
    assert [each["result"] for each in found] == ["notice"]
    assert [each["fix"].partition(" debian")[0] for each in found] == [
        f"fleet explain request work/{'2' if kept == '1' else '1'}"
    ]
