"""`notify`: an apply tells a webhook and a program of notices, once, and never fails by it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.rigs.loopback import Answer, Loopback
from tests.rigs.process import RunFleet
from tests.rigs.repeats import slow_but
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


@pytest.mark.parametrize("options", slow_but([()], [(), ("--every", "1h", "--for", "1s")]))
def test_notice_is_sent_once(trial: Trial, run_fleet: RunFleet, options: tuple[str, ...]) -> None:
    with Loopback(lambda _: Answer(204, b"")) as server:
        told(trial, f"{server.url}/hook", '[sh, -c, "cat >> said"]')
        runs = [run_fleet("apply", *options, env={"HOOK": TOKEN}) for _ in range(2)]

    (received,) = server.received
    body = json.loads(received.body)
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    assert received.headers["authorization"] == f"Bearer {TOKEN}"
    assert (body["format"], body["fleet"]) == ("fleet-notices-1", "trial")
    assert [(each["kind"], each["until"]) for each in body["notices"]] == [("approval", SOON)]
    assert TOKEN not in received.body + "".join(run.stdout + run.stderr for run in runs)
    assert (trial.folder / "said").read_text("utf-8").count(SOON) == 1


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


def test_run_succeeds_when_secret_of_webhook_is_missing(trial: Trial, run_fleet: RunFleet) -> None:
    with Loopback(lambda _: Answer(200, b"")) as server:
        told(trial, server.url)
        shown = [run_fleet(verb) for verb in ("plan", "status", "apply")]

    assert [run.returncode for run in shown] == [0, 0, 0]
    assert "HOOK" in shown[2].stderr
    assert server.received == []
