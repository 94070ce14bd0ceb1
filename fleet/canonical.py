"""This module writes values in the one way that digests count: keys sorted, no spaces."""

import hashlib
import json
from typing import Any

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the one JSON text of a value: keys sorted, no spaces."""
    return _CANONICAL.encode(value)


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the SHA-256 of a value's canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
