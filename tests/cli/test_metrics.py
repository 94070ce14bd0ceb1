"""Metrics: `--metrics FILE` of status and apply, and /metrics of `fleet serve`."""

from pathlib import Path

import pytest

from fleet.apply.metrics import LiveMetrics
from tests.builders import a_fleet
from tests.cli.test_serve import Heard, counter, served
from tests.cli.test_serve_pages import browser, check_tokens_are_asked_for
from tests.rigs.openmetrics import read_metrics
from tests.rigs.process import RunFleet
from tests.rigs.repeats import slow_but
from tests.rigs.resalloc_client import OldClient
from tests.rigs.trial import Trial

__all__ = ("counter",)
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def figures(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric, by their labels but the fleet's."""
    return {key[1:]: value for key, value in read_metrics(text).items() if key[0] == name}


def test_metrics_of_recorded_world_have_no_runs(trial: Trial, run_fleet: RunFleet) -> None:
    (trial.folder / "seen.json").write_text(trial.do("observe")[1])

    shown = run_fleet("status", "--world", "seen.json", "--metrics", "fleet.prom", "--json")

    text = (trial.folder / "fleet.prom").read_text()
    assert (shown.returncode, shown.stdout[:1]) == (0, "{")
    assert figures(text, "fleet_queue_requests_waiting") == {("work",): 0}
    assert not figures(text, "fleet_last_run_timestamp_seconds")


@pytest.mark.parametrize("options", slow_but([()], [(), ("--every", "1h", "--for", "1s")]))
def test_each_apply_writes_metrics(
    trial: Trial, run_fleet: RunFleet, options: tuple[str, ...]
) -> None:
    trial.wait_for("1")

    applied = run_fleet("apply", "--metrics", "fleet.prom", *options)

    text = (trial.folder / "fleet.prom").read_text()
    assert applied.returncode == 0, applied.stderr
    assert figures(text, "fleet_queue_requests_waiting") == {("work",): 1}
    assert figures(text, "fleet_last_run_success") == {(): 1}


@pytest.mark.parametrize("options", slow_but([()], [(), ("--every", "1h", "--for", "1s")]))
def test_run_continues_when_metrics_file_is_unwritable(
    trial: Trial, run_fleet: RunFleet, options: tuple[str, ...]
) -> None:
    trial.wait_for("1")

    applied = run_fleet("apply", "--metrics", "nowhere/fleet.prom", *options)

    assert applied.returncode == 0, applied.stderr
    assert "nowhere/fleet.prom" in applied.stderr
    assert trial.machines() == ["trial-builders-0001"]


def test_serve_returns_metrics_in_requested_format(counter: Trial) -> None:
    def look(client: OldClient, console: Heard) -> None:
        here = browser(console)
        answer, text = here.ask("/metrics", Accept=f"{OPENMETRICS},{PLAIN};q=0.5")
        assert (answer.status, answer.headers["Content-Type"]) == (200, OPENMETRICS)
        assert figures(text, "fleet_last_run_success") == {(): 1}
        assert figures(text, "fleet_queue_requests_waiting") == {("work",): 0}
        said = len(console.said)
        client.take("extra_powerful")
        console.hear("Applied:", said)
        answer, text = here.ask("/metrics?now")
        assert (answer.status, answer.headers["Content-Type"]) == (200, PLAIN)
        assert figures(text, "fleet_last_run_success") == {(): 1}
        head, nothing = here.ask("/metrics", "HEAD")
        assert (head.status, nothing) == (200, "")
        assert here.ask("/")[0].status == 404

    code, console = served(counter, look)

    assert code == 0, console.said


def test_metrics_require_a_token_when_tokens_are_configured(
    counter: Trial, tmp_path: Path
) -> None:
    check_tokens_are_asked_for(counter, tmp_path, "/metrics")


def test_serve_returns_metrics_of_earlier_runs_before_first_run(trial: Trial) -> None:
    """So that a service whose runs all fail after a restart is still seen to be late."""
    store = trial.store()
    live = LiveMetrics(store, lambda: a_fleet(fleet="trial"), lambda: 0)
    none = live.read()
    trial.apply()

    text = live.read()

    assert figures(none, "fleet_cadence_seconds") == {(): 600}
    assert not figures(none, "fleet_last_run_success")
    assert figures(text, "fleet_last_run_success") == {(): 1}
    assert not figures(text, "fleet_plan_timestamp_seconds")
