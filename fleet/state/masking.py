"""This module takes secrets out of what is said: of errors, of what commands complain of."""

import base64
import re
from collections.abc import Collection, Iterator
from urllib.parse import quote

_MASK = "***"
_SHORTEST = 4
"""A value shorter than this is no secret, and masking it would garble what is said."""
_LONG = r"[^\s\"']{16,}"


def mask(text: str, secrets: Collection[str]) -> str:
    """Return a text without these secrets: in clear, URL-encoded, or in base64."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _MASK)
    return text


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    data = secret.encode()
    # What base64 makes of it depends on where it stands in what is encoded.
    for before, first in enumerate((0, 2, 3)):
        encoded = base64.b64encode(bytes(before) + data).decode()
        core = encoded[first : (before + len(data)) * 8 // 6]
        if len(core) >= _SHORTEST:
            yield core
            yield core.replace("+", "-").replace("/", "_")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that are long enough to be tokens."""
    return frozenset(re.findall(_LONG, text))
