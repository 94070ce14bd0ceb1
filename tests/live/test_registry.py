"""Workers that fleet makes known are taken by the real server, over SQL and its admin command."""

import secrets
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from fleet.ports import Enrolment
from fleet.queues.debusine.registry import Channel, CommandChannel, DebusineRegistry, SqlChannel
from tests.live.debusine import Server
from tests.live.workspace import Workspace

NOOP = ["worker:task:worker:noop:version:1"]
_CANDIDATES = """
from debusine.db.models import Worker
from debusine.server.scheduler import get_candidate_work_requests
print(get_candidate_work_requests(Worker.objects.get(name={name!r})).count())
"""


class Place:
    """A registry of the real server, and machines that come to it."""

    def __init__(self, server: Server, channel: Channel, name: str) -> None:
        self.server = server
        self.name = name
        self.registry = DebusineRegistry("debian", "registry", channel)

    def enrol(self) -> str:
        """Return a token that lives for an hour."""
        expires = datetime.now(UTC) + timedelta(hours=1)
        return self.registry.enrol(
            Enrolment(worker=self.name, fleet="registry", pool="builders", expires=expires)
        )

    def register(self, token: str) -> httpx.Response:
        """Come as a machine does; the body's token is the one it makes up for itself."""
        self.own = secrets.token_hex(32)
        body = {"token": self.own, "fqdn": "somewhere", "worker_type": "external"}
        return self._ask("POST", "register/", token, body)

    def tell(self, provides: list[str]) -> httpx.Response:
        """Tell the server what this worker can do."""
        return self._ask("PUT", "dynamic-metadata/", self.own, {"provided_tags": provides})

    def candidates(self) -> int:
        """Return how many requests the server's scheduler would choose among for the worker."""
        script = _CANDIDATES.format(name=self.name)
        return int(self.server.admin("shell", "-v0", stdin=script).splitlines()[-1])

    def _ask(self, method: str, path: str, token: str, body: object) -> httpx.Response:
        url = f"{self.server.url}/api/1.0/worker/{path}"
        return httpx.request(method, url, headers={"Token": token}, json=body, timeout=60)


@pytest.fixture(params=["sql", "command"])
def place(request: pytest.FixtureRequest, server: Server) -> Place:
    """Return both ways to tell the server, each with a worker of its own."""
    channel: Channel = (
        SqlChannel(lambda: server.dsn)
        if request.param == "sql"
        else CommandChannel(server.admin_command)
    )
    return Place(server, channel, f"registry-{secrets.token_hex(4)}-1")


def test_server_accepts_a_token_once(place: Place) -> None:
    token = place.enrol()

    assert [place.register(token).status_code for _ in range(2)] == [201, 400]


def test_server_refuses_revoked_token(place: Place) -> None:
    token = place.enrol()

    place.registry.revoke(place.name)

    assert place.register(token).status_code == 400


def test_second_machine_reuses_row_of_the_first(place: Place) -> None:
    find = "SELECT id FROM db_worker WHERE name = %s"
    place.register(place.enrol())
    (row,) = place.server.sql(find, (place.name,))
    place.registry.disable(place.name)

    second = place.register(place.enrol())

    assert second.status_code == 201
    assert place.server.sql(find, (place.name,)) == [row]
    assert place.tell(NOOP).status_code == 204


def test_drained_worker_has_no_candidate_requests(place: Place, workspace: Workspace) -> None:
    place.register(place.enrol())
    place.tell(NOOP)
    workspace.post("noop")
    before = place.candidates()

    place.registry.drain(place.name)
    drained = place.candidates()

    assert before > 0
    assert drained == 0
    place.registry.disable(place.name)


def test_server_refuses_connection_of_disabled_worker(place: Place) -> None:
    place.register(place.enrol())

    place.registry.disable(place.name)

    assert place.tell(NOOP).status_code == 403
