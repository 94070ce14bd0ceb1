"""Everything that exists in one simulated Hetzner project.

Resources are kept in the API's own form. User data is kept in memory only: the API never tells
it, and a file of it would hold activation tokens.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet.errors import StoreFailed
from fleet.state.files import replace_file
from simulators.hetzner.catalogue import datacenters, locations, server_types, system_images
from simulators.hetzner.labels import check_labels
from simulators.hetzner.wire import Refused, Resource, invalid, not_found

KINDS = {
    "servers": "server",
    "images": "image",
    "ssh_keys": "ssh_key",
    "networks": "network",
    "firewalls": "firewall",
    "placement_groups": "placement_group",
    "actions": "action",
    "locations": "location",
    "datacenters": "datacenter",
    "server_types": "server_type",
}
"""What can be listed, and what one of it is called."""

_OWN = ("servers", "images", "ssh_keys", "networks", "firewalls", "placement_groups", "actions")
_NEXT = {"initializing": "running", "starting": "running", "stopping": "off"}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Project:
    """The resources of one project, by kind and id, and what it may have of each."""

    def __init__(self, now: Callable[[], datetime] = _utc_now) -> None:
        self._now = now
        self.resources: dict[str, dict[int, Resource]] = {kind: {} for kind in _OWN}
        self.resources |= {
            "locations": locations(),
            "datacenters": datacenters(),
            "server_types": server_types(),
            "images": system_images(self.time()),
        }
        self.user_data: dict[int, str] = {}
        """What each server was given, by its id."""
        self.limits: dict[str, int] = {}
        """How many of a kind there may be; without an entry any number."""
        self.stock: dict[str, int] = {}
        """How many servers of a type are left; without an entry any number."""
        self.rescue: dict[int, list[int]] = {}
        """The ssh keys of servers that boot the rescue system next."""
        self.in_rescue: dict[int, list[int]] = {}
        """The same of servers that run it."""
        self.address: str | None = None
        """The public address of every new server, where a machine does stand behind it."""
        self.on_loopback = False
        """Whether each new server has an address of this computer's own, in 127.0.0.0/8."""
        self.frozen = False
        """Whether nothing that was begun comes to its end: servers stay `initializing`."""
        self._last = 1000

    @property
    def servers(self) -> dict[int, Resource]:
        """Return the servers, by id."""
        return self.resources["servers"]

    def time(self) -> str:
        """Return the time of now as the API writes it."""
        return self._now().astimezone(UTC).isoformat(timespec="seconds")

    def new_id(self) -> int:
        """Return an id that nothing has had before."""
        self._last += 1
        return self._last

    def named(self, kind: str, name: str) -> Iterator[Resource]:
        """Yield what bears a name; images may share one across architectures."""
        return (each for each in self.resources[kind].values() if each.get("name") == name)

    def get(self, kind: str, key: object) -> Resource:
        """Return the one of this id."""
        found = self._of_id(kind, key)
        if found is None:
            raise not_found(KINDS[kind], key)
        return found

    def pick(self, kind: str, key: object, field: str) -> Resource:
        """Return what a field of a body names, by id or name."""
        found = self._of_id(kind, key) or next(self.named(kind, str(key)), None)
        if found is None:
            raise invalid(field, f"there is no {KINDS[kind]} {key!r}")
        return found

    def check_new(self, kind: str, name: str) -> None:
        """Refuse a name that is taken, or one more than there may be."""
        if any(self.named(kind, name)):
            raise Refused(
                409, "uniqueness_error", f"{KINDS[kind]} name is already used", {"fields": []}
            )
        if len(self.resources[kind]) >= self.limits.get(kind, 1 << 60):
            raise Refused(403, "resource_limit_exceeded", f"{KINDS[kind]} limit exceeded")

    def add(self, kind: str, fields: Resource) -> Resource:
        """Keep a new resource, giving it an id and the time of its creation."""
        made = {"id": self.new_id(), "created": self.time(), **fields}
        self.resources[kind][made["id"]] = made
        return made

    def rename(self, kind: str, resource: Resource, body: Any) -> None:  # noqa: ANN401 - JSON
        """Change the name and the labels of a resource, as far as a body names them."""
        name = body.get("name")
        if name and name != resource["name"]:
            if any(self.named(kind, name)):
                raise Refused(409, "uniqueness_error", f"{KINDS[kind]} name is already used")
            resource["name"] = name
        if body.get("labels") is not None:
            resource["labels"] = check_labels(body["labels"])

    def begin(self, command: str, *touched: tuple[str, Resource]) -> Resource:
        """Return a new action that runs until the next request."""
        action: Resource = {
            "id": self.new_id(),
            "command": command,
            "status": "running",
            "progress": 0,
            "started": self.time(),
            "finished": None,
            "resources": [{"id": each["id"], "type": kind} for kind, each in touched],
            "error": None,
        }
        self.resources["actions"][action["id"]] = action
        return dict(action)

    def fail_last(self) -> None:
        """End the last action in an error; a server that it was to start stays off."""
        action = self.resources["actions"][max(self.resources["actions"])]
        error = {"code": "action_failed", "message": "this failure was ordered"}
        action |= {"status": "error", "finished": self.time(), "error": error}
        for touched in action["resources"]:
            if action["command"] == "start_server":
                self.servers[touched["id"]]["status"] = "off"

    def settle(self) -> None:
        """End what earlier requests have begun."""
        if self.frozen:
            return
        for action in self.resources["actions"].values():
            if action["status"] == "running":
                action |= {"status": "success", "progress": 100, "finished": self.time()}
        for server in self.servers.values():
            server["status"] = _NEXT.get(server["status"], server["status"])
        for image in self.resources["images"].values():
            image["status"] = "available"

    def save(self, path: Path) -> None:
        """Write everything but user data, as a whole or not at all."""
        kept = {
            "resources": {kind: list(self.resources[kind].values()) for kind in _OWN},
            "limits": self.limits,
            "stock": self.stock,
            "last_id": self._last,
        }
        replace_file(path, json.dumps(kept, indent=1).encode(), mode=0o600)

    def load(self, path: Path) -> None:
        """Read what an earlier run saved; a file that does not exist holds nothing."""
        if not path.exists():
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            for kind in _OWN:
                self.resources[kind] = {each["id"]: each for each in kept["resources"][kind]}
            self.limits, self.stock = dict(kept["limits"]), dict(kept["stock"])
            self._last = int(kept["last_id"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise StoreFailed(
                f"{path} is no state of the simulated Hetzner cloud ({error}); name another "
                "file, or delete this one to begin with an empty project"
            ) from error

    def _of_id(self, kind: str, key: object) -> Resource | None:
        return self.resources[kind].get(int(str(key))) if str(key).isdecimal() else None
