"""Give tests a real Debusine server, one per process of tests; all of them carry `live`.

Each session begins with an empty database. What a test posts and registers stays in it until the
end of the session, so each keeps to a fleet, names or a workspace of its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.queues.debusine.checkup import write_grants
from tests.live.chroot import SECOND, Impossible, built, locked
from tests.live.debusine import DATABASE, Server
from tests.live.journal import Journal
from tests.live.project import Access, Project
from tests.live.relay import Relay
from tests.live.workspace import NOBODY, Workspace, make_workspace

HERE = Path(__file__).parent
FIRST = ("test_how_to.py", "test_calibration.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder; the page about a fresh server is replayed on one.

    What waits for minutes begins at once too, on the server of the other process.
    """
    for item in items:
        if item.path.is_relative_to(HERE) and "images_boot" not in item.keywords:
            item.add_marker(pytest.mark.live)
    items.sort(
        key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)
    )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Server]:
    """Return a running server with its scheduler; the tests' folders are seen in its chroot."""
    try:
        root = built(SECOND if worker_id == SECOND else "")
    except Impossible as reason:
        if "FLEET_LIVE" in os.environ:  # `nox -s live` has made sure that it is possible
            raise
        pytest.skip(str(reason))
    with locked(root):
        running = Server(root, tmp_path_factory.getbasetemp())
        try:
            running.start()
            yield running
        finally:
            running.stop()


@pytest.fixture(autouse=True)
def _nothing_left(server: Server) -> Iterator[None]:
    """Abort what a test leaves waiting: workers of the next test would run it."""
    yield
    server.sql(
        "UPDATE db_workrequest SET status = 'aborted', completed_at = now()"
        " WHERE status = 'pending' AND NOT %s = ANY(scheduler_tags_required)",
        (NOBODY,),
    )


@pytest.fixture(scope="session")
def workspace(server: Server) -> Workspace:
    """Return the private workspace debian/builds, which every test may post to."""
    return make_workspace(server)


@pytest.fixture(scope="session")
def access(server: Server) -> Iterator[Access]:
    """Return relays to the server and its database, and the DSNs that lead through them.

    The roles have exactly the rights that fleet itself says it needs.
    """
    http = Relay(server.http_port, held=b"POST /api/1.0/artifact/")
    sql = Relay(server.sql_port)
    server.superuser_sql(write_grants("live_ro") + write_grants("live_rw", admin=True))
    server.superuser_sql("ALTER ROLE live_ro PASSWORD 'ro'; ALTER ROLE live_rw PASSWORD 'rw';")
    at = f"127.0.0.1:{sql.port}/{DATABASE}"
    reader, admin = f"postgresql://live_ro:ro@{at}", f"postgresql://live_rw:rw@{at}"
    yield Access(http, sql, reader=reader, admin=admin)
    for relay in (http, sql):
        relay.close()


@pytest.fixture
def project(tmp_path: Path, workspace: Workspace, access: Access) -> Iterator[Project]:
    """Return a folder for a fleet about the real server; its machines end with the test."""
    made = Project(tmp_path, workspace, access)
    yield made
    access.http.release()
    made.end_machines()


@pytest.fixture
def journal(server: Server) -> Journal:
    """Return the journal of requests and workers that Debusine's database keeps."""
    return Journal(server)
