"""What the stack of each kind of provider gets: settings of its machines, and what they share.

Everything goes by names that follow from fleet.yaml, so that a plan is complete before anything
exists. A launch template is named after its content and has one version: when the content
changes another one is made, and machines of the old one are outdated.
"""

import shlex
from collections.abc import Iterable, Iterator

from fleet.model.facts import Part
from fleet.model.prices import MachineType
from fleet.model.values import digest
from fleet.schema.model import (
    AwsProvider,
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    Machine,
    Pool,
)


def settings_of(fleet: Fleet, pool: Pool, known: MachineType | None) -> dict[str, str]:
    """Return what else than type and image a pool's machines are made from."""
    provider = fleet.providers[pool.provider]
    match provider:
        case AwsProvider():
            subnet = {"subnet": provider.network.subnet} if provider.network else {}
            return subnet | _disk(pool)
        case HcloudProvider():
            return {"location": provider.location}
        case LocalProvider():
            return {"run": shlex.join(provider.run)}
        case HooksProvider() if known is not None:
            figures = {"cores": known.cores, "memory_mib": known.memory, "disk_mib": known.disk}
            figures["swap_mib"] = pool.swap
            return {key: str(figure) for key, figure in figures.items() if figure}
        case _:
            return {}


def parts_of(fleet: Fleet, name: str) -> tuple[Part, ...]:
    """Return what fleet.yaml says that the machines of a provider share."""
    provider = fleet.providers.get(name)
    parts: Iterable[Part] = ()
    match provider:
        case AwsProvider():
            parts = [_template(provider, fleet.fleet, name)]
        case HcloudProvider():
            parts = _hcloud(provider, fleet.fleet, f"{fleet.fleet}-{name}")
    return tuple(sorted(parts, key=lambda part: part.key))


_REVISION = 1
"""To be raised whenever stacks/aws puts something else into a template."""
_GIB = 1024


def _template(provider: AwsProvider, fleet: str, name: str) -> Part:
    vpc = provider.network.vpc if provider.network else ""
    key_pair = provider.key_pair or ""
    content = digest({"revision": _REVISION, "vpc": vpc, "key_pair": key_pair})[:8]
    inputs = {
        "vpc": vpc,
        "key_pair": key_pair,
        "ssh_from": list(provider.ssh_from),
        "labels": {"fleet": fleet},
    }
    return Part(kind="template", name=f"{fleet}-{name}-{content}", inputs=inputs)


def _disk(pool: Pool) -> dict[str, str]:
    """Return the root disk in whole GiB, swap included; nothing: as large as the image's."""
    disk = pool.machine.disk if isinstance(pool.machine, Machine) else None
    return {} if disk is None else {"disk": str(-(-(disk + pool.swap) // _GIB))}


def _hcloud(provider: HcloudProvider, fleet: str, own: str) -> Iterator[Part]:
    labels = {"fleet": fleet}
    if provider.network is not None:
        network = {"ip_range": provider.network.ip_range, "zone": provider.network.zone}
        yield Part(kind="network", name=f"{own}-network", inputs=network | {"labels": labels})
    if provider.firewall is not None:
        rules = [
            {
                "direction": rule.direction,
                "protocol": rule.protocol,
                "port": rule.port or "",
                "ips": rule.ips,
            }
            for rule in provider.firewall
        ]
        yield Part(
            kind="firewall", name=f"{own}-firewall", inputs={"rules": rules, "labels": labels}
        )
    for who, key in sorted(provider.ssh_keys.items()):
        inputs = {"public_key": key, "labels": labels}
        yield Part(kind="ssh_key", name=f"{own}-key-{who}", inputs=inputs)
    if provider.placement_group is not None:
        inputs = {"type": provider.placement_group, "labels": labels}
        yield Part(kind="placement_group", name=f"{own}-spread", inputs=inputs)
