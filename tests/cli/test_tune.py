"""`fleet tune`: settings for a target or a budget, as a diff, with what each is worth."""

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest

from tests.builders.recording import a_job, record_fixed, write
from tests.builders.sentences import tells
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT
from tests.rigs.trial import Trial, fleet_yaml

START = datetime(2026, 11, 2, 6, tzinfo=UTC)
HISTORY = "history.jsonl.zst"
MAX, MIN, IDLE = "pools.builders.workers.max", "pools.builders.workers.min", "idle_after"
KEYS = ("--key", MAX, "--key", MIN)
TARGET = ("--start", "95%:25m")
NEW = "min: 0  # somebody is impatient\n      max: 4"
WRITTEN = """\
fleet: trial
providers:
  desk: {kind: sim, boot: 1m}
queues:
  work: {kind: world, path: world.json}
images:
  trixie: {suite: trixie, architecture: amd64}
templates:
  small: {provider: desk, image: trixie, workers: {max: 1}}  # one for all
pools:
  # What everybody uses.
  builders:
    extends: [small]
    machine: ccx33
    workers:
      min: 1  # somebody is impatient
  unused: {extends: [small], machine: ccx63, requires: [big]}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Return a fleet with eight hours of history: three builds of half an hour every two hours."""
    trial = Trial(tmp_path_factory.mktemp("tuned"))
    jobs = [
        a_job(4 * hour + nth, START + timedelta(hours=hour, minutes=1), 1800, owner="<b>ann|")
        for hour in range(0, 8, 2)
        for nth in range(3)
    ]
    end = START + timedelta(hours=8)
    every = timedelta(minutes=10)
    write(trial.folder / HISTORY, record_fixed(jobs, START, end, every=every, machines=1))
    trial.write(WRITTEN)
    return trial


@pytest.fixture(scope="module")
def found(recorded: Trial) -> dict[str, Any]:
    """Return what is found; what was simulated for it is in kept.json."""
    return tuned(recorded, *TARGET, *KEYS, "--resume", "kept.json")


@pytest.fixture(scope="module")
def bounded(recorded: Trial) -> dict[str, Any]:
    """Return what one simulation finds; it is in few.json."""
    return tuned(recorded, *TARGET, *KEYS, "--most", "1", "--resume", "few.json")


def tuned(trial: Trial, *args: str) -> dict[str, Any]:
    said = trial.told("tune", "--history", HISTORY, "--json", *args)
    found: dict[str, Any] = json.loads(said[said.index("{") :])
    return found


def changes_of(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["key"]: (each["before"], each["after"]) for each in found["changes"]}


def test_what_to_change_is_told_with_its_worth(found: dict[str, Any]) -> None:
    assert found["format"] == "fleet-tuning-1"
    assert changes_of(found) == {MAX: ("1", "4"), MIN: ("1", "0")}
    assert found["keys"] == [MAX, MIN]
    before, after = found["learned"]["before"], found["learned"]["after"]
    assert before["within"] < before["requests"] == after["requests"] == after["within"]
    without = {each["key"]: each["without"] for each in found["changes"]}
    assert without[MAX]["within"] < after["within"]
    assert float(without[MIN]["per_day"]) > float(after["per_day"])


def test_the_last_quarter_is_held_back(found: dict[str, Any]) -> None:
    held = found["held_back"]

    assert found["learned"]["end"] == held["start"] == "2026-11-02T12:00:00Z"
    assert held["end"] == "2026-11-02T14:00:00Z"
    assert held["after"]["requests"] == held["before"]["requests"] == 3
    assert held["after"]["within"] == 3 > held["before"]["within"]


def test_the_json_is_as_its_schema_says(found: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "docs/schemas/tuning.json").read_text(encoding="utf-8"))

    jsonschema.validate(found, schema)


def test_the_frontier_costs_more_the_less_it_waits(found: dict[str, Any]) -> None:
    frontier = [each["trial"] for each in found["frontier"]]

    assert len(frontier) > 1
    assert sorted(frontier, key=lambda each: float(each["per_day"])) == frontier
    assert sorted(frontier, key=lambda each: -each["wait"]) == frontier


def test_text_and_page_say_the_same(
    recorded: Trial, found: dict[str, Any], golden: Golden
) -> None:
    said = recorded.told(
        *("tune", "--history", HISTORY, *TARGET, *KEYS, "--resume", "kept.json"),
        *("--html", "page.html"),
    )

    golden.compare(ROOT / "tests/report/golden/tuning.txt", said)
    assert said.endswith(found["patch"])
    page = (recorded.folder / "page.html").read_text(encoding="utf-8")
    assert 'id="frontier-plot-heading"' in page
    assert 'class="mark"' in page
    assert "<script" not in page


def test_the_diff_is_applied_with_comments_kept(
    trial: Trial, recorded: Trial, found: dict[str, Any]
) -> None:
    trial.write(WRITTEN)
    said = recorded.told("tune", "--history", HISTORY, *TARGET, *KEYS, "--resume", "kept.json")

    command = ["git", "apply", "-"]
    subprocess.run(command, cwd=trial.folder, input=said, text=True, check=True)

    wanted = WRITTEN.replace("min: 1  # somebody is impatient", NEW)
    assert (trial.folder / "fleet.yaml").read_text(encoding="utf-8") == wanted
    assert found["patch"]
    assert trial.do("validate")[0] == 0


@pytest.mark.slow
def test_a_resumed_search_says_the_same(recorded: Trial, found: dict[str, Any]) -> None:
    kept = json.loads((recorded.folder / "kept.json").read_text(encoding="utf-8"))
    part = kept | {"learned": kept["learned"][:-2], "held_back": []}
    (recorded.folder / "part.json").write_text(json.dumps(part), encoding="utf-8")

    assert tuned(recorded, *TARGET, *KEYS, "--resume", "part.json") == found
    again = json.loads((recorded.folder / "part.json").read_text(encoding="utf-8"))
    assert again == kept


@pytest.mark.slow
def test_a_bounded_search_says_so(bounded: dict[str, Any]) -> None:
    assert (bounded["simulations"], bounded["is_bounded"], bounded["changes"]) == (1, True, [])
    assert bounded["patch"] == ""


@pytest.mark.slow
def test_a_search_with_time_enough_says_the_same(recorded: Trial, found: dict[str, Any]) -> None:
    kept = recorded.folder / "kept.json"
    (recorded.folder / "within.json").write_bytes(kept.read_bytes())

    assert tuned(recorded, *TARGET, *KEYS, "--within", "1h", "--resume", "within.json") == found


@pytest.mark.slow
def test_a_budget_is_kept(recorded: Trial) -> None:
    found = tuned(recorded, "--budget", "4 EUR", "--key", MAX)

    assert float(found["learned"]["after"]["per_day"]) <= 4
    assert found["learned"]["after"]["waited"] < found["learned"]["before"]["waited"]


@pytest.mark.parametrize(
    ("content", "args", "code"),
    [
        (lambda whole: whole, ("--start", "90%:25m"), 2),
        (lambda whole: whole, (*TARGET, "--to", "2026-11-02T13:00"), 2),
        (lambda whole: whole[: len(whole) // 2], TARGET, 1),
        (lambda _: "", TARGET, 1),
    ],
)
def test_what_is_torn_or_of_something_else_is_not_gone_on_from(
    recorded: Trial,
    bounded: dict[str, Any],
    content: Callable[[str], str],
    args: tuple[str, ...],
    code: int,
) -> None:
    assert bounded
    other = recorded.folder / "other.json"
    held = content((recorded.folder / "few.json").read_text(encoding="utf-8"))
    other.write_text(held, encoding="utf-8")

    ended, said = recorded.do("tune", "--history", HISTORY, *args, "--resume", "other.json")

    assert (ended, "other.json" in said, "Traceback" in said) == (code, True, False)
    assert other.read_text(encoding="utf-8") == held


@pytest.mark.parametrize(
    ("args", "code", "tells"),
    [
        ((*TARGET, "--key", "pools.builders.workers.most"), 2, MAX),
        ((*TARGET, "--key", "pools.nobody.*"), 2, "builders"),
        (("--budget", "4 CHF"), 2, "CHF"),
        ((*TARGET, "--to", "2020-01-01"), 1, HISTORY),
        ((*TARGET, "--to", "2026-11-02T06:05"), 1, HISTORY),
    ],
)
def test_what_cannot_be_tuned_is_told(
    recorded: Trial, args: tuple[str, ...], code: int, tells: str
) -> None:
    ended, said = recorded.do("tune", "--history", HISTORY, *args)

    assert (ended, tells in said, "Traceback" in said) == (code, True, False)


@pytest.mark.parametrize(
    "args",
    [(), (*TARGET, "--budget", "4 EUR"), ("--start", "95"), ("--budget", "4"), ("--most", "0")],
)
def test_wrong_usage_is_refused(recorded: Trial, args: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        recorded.do("tune", "--history", HISTORY, *args)

    assert left.value.code == 2


def test_the_first_minutes_of_a_fleet_are_too_short_to_tune(trial: Trial) -> None:
    trial.wait_for("1")
    for _ in range(2):
        trial.told("apply")

    code, told = trial.do("tune", *TARGET)

    assert code == 1
    assert tells(told, "too short", "`cadence`", "40m")


def test_settings_behind_an_alias_are_refused_before_anything_is_simulated(trial: Trial) -> None:
    text = fleet_yaml(
        pools={
            "builders": "&b {provider: desk, machine: ccx33, image: trixie, workers: {max: 1}}",
            "other": "*b",
        }
    )
    trial.write(text)

    refused = [
        trial.do("tune", *TARGET, "--key", f"pools.{pool}.workers.max")
        for pool in ("builders", "other")
    ]

    assert [code for code, _ in refused] == [2, 2]
    assert all("alias" in said for _, said in refused)
