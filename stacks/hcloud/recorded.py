"""Read servers back from what an engine recorded.

It needs no pulumi: reading a stack does not run its program.
"""

from collections.abc import Mapping
from typing import Any

SERVER = "hcloud:index/server:Server"
NOTES = ("commit", "expires")
"""Labels that change later without the stack, and say nothing of what a server is made from."""
PARTS = {
    "hcloud:index/network:Network": "network",
    "hcloud:index/firewall:Firewall": "firewall",
    "hcloud:index/sshKey:SshKey": "ssh_key",
    "hcloud:index/placementGroup:PlacementGroup": "placement_group",
}
"""What a base stack holds for servers to share, by its type."""


def recorded(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the worker that a resource was declared for; None when it is not a server."""
    if kind != SERVER:
        return None
    # Of an adopted server, or after a refresh, inputs are what the provider reads of it.
    labels = {key: text for key, text in inputs["labels"].items() if key[:2] != "__"}
    labels = {key: text for key, text in labels.items() if key not in NOTES}
    settings = {
        "location": inputs["location"],
        "network_ids": " ".join(
            str(int(each["networkId"])) for each in inputs.get("networks", ())
        ),
        "firewall_ids": " ".join(str(int(each)) for each in inputs.get("firewallIds", ())),
        "ssh_keys": " ".join(inputs.get("sshKeys", ())),
        "placement_group_id": str(int(inputs.get("placementGroupId") or 0) or ""),
    }
    return {
        "name": inputs["name"],
        "type": inputs["serverType"],
        "image": inputs["image"],
        "architecture": labels.pop("architecture"),
        "labels": labels,
        "settings": {key: text for key, text in settings.items() if text},
    }
