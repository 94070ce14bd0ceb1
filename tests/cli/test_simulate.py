"""`fleet simulate`: recorded demand under this fleet.yaml, and under another."""

import json
import shutil
from datetime import timedelta
from typing import Any

import jsonschema
import pytest

from tests.builders.recording import a_job, record_fixed, write
from tests.builders.sentences import tells
from tests.rigs.process import ROOT, git
from tests.rigs.repeats import slow_but
from tests.rigs.stories import HISTORY, HISTORY_BEGIN, begin_history
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml


@pytest.fixture
def recorded(trial: Trial) -> Trial:
    """Return a fleet with four hours of history: a build every quarter of an hour."""
    return trial.begun(begin_history)


def simulated(trial: Trial, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = trial.json("simulate", "--history", HISTORY, *args)
    return found


def test_simulation_has_figures_before_and_after(recorded: Trial) -> None:
    schema = json.loads((ROOT / "docs/schemas/simulation.json").read_text(encoding="utf-8"))

    found = simulated(recorded, "--against", "main.yaml")

    jsonschema.validate(found, schema)
    assert (found["format"], found["against"], found["requests"]) == (
        *("fleet-simulation-1", "main.yaml"),
        13,
    )
    assert found["after"]["waits"]["requests"] == found["before"]["waits"]["requests"] == 13
    assert float(found["after"]["money"]) < float(found["before"]["money"])
    assert found["before"]["config"] != found["after"]["config"]


@pytest.mark.parametrize(
    ("hours", "is_short"), [(23, True), pytest.param(24, False, marks=pytest.mark.slow)]
)
def test_simulation_warns_in_each_form_when_shorter_than_a_day(
    trial: Trial, hours: int, *, is_short: bool
) -> None:
    end = HISTORY_BEGIN + timedelta(hours=hours)
    jobs = [a_job(1, HISTORY_BEGIN + timedelta(hours=1), 1200)]
    every = timedelta(hours=1)
    write(trial.folder / HISTORY, record_fixed(jobs, HISTORY_BEGIN, end, every=every, machines=2))
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    text = fleet_yaml(pools={"builders": BUILDERS.replace("max: 4", "max: 4, spare: 1")})
    (trial.folder / "main.yaml").write_text(text, encoding="utf-8")
    told = ("simulate", "--history", HISTORY, "--against", "main.yaml")

    plain = trial.told(*told, "--html", "page.html").splitlines()
    marked = trial.told(*told, "--markdown").splitlines()
    page = (trial.folder / "page.html").read_text(encoding="utf-8")
    unknown = simulated(trial, "--against", "main.yaml")["unknown"]

    headlines = [next(line for line in lines if "EUR" in line) for lines in (plain, marked)]
    assert [tells(line, "%") for line in headlines] == [not is_short] * 2
    assert tells(page, "23h", "--from") is is_short
    assert tells("\n".join(plain), "23h", "--from") is is_short
    assert any(tells(each, "23h", "--from") for each in unknown) is is_short


def test_set_key_of_two_lines_is_wrong_usage(trial: Trial) -> None:
    key = "cadence=1h\nfleet: x"

    assert tells(trial.told("simulate", "--history", "h", "--set", key, code=2), "--set")


IDLE = "pools.builders.retire.idle_after"


def test_set_key_equals_key_in_the_file(recorded: Trial) -> None:
    (recorded.folder / "fleet.yaml").rename(recorded.folder / "was.yaml")
    shutil.copy(recorded.folder / "main.yaml", recorded.folder / "fleet.yaml")

    found = simulated(recorded, "--set", f"{IDLE}=5m", "--set", "pools.builders.workers.spare=0")
    other = simulated(recorded, "--file", "was.yaml", "--against", "fleet.yaml")

    assert found | {"changed": []} == other


@pytest.fixture
def checkout(recorded: Trial) -> Trial:
    """Return a checkout whose branch `main` keeps a spare machine, and includes its pools."""
    folder = recorded.folder
    ours = (folder / "fleet.yaml").read_text(encoding="utf-8")
    (folder / "main.yaml").unlink()
    (folder / "pools.d").mkdir()
    pool = BUILDERS.replace("max: 4", "max: 4, spare: 1")
    (folder / "pools.d/builders.yaml").write_text(f"pools: {{builders: {pool}}}\n", "utf-8")
    before = fleet_yaml(pools={}).replace("pools: {}\n", "")
    recorded.write(f"{before}include: [pools.d/*.yaml]\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "fleet.yaml", "pools.d")
    git(folder, "commit", "--quiet", "-m", "before")
    git(folder, "branch", "origin/main")
    git(folder, "rm", "--quiet", "--cached", "-r", "fleet.yaml", "pools.d")
    git(folder, "commit", "--quiet", "-m", "without")
    git(folder, "branch", "without")
    (folder / "pools.d/builders.yaml").unlink()
    recorded.write(ours)
    return recorded


@pytest.mark.parametrize("ref", slow_but(["origin/main"], ["origin/main", "HEAD~1"]))
def test_simulate_against_revision_reads_its_include_files(checkout: Trial, ref: str) -> None:
    found = simulated(checkout, "--against", ref)

    assert (found["against"], found["requests"]) == (ref, 13)
    assert float(found["after"]["money"]) < float(found["before"]["money"])


def test_folder_that_resembles_a_repository_is_refused(checkout: Trial) -> None:
    git(checkout.folder, "clone", "--quiet", "--bare", ".", "ops")
    shutil.copy(checkout.folder / "fleet.yaml", checkout.folder / "ops/fleet.yaml")

    ended, said = checkout.do(
        *("simulate", "--file", "ops/fleet.yaml", "--history", HISTORY, "--against", "main")
    )

    assert (ended, tells(said, "main", "bareRepository")) == (1, True), said


@pytest.mark.parametrize(
    ("args", "tells"),
    [
        (("--against", "nowhere"), "nowhere"),
        (("--against", "without"), "fleet.yaml: "),
        (("--against=--output=x",), "--output=x"),
    ],
)
def test_simulate_names_revision_or_file_that_does_not_exist(
    checkout: Trial, args: tuple[str, ...], tells: str
) -> None:
    before = sorted(path.name for path in checkout.folder.rglob("*"))

    ended, said = checkout.do("simulate", "--history", HISTORY, *args)

    assert (ended, tells in said, "Traceback" in said) == (1, True, False), said
    assert sorted(path.name for path in checkout.folder.rglob("*")) == before


def test_simulate_requires_a_file_without_checkout_or_git(
    recorded: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(recorded.folder.parent))
    outside = recorded.told("simulate", "--history", HISTORY, "--against", "main", code=1)
    monkeypatch.setenv("PATH", "/nowhere")
    missing = recorded.told("simulate", "--history", HISTORY, "--against", "main", code=1)

    assert tells(outside, "main", "git repository")
    assert tells(missing, "main", "installed")


def test_simulation_headline_names_refusal_of_change(recorded: Trial) -> None:
    limit = "guards: {refuse: {cost_increase: 0.10 EUR/h}}"
    pool = BUILDERS.replace("max: 4", "max: 4, min: {}")
    for name, least in (("main.yaml", 0), ("fleet.yaml", 4)):
        text = fleet_yaml(pools={"builders": pool.replace("{}", str(least))}, more=limit)
        (recorded.folder / name).write_text(text, encoding="utf-8")
    told = ("simulate", "--history", HISTORY, "--against", "main.yaml")

    found = simulated(recorded, "--against", "main.yaml")
    headlines = [recorded.told(*told, *form).splitlines()[0] for form in ((), ("--markdown",))]

    (refused,) = [each for each in found["after"]["guards"] if each["result"] == "refused"]
    figures = ("cost_increase", str(refused["runs"]), refused["because"])
    assert [tells(line, *figures) for line in headlines] == [True, True]
    assert not tells(recorded.told(*told[:3], "--against", "fleet.yaml"), "cost_increase, ")
