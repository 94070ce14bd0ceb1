"""A team at its budget: who waits, for which figure, and that it goes on the next day."""

import re
from decimal import Decimal

import pytest

from tests.walks.conftest import Play
from tests.walks.walking import PAGES, Walk, roughly


@pytest.mark.slow
def test_walk_of_a_team_at_its_budget(walk: Walk, play: Play) -> None:
    play("a-team-at-its-budget", settle=roughly)

    page = (PAGES / "a-team-at-its-budget.md").read_text(encoding="utf-8")
    # The hours that tickets 1 and 2 were billed stay used, their idle rest too.
    assert re.search(r"blue\.per_day +today +3\.70 +0\.92 +0\.00 +0\.38", page)
    plan = walk.json("fleet plan --json")
    blue = {each["path"][-1]: each for each in plan["budgets"] if each["budget"] == "blue"}
    held = {str(each["id"]): each for each in walk.json("fleet ticket list --json")}
    assert held["3"]["machine"].startswith("teams-powerful-")
    assert all(Decimal(each["limit"]) >= Decimal(each["reserved"]) for each in blue.values())
    assert plan["unserved"] == []
