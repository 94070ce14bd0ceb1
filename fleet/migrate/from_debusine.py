"""Import the worker pools of a Debusine from its listing.

The output of `debusine-admin worker_pool list --yaml` (0.16.2) has no architectures, tags, regions
or queues; a listing from the server's database adds architectures, tags and scopes (WORDS). Values
that only the server knows are marked as to do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from fleet.migrate.writing import (
    Block,
    Imported,
    Notes,
    comments,
    duration,
    flow,
    header,
    name_of,
    read_text,
    read_yaml,
    renaming,
    scalar,
    section,
    share,
    short,
    shown,
    size,
    templates_to_lines,
)
from fleet.model.prices import MachineType, find_types
from fleet.schema.findings import Span
from fleet.schema.model import Fleet, Pool, default_sizes
from fleet.schema.nodes import Node
from fleet.tagrules.debusine import TYPE_PREFIX
from fleet.tagrules.sources import CLASS

KINDS = {"hetzner": "hcloud", "aws": "aws", "dummy": "sim"}
"""Debusine's types of provider to the kinds of fleet.yaml."""
_LIMITS = ("max_active_instances", "target_max_seconds_per_month", "max_idle_seconds")
_MOST = {
    "max_active_instances": 100_000,
    "target_max_seconds_per_month": 10**12,
    "max_idle_seconds": 9_999_999,
}
_IDLE_SECONDS = 3600
"""Debusine's own default of max_idle_seconds."""
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
    """Words that only the server's database has, by the keys of WORDS."""

    def limit(self, name: str) -> int | None:
        """Return a limit; None if not set."""
        node = self.limits.get(name)
        return node.value if node else None

    def text(self, name: str) -> str | None:
        """Return a word of the specifications."""
        node = self.specifications.get(name)
        return node.value if node and isinstance(node.value, str) else None

    def at(self, name: str) -> Span:
        """Return the place of a limit or a specification, else of the pool."""
        node = self.limits.get(name) or self.specifications.get(name)
        return node.span if node else self.place


@dataclass
class Machine:
    """The machines of a pool, and their properties that fleet.yaml cannot express."""

    image: str
    figures: dict[str, object]
    architecture: str = "amd64"
    is_known: bool = True
    left: list[tuple[Span, str]] = field(default_factory=list)


def read_pool(item: Node, notes: Notes) -> ListedPool | None:
    """Return a pool of the listing; unreadable parts become findings."""
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
    """Return the machines of a pool."""
    machine = _machine_of(pool, notes)
    architectures = pool.words.get("architectures") or (machine.architecture,)
    if machine.architecture not in architectures:
        machine.architecture = architectures[0]
    return machine


def _machine_of(pool: ListedPool, notes: Notes) -> Machine:
    if pool.kind == "hetzner":
        return _hetzner_machine(pool)
    if pool.kind == "aws":
        return _aws_machine(pool, notes)
    machine = Machine("dummy", {"cores": 1, "memory": "1GiB", "price": "0 EUR/h"}, is_known=False)
    machine.left = _unused_entries(pool.specifications, "provider_type")
    return machine


def _hetzner_machine(pool: ListedPool) -> Machine:
    machine = Machine(pool.text("image_name") or "", {"type": pool.text("server_type") or ""})
    _complete(machine, {"kind": "hcloud", "location": "fsn1", "token": {"env": "TOKEN"}})
    used = ("provider_type", "server_type", "image_name", "location")
    machine.left = _unused_entries(pool.specifications, *used)
    return machine


def _aws_machine(pool: ListedPool, notes: Notes) -> Machine:
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
    machine.left = _unused_entries(pool.specifications, *used)
    known = ("ImageId", "InstanceType", "root_device_size", "swap_size")
    machine.left += _unused_entries(first, *known)
    for template in templates[1:]:
        now = "a pool has one kind of machine: write another pool for it"
        notes.change("no-equivalent", template.span, f"another template of {pool.name}", now)
    return machine


def _words(key: str, node: Node, notes: Notes) -> tuple[str, ...]:
    words = tuple(item.value for item in node.items)
    if node.kind != "list" or not all(map(_is_text, words)):
        notes.wrong(node.span, "wrong-type", f"{key}: expected a list of words")
        return ()
    return tuple(dict.fromkeys(words))


def _required(machine: Machine, requirements: dict[str, Node]) -> None:
    cores = _read_minimum(requirements.get("VCpuCount"))
    memory = _read_minimum(requirements.get("MemoryMiB"))
    if cores and memory:
        machine.figures |= {"cores": cores, "memory": size(memory)}


def _read_minimum(node: Node | None) -> int | None:
    least = _entries(node).get("Min")
    return least.value if least and isinstance(least.value, int) and least.value > 0 else None


def _complete(machine: Machine, provider: dict[str, object]) -> None:
    """Add the keys that a valid pool needs if the catalogue does not have the type."""
    known = _catalogued(provider, str(machine.figures.get("type", "")))
    if known:
        machine.architecture = known.architecture
    elif "cores" not in machine.figures:
        machine.figures |= {"cores": 1, "memory": "1GiB"}
        machine.is_known = False
    elif machine.figures.get("market") != ["spot"]:
        # Figures without a price do not define a machine.
        machine.is_known = False


def _catalogued(provider: dict[str, object], machine: str) -> MachineType | None:
    if not machine:
        return None
    fleet = Fleet.model_validate({"fleet": "x", "providers": {"p": provider}})
    pool = {"provider": "p", "machine": machine, "image": "x", "workers": {"max": 1}}
    return next(iter(find_types(fleet, Pool.model_validate(pool))), None)


def _unused_entries(entries: dict[str, Node], *used: str) -> list[tuple[Span, str]]:
    return [
        (node.span, f"{key}: {shown(node)}") for key, node in entries.items() if key not in used
    ]


def _check_limit(key: str, node: Node, notes: Notes) -> None:
    if key not in _LIMITS:
        notes.change("no-equivalent", node.span, f"limit {key}: {short(node)}", "unknown limit")
    elif node.value is not None and (
        not isinstance(node.value, int)
        or isinstance(node.value, bool)
        or not 0 <= node.value <= _MOST[key]
    ):
        message = f"{key}: expected a whole number up to {_MOST[key]}, got {short(node)}"
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


_UNBOUNDED = 20


@dataclass
class _Fleet:
    """The imported fleet, section by section."""

    providers: dict[str, dict[str, object]] = field(default_factory=dict)
    images: dict[str, Block] = field(default_factory=dict)
    pools: list[tuple[str, Block]] = field(default_factory=list)
    accounts: dict[tuple[str, str, str], str] = field(default_factory=dict)
    sources: dict[tuple[str, str, str, tuple[str, ...]], str] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()


def import_debusine(name: str, content: bytes, fleet: str) -> Imported:
    """Return the fleet.yaml for a listing of worker pools."""
    text = read_text(name, content)
    if isinstance(text, Imported):
        return text
    written, parsed = read_yaml(name, text)
    notes = Notes(findings=list(written.findings))
    listed = _listed(parsed.root, name, notes)
    return notes.imported(written, _lines(name, fleet, listed, notes))


def _found(listed: list[ListedPool], notes: Notes) -> _Fleet:
    found = _Fleet(scopes=tuple(sorted({s for p in listed for s in p.words.get("scopes", ())})))
    for pool in listed:
        _add(found, pool, notes)
    if {"aws"} < {provider["kind"] for provider in found.providers.values()}:
        now = "fleet.yaml needs the exchange rate; 1.0 is a placeholder"
        notes.change("to-do", listed[0].place, "prices in USD beside others", now)
    return found


def _listed(root: Node | None, name: str, notes: Notes) -> list[ListedPool]:
    if root is None or root.kind != "list":
        if not notes.findings:
            message = "expected the list that `debusine-admin worker_pool list --yaml` prints"
            notes.wrong(root.span if root else Span(name), "wrong-type", message)
        return []
    read = (read_pool(item, notes) for item in root.items)
    return [pool for pool in read if pool is not None]


def _add(found: _Fleet, pool: ListedPool, notes: Notes) -> None:
    name = name_of(pool.name, (each for each, _ in found.pools))
    if name != pool.name:
        notes.change("renamed", pool.place, f"pool {pool.name}", renaming(pool.name, name))
    machine = machine_of(pool, notes)
    provider = _provider(found, pool, notes)
    image = _image(found, pool, provider, machine, notes)
    block = Block(
        [
            ("provider", provider),
            ("machine", machine.figures),
            ("image", image),
            *_tags_of(pool, notes),
            ("workers", {"max": _most(pool, notes)}),
            ("retire", _retire(pool, notes)),
        ]
    )
    mode = _mode(pool, machine, notes)
    if mode:
        block.entries.append(("mode", mode))
    block.below += [f"no equivalent: {text}" for text in _left(found, pool, machine, notes)]
    found.pools.append((name, block))


def _mode(pool: ListedPool, machine: Machine, notes: Notes) -> str | None:
    if not machine.is_known:
        now = "its figures are invented: write the real ones, then remove `mode: observe`"
        notes.change("to-do", pool.place, f"machine of pool {pool.name}", now)
        return "observe"
    if not pool.enabled:
        now = "mode: pause (fleet does not change it)"
        notes.change("renamed", pool.place, f"pool {pool.name} is disabled", now)
        return "pause"
    return None


def _retire(pool: ListedPool, notes: Notes) -> dict[str, object]:
    seconds = pool.limit("max_idle_seconds")
    if seconds == 0:
        now = "idle machines are deleted immediately: after 1s, and before their paid hour ends"
        notes.change("changed", pool.at("max_idle_seconds"), "max_idle_seconds: 0", now)
        return {"idle_after": "1s", "at": "once"}
    if seconds is None and "max_idle_seconds" in pool.limits:
        now = f"no limit there; fleet needs one, so idle_after is {duration(_IDLE_SECONDS)}"
        notes.change("to-do", pool.at("max_idle_seconds"), "max_idle_seconds: null", now)
    return {"idle_after": duration(_IDLE_SECONDS if seconds is None else seconds)}


def _most(pool: ListedPool, notes: Notes) -> int:
    most = pool.limit("max_active_instances")
    if most is None:
        now = f"no limit there; fleet needs one, so workers.max is {_UNBOUNDED} now"
        notes.change("to-do", pool.at("max_active_instances"), f"pool {pool.name}", now)
    return _UNBOUNDED if most is None else most


def _left(found: _Fleet, pool: ListedPool, machine: Machine, notes: Notes) -> Iterator[str]:
    seconds = pool.limit("target_max_seconds_per_month")
    if seconds is not None:
        what = f"target_max_seconds_per_month: {seconds}"
        now = f"{seconds / 3600:.0f} machine hours; write budget.per_month in money"
        notes.change("no-equivalent", pool.at("target_max_seconds_per_month"), what, now)
        yield what
    scopes = pool.words.get("scopes", ())
    if set(scopes) < set(found.scopes):
        what = f"only for the scopes {', '.join(scopes) or '(none)'}"
        notes.change("no-equivalent", pool.place, what, "fleet serves every scope of its queue")
        yield what
    for place, what in machine.left:
        notes.change("no-equivalent", place, what, "fleet creates machines without it")
        yield what


def _provider(found: _Fleet, pool: ListedPool, notes: Notes) -> str:
    location = str(pool.text("location") or "") if pool.kind == "hetzner" else ""
    key = (pool.kind, pool.account, location)
    if key in found.accounts:
        return found.accounts[key]
    name = name_of(pool.account, found.providers)
    found.accounts[key] = name
    if name != pool.account:
        what = f"provider account {pool.account}"
        notes.change("renamed", pool.place, what, renaming(pool.account, name))
    written: dict[str, object] = {"kind": KINDS[pool.kind]}
    if pool.kind == "hetzner":
        variable = f"{name.upper().replace('-', '_')}_TOKEN"
        written |= {
            "location": location or "fsn1",
            "token": {"env": variable},
        }
        now = f"its API token is read from the environment variable {variable}"
        notes.change("to-do", pool.place, f"provider account {pool.account}", now)
        if not location:
            now = "the listing has no location; fsn1 is a placeholder"
            notes.change("to-do", pool.place, f"location of pool {pool.name}", now)
    elif pool.kind == "aws":
        written["region"] = "eu-central-1"
        now = "the listing has no region; eu-central-1 is a placeholder"
        notes.change("to-do", pool.place, f"region of provider account {pool.account}", now)
    found.providers[name] = written
    return name


def _image(found: _Fleet, pool: ListedPool, provider: str, machine: Machine, notes: Notes) -> str:
    reported = _kept_tags(pool, "reported_tags")
    key = (provider, machine.image, machine.architecture, reported)
    if key in found.sources:
        return found.sources[key]
    name = name_of(machine.image, found.images)
    found.sources[key] = name
    if name != machine.image:
        notes.change(
            "renamed", pool.place, f"image {machine.image}", renaming(machine.image, name)
        )
    found.images[name] = Block(
        [
            ("existing", {provider: machine.image}),
            ("architecture", machine.architecture),
            ("provides", list(reported)),
        ],
    )
    if not reported:
        now = "the listing has no tags: add those that its worker reports to `provides`"
        notes.change("to-do", pool.place, f"image {machine.image}", now)
    return name


def _tags_of(pool: ListedPool, notes: Notes) -> Iterator[tuple[str, object]]:
    provides, requires = _kept_tags(pool, "provided_tags"), pool.words.get("required_tags", ())
    classes = [tag for tag in pool.words.get("provided_tags", ()) if tag not in provides]
    if classes:
        now = "fleet derives classes and types from the machine's figures"
        notes.change("changed", pool.place, f"pool {pool.name}: {', '.join(classes)}", now)
    if provides:
        yield "provides", list(provides)
    if requires:
        yield "requires", list(requires)


def _kept_tags(pool: ListedPool, key: str) -> tuple[str, ...]:
    """Return the tags that also apply to fleet's machines: not those that fleet derives."""
    own = (TYPE_PREFIX, *(CLASS + size for size in default_sizes()))
    return tuple(tag for tag in pool.words.get(key, ()) if not tag.startswith(own))


def _lines(name: str, fleet: str, listed: list[ListedPool], notes: Notes) -> Iterator[str]:
    found = _found(listed, notes)
    yield from header("debusine", name, fleet)
    yield from _money(found)
    yield ""
    yield "providers:" if found.providers else "providers: {}"
    yield from (f"  {scalar(key)}: {flow(value)}" for key, value in found.providers.items())
    yield ""
    missing = "address" if found.scopes else "address and scopes"
    yield from comments([f"to do: write the server's {missing}; the listing has none"])
    yield "queues:"
    scopes = list(found.scopes) or ["debian"]
    queue = {"kind": "debusine", "url": "https://debusine.example.org", "scopes": scopes}
    yield f"  debusine: {flow(queue)}"
    yield from section("images", found.images.items())
    yield from templates_to_lines(share(found.pools, "debusine"))
    yield from section("pools", found.pools)


def _money(found: _Fleet) -> Iterator[str]:
    kinds = {provider["kind"] for provider in found.providers.values()}
    if kinds == {"aws"}:
        yield "money: {currency: USD}"
    elif "aws" in kinds:
        yield from comments(["to do: write the real exchange rate"])
        yield "money: {exchange: {USD: {rate: 1.0, as_of: 2025-06-01}}}"
