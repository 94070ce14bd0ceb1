"""The server that all live tests rest on."""

from tests.live.debusine import Server
from tests.live.workspace import Workspace


def test_the_server_is_the_debusine_that_fleet_is_written_for(server: Server) -> None:
    package = ("dpkg-query", "--show", "--showformat=${Version}", "debusine-server")

    assert server.inside.run("root", *package).startswith("0.16.2")


def test_a_posted_request_waits_with_the_tags_that_debusine_gives_it(workspace: Workspace) -> None:
    number = workspace.post("noop", priority=7)

    assert workspace.server.sql(
        "SELECT status, priority_base + priority_adjustment, scheduler_tags_required"
        " FROM db_workrequest WHERE id = %s",
        (number,),
    ) == [("pending", 7, ["worker:task:worker:noop:version:1", "worker:type:external"])]
