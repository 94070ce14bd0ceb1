"""Requests, replies and errors of the simulated Hetzner API."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Resource = dict[str, Any]
"""A resource in the API's own form."""


@dataclass(frozen=True)
class Request:
    """A question; `path` begins behind the version, as in `/servers/17`."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def first(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else None


@dataclass(frozen=True)
class Reply:
    """An answer; without content where there is none."""

    status: int
    content: Resource | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return the content as it is sent."""
        return b"" if self.content is None else json.dumps(self.content).encode()


class Refused(Exception):
    """The API says no, with a code that clients know."""

    def __init__(self, status: int, code: str, message: str, details: object = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def reply(self) -> Reply:
        """Return the error in the API's form."""
        error = {"code": self.code, "message": self.message, "details": self.details}
        return Reply(self.status, {"error": error})


def invalid(name: str, why: str) -> Refused:
    """Return what the API says of a field that it does not take."""
    return Refused(
        422,
        "invalid_input",
        f"invalid input in field '{name}'",
        {"fields": [{"name": name, "messages": [why]}]},
    )


def not_found(what: str, key: object) -> Refused:
    """Return what the API says of what does not exist."""
    return Refused(404, "not_found", f"{what} with ID '{key}' not found")


def listed(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return a field that is a list, empty where it is left out; Refused where it is none."""
    value = body.get(name) or []
    if not isinstance(value, list):
        raise invalid(name, "must be a list")
    return value


def objects(body: Mapping[str, Any], name: str) -> list[Resource]:
    """Return a field that is a list of objects; Refused where it is none."""
    found = listed(body, name)
    if not all(isinstance(each, dict) for each in found):
        raise invalid(name, "must be a list of objects")
    return found
