"""Answer each request to the simulated Hetzner API from what its project holds.

It holds what fleet, the official clients and Pulumi's provider ask; the rest is "not found".
"""

from collections.abc import Iterable, Mapping
from typing import Any

from simulators.hetzner.catalogue import pricing
from simulators.hetzner.labels import read_selector
from simulators.hetzner.project import KINDS, Project
from simulators.hetzner.servers import act_on_server, create_server, delete_server
from simulators.hetzner.shared import (
    act_on_firewall,
    act_on_network,
    create_firewall,
    create_network,
    create_placement_group,
    create_ssh_key,
    delete_network,
    delete_unused,
    uses,
)
from simulators.hetzner.wire import Refused, Reply, Request, Resource, invalid

_FIXED = ("locations", "datacenters", "server_types", "actions")
_FILTERS = ("id", "name", "status", "type", "architecture", "fingerprint", "command")
_SORTED_BY = ("id", "name", "created", "status", "command", "started", "finished")
_CREATE = {
    "servers": create_server,
    "ssh_keys": create_ssh_key,
    "networks": create_network,
    "firewalls": create_firewall,
    "placement_groups": create_placement_group,
}
_ACT = {"servers": act_on_server, "networks": act_on_network, "firewalls": act_on_firewall}
_MOST_PER_PAGE = 50
_PER_PAGE = 25


def answer(project: Project, request: Request) -> Reply:
    """Return the answer to one request; Refused is an answer too."""
    project.settle()
    parts = request.path.strip("/").split("/")
    kind = parts[0]
    if (request.method, parts) == ("GET", ["pricing"]):
        return Reply(200, {"pricing": pricing(project.resources["server_types"].values())})
    if kind not in KINDS:
        raise Refused(404, "not_found", f"{request.path} is not simulated")
    match request.method:
        case "GET":
            return _get(project, request, parts)
        case "POST":
            return _shown(project, kind, _post(project, parts, request.body))
        case "PUT" if len(parts) == 2 and kind not in _FIXED:  # noqa: PLR2004 - kind and id
            return _put(project, kind, parts[1], request.body)
        case "DELETE" if len(parts) == 2 and kind not in _FIXED:  # noqa: PLR2004 - kind and id
            return _delete(project, kind, parts[1])
    raise Refused(405, "method_not_allowed", f"{request.method} is not allowed here")


def _get(project: Project, request: Request, parts: list[str]) -> Reply:
    match parts:
        case [kind] | [_, kind] if kind in KINDS:
            return _page(kind, _listed(project, kind), request)
        case [_, "actions", key] | [_, _, "actions", key]:
            return Reply(200, {"action": project.get("actions", key)})
        case [kind, key, "actions"]:
            owner = project.get(kind, key)["id"]
            actions = _listed(project, "actions")
            mine = [each for each in actions if owner in (it["id"] for it in each["resources"])]
            return _page("actions", mine, request)
        case [kind, key]:
            return Reply(200, {KINDS[kind]: show(project, kind, project.get(kind, key))})
    raise Refused(404, "not_found", f"{request.path} is not simulated")


def _post(project: Project, parts: list[str], body: Mapping[str, Any]) -> Reply:
    match parts:
        case [kind] if kind in _CREATE:
            return _CREATE[kind](project, body)
        case [kind, key, "actions", command] if kind in _ACT:
            return _ACT[kind](project, project.get(kind, key), command, body)
    raise Refused(404, "not_found", f"/{'/'.join(parts)} is not simulated")


def _put(project: Project, kind: str, key: str, body: Mapping[str, Any]) -> Reply:
    found = project.get(kind, key)
    project.rename(kind, found, body)
    if kind == "images" and body.get("description") is not None:
        found["description"] = body["description"]
    return Reply(200, {KINDS[kind]: show(project, kind, found)})


def _delete(project: Project, kind: str, key: str) -> Reply:
    found = project.get(kind, key)
    match kind:
        case "servers":
            return delete_server(project, found)
        case "networks":
            return delete_network(project, found)
        case "images" if found["type"] == "system":
            raise Refused(403, "forbidden", "system images belong to Hetzner")
    return delete_unused(project, kind, found)


def show(project: Project, kind: str, found: Resource) -> Resource:
    """Return a resource as the API tells it, with what follows from other resources."""
    match kind:
        case "networks" | "placement_groups":
            return found | {"servers": uses(project, kind, found)}
        case "firewalls":
            users = uses(project, kind, found)
            targets = [{"type": "server", "server": {"id": number}} for number in users]
            return found | {"applied_to": targets}
        case "server_types":
            left = project.stock.get(found["name"]) != 0
            places = [each | {"available": left} for each in found["locations"]]
            return found | {"locations": places}
        case "servers" if found["placement_group"]:
            group = project.get("placement_groups", found["placement_group"]["id"])
            return found | {"placement_group": show(project, "placement_groups", group)}
    return found


def _shown(project: Project, kind: str, reply: Reply) -> Reply:
    content, one = reply.content or {}, KINDS[kind]
    if one not in content:
        return reply
    return Reply(reply.status, content | {one: show(project, kind, content[one])})


def _listed(project: Project, kind: str) -> list[Resource]:
    return [show(project, kind, each) for each in project.resources[kind].values()]


def _page(kind: str, found: Iterable[Resource], request: Request) -> Reply:
    chosen = _sort(_filter(found, request), request.query.get("sort") or ["id:asc"])
    page, size = _number(request, "page", 1), _number(request, "per_page", _PER_PAGE)
    if size > _MOST_PER_PAGE:
        raise invalid("per_page", f"must be at most {_MOST_PER_PAGE}")
    last = max(1, -(-len(chosen) // size))
    pagination = {
        "page": page,
        "per_page": size,
        "previous_page": page - 1 if page > 1 else None,
        "next_page": page + 1 if page < last else None,
        "last_page": last,
        "total_entries": len(chosen),
    }
    shown = chosen[(page - 1) * size : page * size]
    return Reply(200, {kind: shown, "meta": {"pagination": pagination}})


def _filter(found: Iterable[Resource], request: Request) -> list[Resource]:
    chosen = list(found)
    for name in _FILTERS:
        if wanted := request.query.get(name):
            chosen = [each for each in chosen if str(each.get(name)) in wanted]
    if selector := request.first("label_selector"):
        matches = read_selector(selector)
        chosen = [each for each in chosen if matches(each.get("labels", {}))]
    return chosen


def _sort(chosen: list[Resource], wanted: Iterable[str]) -> list[Resource]:
    for each in reversed(list(wanted)):
        name, _, direction = each.partition(":")
        if name not in _SORTED_BY or direction not in ("", "asc", "desc"):
            raise invalid("sort", f"there is no order {each!r}")
        chosen = sorted(
            chosen,
            key=lambda one: (one.get(name) is not None, one.get(name) or ""),
            reverse=direction == "desc",
        )
    return chosen


def _number(request: Request, name: str, default: int) -> int:
    text = request.first(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise invalid(name, "must be a positive number")
    return int(text)
