"""This module gives tests a real Debusine server, one per session; all of them carry `live`.

What a test posts and registers stays until somebody resets the database: a test that counts what
is in it asks for `empty_server`, another keeps to a workspace and names of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.chroot import Impossible, built, locked
from tests.live.debusine import Server
from tests.live.project import Access
from tests.live.relay import Relay
from tests.live.workspace import Workspace, make_workspace

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.live)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a running server with its scheduler; the tests' folders are seen in its chroot."""
    try:
        root = built()
    except Impossible as reason:
        pytest.skip(str(reason))
    with locked(root):
        running = Server(root, tmp_path_factory.getbasetemp())
        try:
            running.start()
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="session")
def workspace(server: Server) -> Workspace:
    """Return the private workspace debian/builds, which every test may post to."""
    return make_workspace(server)


@pytest.fixture(scope="session")
def access(server: Server) -> Iterator[Access]:
    """Return relays to the server and its database, and the DSNs that lead through them."""
    http = Relay(server.http_port, held=b"POST /api/1.0/artifact/")
    sql = Relay(server.sql_port)
    dsn = server.dsn.replace(f":{server.sql_port}/", f":{sql.port}/")
    yield Access(http, sql, reader=dsn, admin=dsn)
    for relay in (http, sql):
        relay.close()
