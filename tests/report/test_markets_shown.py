"""Where a machine is bought, and what it boots instead of a dead image: text and Markdown."""

import pytest

from fleet.model.facts import WorkerInputs
from fleet.model.plan import Plan
from fleet.report.plan import plan_to_markdown
from tests.builders import a_create, a_plan, some_inputs
from tests.builders.sentences import tells
from tests.rigs.golden_plans import PLANS, plan_of
from tests.rigs.shown import plan_to_text


def creating(inputs: WorkerInputs) -> Plan:
    return a_plan(actions=(a_create(inputs=inputs),))


def test_spot_machine_is_marked() -> None:
    plan = creating(some_inputs(settings={"market": "spot"}))

    assert "ccx33 (spot)  +0.1200 EUR/h" in plan_to_text(plan, colour=False)
    assert "| ccx33 (spot) | +0.1200 EUR/h |" in plan_to_markdown(plan)


def test_on_demand_machine_is_not_marked() -> None:
    plan = creating(some_inputs())

    assert "ccx33  +0.1200 EUR/h" in plan_to_text(plan, colour=False)
    assert "| ccx33 | +0.1200 EUR/h |" in plan_to_markdown(plan)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_fall_back_to_the_previous_image_is_shown(form: str) -> None:
    plan = plan_of(PLANS / "a-dead-image-gives-way-to-the-version-before-it")

    shown = plan_to_text(plan, colour=False) if form == "text" else plan_to_markdown(plan)

    assert tells(shown.partition("Pools")[0], "trixie 1", "instead")
