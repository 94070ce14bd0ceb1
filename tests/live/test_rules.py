"""Rules that fleet delivers to a real Debusine are the server's own from then on."""

from collections.abc import Iterator
from typing import LiteralString

import pytest

from tests.live.debusine import Server as LiveServer
from tests.live.project import Project
from tests.live.workspace import Workspace, make_workspace
from tests.ports.task_rules_suite import Server, TaskRulesSuite
from tests.rigs.process import unwrapped

POWERFUL = "worker:class:powerful"
TASK_RULES = "debusine:task-configuration"


@pytest.fixture(scope="module")
def ruled(server: LiveServer) -> Workspace:
    """Return a workspace whose owner has made a collection of task configuration."""
    workspace = make_workspace(server, "ruled", "builds")
    make_collection(workspace)
    return workspace


def make_collection(workspace: Workspace) -> None:
    body = {"name": "default", "category": TASK_RULES}
    asked = {"token": workspace.builder, "scope": workspace.scope}
    workspace.server.rest("POST", f"collection/{workspace.name}/", body=body, **asked)


class TestLive(TaskRulesSuite):
    """The suite that the stand-in keeps too."""

    @pytest.fixture
    def api(self, ruled: Workspace) -> Iterator[Server]:
        """Return the real server, its collection empty."""
        place = f"{ruled.scope}/{ruled.name}"
        known = Server(ruled.server.url, place, ruled.builder, ruled.viewer)
        owner = known.rules(known.owner)
        owner.post(place, [], dry_run=False)
        yield known
        owner.post(place, [], dry_run=False)


def test_delivered_rule_gives_later_requests_their_tags(
    project: Project, workspace: Workspace
) -> None:
    heavy = workspace.beside("delivered")
    make_collection(heavy)
    place = f"{heavy.scope}/{heavy.name}"
    project.write(
        name="delivers",
        pools={"powerful": {"provides": [POWERFUL], "workers": {"max": 1}}},
        tags={POWERFUL: {"on_demand": True}},
        powerful=[{"match": f"{place}/.*/.*", "ask": [POWERFUL], "reason": "big"}],
        rules={"workspaces": [place], "tasks": ["noop"], "token": {"env": "DEBUSINE_OWNER"}},
    )
    before = heavy.post()

    differs = project.fleet("plan")
    applied = project.fleet("export", "debusine", "--apply")
    later = heavy.post()
    plan = project.fleet("plan")
    said = project.fleet("explain", "request", str(later))
    unchanged = project.fleet("export", "debusine", "--diff")

    assert f"{place}: differs: 1 of 1 rule missing" in unwrapped(differs)
    assert f"Delivered to {place}: 1 added, 0 deleted" in applied
    assert POWERFUL not in tags_of(workspace.server, before)
    assert POWERFUL in tags_of(workspace.server, later)
    assert f"{place}: 1 rule active since 20" in unwrapped(plan)
    assert f"rules of debian, {place}: 1 rule active since 20" in unwrapped(said)
    assert unchanged == f"{place}: no change, 1 rule delivered\n"
    for number in (before, later):
        path = f"work-request/{number}/abort/"
        heavy.server.rest("POST", path, token=heavy.builder, scope=heavy.scope)


def tags_of(server: LiveServer, number: int) -> list[str]:
    """Return the tags that a request requires, as the server stored them."""
    statement: LiteralString = "SELECT scheduler_tags_required FROM db_workrequest WHERE id = %s"
    ((tags,),) = server.sql(statement, (number,))
    return list(tags)
