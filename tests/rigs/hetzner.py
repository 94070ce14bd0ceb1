"""Put servers into the simulated Hetzner cloud, as tests need them."""

from typing import Any

from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.servers import create_server

DEMO = {"fleet": "demo", "pool": "builders"}


def a_server(
    api: SimulatedHetzner,
    name: str = "demo-builders-0001",
    labels: dict[str, str] | None = None,
    **overrides: object,
) -> dict[str, Any]:
    """Make a running server that belongs to the pool builders of fleet demo, and return it."""
    body = {
        "name": name,
        "server_type": "ccx33",
        "image": "debian-13",
        "location": "fsn1",
        "labels": DEMO if labels is None else labels,
    }
    reply = create_server(api.state, body)
    assert reply.content is not None
    server: dict[str, Any] = reply.content["server"]
    api.state.settle()
    server |= overrides
    return server
