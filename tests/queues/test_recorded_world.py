"""What the committed recording is: what a real Debusine answered, no secrets."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fleet.model.facts import World
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.http import Reader
from fleet.schema.model import DebusineQueue
from fleet.state.secrets import HostSecrets
from tests.rigs.debusine import serving
from tests.rigs.loopback import Answer, Loopback
from tests.rigs.replay import PENDING, RECORDED, Replay, read_exchange
from tools.record_world import TARGET, world_text

NOW = datetime(2026, 11, 21, 0, 15, tzinfo=UTC)


def test_committed_world_equals_the_recording() -> None:
    assert TARGET.read_text(encoding="utf-8") == world_text()
    assert TARGET.stat().st_size < 50_000


@pytest.mark.parametrize("name", PENDING)
def test_replayed_body_equals_recorded_one(name: str) -> None:
    asked = read_exchange(name).asked

    with Replay(name) as server, Reader(server.url) as reader:
        body = reader.get(asked.path, asked.query, asked.headers).body

    assert (RECORDED / f"{name}.http").read_bytes().endswith(b"\n<\n\n" + body + b"\n")


@pytest.fixture
def planted() -> Iterator[Loopback]:
    """Serve a request with secrets where careless people put them."""
    body = json.loads(read_exchange(PENDING[0]).answer.body)
    body["next"] = None
    body["results"][0]["task_data"] = {
        "build_architecture": "amd64",
        "environment": {"variables": {"PASSWORD": "canary-in-environment"}},
        "extra_repositories": [{"url": "https://me:canary-in-repository@example.org"}],
        "api_key": "canary-in-key",
    }
    body["results"][0]["dynamic_task_data"] = {"login": "canary-in-dynamic-data"}
    body["results"][0]["workflow_data"] = {"token": "canary-in-workflow"}
    listed = Answer(200, json.dumps(body).encode())
    with serving(listed, debian=len(body["results"])) as server:
        yield server


def _recorded(server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> str:
    queue = DebusineQueue.model_validate(
        {
            "kind": "debusine",
            "url": f"{server.url}/?key=canary-in-url",
            "scopes": ["debian"],
            "token": {"env": "DEBUSINE_TOKEN"},
        }
    )
    environment = {"DEBUSINE_TOKEN": "canary-in-token"}
    token = HostSecrets(environment, tmp_path_factory.mktemp("project")).read(queue.token)
    world = World(fleet="demo", time=NOW, queues={"debian": DebusineRest(queue, token).read(NOW)})
    return world.model_dump_json()


def test_no_secret_reaches_the_world(
    planted: Loopback, tmp_path_factory: pytest.TempPathFactory
) -> None:
    recorded = _recorded(planted, tmp_path_factory)

    assert '"task_data":{"build_architecture":"amd64",' in recorded
    assert planted.received[0].headers["token"] == "canary-in-token"
    assert "canary" not in recorded


@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 500])
def test_no_secret_reaches_the_world_when_the_server_fails(
    planted: Loopback, tmp_path_factory: pytest.TempPathFactory, status: int
) -> None:
    answer = Answer(status, b"your token canary-in-token is refused", {"Location": "/?canary"})
    planted.faults.instead["/api/1.0/work-request/"] = answer

    recorded = _recorded(planted, tmp_path_factory)

    assert '"unknown":' in recorded
    assert "canary" not in recorded
