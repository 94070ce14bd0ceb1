"""JSON for people who review it: whatever fits on a line is written on one."""

import json
from typing import Any

WIDTH = 240


def compact_json(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return JSON with keys in order, an item of a list on a line of its own where it fits."""
    return f"{_format(value, 0)}\n"


def _format(value: Any, depth: int) -> str:  # noqa: ANN401 - any JSON
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not value or not isinstance(value, dict | list) or (depth and depth + len(line) <= WIDTH):
        return line
    if isinstance(value, list):
        opening, closing = "[]"
        rows = [_format(item, depth + 1) for item in value]
    else:
        opening, closing = "{}"
        rows = [f'"{key}": {_format(item, depth + 1)}' for key, item in sorted(value.items())]
    inner = ",\n".join(" " * (depth + 1) + row for row in rows)
    return f"{opening}\n{inner}\n{' ' * depth}{closing}"
