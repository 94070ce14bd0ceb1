"""Boot simulated servers, from their disk or into the rescue system."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from simulators.hetzner.project import Project
from simulators.hetzner.wire import Resource, invalid

Body = Mapping[str, Any]
_TYPES = ("linux64", "freebsd64", "linux32")


def enable_rescue(project: Project, server: Resource, body: Body) -> Resource:
    """Have the next boot be that of the rescue system, which lets these keys in."""
    if (kind := body.get("type") or "linux64") not in _TYPES:
        raise invalid("type", f"there is no rescue system {kind!r}")
    keys = [
        project.pick("ssh_keys", each, "ssh_keys")["id"] for each in body.get("ssh_keys") or ()
    ]
    server["rescue_enabled"] = True
    project.rescue[server["id"]] = keys
    return {"root_password": secrets.token_urlsafe(12)}


def disable_rescue(project: Project, server: Resource, _: Body) -> Resource:
    """Have the next boot be that of the disk again."""
    server["rescue_enabled"] = False
    project.rescue.pop(server["id"], None)
    return {}


def boot(project: Project, server: Resource, _: Body) -> Resource:
    """Start a server; the rescue system is booted once."""
    server["status"] = "starting"
    if server["rescue_enabled"]:
        server["rescue_enabled"] = False
        project.in_rescue[server["id"]] = project.rescue.pop(server["id"], [])
    else:
        project.in_rescue.pop(server["id"], None)
    return {}


def stop(project: Project, server: Resource, _: Body) -> Resource:
    """Stop a server, whatever it runs."""
    server["status"] = "stopping"
    project.in_rescue.pop(server["id"], None)
    return {}


ACTIONS: dict[str, Callable[[Project, Resource, Body], Resource]] = {
    "poweron": boot,
    "reboot": boot,
    "reset": boot,
    "shutdown": stop,
    "poweroff": stop,
    "enable_rescue": enable_rescue,
    "disable_rescue": disable_rescue,
}
