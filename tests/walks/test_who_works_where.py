"""Two builders are always ready, powerful ones come and go, and each has a page meanwhile."""

import pytest

from tests.walks.conftest import Play
from tests.walks.walking import Walk


@pytest.mark.slow
def test_workers_are_listed_with_their_pools_while_they_exist(walk: Walk, play: Play) -> None:
    play("who-works-where")

    left = walk.json("fleet status --json")["workers"]
    assert [each["pool"] for each in left] == ["everyday", "everyday"]
