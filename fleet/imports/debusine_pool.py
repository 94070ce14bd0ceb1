"""This module reads one worker pool of a Debusine listing, and what its machines are."""

from dataclasses import dataclass, field
from typing import TypeGuard

from fleet.catalogue import find_types
from fleet.catalogue.tables import MachineType
from fleet.imports.changes import Notes
from fleet.imports.writing import shown, size
from fleet.schema.findings import Span, quoted
from fleet.schema.model import Fleet, Pool
from fleet.schema.nodes import Node

KINDS = ("hetzner", "aws", "dummy")
_LIMITS = ("max_active_instances", "target_max_seconds_per_month", "max_idle_seconds")
_MOST = {
    "max_active_instances": 100_000,
    "target_max_seconds_per_month": 10**12,
    "max_idle_seconds": 9_999_999,
}
_LONGEST = 1000
WORDS = ("architectures", "provided_tags", "required_tags", "reported_tags", "scopes")
"""Keys that a listing from the server's database has, each with a list of words."""


@dataclass
class ListedPool:
    """One pool of the listing."""

    name: str
    account: str
    kind: str
    enabled: bool
    place: Span
    limits: dict[str, Node] = field(default_factory=dict)
    specifications: dict[str, Node] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What only its server's database tells, by the keys of WORDS."""

    def limit(self, name: str) -> int | None:
        """Return a limit; None where there is none."""
        node = self.limits.get(name)
        return node.value if node else None

    def text(self, name: str) -> str | None:
        """Return a word of the specifications."""
        node = self.specifications.get(name)
        return node.value if node and isinstance(node.value, str) else None

    def at(self, name: str) -> Span:
        """Return where a limit or a specification stands, or the pool."""
        node = self.limits.get(name) or self.specifications.get(name)
        return node.span if node else self.place


@dataclass
class Machine:
    """What a pool's machines are, and what of that fleet.yaml cannot say."""

    image: str
    figures: dict[str, object]
    architecture: str = "amd64"
    is_known: bool = True
    left: list[tuple[Span, str]] = field(default_factory=list)


def read_pool(item: Node, notes: Notes) -> ListedPool | None:
    """Return a pool of the listing; what cannot be read becomes findings."""
    entries = _entries(item)
    specifications = _entries(entries.get("specifications"))
    words = [
        entries.get("name"),
        entries.get("provider_account"),
        specifications.get("provider_type"),
    ]
    name, account, kind = (node.value if node else None for node in words)
    if not _is_text(name) or not _is_text(account) or kind not in KINDS:
        message = "expected name, provider_account and specifications.provider_type"
        hint = f"provider_type is one of {', '.join(KINDS)}"
        notes.wrong(item.span, "wrong-type", message, hint)
        return None
    enabled = entries.get("enabled")
    limits = _entries(entries.get("limits"))
    pool = ListedPool(
        name,
        account,
        kind,
        enabled is None or enabled.value is not False,
        entries["name"].span,
        limits,
        specifications,
        {key: _words(key, entries[key], notes) for key in WORDS if key in entries},
    )
    for key, node in limits.items():
        _check_limit(key, node, notes)
    _check_specifications(pool, notes)
    return pool


def machine_of(pool: ListedPool, notes: Notes) -> Machine:
    """Return what a pool's machines are."""
    machine = _machine_of(pool, notes)
    architectures = pool.words.get("architectures") or (machine.architecture,)
    if machine.architecture not in architectures:
        machine.architecture = architectures[0]
    return machine


def _machine_of(pool: ListedPool, notes: Notes) -> Machine:
    if pool.kind == "hetzner":
        return _of_hetzner(pool)
    if pool.kind == "aws":
        return _of_aws(pool, notes)
    machine = Machine("dummy", {"cores": 1, "memory": "1GiB", "price": "0 EUR/h"}, is_known=False)
    machine.left = _left(pool.specifications, "provider_type")
    return machine


def _of_hetzner(pool: ListedPool) -> Machine:
    machine = Machine(pool.text("image_name") or "", {"type": pool.text("server_type") or ""})
    _complete(machine, {"kind": "hcloud", "location": "fsn1", "token": {"env": "TOKEN"}})
    used = ("provider_type", "server_type", "image_name", "location")
    machine.left = _left(pool.specifications, *used)
    return machine


def _of_aws(pool: ListedPool, notes: Notes) -> Machine:
    templates = pool.specifications["launch_templates"].items
    first = _entries(templates[0])
    figures: dict[str, object] = {}
    instance = first.get("InstanceType")
    if instance and instance.value:
        figures["type"] = str(instance.value)
    for key, name in (("root_device_size", "disk"), ("swap_size", "swap")):
        node = first.get(key)
        if node and isinstance(node.value, int) and 0 < node.value < _LONGEST * _LONGEST:
            figures[name] = size(node.value * 1024)
    market = pool.text("instance_market_type") or "spot"
    figures["market"] = [market if market in ("spot", "on-demand") else "spot"]
    machine = Machine(str(first["ImageId"].value), figures)
    _required(machine, _entries(first.get("InstanceRequirements")))
    _complete(machine, {"kind": "aws", "region": "eu-central-1"})
    used = ("provider_type", "launch_templates", "instance_market_type")
    machine.left = _left(pool.specifications, *used)
    known = ("ImageId", "InstanceType", "root_device_size", "swap_size")
    machine.left += _left(first, *known)
    for template in templates[1:]:
        now = "a pool has one kind of machine: write a pool of its own"
        notes.change("no-equivalent", template.span, f"another template of {pool.name}", now)
    return machine


def _words(key: str, node: Node, notes: Notes) -> tuple[str, ...]:
    words = tuple(item.value for item in node.items)
    if node.kind != "list" or not all(map(_is_text, words)):
        notes.wrong(node.span, "wrong-type", f"{key}: expected a list of words")
        return ()
    return tuple(dict.fromkeys(words))


def _required(machine: Machine, requirements: dict[str, Node]) -> None:
    cores = _least(requirements.get("VCpuCount"))
    memory = _least(requirements.get("MemoryMiB"))
    if cores and memory:
        machine.figures |= {"cores": cores, "memory": size(memory)}


def _least(node: Node | None) -> int | None:
    least = _entries(node).get("Min")
    return least.value if least and isinstance(least.value, int) and least.value > 0 else None


def _complete(machine: Machine, provider: dict[str, object]) -> None:
    """Add what a valid pool needs where the catalogue does not know the type."""
    known = _catalogued(provider, str(machine.figures.get("type", "")))
    if known:
        machine.architecture = known.architecture
    elif "cores" not in machine.figures:
        machine.figures |= {"cores": 1, "memory": "1GiB"}
        machine.is_known = False
    elif machine.figures.get("market") != ["spot"]:
        # Figures without a price make no machine.
        machine.is_known = False


def _catalogued(provider: dict[str, object], machine: str) -> MachineType | None:
    if not machine:
        return None
    fleet = Fleet.model_validate({"fleet": "x", "providers": {"p": provider}})
    pool = {"provider": "p", "machine": machine, "image": "x", "workers": {"max": 1}}
    return next(iter(find_types(fleet, Pool.model_validate(pool))), None)


def _left(entries: dict[str, Node], *used: str) -> list[tuple[Span, str]]:
    return [
        (node.span, f"{key}: {shown(node)}") for key, node in entries.items() if key not in used
    ]


def _check_limit(key: str, node: Node, notes: Notes) -> None:
    if key not in _LIMITS:
        notes.change("no-equivalent", node.span, f"limit {key}: {_short(node)}", "it is not known")
    elif node.value is not None and (
        not isinstance(node.value, int)
        or isinstance(node.value, bool)
        or not 0 <= node.value <= _MOST[key]
    ):
        message = f"{key}: expected a whole number up to {_MOST[key]}, got {_short(node)}"
        notes.wrong(node.span, "wrong-type", message)


def _check_specifications(pool: ListedPool, notes: Notes) -> None:
    if pool.kind == "hetzner" and not (pool.text("server_type") and pool.text("image_name")):
        notes.wrong(pool.place, "missing-key", "expected server_type and image_name")
    if pool.kind == "aws":
        templates = pool.specifications.get("launch_templates")
        image = (
            _entries(templates.items[0]).get("ImageId") if templates and templates.items else None
        )
        if image is None or not _is_text(image.value):
            notes.wrong(pool.place, "missing-key", "expected launch_templates with an ImageId")


def _entries(node: Node | None) -> dict[str, Node]:
    return {str(key.value): value for key, value in node.entries} if node else {}


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST


def _short(node: Node) -> str:
    return quoted(node.value) if node.kind == "scalar" else f"a {node.kind}"
