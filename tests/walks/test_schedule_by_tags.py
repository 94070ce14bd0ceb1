"""Work goes where its tags fit, whoever asked for them."""

from tests.walks.conftest import Play
from tests.walks.walking import Walk


def test_each_request_gets_a_machine_that_fits_its_tags(walk: Walk, play: Play) -> None:
    play("schedule-by-tags")

    plan = walk.json("fleet plan --json")
    made = [each["pool"] for each in plan["actions"] if each["action"] == "create"]
    assert {pool: made.count(pool) for pool in made} == {
        "arm": 2,
        "everyday": 2,
        "memory": 2,
        "toolchain": 1,
    }
