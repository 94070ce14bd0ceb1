"""`fleet simulate`: recorded demand under this fleet.yaml, and under another."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest

from tests.builders.recording import a_job, record_fixed, write
from tests.rigs.process import ROOT
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

START = datetime(2026, 11, 2, 6, tzinfo=UTC)
HISTORY = "history.jsonl.zst"


@pytest.fixture
def recorded(trial: Trial) -> Trial:
    """Return a fleet with four hours of history: a build every quarter of an hour."""
    jobs = [
        a_job(nth, START + nth * timedelta(minutes=15), 1200 + 60 * (nth % 7), owner="<b>ann|")
        for nth in range(1, 14)
    ]
    end = START + timedelta(hours=4)
    every = timedelta(minutes=10)
    write(trial.folder / HISTORY, record_fixed(jobs, START, end, every=every, machines=2))
    trial.write(fleet_yaml(pools={"builders": BUILDERS.replace("10m", "5m")}))
    text = fleet_yaml(pools={"builders": BUILDERS.replace("max: 4", "max: 4, spare: 1")})
    (trial.folder / "main.yaml").write_text(text, encoding="utf-8")
    return trial


def simulated(trial: Trial, *args: str) -> dict[str, Any]:
    said = trial.told("simulate", "--history", HISTORY, "--json", *args)
    found: dict[str, Any] = json.loads(said[said.index("{") :])
    return found


def test_both_sides_are_told(recorded: Trial) -> None:
    found = simulated(recorded, "--against", "main.yaml")

    assert (found["format"], found["against"], found["requests"]) == (
        *("fleet-simulation-1", "main.yaml"),
        13,
    )
    assert found["after"]["waits"]["requests"] == found["before"]["waits"]["requests"] == 13
    assert float(found["after"]["money"]) < float(found["before"]["money"])
    assert found["before"]["config"] != found["after"]["config"]


def test_the_json_is_as_its_schema_says(recorded: Trial) -> None:
    schema = json.loads((ROOT / "docs/schemas/simulation.json").read_text(encoding="utf-8"))

    found = simulated(recorded, "--against", "main.yaml")

    jsonschema.validate(found, schema)


def test_a_part_of_a_history_can_be_chosen(recorded: Trial) -> None:
    found = simulated(recorded, "--from", "2026-11-02T07:00", "--to", "2026-11-02T08:00")

    assert (found["start"], found["end"]) == ("2026-11-02T07:00:00Z", "2026-11-02T08:00:00Z")
    assert found["worlds"] == 7
    assert found["before"] is None


def test_names_of_a_queue_do_not_write_markdown(recorded: Trial) -> None:
    said = recorded.told("simulate", "--history", HISTORY, "--markdown")

    assert said.count("<b>ann") == said.count("`<b>ann") == 1
    assert "ann|" not in said


def test_a_page_shows_both_sides_as_plots(recorded: Trial) -> None:
    recorded.told(
        *("simulate", "--history", HISTORY, "--against", "main.yaml", "--html", "page.html")
    )

    page = (recorded.folder / "page.html").read_text(encoding="utf-8")
    names = ("waiting", "machines", "rate", "waits")
    sides = [f"{name}-{side}-heading" for name in names for side in ("before", "after")]
    assert [each for each in sides if f'id="{each}"' not in page] == []
    assert page.count("<svg") >= len(sides)
    assert "<script" not in page
    assert "<b>ann" not in page


def test_what_applies_kept_is_replayed(trial: Trial) -> None:
    trial.wait_for("1", "2")
    trial.apply()
    trial.apply()

    said = trial.told("simulate", "--json")

    found = json.loads(said[said.index("{") :])
    assert (found["worlds"], found["requests"]) == (2, 2)


def test_nothing_is_changed(recorded: Trial) -> None:
    before = sorted(path.name for path in recorded.folder.rglob("*"))

    simulated(recorded)

    assert sorted(path.name for path in recorded.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "code", "tells"),
    [
        ((), 1, "store"),
        (("--history", "none.zst"), 1, "none.zst"),
        (("--history", "world.json"), 1, "world.json"),
        (("--history", HISTORY, "--to", "2020-01-01"), 1, HISTORY),
        (("--history", HISTORY, "--against", "none.yaml"), 1, "none.yaml"),
    ],
)
def test_what_cannot_be_replayed_is_told(
    recorded: Trial, args: tuple[str, ...], code: int, tells: str
) -> None:
    ended, said = recorded.do("simulate", *args)

    assert (ended, tells in said, "Traceback" in said) == (code, True, False)


@pytest.mark.parametrize("args", [("--from", "yesterday"), ("--policy", "luck")])
def test_wrong_usage_is_refused(recorded: Trial, args: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        recorded.do("simulate", "--history", HISTORY, *args)

    assert left.value.code == 2


def test_a_history_of_another_fleet_is_refused(recorded: Trial) -> None:
    text = fleet_yaml(pools={"builders": BUILDERS}).replace("fleet: trial", "fleet: other")
    recorded.write(text)

    ended, said = recorded.do("simulate", "--history", HISTORY)

    assert ended == 2
    assert "trial" in said
    assert "other" in said


def test_a_policy_of_others_is_what_was_before(recorded: Trial) -> None:
    found = simulated(recorded, "--policy", "fixed")

    assert (found["before"]["policy"], found["after"]["policy"]) == ("fixed", "fleet")
    assert float(found["before"]["money"]) > float(found["after"]["money"])
