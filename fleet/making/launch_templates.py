"""This module says what the machines of an AWS account share, and what each is made from there.

Everything goes by names that follow from fleet.yaml, so that a plan is complete before anything
exists. A launch template is named after its content and has one version: when the content
changes another one is made, and machines of the old one are outdated.
"""

from typing import Any

from fleet.canonical import digest
from fleet.schema.model import AwsProvider, Fleet, Machine, Pool

_REVISION = 1
"""To be raised whenever stacks/aws puts something else into a template."""
_GIB = 1024


def template_of(fleet: Fleet, provider: str) -> dict[str, Any]:
    """Return a provider's launch template, as the program of stacks/aws takes it."""
    declared = _declared(fleet, provider)
    vpc = declared.network.vpc if declared.network else ""
    key_pair = declared.key_pair or ""
    content = digest({"revision": _REVISION, "vpc": vpc, "key_pair": key_pair})[:8]
    return {
        "name": f"{fleet.fleet}-{provider}-{content}",
        "vpc": vpc,
        "key_pair": key_pair,
        "ssh_from": list(declared.ssh_from),
        "labels": {"fleet": fleet.fleet},
    }


def settings_of(fleet: Fleet, pool: Pool) -> dict[str, str]:
    """Return what else a pool's machines are made from at AWS."""
    network = _declared(fleet, pool.provider).network
    settings = {
        "subnet": network.subnet if network else "",
        "disk": _disk(pool.machine) if isinstance(pool.machine, Machine) else "",
    }
    return {key: text for key, text in settings.items() if text}


def _disk(machine: Machine) -> str:
    """Return the whole GiB of the root disk, swap included; empty: as large as the image's."""
    if machine.disk is None:
        return ""
    return str(-(-(machine.disk + (machine.swap or 0)) // _GIB))


def _declared(fleet: Fleet, provider: str) -> AwsProvider:
    declared = fleet.providers[provider]
    if not isinstance(declared, AwsProvider):
        raise TypeError(f"provider {provider!r} is of kind {declared.kind}, not aws")
    return declared
