"""Declare what fleet owns at Hetzner Cloud: servers, and what they share.

A pool's stack holds servers only; an account's base stack holds what they share: networks,
firewalls, ssh keys and placement groups. It imports only pulumi and pulumi_hcloud, so that
people can run it with the official release and no fleet.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import pulumi
import pulumi_hcloud as hcloud

TEXTS = ("name", "type", "image", "architecture")
WORKER_LABELS = ("fleet", "pool", "worker", "digest")
NOTES = ("commit", "expires")
SETTINGS = ("location", "network_ids", "firewall_ids", "ssh_keys", "placement_group_id")
Inputs = Mapping[str, Any]
Made = list[pulumi.CustomResource]


def program(inputs: Inputs) -> None:
    """Declare every server, and every network, firewall, ssh key and placement group listed.

    `user_data` holds a secret text per new worker; `adopt` ids of what exists already, servers
    by their name, shared parts by KIND/NAME;
    `notes` labels that a new server gets and that change later without its stack; `owner` says
    which engine and provider the stack belongs to, for the state to record.
    """
    extra = {key: _texts(inputs.get(key, {}), key) for key in ("adopt", "user_data", "notes")}
    for index, each in enumerate(_listed(inputs, "workers")):
        _server(_worker(each, f"workers[{index}]"), extra)
    made: Made = []
    for key, declare in _SHARED.items():
        for index, each in enumerate(_listed(inputs, key, optional=True)):
            made += declare(each, f"{key}[{index}]", extra["adopt"])
    owner = _texts(inputs.get("owner", {}), "owner")
    for key, text in owner.items():
        pulumi.export(key, text)
    if "parts" in owner:
        # The same only once each was made as asked: of what failed, no id is told.
        done = pulumi.Output.all(*(each.id for each in made)).apply(lambda _: owner["parts"])
        pulumi.export("laid", done.recover(lambda _: ""))


def _server(worker: Inputs, extra: Mapping[str, Mapping[str, str]]) -> None:
    name, settings, adopt = worker["name"], worker["settings"], extra["adopt"]
    given = extra["user_data"].get(name) if name not in adopt else None
    notes = {key: text for key, text in extra["notes"].items() if key in NOTES}
    hcloud.Server(
        name,
        name=name,
        server_type=worker["type"],
        image=worker["image"],
        location=settings["location"],
        # A server does not tell its architecture, and what a worker is made from is read back.
        labels={**worker["labels"], "architecture": worker["architecture"], **notes},
        networks=[
            hcloud.ServerNetworkArgs(network_id=each, alias_ips=[])
            for each in _numbers(settings, "network_ids", name)
        ]
        or None,
        firewall_ids=_numbers(settings, "firewall_ids", name) or None,
        ssh_keys=settings.get("ssh_keys", "").split() or None,
        placement_group_id=next(iter(_numbers(settings, "placement_group_id", name)), None),
        user_data=pulumi.Output.secret(given) if given else None,
        opts=pulumi.ResourceOptions(
            import_=adopt.get(name),
            # What a server was given at its first boot is in the state, or, where it was adopted,
            # known to nobody, its image by another name; it never makes another server.
            ignore_changes=[
                *(f"labels.{key}" for key in NOTES),
                *([] if given else ["userData", "sshKeys", "image"]),
            ],
        ),
    )


def _network(network: Inputs, where: str, adopt: Mapping[str, str]) -> Made:
    _exactly(network, where, {"name", "ip_range", "zone", "labels"})
    labels = _labelled(network, where)
    made = hcloud.Network(
        network["name"],
        name=network["name"],
        ip_range=network["ip_range"],
        labels=labels,
        opts=_existing(adopt, "network", network["name"]),
    )
    subnet = hcloud.NetworkSubnet(
        f"{network['name']}-subnet",
        network_id=made.id.apply(int),
        type="cloud",
        network_zone=network["zone"],
        ip_range=network["ip_range"],
        opts=_existing(adopt, "network", f"{network['name']}/subnet"),
    )
    return [made, subnet]


def _firewall(firewall: Inputs, where: str, adopt: Mapping[str, str]) -> Made:
    _exactly(firewall, where, {"name", "rules", "labels"})
    rules = _listed(firewall, "rules", where=f"{where}.")
    for index, rule in enumerate(rules):
        _exactly(rule, f"{where}.rules[{index}]", {"direction", "protocol", "port", "ips"})
    made = hcloud.Firewall(
        firewall["name"],
        name=firewall["name"],
        labels=_labelled(firewall, where),
        rules=[
            hcloud.FirewallRuleArgs(
                direction=rule["direction"],
                protocol=rule["protocol"],
                port=rule["port"] or None,
                source_ips=rule["ips"] if rule["direction"] == "in" else None,
                destination_ips=rule["ips"] if rule["direction"] == "out" else None,
            )
            for rule in rules
        ],
        opts=_existing(adopt, "firewall", firewall["name"]),
    )
    return [made]


def _ssh_key(key: Inputs, where: str, adopt: Mapping[str, str]) -> Made:
    _exactly(key, where, {"name", "public_key", "labels"})
    made = hcloud.SshKey(
        key["name"],
        name=key["name"],
        public_key=key["public_key"],
        labels=_labelled(key, where),
        opts=_existing(adopt, "ssh_key", key["name"]),
    )
    return [made]


def _placement_group(group: Inputs, where: str, adopt: Mapping[str, str]) -> Made:
    _exactly(group, where, {"name", "type", "labels"})
    made = hcloud.PlacementGroup(
        group["name"],
        name=group["name"],
        type=group["type"],
        labels=_labelled(group, where),
        opts=_existing(adopt, "placement_group", group["name"]),
    )
    return [made]


_SHARED = {
    "networks": _network,
    "firewalls": _firewall,
    "ssh_keys": _ssh_key,
    "placement_groups": _placement_group,
}


def _existing(adopt: Mapping[str, str], kind: str, name: str) -> pulumi.ResourceOptions:
    # Names are unique in a project: what is made anew is refused while the old one stands.
    return pulumi.ResourceOptions(import_=adopt.get(f"{kind}/{name}"), delete_before_replace=True)


def _worker(worker: object, where: str) -> Inputs:
    checked = _exactly(worker, where, {*TEXTS, "labels", "settings"})
    for key in TEXTS:
        if not isinstance(checked[key], str) or not checked[key]:
            _wrong(f"{where}.{key}", "a text that is not empty", checked[key])
    labels = _texts(checked["labels"], f"{where}.labels")
    missing = [label for label in WORKER_LABELS if label not in labels]
    if missing:
        raise ValueError(f"{where}.labels lacks {', '.join(missing)}")
    settings = _texts(checked["settings"], f"{where}.settings")
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise ValueError(f"{where}.settings has unknown keys: {', '.join(unknown)}")
    if not settings.get("location"):
        raise ValueError(f"{where}.settings lacks location")
    return checked


def _numbers(settings: Mapping[str, str], key: str, name: str) -> list[int]:
    words = settings.get(key, "").split()
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        raise ValueError(f"{name}: {key} must hold ids, whole numbers, not {', '.join(wrong)}")
    return [int(word) for word in words]


def _labelled(shared: Inputs, where: str) -> dict[str, str]:
    labels = _texts(shared["labels"], f"{where}.labels")
    if not labels.get("fleet"):
        raise ValueError(f"{where}.labels lacks fleet, the mark of ownership")
    return labels


def _exactly(value: object, where: str, keys: set[str]) -> Inputs:
    if not isinstance(value, Mapping):
        _wrong(where, "a mapping", value)
    missing, unknown = sorted(keys - set(value)), sorted(map(str, set(value) - keys))
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    if unknown:
        raise ValueError(f"{where} has unknown keys: {', '.join(unknown)}")
    return value


def _listed(inputs: Inputs, key: str, *, where: str = "", optional: bool = False) -> list[Any]:
    value = inputs.get(key, [] if optional else None)
    if not isinstance(value, list):
        _wrong(f"{where}{key}", "a list", value)
    return value


def _texts(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _wrong(where, "a mapping", value)
    wrong = sorted(str(key) for key, text in value.items() if not isinstance(text, str))
    if wrong:
        raise TypeError(f"{where} must hold texts, but not so: {', '.join(wrong)}")
    return dict(value)


def _wrong(where: str, expected: str, value: object) -> NoReturn:
    raise TypeError(f"{where} must be {expected}, not {type(value).__name__}")
