"""The simulated Hetzner fails as it is told to: in kind, at the moment, as often as ordered."""

import time
from collections.abc import Iterator

import httpx
import pytest

from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.rigs.hetzner import a_server
from tests.rigs.local_machines import until

SERVER = {"name": "one", "server_type": "ccx13", "image": "debian-13"}


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as simulated:
        yield simulated


@pytest.fixture
def client(api: SimulatedHetzner) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {api.token}"}
    with httpx.Client(base_url=api.url, headers=headers, timeout=5) as client:
        yield client


def test_refused_request_changes_nothing(api: SimulatedHetzner, client: httpx.Client) -> None:
    api.fail(Fault("POST", "/servers", status=500, count=1))

    failed, made = (client.post("/v1/servers", json=SERVER) for _ in range(2))

    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "server_error")
    assert (made.status_code, len(api.state.servers)) == (201, 1)


def test_rate_limit_reply_has_retry_after(api: SimulatedHetzner, client: httpx.Client) -> None:
    api.fail(Fault(code="rate_limit_exceeded", retry_after=7, count=1))

    refused, well = (client.get("/v1/servers") for _ in range(2))

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "7")
    assert refused.headers["RateLimit-Remaining"] == "0"
    assert well.headers["RateLimit-Remaining"] == "3599"


def test_fault_affects_the_configured_requests(
    api: SimulatedHetzner, client: httpx.Client
) -> None:
    api.fail(Fault("GET", "/servers", code="unavailable", after=1, count=2))

    statuses = [client.get("/v1/servers").status_code for _ in range(4)]

    assert statuses == [200, 503, 503, 200]


def test_permanent_fault_can_be_removed(api: SimulatedHetzner, client: httpx.Client) -> None:
    api.fail(Fault("*", "/servers*", status=401, count=None))

    before = [client.get("/v1/servers").status_code for _ in range(3)]
    api.heal()

    assert before == [401] * 3
    assert client.get("/v1/servers").status_code == 200


def test_fault_does_not_affect_other_paths_and_methods(
    api: SimulatedHetzner, client: httpx.Client
) -> None:
    api.fail(Fault("POST", "/servers/*", status=500, count=None))

    assert client.post("/v1/servers", json=SERVER).status_code == 201
    assert client.get("/v1/servers/1").status_code == 404


def test_reply_is_lost_after_execution(api: SimulatedHetzner, client: httpx.Client) -> None:
    api.fail(Fault("POST", "/servers", answer_lost=True, count=1))

    with pytest.raises(httpx.RemoteProtocolError):
        client.post("/v1/servers", json=SERVER)

    assert [each["name"] for each in api.state.servers.values()] == ["one"]


def test_refusal_may_follow_execution(api: SimulatedHetzner, client: httpx.Client) -> None:
    api.fail(Fault("POST", "/servers", status=504, done=True, count=1))

    answer = client.post("/v1/servers", json=SERVER)

    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    assert len(api.state.servers) == 1


def test_server_is_created_and_its_start_fails(
    api: SimulatedHetzner, client: httpx.Client
) -> None:
    api.fail(Fault("POST", "/servers", action_fails=True, count=1))

    (begun,) = client.post("/v1/servers", json=SERVER).json()["next_actions"]

    action = client.get(f"/v1/actions/{begun['id']}").json()["action"]
    assert (action["status"], action["error"]["code"]) == ("error", "action_failed")
    assert [each["status"] for each in api.state.servers.values()] == ["off"]


def test_reply_is_truncated(api: SimulatedHetzner, client: httpx.Client) -> None:
    api.fail(Fault("GET", "/servers", broken_off=True))

    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/v1/servers")


def test_half_page_has_total_of_complete_list(api: SimulatedHetzner, client: httpx.Client) -> None:
    for number in range(4):
        a_server(api, f"server-{number}")
    api.fail(Fault("GET", "/servers", half_page=True))

    page = client.get("/v1/servers").json()

    assert len(page["servers"]) == 2
    assert page["meta"]["pagination"]["total_entries"] == 4


def test_delayed_reply_follows_execution(api: SimulatedHetzner) -> None:
    api.fail(Fault("POST", "/servers", latency=60, count=1))
    headers = {"Authorization": f"Bearer {api.token}"}

    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{api.endpoint}/servers", json=SERVER, headers=headers, timeout=0.3)

    until(lambda: len(api.state.servers) == 1)


def test_server_exit_releases_delayed_replies() -> None:
    began = time.monotonic()

    with SimulatedHetzner() as api:
        api.fail(Fault(latency=60, count=1))
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(
                f"{api.endpoint}/servers",
                headers={"Authorization": f"Bearer {api.token}"},
                timeout=0.1,
            )

    assert time.monotonic() - began < 30


def test_each_request_is_recorded_before_and_after_execution(
    api: SimulatedHetzner, client: httpx.Client
) -> None:
    seen: list[tuple[str, str, int]] = []

    def watch(moment: str, request: Request) -> None:
        seen.append((moment, request.method, len(api.state.servers)))

    api.watch = watch
    client.post("/v1/servers", json=SERVER)

    assert seen == [("asked", "POST", 0), ("done", "POST", 1)]


def test_faults_are_set_and_removed_over_http(client: httpx.Client) -> None:
    fault = {"method": "GET", "path": "/servers", "status": 500, "count": None}

    ordered = client.post("/sim/faults", json=fault)
    failing = client.get("/v1/servers").status_code
    client.delete("/sim/faults")

    assert (ordered.status_code, failing) == (204, 500)
    assert client.get("/v1/servers").status_code == 200


def test_stock_and_limits_are_set_over_http(api: SimulatedHetzner, client: httpx.Client) -> None:
    client.put("/sim/stock", json={"ccx13": 0})
    client.put("/sim/limits", json={"servers": 3})

    assert (api.state.stock, api.state.limits) == ({"ccx13": 0}, {"servers": 3})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/sim/faults", {"colour": "red"}, 422),
        ("POST", "/sim/weather", {}, 404),
        ("GET", "/servers", {}, 404),
        ("GET", "/v1/volumes", {}, 404),
        ("POST", "/v1/servers/7/actions/poweron", {}, 404),
        ("PUT", "/v1/locations/1", {}, 405),
        ("GET", "/v1/servers?per_page=51", {}, 422),
        ("GET", "/v1/servers?sort=colour", {}, 422),
        ("GET", "/v1/servers?page=0", {}, 422),
    ],
)
def test_unsupported_request_is_refused(
    client: httpx.Client, method: str, path: str, body: dict[str, object], status: int
) -> None:
    assert client.request(method, path, json=body).status_code == status


@pytest.mark.parametrize("body", ["[]", "{", "7"])
def test_body_that_is_not_an_object_is_refused(client: httpx.Client, body: str) -> None:
    answer = client.post("/v1/servers", content=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "json_error")


def test_control_requests_require_the_token(api: SimulatedHetzner) -> None:
    assert httpx.delete(f"{api.url}/sim/faults").status_code == 401
