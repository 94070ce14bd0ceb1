"""Read instances back from what an engine recorded.

It needs no pulumi: reading a stack does not run its program.
"""

from collections.abc import Mapping
from typing import Any

INSTANCE = "aws:ec2/instance:Instance"
NOTES = ("commit", "expires")
"""Tags that change later without the stack, and say nothing of what an instance is made from."""
MARK = "fleet"
PARTS = {"aws:ec2/launchTemplate:LaunchTemplate": "template"}
"""What a base stack holds for instances to share, by its type; the rest comes with it."""


def recorded(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the worker that a resource was declared for; None when it is not an instance."""
    if kind != INSTANCE:
        return None
    tags = {key.removeprefix(f"{MARK}:"): text for key, text in inputs["tags"].items()}
    labels = {key: text for key, text in tags.items() if key not in NOTES}
    settings = {
        "template": inputs["launchTemplate"]["name"],
        "subnet": inputs.get("subnetId", ""),
        "disk": str(int(inputs.get("rootBlockDevice", {}).get("volumeSize", 0)) or ""),
        "market": inputs.get("instanceMarketOptions", {}).get("marketType", ""),
    }
    return {
        "name": labels.pop("Name"),
        "type": inputs["instanceType"],
        "image": inputs["ami"],
        "architecture": labels.pop("architecture"),
        "labels": labels,
        "settings": {key: text for key, text in settings.items() if text},
    }
