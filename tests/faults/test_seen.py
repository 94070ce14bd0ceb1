"""What the tests of faults say of a kill that did not heal."""

import pytest

from tests.faults.seen import Seen, check_healed


def test_unhealed_kill_is_named_by_its_moment() -> None:
    well = Seen(-9, 0, 0, 3, (), left_to_do=False, busy_kept=True, moment="asked one")
    ill = Seen(-9, 1, 1, 2, (), left_to_do=True, busy_kept=True, moment="done other, time 2")

    with pytest.raises(AssertionError, match=r"1 of 2 did not heal:\nat done other, time 2: "):
        check_healed([well, ill], machines=3)
