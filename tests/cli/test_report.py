"""`fleet report`: a saved comparison as Markdown, and as the one comment of a merge request."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders.recording import a_job, record_fixed, write
from tests.docs.test_documents import BLOCK, Shell
from tests.fakes.gitlab import ADA, JOB_TOKEN, TOKEN, FakeGitlab
from tests.rigs.process import ROOT, Completed, RunFleet, fleet_command
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

MOST = 1_000_000


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial whose merge request removes a pool, and the plan that its job saved."""
    trial = Trial(project)
    trial.wait_for("1", big=["2"])
    (project / "base").mkdir()
    (project / "fleet.yaml").rename(project / "base/fleet.yaml")
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    code, printed = trial.do("plan", "--json", "--base", "base/fleet.yaml", "--world", WORLD)
    assert code in (0, 1)
    (project / "plan.json").write_text(printed[printed.index("{") :], encoding="utf-8")
    return trial


WORLD = "world.json"


@pytest.fixture
def gitlab() -> Iterator[FakeGitlab]:
    with FakeGitlab(open={3: [], 5: []}) as fake:
        yield fake


def report(run_fleet: RunFleet, gitlab: FakeGitlab, *more: str) -> Completed:
    arguments = more or ("--merge-request", "3", "plan.json")
    return run_fleet("report", *arguments, env=gitlab.environment)


def saved(trial: Trial) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((trial.folder / "plan.json").read_text())
    return plan


def keep(trial: Trial, plan: dict[str, Any]) -> None:
    (trial.folder / "plan.json").write_text(json.dumps(plan))


@pytest.mark.usefixtures("trial")
def test_saved_comparison_is_rendered_as_markdown_of_its_plan(run_fleet: RunFleet) -> None:
    planned = run_fleet("plan", "--markdown", "--base", "base/fleet.yaml", "--world", "world.json")

    printed = run_fleet("report", "plan.json")

    assert (printed.returncode, printed.stderr) == (0, "")
    assert _without_age(printed.stdout) == _without_age(planned.stdout)


def budget_of_0_2_0(name: str, **more: object) -> dict[str, object]:
    """Return a budget of 10 EUR as version 0.2.0 saved it."""
    amounts = dict.fromkeys(("spent", "reserved", "planned"), "0.0000")
    of = {"budget": name, "path": ["budgets", name, "per_day"], "period": "day", "unit": "EUR"}
    return {**of, "limit": "10.0000", **amounts, **more}


@pytest.mark.parametrize(
    ("budget", "cells"),
    [
        (budget_of_0_2_0("unread", known=False), ("unknown", "0.00", "0.00", "unknown")),
        (budget_of_0_2_0("read", spent="4.0000"), ("4.00", "0.00", "0.00", "6.00")),
        (budget_of_0_2_0("over", spent="12.0000", exceeded=True), ("12.00", *3 * ("0.00",))),
        (budget_of_0_2_0("unused", planned="0.5000"), ("0.00", "0.00", "0.50", "9.50")),
    ],
)
def test_budget_of_older_saved_plan_is_unchanged(
    trial: Trial, budget: dict[str, object], cells: tuple[str, ...]
) -> None:
    keep(trial, saved(trial) | {"budgets": [budget]})

    printed = trial.told("report", "plan.json")

    (shown,) = [each for each in printed.splitlines() if f"budgets.{budget['budget']}." in each]
    assert tuple(map(str.strip, shown.split("|")))[3:7] == cells


def _without_age(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Observed" not in line]


def test_merge_request_has_one_updated_comment(
    trial: Trial, run_fleet: RunFleet, gitlab: FakeGitlab
) -> None:
    gitlab.say(3, "looks good to me")

    added = report(run_fleet, gitlab)
    (first,) = gitlab.comments(3)
    plan = saved(trial)
    keep(trial, plan | {"currency": "USD"})
    updated = report(run_fleet, gitlab)
    (second,) = gitlab.comments(3)

    assert (added.returncode, added.stderr, updated.returncode) == (0, "", 0)
    assert "`big`" in first
    assert "USD" in second
    assert "USD" not in first
    assert gitlab.comments(3, ADA) == ["looks good to me"]
    assert gitlab.comments(5) == []


@pytest.mark.usefixtures("trial")
def test_comment_of_another_user_is_not_changed(run_fleet: RunFleet, gitlab: FakeGitlab) -> None:
    report(run_fleet, gitlab)
    (own,) = gitlab.comments(3)
    forged = f"{own.splitlines()[0]}\nPlan: nothing to see"
    gitlab.open[5] = []
    gitlab.say(5, forged)

    done = report(run_fleet, gitlab, "--merge-request", "5", "plan.json")

    assert done.returncode == 0
    assert gitlab.comments(5, ADA) == [forged]
    assert len(gitlab.comments(5)) == 1


@pytest.mark.usefixtures("trial")
def test_oldest_of_two_comments_is_kept(run_fleet: RunFleet, gitlab: FakeGitlab) -> None:
    report(run_fleet, gitlab)
    marked = gitlab.open[3][0]
    gitlab.say(3, marked["body"], marked["author"]["id"])

    report(run_fleet, gitlab)

    assert [each["id"] for each in gitlab.open[3]] == [marked["id"]]


@pytest.mark.slow
def test_long_report_is_cut_with_notice(
    trial: Trial, run_fleet: RunFleet, gitlab: FakeGitlab
) -> None:
    plan = saved(trial)
    keep(trial, plan | {"attention": [f"{'word ' * 2000}{number}" for number in range(200)]})

    done = report(run_fleet, gitlab)

    (comment,) = gitlab.comments(3)
    assert done.returncode == 0
    assert MOST * 0.9 < len(comment) <= MOST
    assert comment.count("\n<details>") == comment.count("\n</details>")
    assert "`plan`" in comment.splitlines()[-1]


def test_report_truncates_to_limit_of_forge(trial: Trial) -> None:
    keep(trial, saved(trial) | {"attention": [f"{'word ' * 200}{n}" for n in range(100)]})

    printed = trial.told("report", "--most", "65536", "plan.json")

    assert 60_000 < len(printed) <= 65_536


@pytest.mark.usefixtures("trial")
def test_report_is_refused_in_pipeline_of_merge_request(
    run_fleet: RunFleet, gitlab: FakeGitlab
) -> None:
    environment = gitlab.environment | {"CI_MERGE_REQUEST_IID": "3"}

    done = run_fleet("report", "--merge-request", "3", "plan.json", env=environment)

    assert (done.returncode, gitlab.asked) == (4, [])
    assert "FLEET_GITLAB_TOKEN" in done.stderr


@pytest.mark.usefixtures("trial")
@pytest.mark.parametrize(
    ("environment", "code", "told"),
    [
        ({"FLEET_GITLAB_TOKEN": ""}, 1, "FLEET_GITLAB_TOKEN"),
        ({"FLEET_GITLAB_TOKEN": "revoked"}, 1, "401"),
        ({"CI_PROJECT_ID": ""}, 2, "--project"),
        ({"CI_PROJECT_ID": "debian/none"}, 1, "404"),
        ({"CI_API_V4_URL": "http://gitlab.example.org/api/v4"}, 2, "https"),
    ],
)
def test_report_error_names_missing_or_invalid_setting(
    run_fleet: RunFleet,
    gitlab: FakeGitlab,
    environment: dict[str, str],
    code: int,
    told: str,
) -> None:
    done = run_fleet(
        *("report", "--merge-request", "3", "plan.json"), env=gitlab.environment | environment
    )

    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert TOKEN not in done.stderr
    assert done.stderr.startswith("fleet: error: ")


@pytest.mark.usefixtures("trial")
def test_open_merge_requests_are_listed(run_fleet: RunFleet, gitlab: FakeGitlab) -> None:
    done = report(run_fleet, gitlab, "--open-merge-requests")

    assert (done.returncode, done.stdout) == (0, "3\n5\n")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "fleet-plan-9"}', "\x00", '{"a": ' * 5000]
)
def test_report_names_file_that_is_not_a_plan(
    trial: Trial, run_fleet: RunFleet, gitlab: FakeGitlab, text: str
) -> None:
    (trial.folder / "plan.json").write_text(text)

    done = report(run_fleet, gitlab)

    assert (done.returncode, done.stdout, gitlab.asked) == (1, "", [])
    assert done.stderr.startswith("fleet: error: plan.json: ")


def a_simulation(trial: Trial) -> dict[str, Any]:
    """Return what the job of a merge request saves of an hour with three builds."""
    start, history = datetime(2026, 11, 2, 6, tzinfo=UTC), "history.jsonl.zst"
    jobs = [a_job(nth, start + nth * timedelta(minutes=15), 1200) for nth in range(1, 4)]
    worlds = record_fixed(jobs, start, start + timedelta(hours=1), every=timedelta(minutes=10))
    write(trial.folder / history, worlds)
    words = ("--history", history, "--against", "base/fleet.yaml", "--json")
    said = trial.told("simulate", *words)
    found: dict[str, Any] = json.loads(said[said.index("{") :])
    return found


def test_report_adds_simulated_cost_to_plan(trial: Trial, run_fleet: RunFleet) -> None:
    hostile = {"against": "@all | <b>", "currency": "<b>|@all"}
    found = a_simulation(trial) | hostile
    (trial.folder / "simulation.json").write_text(json.dumps(found), encoding="utf-8")

    alone = run_fleet("report", "--simulation", "simulation.json")
    both = run_fleet("report", "--simulation", "simulation.json", "plan.json")
    plan = trial.told("report", "plan.json")

    assert (alone.returncode, both.returncode, both.stderr) == (0, 0, "")
    assert both.stdout.startswith(plan.rstrip())
    assert alone.stdout.rstrip() in both.stdout
    outside = re.sub(r"`[^`]*`", "", both.stdout)
    assert ("@all" in outside, "<b>" in outside, "@all" in both.stdout) == (False, False, True)


@pytest.mark.parametrize(
    ("wrong", "code"), [({"format": "fleet-simulation-9"}, 1), ({"fleet": "other"}, 2)]
)
def test_simulation_of_another_plan_is_refused(
    trial: Trial, run_fleet: RunFleet, wrong: dict[str, str], code: int
) -> None:
    (trial.folder / "simulation.json").write_text(json.dumps(a_simulation(trial) | wrong))

    done = run_fleet("report", "--simulation", "simulation.json", "plan.json")

    assert (done.returncode, done.stdout) == (code, "")
    assert "simulation.json" in done.stderr


@pytest.mark.slow
def test_documented_job_comments_on_merge_requests_with_plans(
    trial: Trial, gitlab: FakeGitlab, tmp_path: Path
) -> None:
    page = (ROOT / "docs/how-to/comment-on-merge-requests.md").read_text(encoding="utf-8")
    (job,) = (yaml.safe_load(m["body"]) for m in BLOCK.finditer(page) if m["file"])
    gitlab.open[7] = []
    gitlab.saved[5] = gitlab.saved[7] = (trial.folder / "plan.json").read_bytes()
    gitlab.simulated[7] = json.dumps(a_simulation(trial)).encode()
    (tmp_path / "job").mkdir()
    shell = Shell(tmp_path / "job", fleet_command())
    shell.environment |= gitlab.environment | {"CI_JOB_TOKEN": JOB_TOKEN}
    del shell.environment["CI"]

    printed = shell.run(job["fleet report"]["script"][0])

    assert printed == "".join(f"merge request !{iid}: comment added\n" for iid in (5, 7))
    assert gitlab.comments(3) == []
    said = [gitlab.comments(iid)[0] for iid in (5, 7)]
    assert [bool(re.search(r"\d (->|→) [\d.]+ EUR", each)) for each in said] == [False, True]
