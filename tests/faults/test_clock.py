"""Runs of a computer whose clock is wrong: they change nothing, and the right one goes on."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.ports.stores import postgres_url
from tests.rigs.debusine import one_page, row, serving
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import Completed, clean_environment
from tests.rigs.repeats import slow_but
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Warm

__all__ = ["postgres_url"]

BUDGET = "budgets: {all: {per_hour: 100 EUR, per_month: 1000 EUR}}\n"
RunAt = Callable[..., Completed]


@pytest.fixture
def run_at(project: Path, tmp_path: Path, warm: Warm) -> RunAt:
    """Return a function that runs `fleet ARGS` so long from now, by its clock."""
    (tmp_path / "home").mkdir()
    clock = tmp_path / "clock"

    def run(*args: str, **ahead: float) -> Completed:
        clock.write_text(str((datetime.now(UTC) + timedelta(**ahead)).timestamp()))
        environment = clean_environment(tmp_path / "home", {"WALK_CLOCK": str(clock)})
        return warm.run(*args, cwd=project, env=environment, program="tests.walks.later")

    return run


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a fleet with a budget and one machine."""
    return Trial(project).begun(begin_trial)


def begin_trial(trial: Trial) -> None:
    pool = BUILDERS.replace("idle_after: 10m", "idle_after: 900d")
    trial.write(fleet_yaml(pools={"builders": pool}, more=BUDGET))
    trial.wait_for("r1")
    trial.apply()


def test_run_of_clock_ahead_is_undone_and_logged(trial: Trial, run_at: RunAt) -> None:
    trial.wait_for("r1", "r2")
    assert run_at("apply", days=1).returncode == 0
    assert len(trial.machines()) == 2
    trial.wait_for()
    run = json.loads(trial.told("state", "show", "--json"))["runs"][0]["started"]

    hidden = json.loads(trial.told("log", "--since", "1h", "--json"))["entries"]
    every = json.loads(trial.told("log", "--last", "0", "--json"))["entries"]
    for _ in range(2):
        assert trial.do("machine", "delete", "--run", run, "--apply")[0] == 0

    made = {each["machine"] for each in every if each["kind"] == "create"}
    assert made == {"trial-builders-0001", "trial-builders-0002"}
    assert len(hidden) <= len(every)
    assert trial.machines() == ["trial-builders-0001"]
    assert trial.do("log", "--verify")[0] == 0


@pytest.mark.parametrize(("days", "code"), [(400, 0), (-400, 2)])
def test_month_report_sums_to_ledger_with_any_clock(
    trial: Trial, run_at: RunAt, days: int, code: int
) -> None:
    month = f"{datetime.now(UTC):%Y-%m}"
    right = json.loads(trial.told("report", "--month", month, "--json"))

    said = run_at("report", "--month", month, "--json", days=days)
    again = json.loads(trial.told("report", "--month", month, "--json"))

    assert said.returncode == code, said.stderr
    assert again["money"] == right["money"]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", slow_but([1], [1, -1]), ids=["ahead", "behind"])
def test_apply_is_refused_when_clock_differs_from_server(
    project: Path, postgres_url: str, run_at: RunAt, ahead: int
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS trial CASCADE; CREATE SCHEMA trial")
    url = f"{postgres_url}&options=-csearch_path%3Dtrial"
    trial = Trial(project)
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, more=f"state: {{store: '{url}'}}"))
    trial.wait_for("r1")
    trial.init()

    refused = run_at("apply", hours=ahead)
    swept = run_at("machine", "delete", "--expired", "--apply", hours=ahead)
    machines = trial.machines()
    trusted = run_at("apply", "--trust-clock", hours=ahead)

    assert (refused.returncode, swept.returncode, machines) == (4, 4, [])
    assert (trusted.returncode, len(trial.machines())) == (0, 1)


def test_correct_clock_continues_after_refusal_of_one_behind(project: Path, run_at: RunAt) -> None:
    trial = Trial(project)
    with _debusine(Date=_by_the_clock(0)) as server:
        _asks(trial, debian=server)
        refused = run_at("apply", days=-3650)
        applied = run_at("apply")

    assert refused.returncode == 4
    assert applied.returncode == 0, applied.stderr


def _debusine(**headers: str) -> Loopback:
    """Return a Debusine with one waiting request whose answers carry these headers."""

    def dated(_: Received) -> Answer:
        page = one_page(row(id=1, scope="debian"))
        return Answer(page.status, page.body, {**page.headers, **headers})

    return serving(dated, debian=1)


def _by_the_clock(minutes: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)


def _asks(trial: Trial, **servers: Loopback) -> None:
    rest = "scopes: [debian], token: {env: LC_ALL}"
    queues = "\n".join(
        f"  {name}: {{kind: debusine, url: '{each.url}', {rest}}}"
        for name, each in servers.items()
    )
    written = fleet_yaml(pools={"builders": BUILDERS})
    trial.write(written.replace("queues:\n", f"queues:\n{queues}\n"))
    trial.wait_for("r1")
    trial.init()


@pytest.mark.parametrize("minutes", slow_but([-12], [12, -12]), ids=["behind", "ahead"])
def test_apply_is_refused_when_no_server_confirms_the_clock(
    project: Path, run_at: RunAt, minutes: int
) -> None:
    trial = Trial(project)
    with _debusine(Date=_by_the_clock(minutes)) as server:
        _asks(trial, debian=server)
        refused = run_at("apply")
        swept = run_at("machine", "delete", "--expired", "--apply")
        machines = trial.machines()
        trusted = run_at("apply", "--trust-clock")

    assert (refused.returncode, swept.returncode, machines) == (4, 4, [])
    assert "queue debian" in refused.stderr
    assert trusted.returncode == 0, trusted.stderr
    assert len(trial.machines()) == 1


def test_clock_is_correct_when_one_server_confirms_it(project: Path, run_at: RunAt) -> None:
    trial = Trial(project)
    with (
        _debusine(Date=_by_the_clock(400)) as wrong,
        _debusine(Date=_by_the_clock(0)) as right,
    ):
        _asks(trial, debian=wrong, ubuntu=right)
        applied = run_at("apply")

    assert applied.returncode == 0, applied.stderr


def test_cached_date_header_is_not_a_clock_fault(project: Path, run_at: RunAt) -> None:
    trial = Trial(project)
    with _debusine(Date=_by_the_clock(-400), Age="24000") as server:
        _asks(trial, debian=server)
        applied = run_at("apply")

    assert applied.returncode == 0, applied.stderr


WRONG = {
    "behind": {"minutes": -15},
    "two days behind": {"days": -2},
    "ahead": {"days": 32},
}


def clock_warnings(done: Completed) -> list[int]:
    """Return where a plan has warnings of a clock among all that it warns of."""
    warnings = json.loads(done.stdout)["warnings"]
    return [n for n, each in enumerate(warnings) if each["rule"] == "wrong-clock"]


def clock_findings(done: Completed) -> list[dict[str, Any]]:
    findings = json.loads(done.stdout)["findings"]
    return [each for each in findings if each["about"] == "state, clock"]


@pytest.mark.parametrize("clock", slow_but(["two days behind"], list(WRONG)))
def test_clock_is_reported_first_when_apply_refuses_it(
    trial: Trial, run_at: RunAt, clock: str
) -> None:
    trial.wait_for("r2")
    shown = {
        command: run_at(*command.split(), **WRONG[clock])
        for command in ("plan", "plan --markdown", "status")
    }
    asked = {
        command: run_at(*command.split(), **WRONG[clock])
        for command in (
            "explain request debian/r2",
            "explain request --all --json",
            "explain pool builders",
            "machine list",
            "tags explain --request debian/r2",
            "status --metrics metrics.prom",
        )
    }
    status = run_at("status", "--json", **WRONG[clock])

    for command, done in shown.items():
        assert "--trust-clock" in done.stdout[:400], command
        assert done.stdout.count("--trust-clock") == 1, command
    for command, done in asked.items():
        assert done.stderr.count("--trust-clock") == 1, (command, done.stderr)
    assert len(json.loads(status.stdout)["clock"]) == 1


def test_clock_is_reported_when_no_server_agrees(project: Path, run_at: RunAt) -> None:
    trial = Trial(project)
    with _debusine(Date=_by_the_clock(12)) as server:
        _asks(trial, debian=server)
        planned = run_at("plan", "--json")
        judged = run_at("doctor", "--json")

    assert clock_warnings(planned) == [0]
    assert len(clock_findings(judged)) == 1
