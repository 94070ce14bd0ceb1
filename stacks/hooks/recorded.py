"""Read machines of commands back from what an engine recorded.

It needs no pulumi: reading a stack does not run its program.
"""

from collections.abc import Mapping
from typing import Any

MACHINE = "hooks:index:Machine"
KEYS = ("name", "type", "image", "architecture", "labels", "settings")


def recorded(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the worker that a resource was declared for; None when it is not a machine."""
    return {key: inputs[key] for key in KEYS} if kind == MACHINE else None
