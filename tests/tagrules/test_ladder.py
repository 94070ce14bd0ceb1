"""The ladder: numbers as plain tags, for queues that carry no numbers."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from fleet.tagrules.debusine import ladder, rung_of_minimum, rungs_for

numbers = st.decimals(min_value=0, max_value=Decimal(999999999999), places=6)


def test_worker_provides_every_class_that_it_reaches() -> None:
    assert ladder("mem", Decimal(20)) == tuple(
        f"worker:class:mem-{rung}" for rung in (0, 1, 2, 4, 8, 16)
    )


def test_minimum_above_highest_class_has_no_tag() -> None:
    assert rung_of_minimum("mem", Decimal(3), [Decimal(1), Decimal(2)]) is None


def test_classes_can_be_added_for_required_minimums() -> None:
    rungs = rungs_for([(("mem", Decimal("48.5")),)])

    assert rung_of_minimum("mem", Decimal("48.5"), rungs) == "worker:class:mem-48.5"
    assert "worker:class:mem-48.5" in ladder("mem", Decimal(64), rungs)


@given(numbers, numbers)
def test_class_never_exceeds_the_number(least: Decimal, have: Decimal) -> None:
    fits = rung_of_minimum("mem", least) in ladder("mem", have)

    assert not fits or have >= least


@given(st.lists(numbers, min_size=1, max_size=4), numbers)
def test_minimum_with_added_class_is_exact(asked: list[Decimal], have: Decimal) -> None:
    rungs = rungs_for([tuple(("mem", least) for least in asked)])

    assert [
        rung_of_minimum("mem", least, rungs) in ladder("mem", have, rungs) for least in asked
    ] == [have >= least for least in asked]
