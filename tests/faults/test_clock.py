"""Runs of a computer whose clock is wrong: they change nothing, and the right one goes on."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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


def spent(trial: Trial) -> list[float]:
    """Return what the plan of now says is spent of each budget and period."""
    found: list[Any] = trial.plan()["budgets"]
    return [float(each["spent"]) for each in found]


@contextmanager
def store_of(trial: Trial) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as opened, opened:
        yield opened


def rows(trial: Trial) -> int:
    with store_of(trial) as connection:
        (count,) = connection.execute("SELECT count(*) FROM fleet_ledger").fetchone()
    return int(count)


def ledger(trial: Trial) -> list[tuple[object, ...]]:
    """Return every row of the ledger, and until when it is charged."""
    with store_of(trial) as connection:
        marks = connection.execute("SELECT * FROM fleet_about WHERE key = 'charged_until'")
        return [*connection.execute("SELECT * FROM fleet_ledger ORDER BY 1, 2"), *marks]


def test_apply_changes_nothing_when_clock_leaps_by_400_days(trial: Trial, run_at: RunAt) -> None:
    before = trial.files()

    refused = run_at("apply", days=400)

    after = trial.files()
    assert refused.returncode == 4
    assert "--trust-clock" in refused.stderr
    assert trial.do("status", "--heartbeat")[0] == 0
    assert {name for name in before if before[name] != after[name]} <= {".fleet/store.db"}
    assert rows(trial) <= 2


@pytest.mark.parametrize(
    ("days", "flags"),
    [
        pytest.param(1, (), id="a day"),
        pytest.param(400, ("--trust-clock",), id="trusted", marks=pytest.mark.slow),
    ],
)
def test_charge_of_clock_ahead_is_reverted_by_next_run(
    trial: Trial, run_at: RunAt, days: int, flags: tuple[str, ...]
) -> None:
    ahead = run_at("apply", *flags, days=days)
    poisoned = rows(trial)
    price = json.loads(trial.do("plan", "--json")[1])["cost_after"]
    seen = spent(trial)
    trial.told("apply", "--trust-clock")

    assert ahead.returncode == 0, ahead.stderr
    assert poisoned > 23 * days
    assert rows(trial) <= 3
    # No more than this hour as a whole, and the one before where the test began in that.
    assert 0 < max(seen) <= 2 * float(price)
    assert max(spent(trial)) <= 2 * float(price)


def test_future_run_does_not_count_as_heartbeat(trial: Trial, run_at: RunAt) -> None:
    with sqlite3.connect(trial.folder / ".fleet/store.db") as connection:
        connection.execute("DELETE FROM fleet_runs")
    connection.close()
    run_at("apply", days=1)

    assert trial.do("status", "--heartbeat")[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("days", slow_but([1], [1, 400]))
def test_charges_of_leaping_clock_are_reverted_by_correct_clock(
    trial: Trial, run_at: RunAt, days: int
) -> None:
    trial.wait_for()

    shown = run_at("machine", "delete", "--since", "1h", days=days)
    left = [run_at("machine", "delete", "--since", "1h", "--apply", days=days) for _ in range(2)]

    assert shown.returncode == 0, shown.stderr
    assert [each.returncode for each in left] == [0, 0]
    assert len(trial.machines()) == 1
    # A machine that registers while the first deletes it is drained by the second.
    for _ in range(3):
        assert trial.do("machine", "delete", "--since", "1h", "--apply")[0] == 0
    assert trial.machines() == []


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


BACK = {
    "minutes": {"minutes": -15},
    "an hour": {"minutes": -65},
    "two days": {"days": -2},
    "a month": {"days": -33},
    "ten years": {"days": -3650},
}


@pytest.mark.parametrize("back", slow_but(["two days"], list(BACK)))
def test_clock_behind_causes_no_additional_charge(trial: Trial, run_at: RunAt, back: str) -> None:
    trial.wait_for("r1", "r2")
    before, money = trial.machines(), ledger(trial)

    refused = run_at("apply", **BACK[back])

    assert refused.returncode == 4
    assert "--trust-clock" in refused.stderr
    assert (trial.machines(), ledger(trial)) == (before, money)
    # The right clock goes on by itself.
    trial.apply()
    assert len(trial.machines()) == 2


@pytest.mark.parametrize(
    "command",
    [
        ("machine", "delete", "--since", "1h", "--apply"),
        ("machine", "delete", "--expired", "--apply"),
        ("machine", "delete", "--pool", "builders", "--all", "--apply"),
    ],
    ids=" ".join,
)
def test_clock_behind_reverts_no_charges_when_machines_are_deleted(
    trial: Trial, run_at: RunAt, command: tuple[str, ...]
) -> None:
    money = ledger(trial)

    done = run_at(*command, days=-2)

    assert done.returncode in (0, 4), done.stderr
    assert ledger(trial) == money


@pytest.mark.parametrize("lost", ["fleet_runs", "fleet_ledger_mark"])
def test_clock_behind_is_refused_when_one_time_source_is_lost(
    trial: Trial, run_at: RunAt, lost: str
) -> None:
    with store_of(trial) as connection:
        if lost == "fleet_runs":
            connection.execute("DELETE FROM fleet_runs")
        else:
            connection.execute("DELETE FROM fleet_about WHERE key = 'charged_until'")
            connection.execute("DELETE FROM fleet_ledger")

    assert run_at("apply", days=-2).returncode == 4


@pytest.mark.usefixtures("trial")
def test_clock_behind_is_refused_when_a_pool_is_selected(run_at: RunAt) -> None:
    assert run_at("apply", "--pool", "builders", hours=-5).returncode == 4


def test_clock_behind_stops_no_loop(trial: Trial, run_at: RunAt) -> None:
    ended = run_at("apply", "--every", "1s", "--for", "1s", days=-2)

    assert ended.returncode == 4
    trial.apply()


@pytest.mark.usefixtures("trial")
def test_trusted_clock_is_the_reference_of_the_next_run(run_at: RunAt) -> None:
    trusted = run_at("apply", "--trust-clock", days=-2)
    later = run_at("apply", days=-2)

    assert (trusted.returncode, later.returncode) == (0, 0), trusted.stderr + later.stderr


def test_correct_clock_continues_after_refusal_of_one_behind(project: Path, run_at: RunAt) -> None:
    trial = Trial(project)
    with _debusine(Date=_by_the_clock(0)) as server:
        _asks(trial, debian=server)
        refused = run_at("apply", days=-3650)
        applied = run_at("apply")

    assert refused.returncode == 4
    assert applied.returncode == 0, applied.stderr


def test_trust_clock_with_every_is_wrong_usage(project: Path) -> None:
    assert Trial(project).do("apply", "--trust-clock", "--every", "60s")[0] == 2


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


@pytest.mark.parametrize("clock", slow_but(["behind"], list(WRONG)))
@pytest.mark.usefixtures("trial")
def test_clock_is_reported_when_apply_refuses_it(run_at: RunAt, clock: str) -> None:
    planned = run_at("plan", "--json", **WRONG[clock])
    shown = run_at("plan", **WRONG[clock])
    judged = run_at("doctor", "--json", **WRONG[clock])
    refused = run_at("apply", **WRONG[clock])

    assert (planned.returncode, shown.returncode) == (0, 0), planned.stderr
    assert clock_warnings(planned) == [0]
    assert "--trust-clock" in shown.stdout
    (found,) = clock_findings(judged)
    assert (judged.returncode, found["result"]) == (1, "wrong")
    assert "timedatectl set-ntp true" in found["fix"]
    assert refused.returncode == 4


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


@pytest.mark.usefixtures("trial")
def test_clock_is_unreported_when_apply_continues_with_it(run_at: RunAt) -> None:
    planned = run_at("plan", "--json", minutes=-8)
    judged = run_at("doctor", "--json", minutes=-8)

    assert clock_warnings(planned) == []
    assert clock_findings(judged) == []


def test_clock_is_reported_when_only_the_ledger_is_later(trial: Trial, run_at: RunAt) -> None:
    with store_of(trial) as connection:
        connection.execute("DELETE FROM fleet_runs")

    planned = run_at("plan", "--json", days=-2)
    judged = run_at("doctor", "--json", days=-2)

    assert clock_warnings(planned) == [0]
    assert len(clock_findings(judged)) == 1


def test_clock_is_reported_when_no_server_agrees(project: Path, run_at: RunAt) -> None:
    trial = Trial(project)
    with _debusine(Date=_by_the_clock(12)) as server:
        _asks(trial, debian=server)
        planned = run_at("plan", "--json")
        judged = run_at("doctor", "--json")

    assert clock_warnings(planned) == [0]
    assert len(clock_findings(judged)) == 1


def test_clock_is_unreported_when_the_world_is_recorded(trial: Trial, run_at: RunAt) -> None:
    trial.told("observe", "--out", "world.json")

    planned = run_at("plan", "--world", "world.json", "--json", days=-2)

    assert clock_warnings(planned) == []
