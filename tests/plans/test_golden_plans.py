"""Golden plans: plan.txt as people read it, plan.json with its ids and figures.

`pytest --update-golden` rewrites both; the review reads the difference. Digests stand in
digests.txt alone, so that a change that touches every digest touches one file.
"""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from fleet.model.plan import Plan
from fleet.report.json import plan_to_json
from tests.rigs.compact import compact_json
from tests.rigs.golden import Golden
from tests.rigs.golden_plans import FOLDERS, plan_of, reviewed
from tests.rigs.process import ROOT
from tests.rigs.shown import plan_to_text

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/plan.json").read_text(encoding="utf-8"))
)


def test_golden_plans_exist() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_golden_plan_equals_reconciled_and_guarded_plan(folder: Path, golden: Golden) -> None:
    plan = plan_of(folder)
    text = plan_to_json(plan)

    golden.compare(folder / "plan.txt", _without_digests(plan_to_text(plan, colour=False)))
    golden.compare(folder / "plan.json", compact_json(reviewed(json.loads(text))))
    SCHEMA.validate(json.loads(text))
    assert Plan.model_validate_json(text) == plan


def test_digests_of_golden_plans_are_as_recorded(golden: Golden) -> None:
    lines = [f"{folder.name}: {_digests_of(plan_of(folder))}\n" for folder in FOLDERS]

    golden.compare(FOLDERS[0].parent / "digests.txt", "".join(lines))


def _digests_of(plan: Plan) -> str:
    return ", ".join(f"{name} {value[:12]}" for name, value in plan.digests)


def _without_digests(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
