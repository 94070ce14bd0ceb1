"""Determine machine settings and shared cloud resources per kind of provider.

One shared stack per provider has the shared resources. An apply creates them before a plan needs
them. A resource is kept while a machine created with it exists, even if fleet.yaml no longer
declares it. A change is reported as a change here, even if the engine can only make it by
replacement.

Names follow from fleet.yaml, so that a plan is complete before any resource exists. The name of a
launch template contains a digest of its content. Changed content means a new template, and
machines of the old template are outdated.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping

from fleet.model.facts import (
    Base,
    BaseChange,
    Listing,
    SharedResource,
    Unknown,
    WorkerInputs,
    World,
)
from fleet.model.prices import MachineType
from fleet.model.values import digest
from fleet.schema.model import (
    AwsProvider,
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    MachineSettings,
    Pool,
)
from fleet.schema.units import write_count
from fleet.words import images


def settings_of(fleet: Fleet, pool: Pool, known: MachineType | None) -> dict[str, str]:
    """Return the provider settings of a pool's machines, except type and image."""
    provider = fleet.providers[pool.provider]
    match provider:
        case AwsProvider():
            subnet = {"subnet": provider.network.subnet} if provider.network else {}
            disk = pool.machine.disk if isinstance(pool.machine, MachineSettings) else None
            root = {} if disk is None else {"disk": str(-(-(disk + pool.swap) // _GIB))}
            return subnet | root
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


def parts_of(fleet: Fleet, name: str) -> tuple[SharedResource, ...]:
    """Return the shared resources that fleet.yaml declares for a provider."""
    provider = fleet.providers.get(name)
    parts: Iterable[SharedResource] = ()
    match provider:
        case AwsProvider():
            parts = [_template(provider, fleet.fleet, name)]
        case HcloudProvider():
            parts = _hcloud_parts(provider, fleet.fleet, f"{fleet.fleet}-{name}")
    return tuple(sorted(parts, key=lambda part: part.key))


_REVISION = 1
"""Number to increment if stacks/aws changes the content of a launch template."""
_GIB = 1024


def _template(provider: AwsProvider, fleet: str, name: str) -> SharedResource:
    vpc = provider.network.vpc if provider.network else ""
    key_pair = provider.key_pair or ""
    content = digest({"revision": _REVISION, "vpc": vpc, "key_pair": key_pair})[:8]
    inputs = {
        "vpc": vpc,
        "key_pair": key_pair,
        "ssh_from": list(provider.ssh_from),
        "labels": {"fleet": fleet},
    }
    return SharedResource(kind="template", name=f"{fleet}-{name}-{content}", inputs=inputs)


def _hcloud_parts(provider: HcloudProvider, fleet: str, own: str) -> Iterator[SharedResource]:
    labels = {"fleet": fleet}
    if provider.network is not None:
        network = {"ip_range": provider.network.ip_range, "zone": provider.network.zone}
        yield SharedResource(
            kind="network", name=f"{own}-network", inputs=network | {"labels": labels}
        )
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
        yield SharedResource(
            kind="firewall", name=f"{own}-firewall", inputs={"rules": rules, "labels": labels}
        )
    for who, key in sorted(provider.ssh_keys.items()):
        inputs = {"public_key": key, "labels": labels}
        yield SharedResource(kind="ssh_key", name=f"{own}-key-{who}", inputs=inputs)
    if provider.placement_group is not None:
        inputs = {"type": provider.placement_group, "labels": labels}
        yield SharedResource(kind="placement_group", name=f"{own}-spread", inputs=inputs)


_SETTINGS = {
    "network": "network_ids",
    "firewall": "firewall_ids",
    "ssh_key": "ssh_keys",
    "placement_group": "placement_group_id",
    "template": "template",
}
"""Kind of shared resource to the machine setting that refers to it."""


def shared_settings(fleet: Fleet, world: World, name: str) -> Mapping[str, str] | Unknown:
    """Return the shared settings of a provider's new machines; Unknown if one is missing."""
    parts = parts_of(fleet, name)
    if not parts:
        return {}
    base = world.bases.get(name)
    if isinstance(base, Unknown):
        return Unknown(unknown=f"the base stack of provider {name} is unknown: {base.unknown}")
    ids = base.ids if base else {}
    missing = [part.key for part in parts if part.key not in ids]
    if missing:
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        return Unknown(
            unknown=(
                f"{write_count(len(missing), 'shared part')} of provider {name} {are} missing; "
                f"`fleet apply` creates {them} first, then plans machines"
            )
        )
    settings: dict[str, list[str]] = {}
    for part in parts:
        settings.setdefault(_SETTINGS[part.kind], []).append(_reference(part.key, ids[part.key]))
    return {key: " ".join(sorted(each)) for key, each in sorted(settings.items())}


def in_use(world: World, name: str) -> dict[str, int] | Unknown:
    """Map the key of each shared resource to the number of machines created with it.

    Unknown if a machine that is in no stack may use a shared resource.
    """
    base = world.bases.get(name)
    if not isinstance(base, Base):
        return {}
    if isinstance(world.stacks, Unknown):
        return world.stacks
    listing = world.providers.get(name)
    if not isinstance(listing, Listing):
        unread = listing.unknown if listing else images.NOT_READ
        return Unknown(unknown=images.explain_unknown_provider(name, unread))
    recorded: set[str] = set()
    used = dict.fromkeys(base.ids, 0)
    for pool, stack in sorted(world.stacks.items()):
        if isinstance(stack, Unknown):
            return Unknown(unknown=f"the stack of pool {pool} is unknown: {stack.unknown}")
        recorded |= set(stack.ids.values())
        if stack.provider == name:
            for key, part_id in base.ids.items():
                used[key] += sum(_uses_part(worker, key, part_id) for worker in stack.workers)
    unrecorded_machines = sorted(
        machine.name for machine in listing.machines if machine.id not in recorded
    )
    if unrecorded_machines:
        return Unknown(unknown=f"{', '.join(unrecorded_machines)} in no stack")
    return {key: count for key, count in used.items() if count}


def made_without(world: World, name: str, keys: Collection[str]) -> int:
    """Count the machines of a provider created without some of these shared resources."""
    recorded = (
        worker
        for stack in world.known_stacks.values()
        if stack.provider == name
        for worker in stack.workers
        if worker.name in stack.ids
    )
    # A new resource with an id has no id yet, so no machine was created with it.
    return sum(any(not _uses_part(worker, key, "") for key in keys) for worker in recorded)


def wanted_parts(fleet: Fleet, world: World, name: str) -> tuple[SharedResource, ...]:
    """Return the resources that a shared stack needs: declared in fleet.yaml, or still in use."""
    parts = {part.key: part for part in parts_of(fleet, name)}
    base = world.bases.get(name)
    used = in_use(world, name)
    for part in base.parts if isinstance(base, Base) else ():
        if part.key not in parts and (isinstance(used, Unknown) or part.key in used):
            parts[part.key] = part
    return tuple(parts[key] for key in sorted(parts))


def is_laid(base: Base, parts: Iterable[SharedResource]) -> bool:
    """Return True if a shared stack has exactly these resources, created as declared."""
    wanted = tuple(parts)
    return (
        base.laid
        and not base.interrupted
        and base.parts == wanted
        and {part.key for part in wanted} == base.ids.keys()
    )


def _uses_part(worker: WorkerInputs, key: str, part_id: str) -> bool:
    """Return True if a machine was created with this shared resource."""
    setting = worker.settings.get(_SETTINGS[key.partition("/")[0]], "")
    return _reference(key, part_id) in setting.split()


def _reference(key: str, part_id: str) -> str:
    """Return the id by which machine settings refer to a shared resource; a template's name."""
    kind, _, name = key.partition("/")
    return name if kind == "template" else part_id


def find_base_changes(fleet: Fleet, world: World) -> Iterator[BaseChange]:
    """Yield the changes that the next apply makes to the shared stacks of providers."""
    for name in sorted(fleet.providers):
        base = world.bases.get(name)
        if isinstance(base, Unknown) or why_held(fleet, name):
            continue
        wanted = {part.key: part for part in wanted_parts(fleet, world, name)}
        known = base or Base(serial=0)
        is_due = bool(wanted) if base is None else not is_laid(base, wanted.values())
        if is_due:
            recorded = {part.key: part for part in known.parts}
            new = tuple(key for key in wanted if key not in known.ids)
            yield BaseChange(
                provider=name,
                create=new,
                change=tuple(
                    key for key in wanted if key in known.ids and wanted[key] != recorded.get(key)
                ),
                delete=tuple(sorted(known.ids.keys() - wanted.keys())),
                outdates=made_without(world, name, new),
            )


def why_held(fleet: Fleet, name: str, ordered: Collection[str] = ()) -> str:
    """Return why apply changes no shared stack of a provider; empty if apply may change it.

    If the provider has pools (in `ordered`, if given), one must have a mode that allows changes.
    """
    modes = {
        pool: each.mode
        for pool, each in fleet.dynamic_pools.items()
        if each.provider == name and pool in (ordered or fleet.pools)
    }
    if ordered and not modes:
        return "--pool names no pool of this provider"
    if modes and set(modes.values()) <= {"observe", "pause"}:
        return ", ".join(f"{pool} is in mode {mode}" for pool, mode in sorted(modes.items()))
    return ""
