"""What every Promoter does with a plan: without a promotion, nothing."""

import pytest

from fleet.images.promoter import ImagePromoter
from fleet.ports import Promoter
from tests.builders import NOW, a_plan
from tests.fakes.promoter import FakePromoter
from tests.fakes.store import FakeStore, Shelf


@pytest.mark.parametrize("promoter", [FakePromoter(), ImagePromoter()])
def test_nothing_is_promoted_when_the_plan_has_no_promotion(promoter: Promoter) -> None:
    said: list[str] = []
    store = FakeStore(Shelf(fleet="debian-ci"), "debian-ci")

    assert promoter.promote_all(a_plan(), store, NOW, said.append, said.append) == ()
    assert said == []
