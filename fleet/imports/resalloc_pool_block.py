"""This module writes one Resalloc pool as a pool of fleet.yaml, and says what that changes."""

from collections.abc import Iterator

from fleet.imports.changes import Notes
from fleet.imports.resalloc_pool import PoolOptions
from fleet.imports.writing import Block, duration

_NO_LIST = "echo 'write a command that prints the names of the machines of this pool' >&2; exit 1"
_NOTHING_LIKE_IT = {
    "start_delay": "see guards.throttle.create, which bounds the machines that one run makes",
    "livecheck_period": "every run looks",
    "livecheck_attempts": "every run looks",
    "cmd_release": "nothing runs when a machine is given back",
    "named_counters": "its hooks get no such numbers",
    "name_pattern": "machines are named FLEET-POOL-NUMBER",
}
_ONLY_WITH = {
    "livecheck_period": "cmd_livecheck",
    "livecheck_attempts": "cmd_livecheck",
}


def pool_block(pool: PoolOptions, on_demand: set[str], notes: Notes) -> Block:
    """Return a pool as fleet.yaml writes it."""
    block = Block(above=[pool.texts["description"]] if "description" in pool.texts else [])
    if pool.name != pool.written:
        block.above.append(f"{pool.written} in pools.yaml")
    provides = sorted({*pool.tags, *pool.on_demand})
    holds_nothing = bool(on_demand & set(provides))
    block.entries += [
        ("provider", "hooks"),
        ("hooks", Block(list(_hooks(pool, notes)))),
        ("machine", {}),
        ("provides", provides),
        ("workers", _workers(pool, notes, holds_nothing=holds_nothing)),
        ("retire", _retire(pool, notes)),
    ]
    block.below.append("machine: pools.yaml does not say cores, memory, disk and price")
    notes.change(
        "to-do", pool.place, f"machine of pool {pool.written}", "write what it is and costs"
    )
    block.below += _left(pool, notes)
    return block


def _hooks(pool: PoolOptions, notes: Notes) -> Iterator[tuple[str, object]]:
    for hook in ("new", "delete", "list", "livecheck"):
        option = f"cmd_{hook}"
        if option in pool.commands:
            yield hook, ["sh", "-c", pool.commands[option]]
            if "RESALLOC_" in pool.commands[option]:
                now = "make sure that it gets these variables from fleet"
                notes.change("to-do", pool.at(option), f"{option} reads RESALLOC_…", now)
        elif hook == "list":
            yield hook, ["sh", "-c", _NO_LIST]
            now = "fleet has to see which machines exist; until then nothing is known of them"
            notes.change("to-do", pool.place, f"pool {pool.written} has no cmd_list", now)


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


def _retire(pool: PoolOptions, notes: Notes) -> dict[str, object]:
    uses, age = pool.number("reuse_max_count"), pool.number("reuse_max_time")
    if not pool.reuse_seconds:
        for option in ("reuse_max_count", "reuse_max_time"):
            if option in pool.numbers:
                now = "without reuse_opportunity_time nothing is used twice"
                what = f"{option}: {pool.numbers[option]}"
                notes.change("never-acts", pool.at(option), what, now)
        return {"max_uses": 1}
    found: dict[str, object] = {"idle_after": duration(pool.reuse_seconds)}
    now = "fleet also lets go of machines that were never used"
    place = pool.at("reuse_opportunity_time")
    notes.change("changed", place, f"reuse_opportunity_time: {pool.reuse_seconds}", now)
    now = "counted from the machine's creation, not from its first use"
    notes.change("changed", pool.at("reuse_max_time"), f"reuse_max_time: {age}", now)
    found["max_age"] = duration(max(1, age))
    if uses:
        found["max_uses"] = uses + 1
        now = f"{uses + 1} uses, the first one counted too"
        notes.change("renamed", pool.at("reuse_max_count"), f"reuse_max_count: {uses}", now)
    return found


def _left(pool: PoolOptions, notes: Notes) -> Iterator[str]:
    """Yield what fleet.yaml cannot say, as comments."""
    for option, instead in _NOTHING_LIKE_IT.items():
        value = _written(pool, option)
        if value is None:
            continue
        what = f"{option}: {value}"
        needed = _ONLY_WITH.get(option)
        if needed and needed not in pool.commands:
            notes.change("never-acts", pool.at(option), what, f"there is no {needed}")
        elif option == "start_delay" and not pool.numbers[option]:
            notes.change("never-acts", pool.at(option), what, "that is no delay")
        else:
            notes.change("no-equivalent", pool.at(option), what, instead)
        yield f"no equivalent: {what}"
    for option, tags in (("tags", pool.tags), ("tags_on_demand", pool.on_demand)):
        ranked = {tag: priority for tag, priority in tags.items() if priority}
        if ranked:
            what = ", ".join(f"priority {each} of {tag}" for tag, each in ranked.items())
            instead = "fleet takes the cheapest machines that fit: give each pool its price"
            notes.change("no-equivalent", pool.at(option), what, instead)
            yield f"no equivalent: {what}"


def _written(pool: PoolOptions, option: str) -> object:
    if option == "named_counters":
        return ", ".join(pool.counters) or None
    found: object = pool.numbers.get(option)
    if found is None:
        found = pool.commands.get(option) or pool.texts.get(option)
    return found
