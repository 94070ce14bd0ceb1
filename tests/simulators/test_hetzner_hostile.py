"""The simulated API answers whatever it is asked; its own fault is an answer and a line of log."""

import json
import logging
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from simulators.hetzner.server import SimulatedHetzner
from tests.faults.hostile import HOSTILE, NUMBERS, TIMES

JUNK: tuple[object, ...] = (None, True, [], {}, [[]], [1], *NUMBERS, *HOSTILE, *TIMES)
PATHS = ("servers", "ssh_keys", "networks", "firewalls", "placement_groups", "images/1")
ACTIONS = ("networks/1/actions/add_subnet", "firewalls/1/actions/set_rules")
BODY: dict[str, Any] = {
    "name": "x",
    "labels": {"a": "b"},
    "server_type": "cax11",
    "image": "debian-13",
    "public_net": {"enable_ipv4": False},
    "ip_range": "10.0.0.0/16",
    "subnets": [{"type": "cloud", "ip_range": "10.0.0.0/24"}],
    "rules": [{"direction": "in", "protocol": "tcp", "port": "22", "source_ips": ["0.0.0.0/0"]}],
    "apply_to": [{"type": "server", "server": {"id": 1}}],
    "firewalls": [{"firewall": 1}],
    "type": "spread",
}


def ask(api: SimulatedHetzner, method: str, path: str, body: bytes) -> int:
    asked = Request(f"{api.endpoint}/{path}", body, method=method)  # noqa: S310 - http
    asked.add_header("Authorization", f"Bearer {api.token}")
    try:
        with urlopen(asked, timeout=30) as answer:  # noqa: S310 - same
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_random_requests_cause_no_server_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    random = Random(19)  # noqa: S311 - to be repeated
    with SimulatedHetzner() as api:
        for _ in range(300):
            body = dict(BODY)
            for key in random.sample(sorted(body), 2):
                body[key] = random.choice(JUNK)
            content = random.choice((json.dumps(body).encode(), b"[", b"\xff", b"[]"))
            path = random.choice((*PATHS, *PATHS, *ACTIONS))
            assert ask(api, random.choice(("POST", "POST", "PUT")), path, content) < 500

    assert not caplog.records


def test_internal_error_is_status_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with SimulatedHetzner() as api, caplog.at_level(logging.ERROR):
        del api.state.resources["servers"]

        assert ask(api, "POST", "servers", json.dumps(BODY).encode()) == 500

    assert [record.message for record in caplog.records] == ["POST /v1/servers"]
