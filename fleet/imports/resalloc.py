"""This module turns a Resalloc pools.yaml into pools of machines that hooks make.

Each option is read the way Resalloc 6.3 reads it. Whatever fleet.yaml cannot say stands as a
comment beside its pool and in the report; nothing is dropped silently.
"""

import re
from collections.abc import Iterator

from fleet.imports.changes import Imported, Notes, decoded, read_plain, read_yaml
from fleet.imports.resalloc_pool import PoolOptions, read_options
from fleet.imports.resalloc_pool_block import machine_block, pool_block
from fleet.imports.sharing import share
from fleet.imports.writing import (
    block_to_lines,
    comments,
    document,
    flow,
    name_of,
    renaming,
    scalar,
    templates_to_lines,
)
from fleet.schema.findings import Finding, Span
from fleet.schema.nodes import Node, lines_of
from fleet.schema.units import POOL_PATTERN

_INVENTED = "invented-machine"
_JINJA = re.compile(r"\{%|\{\{|\{#")


def import_resalloc(
    name: str, content: bytes, fleet: str, *, with_scripts: bool = False
) -> Imported:
    """Return the fleet.yaml that a pools.yaml becomes; `with_scripts`: and files beside it."""
    text, wrong = decoded(name, content)
    if text is None:
        return Imported(read_plain(name, ""), findings=(wrong,) if wrong else ())
    written, parsed = read_yaml(name, text)
    notes = Notes(findings=list(written.findings), scripts={} if with_scripts else None)
    template = _template(name, text, parsed.root, broken=bool(parsed.findings))
    if template:
        return Imported(written, findings=(template,))
    pools = _pools(parsed.root, name, notes)
    if notes.findings:
        return Imported(written, findings=tuple(notes.findings))
    _say_what_always_changes(pools, notes)
    text = document(_lines(name, fleet, pools, notes))
    scripts = tuple((notes.scripts or {}).items())
    return Imported(written, text, notes.sorted_changes(), scripts=scripts)


def _template(name: str, text: str, root: Node | None, *, broken: bool) -> Finding | None:
    """Find what only a template engine understands; commands may hold braces of their own."""
    found = _JINJA.search(text)
    if found is None:
        return None
    if broken or text[found.start() :].startswith("{%"):
        before = lines_of(text[: found.start()])
        line, column = len(before), len(before[-1]) + 1
        return _jinja(Span(name, line, column, line, column + 2))
    for key, value in _scalars(root):
        is_command = str(key.value if key else "").startswith("cmd_")
        if not is_command and isinstance(value.value, str) and _JINJA.search(value.value):
            return _jinja(value.span)
    return None


def _scalars(root: Node | None) -> Iterator[tuple[Node | None, Node]]:
    waiting: list[tuple[Node | None, Node]] = [(None, root)] if root else []
    while waiting:
        key, node = waiting.pop(0)
        if node.kind == "scalar":
            yield key, node
        waiting += [(key, item) for item in node.items]
        for name, value in node.entries:
            yield None, name
            waiting.append((name, value))


def _jinja(place: Span) -> Finding:
    return Finding(
        "jinja-template",
        "this is a Jinja template, not yet a pools.yaml",
        hint="import what it expands to: the file that Ansible wrote on the server, "
        "/etc/resallocserver/pools.yaml",
        span=place,
    )


def _pools(root: Node | None, name: str, notes: Notes) -> list[PoolOptions]:
    if root is None or root.kind != "mapping":
        if not notes.findings:
            place = root.span if root else Span(name)
            notes.wrong(place, "wrong-type", "expected a mapping of pools", "as in NAME: {max: 4}")
        return []
    found: list[PoolOptions] = []
    for key, value in root.entries:
        if value.kind != "mapping":
            notes.wrong(value.span, "wrong-type", f"expected the options of pool {key.value}")
            continue
        written = str(key.value)
        is_name = re.fullmatch(POOL_PATTERN, written) is not None
        new = written if is_name else name_of(written, (pool.name for pool in found))
        if new != key.value:
            notes.change("renamed", key.span, f"pool {key.value}", renaming(str(key.value), new))
        found.append(read_options(new, key, value, notes))
    return found


def _say_what_always_changes(pools: list[PoolOptions], notes: Notes) -> None:
    warm = next((pool for pool in pools if not pool.on_demand), None)
    if warm:
        now = "fleet makes machines when work waits, and `spare` idle ones beside them"
        notes.change("changed", warm.place, "demand (Resalloc never looks at the queue)", now)
    if pools:
        now = "write what they are and cost: the cheapest that fits is made"
        notes.change("to-do", pools[0].place, f"machines (template {_INVENTED})", now)
        now = "no pool makes machines before you say `mode: apply`: one after the other"
        notes.change("to-do", pools[0].place, "mode: pause of every pool", now)
        now = (
            "each has one (`hooks.timeouts`: new and delete 30m, release 10m, list 2m, livecheck "
            "1m), and its exit status is believed"
        )
        what = (
            "commands (Resalloc: no time-outs; what cmd_delete and cmd_list exit with is ignored)"
        )
        notes.change("changed", pools[0].place, what, now)
        now = (
            "each gets PATH, LANG and what it is told, and what `hooks.environment` names: write "
            "there what else it reads (HOME, a proxy, a cloud's account)"
        )
        what = "environment of commands (Resalloc: that of its server)"
        notes.change("to-do", pools[0].place, what, now)
    on_demand = {tag for pool in pools for tag in pool.on_demand}
    for pool in pools:
        for tag in sorted(on_demand & set(pool.tags)):
            now = (
                "on demand in one pool is on demand in all; Resalloc's server does not start "
                "with this file"
            )
            notes.change("changed", pool.place, f"tag {tag} of pool {pool.written}", now)


def _lines(name: str, fleet: str, pools: list[PoolOptions], notes: Notes) -> Iterator[str]:
    yield from comments([f"Written by `fleet import resalloc` from {name}: read it before use."])
    yield f"fleet: {scalar(fleet)}"
    yield ""
    yield from comments(["where Resalloc's clients take their tickets"])
    yield "queues:"
    yield '  tickets: {kind: tickets, answer: "{data}"}'
    on_demand = sorted({tag for pool in pools for tag in pool.on_demand})
    if on_demand:
        yield ""
        yield from comments(["on demand in every pool that provides it"])
        yield "tags:"
        yield from (f"  {scalar(tag)}: {flow({'on_demand': True})}" for tag in on_demand)
    blocks = [(pool.name, pool_block(pool, set(on_demand), notes)) for pool in pools]
    templates = {_INVENTED: machine_block()} | share(blocks, "resalloc", _INVENTED)
    yield from templates_to_lines(templates if pools else {})
    yield ""
    yield "pools:" if pools else "pools: {}"
    for key, block in blocks:
        yield from block_to_lines(key, block)
