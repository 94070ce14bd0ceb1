"""Servers that share a network, a firewall, an SSH key and a placement group."""

from fleet.guard import guard
from fleet.model.facts import Base, World
from fleet.model.plan import Plan
from fleet.planner.shared_stacks import parts_of
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_fleet, a_reading, a_request, a_world

NETWORK = {"ip_range": "10.20.0.0/16", "zone": "eu-central"}
RULE = {"protocol": "tcp", "port": "22", "ips": ["192.0.2.0/24"]}
SHARED = {
    "network": NETWORK,
    "firewall": [RULE],
    "ssh_keys": {"ana": "ssh-ed25519 AAAA"},
    "placement_group": "spread",
}
QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "admin": ["debusine-admin"],
}
IDS = {
    "firewall/debian-ci-hetzner-firewall": "2",
    "network/debian-ci-hetzner-network": "1",
    "placement_group/debian-ci-hetzner-spread": "4",
    "ssh_key/debian-ci-hetzner-key-ana": "3",
}


def a_sharing_fleet(**shared: object) -> Fleet:
    """Return a fleet whose servers share these parts."""
    provider = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
    images = {"trixie": {"existing": {"hetzner": "114690387"}}}
    return a_fleet(
        providers={"hetzner": provider | shared}, queues={"debian": QUEUE}, images=images
    )


def a_base(fleet: Fleet, **overrides: object) -> Base:
    """Return the base that holds what a fleet asks for."""
    parts = parts_of(fleet, "hetzner")
    ids = {part.key: IDS[part.key] for part in parts}
    return Base.model_validate({"serial": 1, "parts": parts, "ids": ids} | overrides)


def a_waiting_world(**overrides: object) -> World:
    """Return a world in which one request waits."""
    queues = {"debian": a_reading(a_request(), workers=())}
    return a_world(**({"queues": queues} | overrides))


def planned(fleet: Fleet, world: World) -> Plan:
    """Return the guarded plan."""
    return guard(fleet, reconcile(fleet, world))
