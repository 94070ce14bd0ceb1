"""Whether a worker may run a request, in every form, and the words for why not."""

from decimal import Decimal

import pytest

from fleet.schema.model import serves_queue
from fleet.tagrules.offers import Ask, Mismatch, Offer, find_mismatch, match, satisfies
from tests.builders import a_pool

BIG = Offer(
    provides=frozenset("abc"),
    requires=frozenset("rs"),
    exclusive=frozenset("bc"),
    numbers=(("mem", Decimal(8)),),
)


def test_mismatch_has_all_obstacles() -> None:
    ask = Ask(frozenset("axy"), minimums=(("cpu", Decimal(2)), ("mem", Decimal(9))))

    assert find_mismatch(ask, BIG) == Mismatch(
        missing=("x", "y"),
        not_brought=("r", "s"),
        not_asked=("b", "c"),
        too_small=("cpu>=2", "mem>=9"),
    )


@pytest.mark.parametrize(
    "mismatch",
    [
        Mismatch(missing=("x",)),
        Mismatch(not_brought=("x",)),
        Mismatch(not_asked=("x",)),
        Mismatch(too_small=("x>=1",)),
    ],
)
def test_every_obstacle_of_a_worker_is_a_mismatch(mismatch: Mismatch) -> None:
    assert mismatch


def test_minimum_of_unstated_number_fits_no_worker() -> None:
    ask = Ask(frozenset(), minimums=(("mem", Decimal(0)),))
    offers = {name: Offer(frozenset()) for name in "ab"}

    assert match([ask, ask], offers) == {ask: ()}
    assert not any(satisfies(ask, offer) for offer in offers.values())


@pytest.mark.parametrize(
    ("serves", "answer"), [({}, True), ({"serves": ["q", "r"]}, True), ({"serves": ["r"]}, False)]
)
def test_pool_serves_every_queue_by_default(serves: dict[str, object], *, answer: bool) -> None:
    assert serves_queue(a_pool(**serves), "q") is answer
