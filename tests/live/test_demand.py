"""The same queue of a real server is the same demand over REST and over SQL."""

import secrets
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from fleet.model.facts import Demand, QueueReading
from fleet.queues.debusine.checkup import GrantDifference, compare, write_grants
from fleet.queues.debusine.connection import identify, reading
from fleet.queues.debusine.database import DebusineDatabase
from fleet.queues.debusine.rest import DebusineRest, RestSession, Walk
from fleet.queues.http import Reader
from fleet.schema.model import DebusineQueue, Fleet
from tests.builders import a_fleet, a_pool
from tests.builders.alike import grouped, told
from tests.live.debusine import Server
from tests.live.workspace import NOBODY, Workspace, make_workspace

SCOPE = "demand"
FLEETS = {
    "nothing but what is always looked at": {},
    "limits": {"tags": {"big": {"limits": {"per": {"submitter": 2, "scope": 4}}}}},
    "an allow-list": {"powerful": [{"match": "demand/.*", "ask": ["big"]}]},
    "a pool that requires tags": {
        "pools": {"builders": a_pool(requires=["task:workspace:demand:other"])}
    },
    "a place in task data": {"derive": [{"from": "result", "ask": "ends-{value}"}]},
}


class Role(NamedTuple):
    """A role of the server's database that may read it."""

    role: str
    dsn: str


@pytest.fixture(scope="module")
def filled(server: Server) -> Workspace:
    """Return a scope of its own with requests in two workspaces, which no worker takes."""
    workspace = make_workspace(server, SCOPE)
    other = workspace.beside("other")
    for priority in (0, 5, 0, 0):
        workspace.post("noop", priority=priority)
    for _ in range(2):
        other.post("noop", result="failure")
    keep_waiting(workspace)
    return workspace


@pytest.fixture(scope="module")
def reader(server: Server) -> Role:
    """Return a role with what `fleet debusine grants` prints."""
    role, password = f"reader_{secrets.token_hex(4)}", secrets.token_hex(8)
    server.superuser_sql(f"{write_grants(role)}ALTER ROLE {role} PASSWORD '{password}'")
    return Role(role, server.dsn_of(role, password))


@pytest.mark.parametrize("changes", FLEETS.values(), ids=FLEETS)
def test_rest_and_sql_have_equal_demand(
    filled: Workspace, reader: Role, changes: dict[str, object]
) -> None:
    fleet, now = a_fleet(**changes), datetime.now(UTC)

    over_sql = demand_of(over_sql_of(fleet, filled, reader).read(now))
    over_rest = demand_of(over_rest_of(fleet, filled).read(now))

    assert told(over_sql) == grouped(over_rest, fleet)
    assert sum(request.count for request in over_sql.requests) == 6


def test_list_is_read_from_both_ends_until_they_meet(server: Server) -> None:
    workspace = make_workspace(server, "long")
    posted = [workspace.post("noop") for _ in range(35)]
    keep_waiting(workspace)

    with Reader(server.url) as web:
        asking, walk = RestSession(web, workspace.viewer), Walk("long")
        walk.take(asking.page(walk))
        walk.turn_around()
        walk.take(asking.page(walk))
        both_ends = sorted(walk.rows)
        while not walk.done:
            walk.take(asking.page(walk))

    assert both_ends == [*posted[:10], *posted[-10:]]
    assert sorted(walk.rows) == posted


def test_tables_match_installed_version(reader: Role) -> None:
    with reading(reader.dsn) as connection:
        assert identify(connection) == "0.16.2"


def test_reader_role_has_exactly_the_required_rights(reader: Role) -> None:
    with reading(reader.dsn) as connection:
        assert compare(connection) == GrantDifference(role=reader.role, missing=(), excess=())


def keep_waiting(workspace: Workspace) -> None:
    """Have all requests of a scope wait, whoever is connected: nobody provides this tag."""
    workspace.server.sql(
        "UPDATE db_workrequest r SET scheduler_tags_required = r.scheduler_tags_required || %s"
        " FROM db_workspace w JOIN db_scope s ON s.id = w.scope_id"
        " WHERE w.id = r.workspace_id AND s.name = %s",
        ([NOBODY], workspace.scope),
    )


def over_sql_of(fleet: Fleet, workspace: Workspace, reader: Role) -> DebusineDatabase:
    return DebusineDatabase(fleet, queue_of(workspace), reader.dsn)


def over_rest_of(fleet: Fleet, workspace: Workspace) -> DebusineRest:
    paths = [rule.from_ for rule in fleet.derive if rule.from_ is not None]
    return DebusineRest(queue_of(workspace), workspace.viewer, paths=paths)


def queue_of(workspace: Workspace) -> DebusineQueue:
    return DebusineQueue(kind="debusine", url=workspace.server.url, scopes=[workspace.scope])


def demand_of(found: QueueReading) -> Demand:
    assert isinstance(found.demand, Demand), found.demand
    return found.demand
