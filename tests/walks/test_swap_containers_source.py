"""A pool with more swap, a pool of containers, and source builds: what people asked Copr for."""

import pytest

from tests.walks.conftest import Play
from tests.walks.walking import Walk


@pytest.mark.slow
def test_walk_of_pools_for_swap_containers_and_sources(walk: Walk, play: Play) -> None:
    play("swap-containers-source")

    status = walk.json("fleet status --json")
    assert {pool["pool"]: pool["machines"] for pool in status["pools"]} == {
        "usual": 1,
        "swapping": 0,
        "containers": 1,
        "sources": 2,
    }
    (spent,) = (b["spent"] for b in status["budgets"] if b["period"] == "day" and not b["coming"])
    # Two hours were begun of a ccx33 with its address and 60 GiB of disk above its own.
    assert spent == "0.1694"
