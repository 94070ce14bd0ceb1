"""What allocation leaves of each limit, and what is made beside it takes of that."""

from decimal import Decimal

from fleet.planner.demand import LimitRow
from fleet.planner.pool_plan import Headroom, ReachedLimit

PLACE, OTHER = "builders/ccx33/on-demand", "arm/cax41/on-demand"


def a_row(room: str, **overrides: object) -> LimitRow:
    """Return a limit of which each machine at PLACE takes one."""
    defaults: dict[str, object] = {
        "path": ("pools", "builders", "workers", "max"),
        "because": "pool builders is at workers.max",
        "room": Decimal(room),
        "machines": {PLACE: Decimal(1)},
    }
    return LimitRow(**(defaults | overrides))  # type: ignore[arg-type]  # builders take any field


def taken(headroom: Headroom, place: str = PLACE) -> int:
    """Take machines until a limit forbids one; return how many there were."""
    count = 0
    while count < 9 and headroom.take(place) is None:
        count += 1
    return count


def test_headroom_equals_remaining_capacity_of_limit() -> None:
    assert taken(Headroom([a_row("3")], {}, {})) == 3


def test_headroom_omits_machines_for_requests() -> None:
    assert taken(Headroom([a_row("3")], {PLACE: 2, OTHER: 5}, {})) == 1


def test_headroom_omits_use_by_requests() -> None:
    row = a_row("5", requests={("g", PLACE): Decimal(2), ("h", PLACE): Decimal(1)})

    assert taken(Headroom([row], {}, {("g", PLACE): 1, ("i", PLACE): 3})) == 3


def test_headroom_returns_reached_limit_without_use() -> None:
    wide, narrow = a_row("9"), a_row("1")
    headroom = Headroom([wide, narrow], {}, {})

    assert [headroom.take(PLACE), headroom.take(PLACE)] == [None, ReachedLimit(narrow, Decimal(1))]
    assert headroom.kept == {PLACE: 1}


def test_kept_machine_uses_its_weight_of_headroom() -> None:
    row = a_row("5", kept={PLACE: Decimal(2)})

    assert taken(Headroom([row], {PLACE: 1}, {})) == 2


def test_headroom_is_unchanged_by_place_outside_limit() -> None:
    rows = [a_row("0"), a_row("0", kept={PLACE: Decimal(1)}, machines={OTHER: Decimal(1)})]

    assert taken(Headroom(rows, {}, {}), OTHER) == 9


def test_machines_within_headroom_are_counted_per_place() -> None:
    headroom = Headroom([a_row("2")], {}, {})
    taken(headroom)
    taken(headroom, OTHER)

    assert headroom.kept == {PLACE: 2, OTHER: 9}
