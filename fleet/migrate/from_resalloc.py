"""Import the pools of a Resalloc server from its pools.yaml.

Each option is read as Resalloc 6.3 reads it, with its defaults. Options that fleet.yaml cannot
express become comments at their pool and lines of the report; no option is dropped silently.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from fleet.migrate.reading import (
    Foreign,
    Imported,
    ImportNotes,
    Kind,
    YamlBlock,
    duration,
    fleet_yaml,
    flow,
    name_of,
    open_file,
    present,
    renaming,
    share,
    shown,
)
from fleet.schema.findings import Span, did_you_mean
from fleet.schema.nodes import place_of
from fleet.schema.source import INLINE_SECRET
from fleet.schema.sources import CounterNames, HookTimeouts
from fleet.schema.units import LONGEST_WORD, POOL_PATTERN, ConfigSection, WorkerTag, follows

_MAX_NUMBER = 100_000


def _fits_an_argument(text: str) -> str:
    if len(text) > LONGEST_WORD:
        what = f"at most {LONGEST_WORD} characters; a longer command has to be a script"
        raise ValueError(f"expected {what}")
    return text


def _named_only(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("expected a tag or {name: TAG, priority: NUMBER}")  # noqa: TRY004 - pydantic's
    return {"name": value} if isinstance(value, str) else value


class _PoolTag(ConfigSection):
    name: WorkerTag
    priority: int = Field(0, ge=-_MAX_NUMBER, le=_MAX_NUMBER)


_Count = Annotated[int, Field(ge=0, le=_MAX_NUMBER)]
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Shell = Annotated[_Text, AfterValidator(_fits_an_argument)]
_Tags = list[Annotated[_PoolTag, BeforeValidator(_named_only)]]


class PoolOptions(Foreign):
    """The options of a pool, with Resalloc's defaults."""

    max: _Count = 4
    max_starting: _Count = 1
    max_prealloc: _Count = 2
    start_delay: _Count = 0
    livecheck_period: _Count = 600
    livecheck_attempts: _Count = 3
    reuse_opportunity_time: _Count = 0
    reuse_max_count: _Count = 0
    reuse_max_time: _Count = 3600
    cmd_new: _Shell
    cmd_delete: _Shell
    cmd_livecheck: _Shell = ""
    cmd_release: _Shell = ""
    cmd_list: _Shell = ""
    name_pattern: _Text = ""
    description: _Text = ""
    tags: _Tags = Field([])
    tags_on_demand: _Tags = Field([])
    named_counters: CounterNames = Field([])

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, value: object) -> object:
        """Remove options without a value, so that they get their defaults."""
        return present(value) if isinstance(value, dict) else value


OPTIONS = tuple(PoolOptions.model_fields)


class _Pool(NamedTuple):
    """A pool: its old and new name, position, options and tags."""

    name: str
    written: str
    place: Span
    options: PoolOptions
    tags: dict[str, int]
    is_on_demand: bool


_INVENTED = "invented-machine"
_MACHINE = {"cores": 1, "memory": "1GiB", "price": "0.01 EUR/h"}
_NO_LIST = "echo 'write a command that prints the names of the machines of this pool' >&2; exit 1"
_LONGEST_LINE = 1000
_MOST_FAILURES = 100
_SET_VARIABLES = frozenset(
    {"PATH", "LANG", "PWD", "OLDPWD", "IFS", "UID", "PPID", "RANDOM", "SECONDS"}
)
"""Variables that fleet passes to each command, or that the shell sets."""
_JINJA = re.compile(r"\{%|\{\{|\{#")


def import_resalloc(
    name: str, content: bytes, fleet: str, *, with_scripts: bool = False
) -> Imported:
    """Return the fleet.yaml for a pools.yaml; `with_scripts`: long commands become files."""
    notes = open_file(name, content)
    if place := _find_jinja(notes):
        notes.findings.clear()
        hint = "import the file that Ansible wrote on the server, /etc/resallocserver/pools.yaml"
        what = "this is a Jinja template, not a pools.yaml"
        notes.wrong(place, "jinja-template", what, hint)
        return notes.imported(YamlBlock({}))
    pools = _read_pools(notes)
    on_demand = sorted({tag.name for pool in pools for tag in pool.options.tags_on_demand})
    _note_general_changes(pools, on_demand, notes)
    blocks = {pool.name: _pool_block(pool, notes, with_scripts=with_scripts) for pool in pools}
    tickets = {"tickets": {"kind": "tickets", "answer": "{data}"}}
    tags = {tag: {"on_demand": True} for tag in on_demand}
    templates = share(blocks, "resalloc", _INVENTED)
    to_do = "to do: these figures are invented; write those of each pool's machines, with price"
    invented = {_INVENTED: YamlBlock({"machine": _MACHINE}, [to_do])}
    sections = {
        "queues": YamlBlock(tickets, ["Resalloc's clients take their tickets here"]),
        "tags": YamlBlock(tags, ["on demand in every pool that provides it"]) if tags else None,
        "templates": YamlBlock(invented | templates) if pools else None,
        "pools": YamlBlock(blocks),
    }
    return notes.imported(fleet_yaml("resalloc", name, fleet, sections))


def _find_jinja(notes: ImportNotes) -> Span | None:
    """Return the position of Jinja syntax, except braces within commands; None if absent."""
    document, found = notes.document, _JINJA.search(notes.text)
    is_broken = any(each.rule != INLINE_SECRET for each in notes.findings)
    if found and (is_broken or found[0] == "{%"):
        return place_of(document.name, notes.text, found.start(), 2)
    pools = document.value if found and isinstance(document.value, dict) else {}
    for pool, options in pools.items():
        if _JINJA.search(pool):
            return document.span((pool,), "key")
        for option, value in options.items() if isinstance(options, dict) else ():
            if not option.startswith("cmd_") and _JINJA.search(f"{option} {flow(value)}"):
                return document.span((pool, option))
    return None


def _read_pools(notes: ImportNotes) -> list[_Pool]:
    read = notes.read(dict[str, PoolOptions], "a mapping of pools, as in NAME: {max: 4}")
    on_demand = {tag.name for options in read.values() for tag in options.tags_on_demand}
    pools: list[_Pool] = []
    for written, options in read.items():
        place = notes.document.span((written,), "key")
        is_name = follows(POOL_PATTERN, written)
        name = written if is_name else name_of(written, (pool.name for pool in pools))
        if name != written:
            notes.change("renamed", place, f"pool {written}", renaming(written, name))
        tags = {tag.name: tag.priority for tag in (*options.tags, *options.tags_on_demand)}
        is_on_demand = not on_demand.isdisjoint(tags)
        pools.append(_Pool(name, written, place, options, tags, is_on_demand))
    return pools


def _pool_block(pool: _Pool, notes: ImportNotes, *, with_scripts: bool) -> YamlBlock:
    """Return a pool in the format of fleet.yaml."""
    options = pool.options
    value = {
        "provider": "hooks",
        "hooks": YamlBlock(present(_hooks(pool, notes, with_scripts=with_scripts))),
        "provides": sorted(pool.tags),
        "priorities": {tag: pool.tags[tag] for tag in sorted(pool.tags) if pool.tags[tag]} or None,
        "workers": {
            "max": options.max,
            "spare": 0 if pool.is_on_demand else min(options.max_prealloc, options.max),
            "max_starting": min(options.max_starting, options.max),
        },
        "reuse": _reuse(options),
        "mode": "pause",
    }
    above = [options.description] if options.description else []
    above += [f"{pool.written} in pools.yaml"] if pool.name != pool.written else []
    to_do = "to do: set mode: apply when Resalloc no longer manages this pool"
    return YamlBlock(present(value), above, [to_do, *_note_changes(pool, notes)])


def _hooks(pool: _Pool, notes: ImportNotes, *, with_scripts: bool) -> dict[str, object]:
    options = pool.options
    commands = {
        "new": options.cmd_new,
        "delete": options.cmd_delete,
        "list": options.cmd_list or _NO_LIST,
        "livecheck": options.cmd_livecheck,
        "release": options.cmd_release,
    }
    written = {
        hook: _command(f"hooks/{pool.name}-{hook}.sh", text, notes if with_scripts else None)
        for hook, text in commands.items()
        if text
    }
    every = duration(max(1, options.livecheck_period))
    failures = max(1, min(_MOST_FAILURES, options.livecheck_attempts))
    checks = {"livecheck_every": every, "livecheck_failures": failures}
    times = HookTimeouts.model_fields.items()
    return {
        "interface": "resalloc",
        **written,
        "list_exit": "ignored" if options.cmd_list else None,
        "timeouts": {name: duration(field.default) for name, field in times},
        **(checks if options.cmd_livecheck else {}),
        "environment": _variables(commands.values()) or None,
        "named_counters": options.named_counters or None,
    }


def _command(path: str, text: str, notes: ImportNotes | None) -> list[str]:
    """Return a command for fleet.yaml; with `notes`, a long command becomes a file."""
    if notes is None or ("\n" not in text and len(text) <= _LONGEST_LINE):
        return ["sh", "-c", text]
    notes.scripts[path] = f"#!/bin/sh\n{text}\n"
    return [f"./{path}"]


def _variables(commands: Iterable[str]) -> list[str]:
    """Return the variables that commands read without a value from fleet or themselves."""
    read: set[str] = set()
    for text in commands:
        found = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]*)", text))
        read |= found - set(re.findall(r"\b([A-Z][A-Z0-9_]*)=", text))
    return sorted(name for name in read - _SET_VARIABLES if not name.startswith("RESALLOC_"))


def _reuse(options: PoolOptions) -> dict[str, object] | None:
    if not (options.reuse_opportunity_time and options.reuse_max_time):
        return None
    uses = {"max_uses": options.reuse_max_count + 1} if options.reuse_max_count else {}
    opportunity = duration(options.reuse_opportunity_time)
    return {"opportunity": opportunity, **uses, "max_age": duration(options.reuse_max_time)}


def _note_changes(pool: _Pool, notes: ImportNotes) -> Iterator[str]:
    """Report options whose meaning changes; yield those that fleet.yaml cannot express."""
    document, options = notes.document, pool.options
    is_reused, is_checked = options.reuse_opportunity_time > 0, options.cmd_livecheck != ""
    ahead, starting = options.max_prealloc, options.max_starting
    failures, age = options.livecheck_attempts, options.reuse_max_time
    above = f"never more than max: {options.max}"
    unused = "without reuse_opportunity_time no machine is reused"
    table: tuple[tuple[str, Kind, object, str], ...] = (
        (
            "max_prealloc",
            "never-acts",
            pool.is_on_demand and ahead,
            "a pool with an on-demand tag creates no machines ahead",
        ),
        (
            "max_prealloc",
            "changed",
            not pool.is_on_demand and not ahead,
            "Resalloc starts no machine of this pool; fleet creates machines when work waits",
        ),
        ("max_prealloc", "never-acts", not pool.is_on_demand and ahead > options.max, above),
        (
            "max_starting",
            "changed",
            not starting,
            "neither Resalloc nor fleet starts a machine of this pool",
        ),
        ("max_starting", "never-acts", starting > options.max, above),
        ("livecheck_period", "never-acts", not is_checked, "there is no cmd_livecheck"),
        ("livecheck_attempts", "never-acts", not is_checked, "there is no cmd_livecheck"),
        (
            "livecheck_period",
            "changed",
            is_checked and not options.livecheck_period,
            "livecheck_every is 1, the least allowed",
        ),
        (
            "livecheck_attempts",
            "changed",
            is_checked and not failures,
            "livecheck_failures is 1, the least allowed",
        ),
        (
            "livecheck_attempts",
            "changed",
            is_checked and failures > _MOST_FAILURES,
            f"livecheck_failures is {_MOST_FAILURES}, the most allowed",
        ),
        ("reuse_max_count", "never-acts", not is_reused, unused),
        ("reuse_max_time", "never-acts", not is_reused, unused),
        (
            "reuse_max_time",
            "changed",
            is_reused and not age,
            "every used machine is too old immediately, so no machine is reused",
        ),
        (
            "reuse_max_count",
            "renamed",
            is_reused and age and options.reuse_max_count,
            f"max_uses: {options.reuse_max_count + 1}, which counts the first use too",
        ),
        ("start_delay", "never-acts", not options.start_delay, "no delay"),
        (
            "start_delay",
            "no-equivalent",
            options.start_delay,
            "see guards.throttle.create, which limits the machines that one run creates",
        ),
        ("name_pattern", "no-equivalent", options.name_pattern, "machines are named POOL_f0001"),
    )
    for option, kind, applies, now in table:
        if applies and option in options.model_fields_set:
            what = f"{option}: {getattr(options, option)}"
            notes.change(kind, document.span((pool.written, option), "key"), what, now)
            yield from [f"no equivalent: {what}"] * (kind == "no-equivalent")
    pools: Any = document.value
    for option, value in pools[pool.written].items():
        place = document.span((pool.written, option), "key")
        if option not in OPTIONS:
            now = f"Resalloc ignores it too; {did_you_mean(option, OPTIONS)}"
            notes.change("never-acts", place, f"option {option}: {shown(value)}", now)
        elif value is None:
            now = "the same as leaving it out"
            notes.change("never-acts", place, f"option {option} without a value", now)
    if not options.cmd_list:
        now = "fleet needs it to list machines; until then they are unknown"
        notes.change("to-do", pool.place, f"pool {pool.written} has no cmd_list", now)


_TIME_LIMITS = "new and delete 30m, release 10m, list 2m, livecheck 1m"
_MORE = "add what else it reads (HOME, a proxy, a cloud's account)"
_EACH = "each gets PATH, LANG, its own variables and those that `hooks.environment` names"
_GENERAL: tuple[tuple[Kind, str, str], ...] = (
    (
        "to-do",
        f"machines (template {_INVENTED})",
        "write their figures and prices: fleet creates the cheapest that fits",
    ),
    (
        "to-do",
        "mode: pause of every pool",
        "a pool creates machines once you set `mode: apply`; do it pool by pool",
    ),
    (
        "changed",
        "commands (Resalloc: no time-outs; it ignores the status of cmd_delete and cmd_list)",
        f"each has a time-out (`hooks.timeouts`: {_TIME_LIMITS}), and its exit status counts",
    ),
    (
        "to-do",
        "environment of commands (Resalloc: that of its server)",
        f"{_EACH}: {_MORE}",
    ),
)
"""Changes that affect every pool."""


def _note_general_changes(pools: list[_Pool], on_demand: list[str], notes: ImportNotes) -> None:
    for kind, what, now in _GENERAL if pools else ():
        notes.change(kind, pools[0].place, what, now)
    if warm := [pool for pool in pools if not pool.options.tags_on_demand]:
        now = "fleet creates machines when work waits, and keeps `spare` idle ones"
        notes.change("changed", warm[0].place, "demand (Resalloc never looks at the queue)", now)
    now = (
        "on demand in every pool, as it is in one; Resalloc's server does not start with this file"
    )
    for pool in pools:
        for tag in pool.options.tags:
            if tag.name in on_demand:
                notes.change("changed", pool.place, f"tag {tag.name} of pool {pool.written}", now)
