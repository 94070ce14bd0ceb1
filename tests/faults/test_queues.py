"""A demand server that is down, slow, lying or redirecting: unknown, and nothing goes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.debusine import LIST, METRICS, NO_ROWS, metrics, one_page, row
from tests.rigs.loopback import Answer, Loopback, html, redirect
from tests.rigs.process import Completed, RunFleet, unwrapped
from tests.rigs.replay import PENDING, Replay
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

CANARY = "canary-7f3a9"


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay(*PENDING, "service-status", "open-metrics-work-requests") as replay:
        yield replay


@pytest.fixture
def trial(project: Path, server: Replay) -> Trial:
    """Return a trial fleet with one machine that is idle for long, and a Debusine to ask."""
    trial = Trial(project)
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.init()
    trial.wait_for("1")
    trial.apply()
    trial.age(hours=1)
    ask(trial, server.url)
    return trial


def ask(trial: Trial, url: str, more: str = "") -> None:
    """Have the trial's queue be a Debusine at this address."""
    queue = f"{{kind: debusine, url: '{url}', scopes: [debian], token: {{env: TOKEN}}}}"
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, queue=queue, more=more))


def plan_and_apply(run_fleet: RunFleet) -> tuple[Completed, Completed]:
    env = {"TOKEN": CANARY}
    return run_fleet("plan", env=env), run_fleet("apply", env=env)


def assert_unknown(trial: Trial, planned: Completed, applied: Completed, *because: str) -> None:
    assert (planned.returncode, applied.returncode) == (1, 1)
    assert tells(planned.stdout, "Plan", "nothing")
    assert tells(unwrapped(planned.stdout), "queue work", "unknown", *because)
    assert tells(unwrapped(applied.stdout), "queue work", "unknown", *because)
    assert "Traceback" not in planned.stderr + applied.stderr
    assert trial.machines() == ["trial-builders-0001"]


def assert_secret(trial: Trial, *said: Completed) -> None:
    assert not any(CANARY in each.stdout + each.stderr for each in said)
    assert not any(CANARY.encode() in content for content in trial.files().values())


def test_demand_is_unknown_when_server_is_down(trial: Trial, run_fleet: RunFleet) -> None:
    with Loopback(lambda _: html()) as gone:
        url = gone.url
    ask(trial, url)

    planned, applied = plan_and_apply(run_fleet)

    assert_unknown(trial, planned, applied, f"{url}{LIST}")


def test_demand_is_unknown_when_response_is_a_login_page(
    trial: Trial, server: Replay, run_fleet: RunFleet
) -> None:
    server.faults.instead[LIST] = html()

    planned, applied = plan_and_apply(run_fleet)

    assert_unknown(trial, planned, applied, f"{server.url}{LIST}", "HTML")


def test_empty_list_is_unknown_when_second_source_contradicts(
    trial: Trial, server: Replay, run_fleet: RunFleet
) -> None:
    server.faults.instead[LIST] = Answer(200, NO_ROWS)

    planned, applied = plan_and_apply(run_fleet)

    assert_unknown(trial, planned, applied)


def test_demand_is_unknown_when_server_redirects_to_another_host(
    trial: Trial, server: Replay, run_fleet: RunFleet
) -> None:
    with Loopback(lambda _: one_page()) as other:
        server.faults.instead[LIST] = redirect(f"{other.url}{LIST}")

        planned, applied = plan_and_apply(run_fleet)

    assert other.received == []
    assert_unknown(trial, planned, applied, f"{server.url}{LIST}", "127.0.0.1")
    assert_secret(trial, planned, applied)


def test_demand_is_unknown_after_timeout(
    trial: Trial, server: Replay, run_fleet: RunFleet
) -> None:
    server.faults.hold = True
    ask(trial, server.url, "guards: {demand_max_age: 1s}\n")

    planned, applied = plan_and_apply(run_fleet)

    assert_unknown(trial, planned, applied)
    assert "1 s" in planned.stdout


def test_token_is_sent_only_to_its_server_and_never_shown(
    trial: Trial, server: Replay, run_fleet: RunFleet, project: Path
) -> None:
    server.faults.instead |= {LIST: one_page(row()), METRICS: metrics({"debian": 1})}
    env = {"TOKEN": CANARY}

    said = [
        run_fleet("plan", "--json", "--out", "plan.json", env=env),
        run_fleet("observe", "--out", "seen.json", env=env),
        run_fleet("status", "--site", "pages", env=env),
        run_fleet("apply", env=env),
        run_fleet("state", "show", "--json", env=env),
    ]

    assert [each.returncode for each in said] == [0, 0, 0, 0, 0]
    assert {received.headers.get("token") for received in server.received} >= {CANARY}
    assert (project / "plan.json").exists()
    assert_secret(trial, *said)


def test_unset_token_is_unknown_and_names_variable(trial: Trial, run_fleet: RunFleet) -> None:
    planned = run_fleet("plan")

    assert tells(planned.stdout, "secret {env: TOKEN}", "variable TOKEN", "not set")
    assert trial.machines() == ["trial-builders-0001"]
