"""This module hears a build that runs in a process of its own, and makes its failure readable."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.errors import BuildFailed
from fleet.images.bake import Order
from fleet.images.memory import FULL


def read_messages(
    child: "subprocess.Popen[bytes]", order: Order, step: Callable[[dict[str, Any]], None]
) -> Any:  # noqa: ANN401 - JSON
    """Give a build its order, tell each step, and return its result; raises BuildFailed."""
    if child.stdin is None or child.stdout is None:
        raise TypeError(child)
    with child.stdin, child.stdout:
        try:
            child.stdin.write(order.model_dump_json().encode())
            child.stdin.close()
        except BrokenPipeError:
            pass  # why it ended already stands in the log
        for line in child.stdout:
            message = json.loads(line)
            if "baked" in message:
                return message["baked"]
            if "error" in message:
                raise BuildFailed(_told(message["error"], order))
            step(message)
    code = child.wait()
    said = order.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    raise BuildFailed(_told(f"the build ended with {code} and said last:\n  {said}", order))


def explained(error: str, images: Path) -> str:
    """Return an error with what to do where the disk is full."""
    if FULL not in error:
        return error
    return (
        f"{error}\nthere is no room for a build: it needs about 4 GiB under {images} meanwhile, "
        "and keeps bases of 1 GiB in all in the cache; free some, or set state.images or "
        "XDG_CACHE_HOME to folders with more"
    )


def _told(error: str, order: Order) -> str:
    where = "" if str(order.log) in error else f"\n{order.log} holds the whole log"
    return explained(error, order.folder.parent.parent) + where
