"""Golden plans: plan.txt as people read it, plan.json with its ids and figures.

`pytest --update-golden` rewrites both; the review reads the difference.
"""

import json
from pathlib import Path

import jsonschema
import pytest

from fleet.model.plan import Plan
from fleet.report.json import plan_to_json
from fleet.report.plan_text import plan_to_text
from tests.rigs.compact import compact_json
from tests.rigs.golden import Golden
from tests.rigs.golden_plans import FOLDERS, plan_of, reviewed
from tests.rigs.process import ROOT

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/plan.json").read_text(encoding="utf-8"))
)


def test_there_are_golden_plans() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_golden_plan_is_what_reconcile_and_guard_say(folder: Path, golden: Golden) -> None:
    plan = plan_of(folder)
    text = plan_to_json(plan)

    golden.compare(folder / "plan.txt", plan_to_text(plan, colour=False))
    golden.compare(folder / "plan.json", compact_json(reviewed(json.loads(text))))
    SCHEMA.validate(json.loads(text))
    assert Plan.model_validate_json(text) == plan
