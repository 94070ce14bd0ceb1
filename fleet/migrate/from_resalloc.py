"""Import the pools of a Resalloc from its pools.yaml.

Each option is read as Resalloc 6.3 reads it, with its defaults. Options that fleet.yaml cannot
express become comments at their pool and lines of the report; no option is dropped silently.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

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
    templates_to_lines,
)
from fleet.schema.findings import Finding, Span, did_you_mean
from fleet.schema.nodes import Node, place_of
from fleet.schema.sources import COUNTER_PATTERN, HookTimeouts
from fleet.schema.units import LONGEST_WORD, POOL_PATTERN, TAG_PATTERN, follows

_MOST = 100_000
_LONGEST_TAG = 200


@dataclass
class PoolOptions:
    """One pool: its options and their places; an absent option has its default."""

    name: str
    written: str
    place: Span
    places: dict[str, Span] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    on_demand: dict[str, int] = field(default_factory=dict)
    counters: list[str] = field(default_factory=list)

    def number(self, option: str) -> int:
        """Return a number, or Resalloc's default."""
        return self.numbers.get(option, _NUMBERS[option])

    def at(self, option: str) -> Span:
        """Return the place of an option, else of its pool."""
        return self.places.get(option, self.place)

    @property
    def reuse_seconds(self) -> int:
        """Return the seconds that a used machine is kept for reuse; 0: never."""
        return self.number("reuse_opportunity_time")


_NUMBERS = {
    "max": 4,
    "max_starting": 1,
    "max_prealloc": 2,
    "start_delay": 0,
    "livecheck_period": 600,
    "livecheck_attempts": 3,
    "reuse_opportunity_time": 0,
    "reuse_max_count": 0,
    "reuse_max_time": 3600,
}
_COMMANDS = ("cmd_new", "cmd_delete", "cmd_livecheck", "cmd_release", "cmd_list")
_TEXTS = ("name_pattern", "description")
_TAGS = ("tags", "tags_on_demand")
OPTIONS = (*_NUMBERS, *_COMMANDS, *_TEXTS, *_TAGS, "named_counters")


def read_options(name: str, key: Node, value: Node, notes: Notes) -> PoolOptions:
    """Return the options of a pool; unreadable ones become findings."""
    pool = PoolOptions(name, str(key.value), key.span)
    for option, node in value.entries:
        word = str(option.value)
        pool.places[word] = option.span
        reader = _reader(word)
        if reader is None:
            now = f"Resalloc ignores it too; {did_you_mean(word, OPTIONS)}"
            notes.change("never-acts", option.span, f"option {word}: {shown(node)}", now)
        elif node.kind == "scalar" and node.value is None:
            now = "the same as leaving it out"
            notes.change("never-acts", option.span, f"option {word} without a value", now)
        else:
            reader(pool, word, node, notes)
    for needed in ("cmd_new", "cmd_delete"):
        if needed not in pool.places:
            notes.wrong(pool.place, "missing-key", f"pool {pool.written} has no {needed}")
    return pool


Reader = Callable[[PoolOptions, str, Node, Notes], None]


def _reader(option: str) -> Reader | None:
    if option in _NUMBERS:
        return _number
    if option in _COMMANDS:
        return partial(_text, LONGEST_WORD)
    if option in _TEXTS:
        return partial(_text, None)
    if option in _TAGS:
        return _tags
    return _counters if option == "named_counters" else None


def _number(pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    number = node.value
    if not isinstance(number, int) or isinstance(number, bool):
        notes.wrong(
            node.span, "wrong-type", f"{option}: expected a whole number, got {short(node)}"
        )
    elif not 0 <= number <= _MOST:
        notes.wrong(node.span, "wrong-value", f"{option}: expected 0 to {_MOST}, got {number}")
    else:
        pool.numbers[option] = number


def _text(longest: int | None, pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    text = node.value
    if node.kind != "scalar" or not isinstance(text, str) or not text.strip():
        notes.wrong(node.span, "wrong-type", f"{option}: expected text, got {short(node)}")
    elif longest is not None and len(text) > longest:
        hint = "put it into a script and write the path here"
        message = f"{option}: a command longer than {longest} characters"
        notes.wrong(node.span, "wrong-value", message, hint)
    elif option in _COMMANDS:
        pool.commands[option] = text.strip()
    else:
        pool.texts[option] = text


def _tags(pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    if node.kind != "list":
        notes.wrong(node.span, "wrong-type", f"{option}: expected a list, got {short(node)}")
        return
    found = pool.tags if option == "tags" else pool.on_demand
    for item in node.items:
        entries = {str(key.value): value for key, value in item.entries}
        name = entries.get("name", item)
        priority = entries["priority"].value if "priority" in entries else 0
        is_number = isinstance(priority, int) and abs(priority) <= _MOST
        if not _is_tag(name.value) or not is_number or entries.keys() - _KEYS:
            message = f"{option}: expected a tag or {{name: TAG, priority: NUMBER}}"
            notes.wrong(item.span, "wrong-type", f"{message}, got {short(item)}")
        else:
            found[name.value] = priority


_KEYS = {"name", "priority"}


def _is_tag(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_TAG and follows(TAG_PATTERN, text)


def _counters(pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    names = [item.value for item in node.items]
    if node.kind != "list" or not all(
        isinstance(name, str) and re.match(COUNTER_PATTERN, name) for name in names
    ):
        expected = "expected a list of names of letters, digits and _"
        notes.wrong(node.span, "wrong-type", f"{option}: {expected}")
    else:
        pool.counters += [item.value for item in node.items]


_NO_LIST = "echo 'write a command that prints the names of the machines of this pool' >&2; exit 1"
_SHELL = ["sh", "-c"]
_LONGEST_LINE = 1000
_SET_VARIABLES = frozenset(
    {"PATH", "LANG", "PWD", "OLDPWD", "IFS", "UID", "PPID", "RANDOM", "SECONDS"}
)
"""Variables that each command gets, or that its shell sets."""
_INVENTED_MACHINE = {"cores": 1, "memory": "1GiB", "price": "0.01 EUR/h"}
_NOTHING_LIKE_IT = {
    "start_delay": "see guards.throttle.create, which limits the machines that one run creates",
    "name_pattern": "machines are named POOL_f0001",
}
_LIVECHECKS = {"livecheck_period": "livecheck_every", "livecheck_attempts": "livecheck_failures"}


def pool_block(pool: PoolOptions, on_demand: set[str], notes: Notes) -> Block:
    """Return a pool as fleet.yaml writes it."""
    block = Block(above=[pool.texts["description"]] if "description" in pool.texts else [])
    if pool.name != pool.written:
        block.above.append(f"{pool.written} in pools.yaml")
    tags = {**pool.tags, **pool.on_demand}
    priorities = {tag: tags[tag] for tag in sorted(tags) if tags[tag]}
    holds_nothing = bool(on_demand & tags.keys())
    reuse = _reuse(pool, notes)
    block.entries += [
        ("provider", "hooks"),
        ("hooks", Block(list(_hooks(pool, notes)))),
        ("provides", sorted(tags)),
        *([("priorities", priorities)] if priorities else []),
        ("workers", _workers(pool, notes, holds_nothing=holds_nothing)),
        *([("reuse", reuse)] if reuse else []),
        ("mode", "pause"),
    ]
    block.below.append("to do: set mode: apply when Resalloc no longer manages this pool")
    block.below += _inexpressible(pool, notes)
    return block


def machine_block() -> Block:
    """Return the template of the machines, which pools.yaml does not describe."""
    to_do = "to do: these figures are invented; write those of each pool's machines, with price"
    return Block([("machine", _INVENTED_MACHINE)], above=[to_do])


def _hooks(pool: PoolOptions, notes: Notes) -> Iterator[tuple[str, object]]:
    yield "interface", "resalloc"
    for hook in ("new", "delete", "list", "livecheck", "release"):
        option = f"cmd_{hook}"
        if option in pool.commands:
            yield hook, _command(pool, hook, notes)
        elif hook == "list":
            yield hook, ["sh", "-c", _NO_LIST]
            now = "fleet needs it to list machines; until then they are unknown"
            notes.change("to-do", pool.place, f"pool {pool.written} has no cmd_list", now)
    if "cmd_list" in pool.commands:
        yield "list_exit", "ignored"
    times = HookTimeouts.model_fields.items()
    yield "timeouts", {name: duration(field.default) for name, field in times}
    yield from _livechecks(pool, notes)
    if read := _variables(pool.commands.values()):
        yield "environment", read
    if pool.counters:
        yield "named_counters", pool.counters


def _command(pool: PoolOptions, hook: str, notes: Notes) -> list[str]:
    """Return a command for fleet.yaml; a long one becomes a file."""
    text = pool.commands[f"cmd_{hook}"]
    if not notes.with_scripts or ("\n" not in text and len(text) <= _LONGEST_LINE):
        return [*_SHELL, text]
    path = f"hooks/{pool.name}-{hook}.sh"
    notes.scripts[path] = f"#!/bin/sh\n{text}\n"
    return [f"./{path}"]


def _variables(commands: Iterable[str]) -> list[str]:
    """Return the variables that commands read, but neither set nor get from fleet."""
    read: set[str] = set()
    for text in commands:
        found = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]*)", text))
        read |= found - set(re.findall(r"\b([A-Z][A-Z0-9_]*)=", text))
    return sorted(name for name in read - _SET_VARIABLES if not name.startswith("RESALLOC_"))


def _livechecks(pool: PoolOptions, notes: Notes) -> Iterator[tuple[str, object]]:
    if "cmd_livecheck" in pool.commands:
        every = max(1, pool.number("livecheck_period"))
        failures = max(1, min(100, pool.number("livecheck_attempts")))
        yield "livecheck_every", duration(every)
        yield "livecheck_failures", failures
        for option, kept in (("livecheck_period", every), ("livecheck_attempts", failures)):
            if (number := pool.number(option)) != kept:
                bound = "least" if number < kept else "most"
                now = f"{_LIVECHECKS[option]} is {kept}, the {bound} allowed"
                notes.change("changed", pool.at(option), f"{option}: {number}", now)
        return
    for option in _LIVECHECKS:
        if option in pool.numbers:
            what = f"{option}: {pool.numbers[option]}"
            notes.change("never-acts", pool.at(option), what, "there is no cmd_livecheck")


def _workers(pool: PoolOptions, notes: Notes, *, holds_nothing: bool) -> dict[str, int]:
    most, spare = pool.number("max"), pool.number("max_prealloc")
    starting = pool.number("max_starting")
    if holds_nothing:
        if pool.numbers.get("max_prealloc"):
            now = "a pool with an on-demand tag creates no machines ahead"
            notes.change("never-acts", pool.at("max_prealloc"), f"max_prealloc: {spare}", now)
        spare = 0
    elif spare == 0:
        now = "Resalloc starts no machine of this pool; fleet creates machines when work waits"
        notes.change("changed", pool.at("max_prealloc"), "max_prealloc: 0", now)
    if starting == 0:
        now = "neither Resalloc nor fleet starts a machine of this pool"
        notes.change("changed", pool.at("max_starting"), "max_starting: 0", now)
    for option, number in (("max_prealloc", spare), ("max_starting", starting)):
        if number > most and option in pool.numbers:
            now = f"never more than max: {most}"
            notes.change("never-acts", pool.at(option), f"{option}: {number} above max", now)
    return {"max": most, "spare": min(spare, most), "max_starting": min(starting, most)}


def _reuse(pool: PoolOptions, notes: Notes) -> dict[str, object]:
    uses, age = pool.number("reuse_max_count"), pool.number("reuse_max_time")
    if not pool.reuse_seconds:
        for option in ("reuse_max_count", "reuse_max_time"):
            if option in pool.numbers:
                now = "without reuse_opportunity_time no machine is reused"
                what = f"{option}: {pool.numbers[option]}"
                notes.change("never-acts", pool.at(option), what, now)
        return {}
    if age == 0:
        now = "every used machine is too old immediately, so no machine is reused"
        notes.change("changed", pool.at("reuse_max_time"), "reuse_max_time: 0", now)
        return {}
    found: dict[str, object] = {"opportunity": duration(pool.reuse_seconds)}
    if uses:
        found["max_uses"] = uses + 1
        now = f"max_uses: {uses + 1}, which counts the first use too"
        notes.change("renamed", pool.at("reuse_max_count"), f"reuse_max_count: {uses}", now)
    found["max_age"] = duration(age)
    return found


def _inexpressible(pool: PoolOptions, notes: Notes) -> Iterator[str]:
    """Yield the options that fleet.yaml cannot express, as comments."""
    for option, instead in _NOTHING_LIKE_IT.items():
        value: object = pool.numbers.get(option) or pool.texts.get(option)
        what = f"{option}: {value or pool.numbers.get(option)}"
        if option == "start_delay" and pool.numbers.get(option) == 0:
            notes.change("never-acts", pool.at(option), what, "no delay")
        elif value:
            notes.change("no-equivalent", pool.at(option), what, instead)
            yield f"no equivalent: {what}"


_INVENTED = "invented-machine"
_JINJA = re.compile(r"\{%|\{\{|\{#")


def import_resalloc(
    name: str, content: bytes, fleet: str, *, with_scripts: bool = False
) -> Imported:
    """Return the fleet.yaml for a pools.yaml; `with_scripts`: also files next to it."""
    text = read_text(name, content)
    if isinstance(text, Imported):
        return text
    written, parsed = read_yaml(name, text)
    notes = Notes(findings=list(written.findings), with_scripts=with_scripts)
    template = _template(name, text, parsed.root, broken=bool(parsed.findings))
    if template:
        return Imported(written, findings=(template,))
    pools = _pools(parsed.root, name, notes)
    return notes.imported(written, _lines(name, fleet, pools, notes))


def _template(name: str, text: str, root: Node | None, *, broken: bool) -> Finding | None:
    """Find Jinja syntax; commands may contain braces themselves."""
    found = _JINJA.search(text)
    if found is None:
        return None
    if broken or text[found.start() :].startswith("{%"):
        return _jinja(place_of(name, text, found.start(), 2))
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
        "this is a Jinja template, not a pools.yaml",
        hint="import the file that Ansible wrote on the server, /etc/resallocserver/pools.yaml",
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


def _note_general_changes(pools: list[PoolOptions], notes: Notes) -> None:
    warm = next((pool for pool in pools if not pool.on_demand), None)
    if warm:
        now = "fleet creates machines when work waits, and keeps `spare` idle ones"
        notes.change("changed", warm.place, "demand (Resalloc never looks at the queue)", now)
    if pools:
        now = "write their figures and prices: fleet creates the cheapest that fits"
        notes.change("to-do", pools[0].place, f"machines (template {_INVENTED})", now)
        now = "a pool creates machines once you set `mode: apply`; do it pool by pool"
        notes.change("to-do", pools[0].place, "mode: pause of every pool", now)
        now = (
            "each has a time-out (`hooks.timeouts`: new and delete 30m, release 10m, list 2m, "
            "livecheck 1m), and its exit status counts"
        )
        what = (
            "commands (Resalloc: no time-outs; it ignores the status of cmd_delete and cmd_list)"
        )
        notes.change("changed", pools[0].place, what, now)
        now = (
            "each gets PATH, LANG, its own variables and those that `hooks.environment` names: "
            "add what else it reads (HOME, a proxy, a cloud's account)"
        )
        what = "environment of commands (Resalloc: that of its server)"
        notes.change("to-do", pools[0].place, what, now)
    on_demand = {tag for pool in pools for tag in pool.on_demand}
    for pool in pools:
        for tag in sorted(on_demand & set(pool.tags)):
            now = (
                "on demand in every pool, as it is in one; Resalloc's server does not start with "
                "this file"
            )
            notes.change("changed", pool.place, f"tag {tag} of pool {pool.written}", now)


def _lines(name: str, fleet: str, pools: list[PoolOptions], notes: Notes) -> Iterator[str]:
    _note_general_changes(pools, notes)
    yield from header("resalloc", name, fleet)
    yield ""
    yield from comments(["Resalloc's clients take their tickets here"])
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
    yield from section("pools", blocks)
