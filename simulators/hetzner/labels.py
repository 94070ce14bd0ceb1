"""Check labels and evaluate label selectors as Hetzner's API does."""

import re
from collections.abc import Callable, Mapping

from simulators.hetzner.wire import Refused, invalid

Labels = Mapping[str, str]
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:{_PREFIX}/)?{_PART}")
_VALUE = re.compile(rf"(?:{_PART})?")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^=!\s]*)")


def check_labels(labels: object) -> dict[str, str]:
    """Return labels as they are kept, or refuse them."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise invalid("labels", "must be an object")
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise invalid("labels", f"label key {key!r} is not correctly formatted")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise invalid("labels", f"label value {value!r} (key: {key}) is not formatted well")
    return dict(labels)


def read_selector(text: str) -> Callable[[Labels], bool]:
    """Return what tells whether labels match a selector; all of its requirements must hold."""
    requirements = [_requirement(part.strip()) for part in _split(text)]
    return lambda labels: all(holds(labels) for holds in requirements)


def _split(text: str) -> list[str]:
    # A comma inside parentheses separates values, not requirements.
    return re.split(r",(?![^(]*\))", text)


def _requirement(part: str) -> Callable[[Labels], bool]:
    if found := _SET.fullmatch(part):
        key, values = found["key"], {each.strip() for each in found["values"].split(",")}
        _check(part, key, *values)
        if found["how"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.fullmatch(part):
        key, value = found["key"], found["value"]
        _check(part, key, value)
        if found["how"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    key = part.removeprefix("!")
    _check(part, key)
    if part.startswith("!"):
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _check(part: str, key: str, *values: str) -> None:
    if not _KEY.fullmatch(key) or not all(map(_VALUE.fullmatch, values)):
        raise Refused(400, "invalid_input", f"label selector: {part!r} is not well formed")
