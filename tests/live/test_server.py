"""The server that all live tests rest on."""

from tests.live.debusine import Server
from tests.live.workspace import Workspace


def test_server_has_supported_version_of_debusine(server: Server) -> None:
    package = ("dpkg-query", "--show", "--showformat=${Version}", "debusine-server")

    assert server.inside.run("root", *package).startswith("0.16.2")


def test_posted_request_waits_with_tags_of_debusine(workspace: Workspace) -> None:
    number = workspace.post("noop", priority=7)

    assert workspace.server.sql(
        "SELECT status, priority_base + priority_adjustment, scheduler_tags_required"
        " FROM db_workrequest WHERE id = %s",
        (number,),
    ) == [("pending", 7, ["worker:task:worker:noop:version:1", "worker:type:external"])]
