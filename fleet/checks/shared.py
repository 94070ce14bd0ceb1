"""Checks of resources that the machines of a provider share: networks, firewalls, SSH keys."""

import base64
import struct
from collections.abc import Iterator
from ipaddress import ip_network

from fleet.checks.findings import unwise, wrong
from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet, HcloudProvider
from fleet.schema.sources import FirewallRule, HcloudNetwork

_ZONES = {
    "fsn1": "eu-central",
    "nbg1": "eu-central",
    "hel1": "eu-central",
    "ash": "us-east",
    "hil": "us-west",
    "sin": "ap-southeast",
}
"""Location of Hetzner to its network zone."""
_LAST_PORT = 65535
_MAX_SPREAD = 10
"""Maximum number of servers in a placement group of Hetzner."""


def unusable_shared_part(fleet: Fleet) -> Iterator[Finding]:
    """Require that Hetzner accepts the networks, firewall rules and SSH keys."""
    for name, provider in fleet.providers.items():
        if isinstance(provider, HcloudProvider):
            path: Path = ("providers", name)
            if provider.network is not None:
                yield from _check_network(provider.network, provider.location, (*path, "network"))
            for number, rule in enumerate(provider.firewall or ()):
                yield from _check_rule(rule, (*path, "firewall", number))
            for who, text in provider.ssh_keys.items():
                if _parse_key(text) is None:
                    # The message omits the text, because it may be a private key.
                    yield wrong(
                        "this is no public key of ssh",
                        (*path, "ssh_keys", who),
                        hint='write the line of its .pub file, as "ssh-ed25519 AAAA… ana"',
                    )
            if provider.placement_group is not None:
                yield from _check_spread(fleet, name)
    yield from _check_keys_once(fleet)


def _check_network(network: HcloudNetwork, location: str, path: Path) -> Iterator[Finding]:
    yield from _check_range(network.ip_range, (*path, "ip_range"), strict=False)
    zone = _ZONES.get(location, network.zone)
    if network.zone != zone:
        yield wrong(
            f"servers at {location} are in zone {zone} and cannot join a network of "
            f"'{network.zone}'",
            (*path, "zone"),
            hint=f"write {zone}",
        )


def _check_rule(rule: FirewallRule, path: Path) -> Iterator[Finding]:
    has_ports = rule.protocol in {"tcp", "udp"}
    if has_ports and rule.port is None:
        yield wrong(
            f"a rule for {rule.protocol} needs a port",
            path,
            hint='add port: "22", a range such as 8000-9000, or any',
        )
    if not has_ports and rule.port is not None:
        yield wrong(f"{rule.protocol} has no ports", (*path, "port"), hint="remove port")
    if rule.port not in {None, "any"}:
        first, _, last = str(rule.port).partition("-")
        if not 1 <= int(first) <= int(last or first) <= _LAST_PORT:
            yield wrong(
                f"'{rule.port}' is no port and no range of ports",
                (*path, "port"),
                hint=f"ports go from 1 to {_LAST_PORT}, and a range from its lower to its higher",
            )
    for number, each in enumerate(rule.ips):
        yield from _check_range(each, (*path, "ips", number), strict=True)


def _check_range(text: str, path: Path, *, strict: bool) -> Iterator[Finding]:
    """Require a valid address range; with `strict`, it must start at its first address."""
    try:
        begins = ip_network(text, strict=False)
    except ValueError:
        yield wrong(f"'{text}' is no range of addresses", path, hint="for example 10.20.0.0/16")
        return
    try:
        ip_network(text, strict=strict)
    except ValueError:
        yield wrong(
            f"'{text}' does not begin at the first address of its range",
            path,
            hint=f"write {begins}, or for one address {text.partition('/')[0]}/"
            f"{begins.max_prefixlen}",
        )


def _check_spread(fleet: Fleet, name: str) -> Iterator[Finding]:
    pools = (pool for pool in fleet.dynamic_pools.values() if pool.provider == name)
    most = sum(pool.workers.max for pool in pools)
    if most > _MAX_SPREAD:
        yield unwise(
            f"its pools may have {most} servers, and a placement group takes {_MAX_SPREAD}: "
            "Hetzner refuses more",
            ("providers", name, "placement_group"),
            hint="remove it, or lower workers.max",
        )


def _check_keys_once(fleet: Fleet) -> Iterator[Finding]:
    """Yield a finding for an SSH key that its project already has, which Hetzner refuses."""
    seen: dict[tuple[str, bytes], tuple[str, str]] = {}
    given = (
        (name, who, str(provider.token), _parse_key(text))
        for name, provider in fleet.providers.items()
        if isinstance(provider, HcloudProvider)
        for who, text in provider.ssh_keys.items()
    )
    for name, who, project, key in given:
        if key is not None:
            other, before = seen.setdefault((project, key), (name, who))
            path: Path = ("providers", name, "ssh_keys", who)
            if other != name:
                yield unwise(
                    f"this is the key '{before}' of provider '{other}', whose token is the same: "
                    "a project of Hetzner takes each key once, so no machine is created here",
                    path,
                    hint="use another key, or remove it",
                )
            elif before != who:
                yield wrong(
                    f"this is the key '{before}' once more: Hetzner takes each key once",
                    path,
                    hint="remove one of the two",
                )


def _parse_key(text: str) -> bytes | None:
    """Return the bytes of the key in a line of a .pub file; None if the line has no key."""
    kind, _, rest = text.strip().partition(" ")
    try:
        name, key = kind.encode(), base64.b64decode(rest.split()[0], validate=True)
    except (IndexError, ValueError):
        return None
    return key if key.startswith(struct.pack(">I", len(name)) + name) else None
