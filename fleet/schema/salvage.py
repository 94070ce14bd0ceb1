"""This module keeps what is right of a fleet.yaml that is partly wrong.

So a mistake in one pool does not hide a dangling reference in another.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from fleet.schema.findings import Path
from fleet.schema.model import Fleet
from fleet.schema.shape import follow

_ATTEMPTS = 10


def salvage(value: Mapping[str, object], error: ValidationError) -> Fleet | None:
    """Return the fleet without its wrong parts; None where too little is left."""
    rest: Any = deepcopy(dict(value))
    for _ in range(_ATTEMPTS):
        for mistake in error.errors(include_url=False, include_context=False, include_input=False):
            path = follow(Fleet, mistake["loc"]).path
            _remove(rest, path[:-1] if mistake["type"] == "missing" else path)
        rest.setdefault("fleet", "unnamed")
        try:
            return Fleet.model_validate(rest)
        except ValidationError as again:
            error = again
    return None  # pragma: no cover - every attempt removes something; this only bounds the loop


def _remove(rest: Any, path: Path) -> None:  # noqa: ANN401 - any data
    """Take a part away; a list goes as a whole, so that no position in it shifts."""
    whole = next((n for n, step in enumerate(path) if isinstance(step, int)), len(path))
    if whole == 0:
        return
    for step in path[: whole - 1]:
        rest = rest.get(step) if isinstance(rest, dict) else None
    if isinstance(rest, dict):
        rest.pop(path[whole - 1], None)
