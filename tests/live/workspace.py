"""This module makes a workspace of a Debusine server, with people in it, and posts work to it."""

from dataclasses import dataclass, field
from typing import Any, LiteralString

from tests.live.debusine import Server

BUILDER = "builder"
VIEWER = "fleet"


@dataclass(frozen=True)
class Workspace:
    """A private workspace: a token of who builds in it, and one of who may only look at it."""

    server: Server
    scope: str
    name: str
    builder: str = field(repr=False)
    viewer: str = field(repr=False)

    def post(self, task: str = "noop", *, priority: int = 0, **data: object) -> int:
        """Have some work done and return the number of the request.

        A `noop` asks for no tags but its own, and ends at once.
        """
        body = {"task_name": task, "workspace": self.name, "task_data": data}
        posted = self._ask("POST", "work-request/", body)
        number = int(posted["id"])
        if priority:
            self._ask("PATCH", f"work-request/{number}/", {"priority_adjustment": priority})
        return number

    def statuses(self) -> dict[str, int]:
        """Return how many requests of this workspace have each status, as the database says."""
        statement: LiteralString = (
            "SELECT r.status, count(*) FROM db_workrequest r"
            " JOIN db_workspace w ON w.id = r.workspace_id JOIN db_scope s ON s.id = w.scope_id"
            " WHERE s.name = %s AND w.name = %s GROUP BY 1"
        )
        return dict(self.server.sql(statement, (self.scope, self.name)))

    def _ask(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - it is JSON
        return self.server.rest(method, path, token=self.builder, scope=self.scope, body=body)


def make_workspace(server: Server, scope: str = "debian", name: str = "builds") -> Workspace:
    """Make a scope with one private workspace, whose builder may raise priorities.

    In another scope the same people take part, with tokens of their own.
    """
    owners, viewers = f"{name}-owners", f"{name}-viewers"
    printed = server.admin_all(
        ("scope", "create", scope),
        *(("user", "create", user, f"{user}@example.org") for user in (BUILDER, VIEWER)),
        ("group", "create", f"{scope}/{owners}"),
        ("group", "create", f"{scope}/{viewers}"),
        ("workspace", "define", f"{scope}/{name}", owners, "--private"),
        ("group", "members", f"{scope}/{owners}", "--add", BUILDER),
        ("group", "members", f"{scope}/{viewers}", "--add", VIEWER),
        ("workspace", "grant_role", f"{scope}/{name}", "viewer", viewers),
        ("create_token", BUILDER),
        ("create_token", VIEWER),
    )
    # No command gives this right; without it a request's priority can only be lowered.
    server.sql(
        "INSERT INTO db_user_user_permissions (user_id, permission_id)"
        " SELECT u.id, p.id FROM db_user u, auth_permission p"
        " WHERE u.username = %s AND p.codename = 'manage_workrequest_priorities'"
        " ON CONFLICT DO NOTHING",
        (BUILDER,),
    )
    return Workspace(server, scope, name, builder=printed[-2], viewer=printed[-1])
