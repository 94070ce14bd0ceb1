"""A stand-in for Debusine's task-configuration API (0.16.2), on the loopback.

It does what a real server was seen to do, and tests/live/test_rules.py holds both to one suite: a
post replaces all entries, and one is unchanged only if it comes back with the keys it was stored
with.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.rigs.loopback import Answer, Loopback, Received

OWNER, VIEWER = "an-owner", "a-viewer"
_CATEGORY = "debusine:task-configuration"
_FULL: dict[str, Any] = {
    **dict.fromkeys(("task_type", "task_name", "subject", "context", "path", "position")),
    "tags_provided": [],
    "tags_required": [],
    "template": None,
    "use_templates": [],
    "delete_values": [],
    "default_values": {},
    "override_values": {},
    "lock_values": [],
    "provide_tags": [],
    "require_tags": [],
    "comment": "",
}
_PAGE = 50


@dataclass
class TaskConfiguration:
    """What the stand-in keeps: workspace to its entries, as they were posted."""

    entries: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"debian/builds": []})
    meanwhile: list[dict[str, Any]] = field(default_factory=list)
    """Entries that somebody else pushes just before a post."""
    posts_before: int = 0
    """How many posts go before theirs."""

    lost_at_change: str = ""
    """A workspace that answers until something is to change there."""
    instead: Callable[[Received], Answer | None] = lambda _: None
    """What else the server answers."""

    def configure(self, provided: set[str], required: set[str]) -> tuple[list[str], list[str]]:
        """Return the tags that a request in debian/builds gets that is posted now."""
        for entry in self.entries["debian/builds"]:
            fits = {*entry.get("tags_provided", [])} <= provided
            if fits and {*entry.get("tags_required", [])} <= required:
                provided = provided | {*entry.get("provide_tags", [])}
                required = required | {*entry.get("require_tags", [])}
        return sorted(provided), sorted(required)

    def serve(self) -> Loopback:
        """Return the server, not yet started."""
        return Loopback(self._answer)

    def _answer(self, received: Received) -> Answer:
        return self.instead(received) or self._refusal(received) or self._answer_known(received)

    def _refusal(self, received: Received) -> Answer | None:
        token = received.headers.get("token")
        if token not in (OWNER, VIEWER):
            return _problem(403, "Authentication credentials were not provided.")
        if received.body and token != OWNER:
            return _problem(403, "viewer cannot edit task configuration in debian/builds")
        return None

    def _answer_known(self, received: Received) -> Answer:
        parts = unquote(received.path).strip("/").split("/")[2:]
        place = f"{received.headers.get('x-debusine-scope', 'debusine')}/{parts[1]}"
        name = parts[2] if parts[0] == "task-configuration" else parts[3]
        if place not in self.entries or name != "default":
            return _problem(404, "Collection not found")
        if parts[0] == "collection":
            return self._items(place, int(received.query.get("page", "1")))
        collection = {"id": 8, "name": "default", "data": {}}
        if not received.body:
            items = [{**_FULL, **entry} for entry in self.entries[place]]
            return _json({"collection": collection, "items": items})
        return self._post(place, json.loads(received.body))

    def _items(self, place: str, page: int) -> Answer:
        found = self.entries[place]
        shown = found[(page - 1) * _PAGE : page * _PAGE]
        more = f"http://elsewhere/?page={page + 1}" if page * _PAGE < len(found) else None
        rows = [{"name": _name(each), "category": _CATEGORY, "data": each} for each in shown]
        return _json({"count": len(found), "next": more, "previous": None, "results": rows})

    def _post(self, place: str, body: dict[str, Any]) -> Answer:
        if self.posts_before == 0:
            self.entries[place] += self.meanwhile
            self.meanwhile = []
        self.posts_before -= 1
        if place == self.lost_at_change and not body["dry_run"]:
            return _problem(500, "Error")
        items, old = body["items"], self.entries[place]
        names = [_name(item) for item in items]
        if any(item.keys() - _FULL.keys() for item in items) or len({*names}) < len(names):
            return _problem(400, "Error")
        removed = [entry for entry in old if entry not in items]
        added = [item for item in items if item not in old]
        updated = len({_name(each) for each in added} & {_name(each) for each in removed})
        if not body["dry_run"]:
            self.entries[place] = [entry for entry in old if entry in items] + added
        return _json(
            {
                "added": len(added) - updated,
                "updated": updated,
                "removed": len(removed) - updated,
                "unchanged": len(old) - len(removed),
            }
        )


def _name(entry: dict[str, Any]) -> str:
    if entry.get("path"):
        return f"{entry['path']}:{entry.get('position') or 0}"
    return f"{entry.get('task_type')}:{entry.get('task_name')}::"


def _json(value: object) -> Answer:
    return Answer(200, json.dumps(value).encode())


def _problem(status: int, title: str) -> Answer:
    return Answer(
        status,
        json.dumps({"title": title}).encode(),
        {"Content-Type": "application/problem+json"},
    )
