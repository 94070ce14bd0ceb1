"""What every Promoter does with a plan: without a promotion, nothing."""

import pytest

from fleet.apply.satellites import Promoter
from fleet.images import promote as image_promoter
from tests.builders import NOW, a_plan
from tests.builders.stores import new_store
from tests.fakes.promoter import FakePromoter


@pytest.mark.parametrize("promoter", [FakePromoter(), image_promoter])
def test_nothing_is_promoted_when_the_plan_has_no_promotion(promoter: Promoter) -> None:
    said: list[str] = []
    store = new_store()

    assert promoter.promote_all(a_plan(), store, NOW, said.append, said.append) == ()
    assert said == []
