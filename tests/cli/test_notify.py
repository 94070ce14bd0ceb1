"""`notify`: an apply tells a webhook and a program of notices, once, and never fails by it."""

from datetime import UTC, datetime, timedelta

from tests.rigs.loopback import Answer, Loopback
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

TOKEN = "a-token-of-the-webhook"
SOON = f"{datetime.now(UTC).date() + timedelta(days=5)}"
APPROVAL = (
    f"approvals:\n- {{guard: delete, pool: builders, count: 3, reason: move, expires: {SOON}}}\n"
)


def told(trial: Trial, url: str, command: str = "") -> None:
    """Have the trial tell a webhook; a command may be told too."""
    more = f", command: {command}" if command else ""
    notify = f"notify: {{webhook: {{url: '{url}', token: {{env: HOOK}}}}{more}}}\n"
    trial.write(fleet_yaml(more=APPROVAL + notify))
    trial.wait_for("1")


def test_run_succeeds_when_webhook_fails(trial: Trial, run_fleet: RunFleet) -> None:
    with Loopback(lambda _: Answer(500, b"")) as server:
        told(trial, server.url, "[sh, -c, exit 3]")
        runs = [run_fleet("apply", env={"HOOK": TOKEN}) for _ in range(2)]

    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    assert "notify.webhook" in runs[0].stderr
    assert "notify.command" in runs[0].stderr
    assert "notify." not in runs[1].stderr  # tried again in an hour
    assert len(server.received) == 1
    assert trial.machines() == ["trial-builders-0001"]
