"""This module writes one Resalloc pool as a pool of fleet.yaml, and says what that changes."""

import re
from collections.abc import Iterable, Iterator

from fleet.imports.changes import Notes
from fleet.imports.resalloc_pool import PoolOptions
from fleet.imports.writing import Block, duration
from fleet.schema.sources import HookTimeouts

_NO_LIST = "echo 'write a command that prints the names of the machines of this pool' >&2; exit 1"
_SHELL = ["sh", "-c"]
_LONGEST_LINE = 1000
_TOLD = frozenset({"PATH", "LANG", "PWD", "OLDPWD", "IFS", "UID", "PPID", "RANDOM", "SECONDS"})
"""What each command is given, or its shell knows."""
_INVENTED = {"cores": 1, "memory": "1GiB", "price": "0.01 EUR/h"}
_NOTHING_LIKE_IT = {
    "start_delay": "see guards.throttle.create, which bounds the machines that one run makes",
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
    block.below.append("to do: mode: apply in a pool, once Resalloc has let go of it")
    block.below += _left(pool, notes)
    return block


def machine_block() -> Block:
    """Return the template of the machines that pools.yaml says nothing of."""
    said = "to do: these figures are invented: write into each pool what its machines are and cost"
    return Block([("machine", _INVENTED)], above=[said])


def _hooks(pool: PoolOptions, notes: Notes) -> Iterator[tuple[str, object]]:
    yield "interface", "resalloc"
    for hook in ("new", "delete", "list", "livecheck", "release"):
        option = f"cmd_{hook}"
        if option in pool.commands:
            yield hook, _command(pool, hook, notes)
        elif hook == "list":
            yield hook, ["sh", "-c", _NO_LIST]
            now = "fleet has to see which machines exist; until then nothing is known of them"
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
    """Return a command as fleet.yaml writes it; one that is hard to read there gets a file."""
    text = pool.commands[f"cmd_{hook}"]
    if notes.scripts is None or ("\n" not in text and len(text) <= _LONGEST_LINE):
        return [*_SHELL, text]
    path = f"hooks/{pool.name}-{hook}.sh"
    notes.scripts[path] = f"#!/bin/sh\n{text}\n"
    return [f"./{path}"]


def _variables(commands: Iterable[str]) -> list[str]:
    """Return the variables that commands read and do not set, nor are told anyway."""
    read: set[str] = set()
    for text in commands:
        found = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]*)", text))
        read |= found - set(re.findall(r"\b([A-Z][A-Z0-9_]*)=", text))
    return sorted(name for name in read - _TOLD if not name.startswith("RESALLOC_"))


def _livechecks(pool: PoolOptions, notes: Notes) -> Iterator[tuple[str, object]]:
    if "cmd_livecheck" in pool.commands:
        every = max(1, pool.number("livecheck_period"))
        failures = max(1, min(100, pool.number("livecheck_attempts")))
        yield "livecheck_every", duration(every)
        yield "livecheck_failures", failures
        for option, kept in (("livecheck_period", every), ("livecheck_attempts", failures)):
            if (number := pool.number(option)) != kept:
                now = f"{_LIVECHECKS[option]} is at {'least' if number < kept else 'most'} {kept}"
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
            now = "a pool with an on-demand tag preallocates nothing"
            notes.change("never-acts", pool.at("max_prealloc"), f"max_prealloc: {spare}", now)
        spare = 0
    elif spare == 0:
        now = "this pool starts nothing there; fleet makes machines when work waits"
        notes.change("changed", pool.at("max_prealloc"), "max_prealloc: 0", now)
    if starting == 0:
        now = "this pool starts nothing, there and here"
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
                now = "without reuse_opportunity_time nothing is used twice"
                what = f"{option}: {pool.numbers[option]}"
                notes.change("never-acts", pool.at(option), what, now)
        return {}
    found: dict[str, object] = {"opportunity": duration(pool.reuse_seconds)}
    if uses:
        found["max_uses"] = uses + 1
        now = f"{uses + 1} uses, the first one counted too"
        notes.change("renamed", pool.at("reuse_max_count"), f"reuse_max_count: {uses}", now)
    found["max_age"] = duration(max(1, age))
    return found


def _left(pool: PoolOptions, notes: Notes) -> Iterator[str]:
    """Yield what fleet.yaml cannot say, as comments."""
    for option, instead in _NOTHING_LIKE_IT.items():
        value: object = pool.numbers.get(option) or pool.texts.get(option)
        what = f"{option}: {value or pool.numbers.get(option)}"
        if option == "start_delay" and pool.numbers.get(option) == 0:
            notes.change("never-acts", pool.at(option), what, "that is no delay")
        elif value:
            notes.change("no-equivalent", pool.at(option), what, instead)
            yield f"no equivalent: {what}"
