"""This module is a written fake of Hetzner Cloud's API, as far as fleet uses it."""

import json
from typing import Any

from tests.loopback import Answer, Loopback, Received


def a_server(labels: dict[str, str] | None = None, **overrides: object) -> dict[str, Any]:
    """Return a server in the API's form; by default of the pool builders of fleet demo."""
    server = {
        "id": 1,
        "name": "demo-builders-1",
        "status": "running",
        "created": "2026-11-21T08:00:00+00:00",
        "labels": {"fleet": "demo", "pool": "builders"} if labels is None else labels,
        "server_type": {"id": 104, "name": "ccx33", "cores": 8, "memory": 32.0, "disk": 240},
        "image": {"id": 114690387, "name": "debian-13", "type": "system"},
        "public_net": {"ipv4": {"id": 1, "ip": "203.0.113.5"}, "ipv6": None, "floating_ips": []},
        "private_net": [],
    }
    return server | overrides


class FakeHcloud(Loopback):
    """The API at `endpoint`, open to one made-up token."""

    token = "made-up-hcloud-token"

    def __init__(self, *servers: dict[str, Any]) -> None:
        super().__init__(self._route)
        self.servers = list(servers)
        self.endpoint = f"{self.url}/v1"
        self.hidden = 0
        """How many servers at the end of the list are counted but left out: half a listing."""

    def _route(self, received: Received) -> Answer:
        if received.headers.get("authorization") != f"Bearer {self.token}":
            return _failure(401, "unauthorized")
        if received.path == "/v1/servers":
            return self._list_servers(received)
        return _failure(404, "not_found")

    def _list_servers(self, received: Received) -> Answer:
        key, _, value = received.query.get("label_selector", "").partition("==")
        chosen = [
            server for server in self.servers if not key or server["labels"].get(key) == value
        ]
        chosen.sort(key=lambda server: int(server["id"]))
        page, size = int(received.query.get("page", 1)), int(received.query.get("per_page", 25))
        shown = chosen[: len(chosen) - self.hidden]
        last = max(1, -(-len(chosen) // size))
        pagination = {
            "page": page,
            "per_page": size,
            "previous_page": page - 1 if page > 1 else None,
            "next_page": page + 1 if page < last else None,
            "last_page": last,
            "total_entries": len(chosen),
        }
        body = {
            "servers": shown[(page - 1) * size : page * size],
            "meta": {"pagination": pagination},
        }
        return Answer(200, json.dumps(body).encode())


def _failure(status: int, code: str) -> Answer:
    body = {"error": {"code": code, "message": code, "details": None}}
    return Answer(status, json.dumps(body).encode())
