"""Laws of the pages: an edit that a page suggests for a build starts the build earlier."""

from datetime import timedelta

import pytest
from hypothesis import given, settings

from fleet.explain.case import Case
from fleet.explain.request import waits_of
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.schema.model import Fleet
from tests.builders.queue_worlds import planned
from tests.laws.test_forecast_laws import crowded_plans
from tests.rigs.pasted import paste

EXAMPLES = max(5, settings().max_examples // 8)
"""Worlds per law; the pages of one may take a second."""


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(crowded_plans())
def test_edit_on_a_page_starts_its_build_earlier(case: tuple[Fleet, World, Plan]) -> None:
    fleet, world, plan = case
    create = fleet.guards.throttle.create
    for key, answer in waits_of(Case(fleet, world, plan)).explained.items():
        now = answer.expected or answer.assumed
        for each in answer.suggestions:
            if now is None or not each.changes or each.asks or each.wait:
                continue
            document = fleet.model_dump(mode="json", exclude_unset=True)
            # A dump has plain numbers.
            document["durations"] = {name: f"{s}s" for name, s in fleet.durations.items()}
            document["guards"]["throttle"]["create"]["share"] = f"{create.share}%"
            for change in each.changes:
                paste(document, change)
            then = Fleet.model_validate(document)
            after = Case(then, world, planned(then, world))
            start = after.expected_start(key) or after.assumed_start(key)
            assert start is not None, each.sentence
            assert now - start >= timedelta(minutes=1), each.sentence
