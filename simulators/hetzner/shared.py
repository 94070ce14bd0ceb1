"""Create, change and delete what simulated servers share: keys, networks, firewalls, groups."""

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Mapping
from typing import Any

from simulators.hetzner.labels import check_labels
from simulators.hetzner.project import Project
from simulators.hetzner.wire import Refused, Reply, Resource, invalid, listed, objects

Body = Mapping[str, Any]


def create_ssh_key(project: Project, body: Body) -> Reply:
    """Keep a public key; the same key under another name is refused too."""
    text = str(body.get("public_key") or "")
    words = text.split()
    try:
        digest = hashlib.md5(  # noqa: S324 - what the API calls a fingerprint
            base64.b64decode(words[1], validate=True)
        ).hexdigest()
    except (IndexError, binascii.Error):
        raise invalid("public_key", "is no public key of SSH") from None
    fingerprint = ":".join(digest[index : index + 2] for index in range(0, len(digest), 2))
    project.check_new("ssh_keys", _name(body))
    if any(each["fingerprint"] == fingerprint for each in project.resources["ssh_keys"].values()):
        raise Refused(409, "uniqueness_error", "SSH key not unique")
    key = project.add("ssh_keys", {**_named(body), "public_key": text, "fingerprint": fingerprint})
    return Reply(201, {"ssh_key": key})


def create_placement_group(project: Project, body: Body) -> Reply:
    """Make a placement group; there is one type."""
    if body.get("type") != "spread":
        raise invalid("type", "must be spread")
    project.check_new("placement_groups", _name(body))
    group = project.add("placement_groups", {**_named(body), "type": "spread"})
    return Reply(201, {"placement_group": group | {"servers": []}, "action": None})


def create_network(project: Project, body: Body) -> Reply:
    """Make a network with the subnets that are named with it."""
    ip_range = _range("ip_range", body.get("ip_range"))
    project.check_new("networks", _name(body))
    network = {
        **_named(body),
        "ip_range": str(ip_range),
        "subnets": [],
        "routes": [],
        "load_balancers": [],
        "protection": {"delete": False},
        "expose_routes_to_vswitch": bool(body.get("expose_routes_to_vswitch")),
    }
    for subnet in objects(body, "subnets"):
        _add_subnet(network, subnet)
    return Reply(201, {"network": project.add("networks", network) | {"servers": []}})


def act_on_network(project: Project, network: Resource, command: str, body: Body) -> Reply:
    """Add or delete a subnet."""
    match command:
        case "add_subnet":
            _add_subnet(network, body)
        case "delete_subnet":
            kept = [each for each in network["subnets"] if each["ip_range"] != body["ip_range"]]
            if len(kept) == len(network["subnets"]):
                raise Refused(404, "not_found", "subnet not found")
            network["subnets"] = kept
        case _:
            raise Refused(404, "not_found", f"the action {command!r} is not simulated")
    return Reply(201, {"action": project.begin(command, ("network", network))})


def delete_network(project: Project, network: Resource) -> Reply:
    """Take a network away; servers in it are detached."""
    for server in project.servers.values():
        server["private_net"] = [
            each for each in server["private_net"] if each["network"] != network["id"]
        ]
    del project.resources["networks"][network["id"]]
    return Reply(204)


def create_firewall(project: Project, body: Body) -> Reply:
    """Make a firewall, applied to the servers that are named with it."""
    rules = [_rule(each) for each in objects(body, "rules")]
    project.check_new("firewalls", _name(body))
    firewall = project.add("firewalls", {**_named(body), "rules": rules})
    _apply(project, firewall, objects(body, "apply_to"))
    actions = [project.begin("set_firewall_rules", ("firewall", firewall))] if rules else []
    return Reply(201, {"firewall": firewall | {"applied_to": []}, "actions": actions})


def act_on_firewall(project: Project, firewall: Resource, command: str, body: Body) -> Reply:
    """Set rules, apply a firewall or take it from servers."""
    match command:
        case "set_rules":
            firewall["rules"] = [_rule(each) for each in objects(body, "rules")]
        case "apply_to_resources":
            _apply(project, firewall, objects(body, "apply_to"))
        case "remove_from_resources":
            for each in objects(body, "remove_from"):
                _lift(project.get("servers", _target(each)), firewall)
        case _:
            raise Refused(404, "not_found", f"the action {command!r} is not simulated")
    return Reply(201, {"actions": [project.begin(command, ("firewall", firewall))]})


def delete_unused(project: Project, kind: str, resource: Resource) -> Reply:
    """Take away what no server uses."""
    if uses(project, kind, resource):
        raise Refused(422, "resource_in_use", "servers use it")
    del project.resources[kind][resource["id"]]
    return Reply(204)


def uses(project: Project, kind: str, resource: Resource) -> list[int]:
    """Return the ids of the servers that use a network, firewall or placement group."""
    return [
        number
        for number, server in project.servers.items()
        if resource["id"] in _used_by(server, kind)
    ]


def _used_by(server: Resource, kind: str) -> set[int]:
    match kind:
        case "networks":
            return {each["network"] for each in server["private_net"]}
        case "firewalls":
            return {each["id"] for each in server["public_net"]["firewalls"]}
        case "placement_groups" if server["placement_group"]:
            return {server["placement_group"]["id"]}
    return set()


def _apply(project: Project, firewall: Resource, targets: Any) -> None:  # noqa: ANN401 - JSON
    for each in targets:
        if each.get("type") != "server":
            raise invalid("apply_to", "only servers are simulated")
        server = project.get("servers", _target(each))
        _lift(server, firewall)
        server["public_net"]["firewalls"].append({"id": firewall["id"], "status": "applied"})


def _target(each: Body) -> object:
    server = each.get("server")
    if not isinstance(server, dict):
        raise invalid("server", "must be an object")
    return server.get("id")


def _lift(server: Resource, firewall: Resource) -> None:
    kept = [each for each in server["public_net"]["firewalls"] if each["id"] != firewall["id"]]
    server["public_net"]["firewalls"] = kept


def _rule(rule: Body) -> Resource:
    if rule.get("direction") not in ("in", "out"):
        raise invalid("rules", "direction must be in or out")
    if rule.get("protocol") not in ("tcp", "udp", "icmp", "esp", "gre"):
        raise invalid("rules", "protocol must be tcp, udp, icmp, esp or gre")
    if (rule.get("port") is None) == (rule["protocol"] in ("tcp", "udp")):
        raise invalid("rules", "port goes with tcp and udp, and only there")
    ips = {name: listed(rule, name) for name in ("source_ips", "destination_ips")}
    for each in ips["source_ips"] + ips["destination_ips"]:
        _range("rules", each)
    return {
        "direction": rule["direction"],
        "protocol": rule["protocol"],
        "port": rule.get("port"),
        "description": rule.get("description"),
        **ips,
    }


def _add_subnet(network: Resource, subnet: Body) -> None:
    if subnet.get("type") not in ("cloud", "server"):
        raise invalid("type", "only subnets of type cloud are simulated")
    if not isinstance(subnet.get("network_zone"), str):
        raise invalid("network_zone", "must be named")
    ip_range = _range("ip_range", subnet.get("ip_range"))
    whole = ipaddress.ip_network(network["ip_range"])
    if ip_range.version != whole.version or not ip_range.subnet_of(whole):  # type: ignore[arg-type] # of one version
        raise invalid("ip_range", "must lie within the network's")
    if any(
        ip_range.overlaps(ipaddress.ip_network(each["ip_range"])) for each in network["subnets"]
    ):
        raise invalid("ip_range", "overlaps another subnet")
    network["subnets"].append(
        {
            "type": subnet["type"],
            "ip_range": str(ip_range),
            "network_zone": subnet["network_zone"],
            "gateway": str(whole.network_address + 1),
        }
    )


def _range(field: str, text: object) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(str(text))
    except ValueError as error:
        raise invalid(field, str(error)) from error


def _name(body: Body) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise invalid("name", "must not be empty")
    return name


def _named(body: Body) -> Resource:
    return {"name": _name(body), "labels": check_labels(body.get("labels"))}
