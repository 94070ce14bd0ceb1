"""The pages of every golden plan: templates are not type-checked."""

from pathlib import Path

import pytest

from fleet.model.facts import Unknown
from fleet.model.images import DueImage, DueReport
from fleet.site.files import Shown, site
from fleet.site.versions import image_stories
from fleet.words.images import describe_waiting
from tests.builders import NOW
from tests.rigs.golden_plans import FOLDERS, load_fleet, load_world, plan_of
from tests.site.test_site import SitePage


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_golden_plan_has_its_pages(folder: Path) -> None:
    fleet, world, plan = load_fleet(folder), load_world(folder), plan_of(folder)
    due = DueReport(
        fleet=fleet.fleet,
        time=NOW,
        images=tuple(DueImage(image=each.image, waiting=each) for each in plan.waiting_versions),
    )
    images = image_stories(fleet, world, plan, due=due)

    pages = site(Shown(plan, images=images))

    assert not [name for name, text in pages.items() if "<" in text[:1] and SitePage(text).broken]
    for each in plan.waiting_versions:
        places = [name for name, text in pages.items() if describe_waiting(each) in text]
        assert {"index.html"} < {*places} or isinstance(images, Unknown)
