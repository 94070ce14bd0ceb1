"""A user with an allow-listed package: one powerful machine at a time, then the next."""

import pytest

from tests.walks.conftest import Play
from tests.walks.walking import Walk, roughly


@pytest.mark.slow
def test_walk_of_a_user_with_an_allow_listed_package_and_a_limit(walk: Walk, play: Play) -> None:
    play("an-allow-listed-package", settle=roughly)

    first, second, usual = (walk.json(f"fleet ticket show {n} --json") for n in (1, 2, 3))
    assert first["granted"] == second["granted"] == ["arch_x86_64", "extra_powerful"]
    assert first["machine"] == second["machine"] == "farm-powerful-0001"
    assert (usual["granted"], usual["machine"]) == (["arch_x86_64"], "farm-usual-0001")
    assert [each["id"] for each in walk.json("fleet ticket list --json")] == [4]
    plan = walk.json("fleet plan --json")
    pools = {each["pool"]: each for each in plan["pools"]}
    assert pools["powerful"]["busy"] == pools["powerful"]["idle"] == 0
