"""One unreadable row of Debusine's list makes its request unknown, and no other."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.debusine import one_page, row, serving
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial

FLEET = """\
fleet: trial
providers: {{desk: {{kind: sim}}}}
queues: {{deb: {{kind: debusine, url: "{url}", scopes: [debian]}}}}
images: {{trixie: {{suite: trixie, architecture: amd64}}}}
pools: {{builders: {{provider: desk, machine: ccx33, image: trixie, workers: {{max: 4}}}}}}
"""
ODD: list[tuple[str, object]] = [
    ("priority_base", "high"),
    ("priority_adjustment", None),
    ("priority_base", 2**70),
    ("task_name", None),
    ("task_name", 7),
    ("workspace", 12),
    ("created_by", "joe"),
    ("created_at", 12),
    ("created_at", {"at": "now"}),
    ("scheduler_tags_required", "arm64"),
    ("scheduler_tags_required", [1, 2]),
    ("scheduler_tags_required", [""]),
    ("scheduler_tags_provided", {"a": 1}),
    ("task_data", None),
    ("task_data", []),
    ("dynamic_task_data", "x"),
    ("worker", "w1"),
    ("worker", {"id": 3}),
]


def planned(project: Path, run_fleet: RunFleet, *rows: dict[str, object]) -> dict[str, Any]:
    """Return the plan for a list of these rows, all counted by the server."""
    with serving(one_page(*rows), debian=len(rows)) as server:
        trial = Trial(project)
        trial.write(FLEET.format(url=server.url))
        trial.init()
        plan: dict[str, Any] = json.loads(run_fleet("plan", "--json").stdout)
    return plan


def waiting(plan: dict[str, Any]) -> list[str]:
    return sorted(key for each in plan["signatures"] for key in each["requests"])


@pytest.mark.parametrize(("field", "value"), ODD, ids=str)
def test_one_request_is_unknown_when_a_field_is_odd(
    field: str, value: object, project: Path, run_fleet: RunFleet
) -> None:
    odd = row(id=2) | {field: value}

    plan = planned(project, run_fleet, row(id=1), odd, row(id=3))

    (estimate,) = plan["estimates"]
    assert waiting(plan) == ["deb/1", "deb/3"]
    assert (estimate["listed"], estimate["unlisted"]) == (2, 1)
    assert f"2 ({field}" in estimate["because"]


def test_queue_is_unknown_when_an_odd_row_exceeds_the_count(
    project: Path, run_fleet: RunFleet
) -> None:
    rows = [row(id=number) for number in range(1, 5)]
    with serving(one_page(*rows, row(id=9, task_name=None)), debian=2) as server:
        trial = Trial(project)
        trial.write(FLEET.format(url=server.url))
        trial.init()
        plan = json.loads(run_fleet("plan", "--json").stdout)

    assert plan["unread"] == ["deb"]


def test_machine_is_kept_when_its_request_is_unreadable(
    project: Path, run_fleet: RunFleet
) -> None:
    golden = Path(__file__).parent.parent / "plans" / "a-sampled-queue-lets-no-worker-go"
    world = json.loads((golden / "world.json").read_text(encoding="utf-8"))
    demand = world["queues"]["debian"]["demand"]
    demand["sample"] = {"listed": 1, "longest": 1, "unlisted": {"debian": 1}}
    demand["sample"]["unreadable"] = {"8": "task_name: Input should be a valid string"}
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")
    text = (golden / "fleet.yaml").read_text(encoding="utf-8")
    (project / "fleet.yaml").write_text(text, encoding="utf-8")

    plan = json.loads(run_fleet("plan", "--world", "world.json", "--json").stdout)

    assert plan["actions"] == []
    assert "8 (task_name" in plan["estimates"][0]["because"]
    assert plan["estimates"][0]["longest"] is None
