"""Make a workspace of a Debusine server, with people in it, and post work to it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, LiteralString

from tests.live.debusine import Server

NOBODY = "worker:class:nobody"
"""A tag that no worker provides: what requires it waits until the end of the session."""


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

    def beside(self, name: str) -> "Workspace":
        """Make another private workspace of the scope, with the same people in the same roles."""
        self.server.admin_all(
            ("workspace", "define", f"{self.scope}/{name}", f"{self.name}-owners", "--private"),
            ("workspace", "grant_role", f"{self.scope}/{name}", "viewer", f"{self.name}-viewers"),
        )
        return replace(self, name=name)

    def configure_tasks(self, text: str, home: Path) -> None:
        """Push entries of task configuration as an owner of the workspace does.

        `home` is an empty folder that the server's chroot sees.
        """
        config = home / ".config/debusine/client/config.ini"
        config.parent.mkdir(parents=True)
        config.write_text(
            f"[General]\ndefault-server = live\n[server:live]\napi-url = {self.server.url}/api\n"
            f"scope = {self.scope}\ntoken = {self.builder}\n",
            encoding="utf-8",
        )
        checkout = ("--workdir", str(home / "checkout"))
        collection = ("default@debusine:task-configuration", "--workspace", self.name)
        self._client(home, "collection", "create", *collection)
        self._client(home, "task-config", "pull", "--workspace", self.name, *checkout, "default")
        (home / "checkout" / "fleet.yaml").write_text(text, encoding="utf-8")
        self._client(home, "task-config", "push", *checkout)

    def statuses(self) -> dict[str, int]:
        """Return how many requests of this workspace have each status, as the database says."""
        statement: LiteralString = (
            "SELECT r.status, count(*) FROM db_workrequest r"
            " JOIN db_workspace w ON w.id = r.workspace_id JOIN db_scope s ON s.id = w.scope_id"
            " WHERE s.name = %s AND w.name = %s GROUP BY 1"
        )
        return dict(self.server.sql(statement, (self.scope, self.name)))

    def _client(self, home: Path, *args: str) -> None:
        self.server.inside.run("root", "env", f"HOME={home}", "debusine", *args)

    def _ask(self, method: str, path: str, body: object) -> Any:  # noqa: ANN401 - it is JSON
        return self.server.rest(method, path, token=self.builder, scope=self.scope, body=body)


def make_workspace(server: Server, scope: str = "debian", name: str = "builds") -> Workspace:
    """Make a scope with one private workspace, whose builder may raise priorities."""
    owners, viewers = f"{name}-owners", f"{name}-viewers"
    builder, viewer = f"{scope}-builder", f"{scope}-viewer"
    printed = server.admin_all(
        ("scope", "create", scope),
        *(("user", "create", user, f"{user}@example.org") for user in (builder, viewer)),
        ("group", "create", f"{scope}/{owners}"),
        ("group", "create", f"{scope}/{viewers}"),
        ("workspace", "define", f"{scope}/{name}", owners, "--private"),
        ("group", "members", f"{scope}/{owners}", "--add", builder),
        ("group", "members", f"{scope}/{viewers}", "--add", viewer),
        ("workspace", "grant_role", f"{scope}/{name}", "viewer", viewers),
        ("create_token", builder),
        ("create_token", viewer),
    )
    # No command gives this right; without it a request's priority can only be lowered.
    server.sql(
        "INSERT INTO db_user_user_permissions (user_id, permission_id)"
        " SELECT u.id, p.id FROM db_user u, auth_permission p"
        " WHERE u.username = %s AND p.codename = 'manage_workrequest_priorities'"
        " ON CONFLICT DO NOTHING",
        (builder,),
    )
    return Workspace(server, scope, name, builder=printed[-2], viewer=printed[-1])
