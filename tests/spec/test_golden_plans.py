"""Golden plans: a folder each under tests/plans/, named by the sentence it shows.

`pytest --update-golden` rewrites plan.json and plan.txt; the review reads the difference.
"""

import json
from pathlib import Path

import pytest

from fleet.apply.config import check_file
from fleet.guard import guard
from fleet.model.plan import Plan
from fleet.queues.recorded import read_world
from fleet.reconcile import reconcile
from fleet.report.json import plan_to_json
from fleet.report.plan_text import plan_to_text
from fleet.schema.model import Fleet
from fleet.state.files import LocalFiles
from tests.builders import NOW, rekeyed
from tests.rigs.golden import Golden

FOLDERS = sorted(
    path.parent for path in (Path(__file__).parents[1] / "plans").glob("*/world.json")
)


def plan_of(folder: Path) -> Plan:
    checked = check_file(str(folder / "fleet.yaml"), NOW.date())
    assert checked.fleet is not None, checked.findings
    world = read_world(str(folder / "world.json"), LocalFiles())
    return guard(checked.fleet, reconcile(checked.fleet, world))


def test_there_are_golden_plans() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_golden_plan_is_what_reconcile_and_guard_say(folder: Path, golden: Golden) -> None:
    plan = plan_of(folder)

    shown = {"plan.json": plan_to_json(plan), "plan.txt": plan_to_text(plan, colour=False)}

    for name, text in shown.items():
        golden.compare(folder / name, text)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_order_of_keys_in_fleet_yaml_changes_no_plan(folder: Path) -> None:
    checked = check_file(str(folder / "fleet.yaml"), NOW.date())
    assert checked.fleet is not None, checked.findings
    world = read_world(str(folder / "world.json"), LocalFiles())
    turned = Fleet.model_validate_json(
        json.dumps(rekeyed(checked.fleet.as_written(), lambda keys: keys[::-1]))
    )

    plans = [guard(fleet, reconcile(fleet, world)) for fleet in (checked.fleet, turned)]

    assert plans[0] == plans[1]
