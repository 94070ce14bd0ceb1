"""This module turns Debusine's own worker pools into pools of fleet.

It reads what `debusine-admin worker_pool list --yaml` prints (0.16.2). That listing says neither
architectures nor tags nor regions nor queues; one from the server's database adds architectures,
tags and scopes (WORDS). What only the server knows is marked as to do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.imports.changes import Imported, Notes, decoded, read_plain, read_yaml
from fleet.imports.debusine_pool import ListedPool, Machine, machine_of, read_pool
from fleet.imports.sharing import share
from fleet.imports.writing import (
    Block,
    block_to_lines,
    comments,
    document,
    duration,
    flow,
    name_of,
    renaming,
    scalar,
    templates_to_lines,
)
from fleet.schema.findings import Span
from fleet.schema.model import default_sizes
from fleet.schema.nodes import Node
from fleet.tagrules.debusine import CLASS_PREFIX, TYPE_PREFIX

_KINDS = {"hetzner": "hcloud", "aws": "aws", "dummy": "sim"}
_UNBOUNDED = 20


@dataclass
class _Fleet:
    """What the listing becomes, section by section."""

    providers: dict[str, dict[str, object]] = field(default_factory=dict)
    images: dict[str, Block] = field(default_factory=dict)
    pools: list[tuple[str, Block]] = field(default_factory=list)
    accounts: dict[tuple[str, str, str], str] = field(default_factory=dict)
    sources: dict[tuple[str, str, str, tuple[str, ...]], str] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()


def import_debusine(name: str, content: bytes, fleet: str) -> Imported:
    """Return the fleet.yaml that a listing of worker pools becomes."""
    text, wrong = decoded(name, content)
    if text is None:
        return Imported(read_plain(name, ""), findings=(wrong,) if wrong else ())
    written, parsed = read_yaml(name, text)
    notes = Notes(findings=list(written.findings))
    listed = _listed(parsed.root, name, notes)
    if notes.findings:
        return Imported(written, findings=tuple(notes.findings))
    found = _Fleet(scopes=tuple(sorted({s for p in listed for s in p.words.get("scopes", ())})))
    for pool in listed:
        _add(found, pool, notes)
    if {"aws"} < {provider["kind"] for provider in found.providers.values()}:
        now = "fleet.yaml needs its rate; 1.0 stands in its place"
        notes.change("to-do", listed[0].place, "prices in USD beside others", now)
    return Imported(written, document(_lines(name, fleet, found)), notes.sorted_changes())


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
            ("retire", {"idle_after": duration(max(1, pool.limit("max_idle_seconds") or 3600))}),
        ]
    )
    mode = _mode(pool, machine, notes)
    if mode:
        block.entries.append(("mode", mode))
    block.below += [f"no equivalent: {text}" for text in _left(found, pool, machine, notes)]
    found.pools.append((name, block))


def _mode(pool: ListedPool, machine: Machine, notes: Notes) -> str | None:
    if not machine.is_known:
        now = "its figures are invented: write the true ones, then take `mode: observe` away"
        notes.change("to-do", pool.place, f"machine of pool {pool.name}", now)
        return "observe"
    if not pool.enabled:
        now = "mode: pause (fleet leaves it alone)"
        notes.change("renamed", pool.place, f"pool {pool.name} is disabled", now)
        return "pause"
    return None


def _most(pool: ListedPool, notes: Notes) -> int:
    most = pool.limit("max_active_instances")
    if most is None:
        now = f"nothing bounds it there; fleet needs a bound, so it is {_UNBOUNDED} now"
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
        notes.change("no-equivalent", pool.place, what, "it serves every scope of its queue")
        yield what
    for place, what in machine.left:
        notes.change("no-equivalent", place, what, "fleet makes machines without it")
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
    written: dict[str, object] = {"kind": _KINDS[pool.kind]}
    if pool.kind == "hetzner":
        written |= {
            "location": location or "fsn1",
            "token": {"env": f"{name.upper().replace('-', '_')}_TOKEN"},
        }
        now = f"its API token comes from the environment: {name.upper().replace('-', '_')}_TOKEN"
        notes.change("to-do", pool.place, f"provider account {pool.account}", now)
        if not location:
            now = "the listing names no location; fsn1 stands in its place"
            notes.change("to-do", pool.place, f"location of pool {pool.name}", now)
    elif pool.kind == "aws":
        written["region"] = "eu-central-1"
        now = "the listing names no region; eu-central-1 stands in its place"
        notes.change("to-do", pool.place, f"region of provider account {pool.account}", now)
    found.providers[name] = written
    return name


def _image(found: _Fleet, pool: ListedPool, provider: str, machine: Machine, notes: Notes) -> str:
    reported = _carried(pool, "reported_tags")
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
        now = "the listing has no tags: write into `provides` what its worker reports, or "
        notes.change("to-do", pool.place, f"image {machine.image}", f"{now}nothing fits")
    return name


def _tags_of(pool: ListedPool, notes: Notes) -> Iterator[tuple[str, object]]:
    provides, requires = _carried(pool, "provided_tags"), pool.words.get("required_tags", ())
    classes = [tag for tag in pool.words.get("provided_tags", ()) if tag not in provides]
    if classes:
        now = "fleet gives classes and types by the machine's figures"
        notes.change("changed", pool.place, f"pool {pool.name}: {', '.join(classes)}", now)
    if provides:
        yield "provides", list(provides)
    if requires:
        yield "requires", list(requires)


def _carried(pool: ListedPool, key: str) -> tuple[str, ...]:
    """Return the tags that are as true of fleet's machines: not those of its own making."""
    own = (TYPE_PREFIX, *(CLASS_PREFIX + size for size in default_sizes()))
    return tuple(tag for tag in pool.words.get(key, ()) if not tag.startswith(own))


def _lines(name: str, fleet: str, found: _Fleet) -> Iterator[str]:
    yield from comments([f"Written by `fleet import debusine` from {name}: read it before use."])
    yield f"fleet: {scalar(fleet)}"
    yield from _money(found)
    yield ""
    yield "providers:" if found.providers else "providers: {}"
    yield from (f"  {scalar(key)}: {flow(value)}" for key, value in found.providers.items())
    yield ""
    missing = "address" if found.scopes else "address nor its scopes"
    said = "does not say the server's" if found.scopes else "says neither the server's"
    yield from comments([f"to do: the listing {said} {missing}"])
    yield "queues:"
    scopes = list(found.scopes) or ["debian"]
    queue = {"kind": "debusine", "url": "https://debusine.example.org", "scopes": scopes}
    yield f"  debusine: {flow(queue)}"
    yield ""
    yield "images:" if found.images else "images: {}"
    for key, block in found.images.items():
        yield from block_to_lines(key, block)
    yield from templates_to_lines(share(found.pools, "debusine"))
    yield ""
    yield "pools:" if found.pools else "pools: {}"
    for key, block in found.pools:
        yield from block_to_lines(key, block)


def _money(found: _Fleet) -> Iterator[str]:
    kinds = {provider["kind"] for provider in found.providers.values()}
    if kinds == {"aws"}:
        yield "money: {currency: USD}"
    elif "aws" in kinds:
        yield from comments(["to do: the rate is invented"])
        yield "money: {exchange: {USD: {rate: 1.0, as_of: 2025-06-01}}}"
