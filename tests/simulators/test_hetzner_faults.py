"""The simulated Hetzner fails as it is told to: in kind, at the moment, as often as ordered."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.rigs.hetzner import a_server
from tests.rigs.local_machines import until
from tests.rigs.stories import read_stories

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


@pytest.mark.parametrize("steps", read_stories(Path(__file__).parent / "exchanges"))
def test_requests_of_an_exchange_are_answered(
    api: SimulatedHetzner, client: httpx.Client, steps: list[str]
) -> None:
    answer: httpx.Response | None = None
    for step in steps:
        verb, _, rest = step.partition(" ")
        if verb == "fail":
            method, path, *keys = rest.split()
            said: dict[str, Any] = dict(each.split("=") for each in keys)
            given = {key: yaml.safe_load(value) for key, value in said.items()}
            api.fail(Fault(method, path, **({"count": None} | given)))
        elif verb == "heal":
            api.heal()
        elif verb == "servers":
            servers = api.state.servers.values()
            assert " ".join(f"{s['name']}={s['status']}" for s in servers) == rest, step
        elif verb == "header":
            assert answer is not None
            assert f"{rest.split()[0]} {answer.headers[rest.split()[0]]}" == rest
        else:
            asked, _, expected = step.partition(" -> ")
            answer, told = ask(client, asked)
            assert told == expected, step


def ask(client: httpx.Client, asked: str) -> tuple[httpx.Response | None, str]:
    """Send a request, and return the answer and what it says; `lost` where there is none."""
    verb, place, *body = asked.split(" ", 2)
    method, path = ("POST", "servers") if verb == "make" else (verb, place)
    path = path if path.startswith("/") else f"/v1/{path}"
    try:
        if verb == "make":
            answer = client.post(path, json=SERVER | {"name": place})
        else:
            answer = client.request(method, path, content=body[0] if body else None)
    except httpx.RemoteProtocolError:
        return None, "lost"
    code = answer.json()["error"]["code"] if answer.status_code >= 400 else ""
    return answer, f"{answer.status_code} {code}".rstrip()


def test_server_is_created_and_its_start_fails(
    api: SimulatedHetzner, client: httpx.Client
) -> None:
    api.fail(Fault("POST", "/servers", action_fails=True, count=1))

    (begun,) = client.post("/v1/servers", json=SERVER).json()["next_actions"]
    action = client.get(f"/v1/actions/{begun['id']}").json()["action"]

    assert (action["status"], action["error"]["code"]) == ("error", "action_failed")
    assert [each["status"] for each in api.state.servers.values()] == ["off"]


def test_delayed_reply_follows_execution_and_ends_with_the_server() -> None:
    began = time.monotonic()
    with SimulatedHetzner() as api:
        api.fail(Fault("POST", "/servers", latency=60, count=1))
        headers = {"Authorization": f"Bearer {api.token}"}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{api.endpoint}/servers", json=SERVER, headers=headers, timeout=0.3)
        until(lambda: len(api.state.servers) == 1)

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


def test_stock_and_limits_are_set_over_http(api: SimulatedHetzner, client: httpx.Client) -> None:
    client.put("/sim/stock", json={"ccx13": 0})
    client.put("/sim/limits", json={"servers": 4})

    assert (api.state.stock, api.state.limits) == ({"ccx13": 0}, {"servers": 4})
    assert httpx.delete(f"{api.url}/sim/faults").status_code == 401
    for number in range(4):
        a_server(api, f"server-{number}", server_type="ccx33")
    api.fail(Fault("GET", "/servers", half_page=True))
    page = client.get("/v1/servers").json()
    # It has the total of the whole list.
    assert (len(page["servers"]), page["meta"]["pagination"]["total_entries"]) == (2, 4)
