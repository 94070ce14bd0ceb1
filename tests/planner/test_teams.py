"""Whose team a request or work is, one sentence per test."""

import pytest

from fleet.model.facts import Request, Unknown, Work
from fleet.planner.demand import Teams, teams_of
from tests.builders import a_fleet, a_request, a_world

TEAMS = {
    "groups": {"groups": ["kde"]},
    "owners": {"owners": ["@kde"]},
    "scopes": {"scopes": ["debian"]},
    "users": {"users": ["ann"]},
    "workspaces": {"workspaces": ["kernel"]},
}


@pytest.mark.parametrize(
    ("said", "team"),
    [
        ({"requester": "ann"}, "users"),
        ({"requester": "ben"}, None),
        ({"requester": "cai"}, "groups"),
        ({"groups": ("other", "kde")}, "groups"),
        ({"owner": "@kde"}, "owners"),
        ({"owner": "kde"}, None),
        ({"scope": "debian"}, "scopes"),
        ({"workspace": "kernel", "scope": "kali"}, "workspaces"),
        ({"requester": "ann", "groups": ("kde",), "owner": "@kde"}, "users"),
        ({"groups": ("kde",), "owner": "@kde", "scope": "debian"}, "groups"),
        ({"owner": "@kde", "workspace": "kernel", "scope": "debian"}, "owners"),
        ({"workspace": "kernel", "scope": "debian"}, "workspaces"),
        ({"requester": "ann", "team": "told"}, "told"),
        ({}, None),
    ],
)
def test_team_is_of_first_matching_key(said: dict[str, object], team: str | None) -> None:
    teams = Teams(a_fleet(teams=TEAMS), {"kde": ("cai",)})
    bare = a_request(scope=None)

    assert teams.of(bare.altered(**said)) == team
    assert teams.of(Work.model_validate(said)) == team


def test_workspace_matches_only_in_its_scope() -> None:
    teams = Teams(a_fleet(teams={"x": {"workspaces": ["debian/kernel"]}}), {})

    found = [
        teams.of(Request(id="1", scope=scope, workspace="kernel")) for scope in ("debian", "kali")
    ]

    assert found == ["x", None]


def test_user_of_two_teams_is_in_first_by_name() -> None:
    stated = {"b": {"users": ["ann"], "groups": ["g"]}, "a": {"users": ["ann"], "groups": ["h"]}}
    teams = Teams(a_fleet(teams=stated), {"g": ("ben",), "h": ("ben",)})

    assert teams.of(Request(id="1", requester="ann")) == "a"
    assert teams.of(Request(id="1", requester="ben")) == "a"
    assert teams.of(Request(id="1", groups=("g", "h"))) == "a"


def test_unknown_members_leave_the_teams_of_groups_unknown() -> None:
    world = a_world(members=Unknown(unknown="no file"))
    teams = teams_of(a_fleet(teams=TEAMS), world)

    assert teams.of(Request(id="1", requester="cai")) is None
    assert teams.of(Request(id="1", requester="ann")) == "users"
