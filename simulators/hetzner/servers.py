"""Create, change and delete simulated servers."""

import ipaddress
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from simulators.hetzner import rescue
from simulators.hetzner.labels import check_labels
from simulators.hetzner.project import Project
from simulators.hetzner.wire import Refused, Reply, Resource, invalid, listed, objects

Body = Mapping[str, Any]
USER_DATA_BYTES = 32 * 1024
_SPREAD_MOST = 10
_NAME = re.compile(r"(?=.{1,253}$)[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9-]+)*")


def create_server(project: Project, body: Body) -> Reply:
    """Make a server, or say why there is none."""
    name = body.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid("name", "must be a valid hostname as per RFC 1123")
    sold = project.pick("server_types", body.get("server_type"), "server_type")
    user_data = str(body.get("user_data") or "")
    if len(user_data.encode()) > USER_DATA_BYTES:
        raise invalid("user_data", f"must not be longer than {USER_DATA_BYTES} bytes")
    keys = [project.pick("ssh_keys", each, "ssh_keys") for each in listed(body, "ssh_keys")]
    datacenter = _place(project, body)
    fields = {
        "name": name,
        "status": "initializing" if body.get("start_after_create", True) else "off",
        "labels": check_labels(body.get("labels")),
        "server_type": sold,
        "datacenter": datacenter,
        "location": datacenter["location"],
        "image": _image(project, body.get("image"), sold),
        **_NEW,
        "included_traffic": sold["prices"][0]["included_traffic"],
        "primary_disk_size": sold["disk"],
        "volumes": [],
        "load_balancers": [],
        "private_net": [],
        "placement_group": _group(project, body.get("placement_group")),
    }
    networks = [project.pick("networks", each, "networks") for each in listed(body, "networks")]
    public_net = _public_net(project, body)
    project.check_new("servers", name)
    _take(project, sold)
    server = project.add("servers", fields)
    server["public_net"] = _addressed(public_net, server["id"], project)
    project.user_data[server["id"]] = user_data
    for network in networks:
        attach(project, server, network, None)
    return Reply(
        201,
        {
            "server": server,
            "action": project.begin("create_server", ("server", server)),
            "next_actions": [project.begin("start_server", ("server", server))],
            "root_password": None if keys else secrets.token_urlsafe(12),
        },
    )


def delete_server(project: Project, server: Resource) -> Reply:
    """Take a server away at once."""
    del project.servers[server["id"]]
    for each in (project.user_data, project.rescue, project.in_rescue):
        each.pop(server["id"], None)
    kind = server["server_type"]["name"]
    if kind in project.stock:
        project.stock[kind] += 1
    return Reply(200, {"action": project.begin("delete_server", ("server", server))})


def act_on_server(project: Project, server: Resource, command: str, body: Body) -> Reply:
    """Do what one of a server's actions says."""
    act = _ACTIONS.get(command)
    if act is None:
        raise Refused(404, "not_found", f"the action {command!r} is not simulated")
    more = act(project, server, body)
    return Reply(201, {"action": project.begin(command, ("server", server)), **more})


def attach(project: Project, server: Resource, network: Resource, ip: object) -> None:
    """Give a server an address in a network."""
    zone = server["location"]["network_zone"]
    subnets = [each for each in network["subnets"] if each["network_zone"] == zone]
    if not subnets:
        raise Refused(422, "no_subnet_available", "the network has no subnet in the server's zone")
    taken = {
        each["ip"]
        for other in project.servers.values()
        for each in other["private_net"]
        if each["network"] == network["id"]
    } | {each["gateway"] for each in subnets}
    hosts = map(str, ipaddress.ip_network(subnets[0]["ip_range"]).hosts())
    chosen = str(ip) if ip else next((each for each in hosts if each not in taken), None)
    if chosen is None or chosen in taken:
        raise Refused(422, "ip_not_available", "the network has no such free address")
    number = server["id"]
    server["private_net"].append(
        {
            "network": network["id"],
            "ip": chosen,
            "alias_ips": [],
            "mac_address": f"86:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}"
            f":{number & 255:02x}",
        }
    )


def _take(project: Project, sold: Resource) -> None:
    left = project.stock.get(sold["name"])
    if left == 0:
        raise Refused(412, "resource_unavailable", f"server type {sold['name']} is out of stock")
    if left is not None:
        project.stock[sold["name"]] = left - 1


def _place(project: Project, body: Body) -> Resource:
    if named := body.get("datacenter"):
        return project.pick("datacenters", named, "datacenter")
    location = project.pick("locations", body.get("location") or "fsn1", "location")
    return next(
        each
        for each in project.resources["datacenters"].values()
        if each["location"]["id"] == location["id"]
    )


def _image(project: Project, key: object, sold: Resource) -> Resource:
    if not str(key).isdecimal():
        for image in project.named("images", str(key)):
            if image["architecture"] == sold["architecture"]:
                return image
        raise invalid("image", f"there is no image {key!r} for {sold['architecture']}")
    image = project.pick("images", key, "image")
    if image["architecture"] != sold["architecture"]:
        raise invalid("image", "its architecture is not that of the server type")
    if image["disk_size"] > sold["disk"]:
        raise invalid("image", "its disk is larger than that of the server type")
    return image


def _group(project: Project, key: object) -> Resource | None:
    if not key:
        return None
    group = project.pick("placement_groups", key, "placement_group")
    members = [
        each
        for each in project.servers.values()
        if each["placement_group"] and each["placement_group"]["id"] == group["id"]
    ]
    if len(members) >= _SPREAD_MOST:
        raise Refused(412, "placement_error", "the placement group is full")
    return group


def _public_net(project: Project, body: Body) -> Resource:
    """Return which addresses a server is to have; and its firewalls."""
    wanted = body.get("public_net") or {}
    if not isinstance(wanted, dict):
        raise invalid("public_net", "must be an object")
    firewalls = [
        project.pick("firewalls", each.get("firewall"), "firewalls")
        for each in objects(body, "firewalls")
    ]
    return {
        "ipv4": wanted.get("enable_ipv4", True),
        "ipv6": wanted.get("enable_ipv6", True),
        "floating_ips": [],
        "firewalls": [{"id": each["id"], "status": "applied"} for each in firewalls],
    }


def _addressed(public_net: Resource, number: int, project: Project) -> Resource:
    # Addresses of ranges that are set aside for tests and documentation.
    first = ipaddress.ip_address("127.18.0.0" if project.on_loopback else "198.18.0.0")
    ipv4 = project.address or str(first + number)
    ipv6 = f"2001:db8:{number >> 16 & 0xFFFF:x}:{number & 0xFFFF:x}::"
    return public_net | {
        "ipv4": {"id": number, "ip": ipv4, "blocked": False, "dns_ptr": f"{number}.example"}
        if public_net["ipv4"]
        else None,
        "ipv6": {"id": number, "ip": f"{ipv6}/64", "blocked": False, "dns_ptr": []}
        if public_net["ipv6"]
        else None,
    }


def _change_type(project: Project, server: Resource, body: Body) -> Resource:
    if server["status"] != "off":
        raise Refused(422, "server_not_stopped", "the server must be off to change its type")
    sold = project.pick("server_types", body.get("server_type"), "server_type")
    if sold["architecture"] != server["server_type"]["architecture"]:
        raise invalid("server_type", "its architecture is not that of the server")
    _take(project, sold)
    server["server_type"] = sold
    if body.get("upgrade_disk"):
        server["primary_disk_size"] = sold["disk"]
    return {}


def _create_image(project: Project, server: Resource, body: Body) -> Resource:
    labels = check_labels(body.get("labels"))
    image = project.add(
        "images",
        {
            "type": body.get("type") or "snapshot",
            "status": "creating",
            "name": None,
            "description": body.get("description") or "",
            "image_size": 1.0,
            "disk_size": server["primary_disk_size"],
            "created_from": {"id": server["id"], "name": server["name"]},
            "bound_to": None,
            "os_flavor": server["image"]["os_flavor"] if server["image"] else "unknown",
            "os_version": server["image"]["os_version"] if server["image"] else None,
            "architecture": server["server_type"]["architecture"],
            "rapid_deploy": False,
            "protection": {"delete": False},
            "deprecated": None,
            "deleted": None,
            "labels": labels,
        },
    )
    return {"image": image}


def _attach(project: Project, server: Resource, body: Body) -> Resource:
    network = project.pick("networks", body.get("network"), "network")
    if any(each["network"] == network["id"] for each in server["private_net"]):
        raise Refused(409, "server_already_attached", "the server is attached already")
    attach(project, server, network, body.get("ip"))
    return {}


def _detach(project: Project, server: Resource, body: Body) -> Resource:
    network = project.pick("networks", body.get("network"), "network")
    server["private_net"] = [
        each for each in server["private_net"] if each["network"] != network["id"]
    ]
    return {}


def _join(project: Project, server: Resource, body: Body) -> Resource:
    server["placement_group"] = _group(project, body.get("placement_group"))
    return {}


def _leave(_: Project, server: Resource, __: Body) -> Resource:
    server["placement_group"] = None
    return {}


_NEW: Resource = {
    "rescue_enabled": False,
    "locked": False,
    "backup_window": None,
    "iso": None,
    "ingoing_traffic": None,
    "outgoing_traffic": None,
    "protection": {"delete": False, "rebuild": False},
}
_ACTIONS: dict[str, Callable[[Project, Resource, Body], Resource]] = {
    **rescue.ACTIONS,
    "change_type": _change_type,
    "create_image": _create_image,
    "attach_to_network": _attach,
    "detach_from_network": _detach,
    "add_to_placement_group": _join,
    "remove_from_placement_group": _leave,
}
