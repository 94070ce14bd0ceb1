"""Import the worker pools of a Debusine server from a listing.

The output of `debusine-admin worker_pool list --yaml` (0.16.2) has no architectures, tags, regions
or queues; a listing from the server's database also has architectures, tags and scopes. Values
that only the server has are marked as to do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from fleet.migrate.reading import (
    Foreign,
    Imported,
    ImportNotes,
    YamlBlock,
    duration,
    fleet_yaml,
    name_of,
    open_file,
    present,
    renaming,
    share,
    shown,
    size,
)
from fleet.model.prices import find_types
from fleet.schema.findings import Path, Span
from fleet.schema.load import fields_of
from fleet.schema.model import Fleet, Pool, default_sizes
from fleet.schema.units import Text
from fleet.tagrules.debusine import TYPE_PREFIX
from fleet.tagrules.sources import CLASS

_KINDS = {"hetzner": "hcloud", "aws": "aws", "dummy": "sim"}
"""Debusine's provider type to the kind in fleet.yaml."""
_IDLE_SECONDS = 3600
"""Debusine's default of max_idle_seconds."""
_UNBOUNDED = 20
_Words = list[Text]


class _PoolLimits(Foreign):
    max_active_instances: Annotated[int, Field(ge=0, le=100_000)] | None = None
    target_max_seconds_per_month: Annotated[int, Field(ge=0, le=10**12)] | None = None
    max_idle_seconds: Annotated[int, Field(ge=0, le=9_999_999)] | None = _IDLE_SECONDS


class _Minimum(Foreign):
    least: Annotated[int, Field(ge=0)] | None = Field(None, alias="Min")


class _Requirements(Foreign):
    cores: _Minimum | None = Field(None, alias="VCpuCount")
    memory: _Minimum | None = Field(None, alias="MemoryMiB")


class _Template(Foreign):
    image: Text = Field(alias="ImageId")
    type: Text | None = Field(None, alias="InstanceType")
    root_device_size: Annotated[int, Field(ge=0, lt=1_000_000)] | None = None
    swap_size: Annotated[int, Field(ge=0, lt=1_000_000)] | None = None
    requirements: _Requirements | None = Field(None, alias="InstanceRequirements")


class _Hetzner(Foreign):
    provider_type: Literal["hetzner"]
    server_type: Text
    image_name: Text
    location: Text | None = None


class _Aws(Foreign):
    provider_type: Literal["aws"]
    launch_templates: Annotated[list[_Template], Field(min_length=1)]
    instance_market_type: str | None = None


class _Dummy(Foreign):
    provider_type: Literal["dummy"]


_Specifications = Annotated[
    Annotated[_Hetzner, Tag("hetzner")]
    | Annotated[_Aws, Tag("aws")]
    | Annotated[_Dummy, Tag("dummy")],
    Discriminator("provider_type"),
]


class ListedPool(Foreign):
    """One pool of the listing; only a listing from the database fills the lists."""

    name: Text
    account: Text = Field(alias="provider_account")
    enabled: bool | None = None
    limits: _PoolLimits | None = None
    specifications: _Specifications
    architectures: _Words = Field([])
    provided_tags: _Words = Field([])
    required_tags: _Words = Field([])
    reported_tags: _Words = Field([])
    scopes: _Words = Field([])


class _PlacedPool(NamedTuple):
    """A pool, its limits, its path in the listing, and the position of its name."""

    pool: ListedPool
    limits: _PoolLimits
    path: Path
    place: Span


@dataclass
class _PoolMachines:
    """The machines of a pool: image, resources and price, and architecture."""

    image: str
    figures: dict[str, object]
    architecture: str = "amd64"
    is_known: bool = True


@dataclass
class _Fleet:
    """The sections of the imported fleet.yaml."""

    notes: ImportNotes
    scopes: list[str]
    providers: dict[str, dict[str, object]] = field(default_factory=dict)
    images: dict[str, YamlBlock] = field(default_factory=dict)
    pools: dict[str, YamlBlock] = field(default_factory=dict)
    accounts: dict[tuple[str, ...], str] = field(default_factory=dict)
    sources: dict[tuple[object, ...], str] = field(default_factory=dict)


def import_debusine(name: str, content: bytes, fleet: str) -> Imported:
    """Return the fleet.yaml for a listing of worker pools."""
    notes = open_file(name, content)
    expected = "the list that `debusine-admin worker_pool list --yaml` prints"
    listed = notes.read(list[ListedPool], expected)
    found = _Fleet(notes, sorted({scope for pool in listed for scope in pool.scopes}))
    for number, pool in enumerate(listed):
        place = notes.document.span((number, "name"))
        _add(found, _PlacedPool(pool, pool.limits or _PoolLimits(), (number,), place))
    missing = "address" if found.scopes else "address and scopes"
    queue = {
        "kind": "debusine",
        "url": "https://debusine.example.org",
        "scopes": found.scopes or ["debian"],
    }
    to_do = f"to do: add {missing} of the server, missing in the listing"
    templates = share(found.pools, "debusine")
    sections = {
        "money": _money(found),
        "providers": YamlBlock(found.providers),
        "queues": YamlBlock({"debusine": queue}, [to_do]),
        "images": YamlBlock(found.images),
        "templates": YamlBlock(templates) if templates else None,
        "pools": YamlBlock(found.pools),
    }
    return notes.imported(fleet_yaml("debusine", name, fleet, sections))


def _money(found: _Fleet) -> object:
    kinds = {provider["kind"] for provider in found.providers.values()}
    if "aws" not in kinds:
        return None
    if kinds == {"aws"}:
        return {"currency": "USD"}
    now = "fleet.yaml needs the exchange rate; 1.0 is a placeholder"
    place = found.notes.document.span((0, "name"))
    found.notes.change("to-do", place, "prices in USD beside others", now)
    exchange = {"USD": {"rate": 1.0, "as_of": "2025-06-01"}}
    return YamlBlock({"exchange": exchange}, ["to do: write the real exchange rate"])


def _add(found: _Fleet, item: _PlacedPool) -> None:
    pool, notes = item.pool, found.notes
    name = _name(found, item, "pool", pool.name, found.pools)
    machine = _machine_of(pool)
    provider = _provider(found, item)
    provides = _kept_tags(pool.provided_tags)
    if classes := [tag for tag in pool.provided_tags if tag not in provides]:
        now = "fleet derives classes and types from the machine's figures"
        notes.change("changed", item.place, f"pool {pool.name}: {', '.join(classes)}", now)
    value = {
        "provider": provider,
        "machine": machine.figures,
        "image": _image(found, item, provider, machine),
        "provides": provides or None,
        "requires": pool.required_tags or None,
        "workers": {"max": _read_max_instances(item, notes)},
        "retire": _retire(item, notes),
        "mode": _mode(item, machine, notes),
    }
    below = [f"no equivalent: {text}" for text in _list_remaining(found, item)]
    found.pools[name] = YamlBlock(present(value), below=below)


def _name(found: _Fleet, item: _PlacedPool, kind: str, text: str, taken: Iterable[str]) -> str:
    """Return a valid name for fleet.yaml; report it as a change if it differs from `text`."""
    name = name_of(text, taken)
    if name != text:
        found.notes.change("renamed", item.place, f"{kind} {text}", renaming(text, name))
    return name


def _machine_of(pool: ListedPool) -> _PoolMachines:
    match pool.specifications:
        case _Hetzner() as server:
            machine = _PoolMachines(server.image_name, {"type": server.server_type})
            _complete(machine, {"kind": "hcloud", "location": "fsn1", "token": {"env": "TOKEN"}})
        case _Aws() as instance:
            machine = _PoolMachines(instance.launch_templates[0].image, _figures(instance))
            _complete(machine, {"kind": "aws", "region": "eu-central-1"})
        case _:
            figures = {"cores": 1, "memory": "1GiB", "price": "0 EUR/h"}
            machine = _PoolMachines("dummy", figures, is_known=False)
    if pool.architectures and machine.architecture not in pool.architectures:
        machine.architecture = pool.architectures[0]
    return machine


def _figures(instance: _Aws) -> dict[str, object]:
    """Return type, resources and market of an AWS instance, from its first launch template."""
    template = instance.launch_templates[0]
    disk, swap = template.root_device_size, template.swap_size
    required = template.requirements or _Requirements()
    cores, memory = (each and each.least for each in (required.cores, required.memory))
    is_required = cores and memory
    market = instance.instance_market_type
    return present(
        {
            "type": template.type,
            "disk": size(disk * 1024) if disk else None,
            "swap": size(swap * 1024) if swap else None,
            "market": [market if market == "on-demand" else "spot"],
            "cores": cores if is_required else None,
            "memory": size(memory) if memory and is_required else None,
        }
    )


def _complete(machine: _PoolMachines, provider: dict[str, object]) -> None:
    """Add placeholder resources if the catalogue does not have the machine type."""
    fleet = Fleet.model_validate({"fleet": "x", "providers": {"p": provider}})
    kind = machine.figures.get("type")
    pool = {"provider": "p", "machine": kind, "image": "x", "workers": {"max": 1}}
    known = find_types(fleet, Pool.model_validate(pool)) if kind else ()
    if known:
        machine.architecture = known[0].architecture
    elif "cores" not in machine.figures:
        machine.figures |= {"cores": 1, "memory": "1GiB"}
        machine.is_known = False
    elif machine.figures.get("market") != ["spot"]:
        # Figures without a price do not define a machine.
        machine.is_known = False


def _mode(item: _PlacedPool, machine: _PoolMachines, notes: ImportNotes) -> str | None:
    if not machine.is_known:
        now = "its figures are invented: write the real ones, then remove `mode: observe`"
        notes.change("to-do", item.place, f"machine of pool {item.pool.name}", now)
        return "observe"
    if item.pool.enabled is False:
        now = "mode: pause (fleet does not change it)"
        notes.change("renamed", item.place, f"pool {item.pool.name} is disabled", now)
        return "pause"
    return None


def _retire(item: _PlacedPool, notes: ImportNotes) -> dict[str, object]:
    seconds = item.limits.max_idle_seconds
    place = _place_limit(item, "max_idle_seconds", notes)
    if seconds == 0:
        now = "idle machines are deleted immediately: after 1s, and before their paid hour ends"
        notes.change("changed", place, "max_idle_seconds: 0", now)
        return {"idle_after": "1s", "at": "once"}
    if seconds is None:
        now = f"no limit there; fleet needs one, so idle_after is {duration(_IDLE_SECONDS)}"
        notes.change("to-do", place, "max_idle_seconds: null", now)
    return {"idle_after": duration(seconds or _IDLE_SECONDS)}


def _read_max_instances(item: _PlacedPool, notes: ImportNotes) -> int:
    most = item.limits.max_active_instances
    if most is None:
        now = f"no limit there; fleet needs one, so workers.max is {_UNBOUNDED} now"
        place = _place_limit(item, "max_active_instances", notes)
        notes.change("to-do", place, f"pool {item.pool.name}", now)
    return _UNBOUNDED if most is None else most


def _place_limit(item: _PlacedPool, limit: str, notes: ImportNotes) -> Span:
    """Return the position of a limit; if the limit is missing, the position of its pool."""
    is_there = limit in item.limits.model_fields_set
    return notes.document.span((*item.path, "limits", limit)) if is_there else item.place


def _list_remaining(found: _Fleet, item: _PlacedPool) -> Iterator[str]:
    """Report the settings that fleet.yaml cannot express; also yield each for a comment."""
    pool, notes = item.pool, found.notes
    seconds = item.limits.target_max_seconds_per_month
    if seconds is not None:
        what = f"target_max_seconds_per_month: {seconds}"
        now = f"{seconds / 3600:.0f} machine hours; write budget.per_month in money"
        notes.change(
            "no-equivalent", _place_limit(item, "target_max_seconds_per_month", notes), what, now
        )
        yield what
    if set(pool.scopes) < set(found.scopes):
        what = f"only for the scopes {', '.join(pool.scopes) or '(none)'}"
        notes.change("no-equivalent", item.place, what, "fleet serves every scope of its queue")
        yield what
    for place, what in _find_unknown_keys(notes, (*item.path, "limits"), _PoolLimits):
        notes.change("no-equivalent", place, f"limit {what}", "unknown limit")
    specifications = (*item.path, "specifications")
    unknown = [*_find_unknown_keys(notes, specifications, type(pool.specifications))]
    if isinstance(pool.specifications, _Aws):
        templates = (*specifications, "launch_templates")
        unknown += _find_unknown_keys(notes, (*templates, 0), _Template)
        for number in range(1, len(pool.specifications.launch_templates)):
            place = notes.document.span((*templates, number))
            now = "a pool has one kind of machine: write another pool for it"
            notes.change("no-equivalent", place, f"another template of {pool.name}", now)
    for place, what in unknown:
        notes.change("no-equivalent", place, what, "fleet creates machines without it")
        yield what


def _find_unknown_keys(
    notes: ImportNotes, path: Path, part: type[Foreign]
) -> Iterator[tuple[Span, str]]:
    """Yield position and text of each key of a part that fleet cannot import."""
    value: Any = notes.document.value
    for step in path:
        value = (value[step] if isinstance(step, int) else value.get(step)) or {}
    known = fields_of(part).keys() - {"InstanceRequirements"}
    for key in value:
        if key not in known:
            yield notes.document.span((*path, key)), f"{key}: {shown(value[key])}"


def _provider(found: _Fleet, item: _PlacedPool) -> str:
    pool, notes, place = item.pool, found.notes, item.place
    server = pool.specifications if isinstance(pool.specifications, _Hetzner) else None
    location = (server and server.location) or ""
    kind = pool.specifications.provider_type
    key = (kind, pool.account, location)
    if key in found.accounts:
        return found.accounts[key]
    account = f"provider account {pool.account}"
    name = _name(found, item, "provider account", pool.account, found.providers)
    found.accounts[key] = name
    written: dict[str, object] = {"kind": _KINDS[kind]}
    if server:
        variable = f"{name.upper().replace('-', '_')}_TOKEN"
        written |= {"location": location or "fsn1", "token": {"env": variable}}
        now = f"its API token is read from the environment variable {variable}"
        notes.change("to-do", place, account, now)
        if not location:
            now = "the listing has no location; fsn1 is a placeholder"
            notes.change("to-do", place, f"location of pool {pool.name}", now)
    elif kind == "aws":
        written["region"] = "eu-central-1"
        now = "the listing has no region; eu-central-1 is a placeholder"
        notes.change("to-do", place, f"region of {account}", now)
    found.providers[name] = written
    return name


def _image(found: _Fleet, item: _PlacedPool, provider: str, machine: _PoolMachines) -> str:
    reported = _kept_tags(item.pool.reported_tags)
    key = (provider, machine.image, machine.architecture, *reported)
    if key in found.sources:
        return found.sources[key]
    name = _name(found, item, "image", machine.image, found.images)
    found.sources[key] = name
    found.images[name] = YamlBlock(
        {
            "existing": {provider: machine.image},
            "architecture": machine.architecture,
            "provides": reported,
        }
    )
    if not reported:
        now = "the listing has no tags: add those that its worker reports to `provides`"
        found.notes.change("to-do", item.place, f"image {machine.image}", now)
    return name


def _kept_tags(tags: Iterable[str]) -> list[str]:
    """Return the tags that fleet does not derive from machine type or size."""
    own = (TYPE_PREFIX, *(CLASS + size for size in default_sizes()))
    return [tag for tag in dict.fromkeys(tags) if not tag.startswith(own)]
