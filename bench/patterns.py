"""Measure the allow-list: many patterns over many names, beside one by one."""

import random
from datetime import date
from time import perf_counter

from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList, compile_pattern, rules_for_name

PATTERNS = 1000
NAMES = 100_000
ONE_BY_ONE = 100
TODAY = date(2026, 11, 21)


def measure_patterns() -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds to compile and to test, and how much faster than one by one that is.

    One by one is measured on a part of the names and carried on to all of them.
    """
    fleet = fleet_of(PATTERNS)
    names = names_of(NAMES)
    compile_pattern.cache_clear()
    began = perf_counter()
    together = AllowList(fleet, TODAY)
    compiled = perf_counter()
    counted = together.count_names(dict.fromkeys(names, ("",)))
    done = perf_counter()
    single = [rules_for_name(fleet, name, TODAY) for name in names[:ONE_BY_ONE]]
    one_by_one = (perf_counter() - done) * NAMES / ONE_BY_ONE
    some = together.count_names(dict.fromkeys(names[:ONE_BY_ONE], ("",)))
    if sum(map(len, single)) != sum(map(len, some.values())) or not any(counted.values()):
        raise SystemExit("bench: the allow-list gives another answer for many names at once")
    figures = {"patterns_1000_x_100k_s": done - began, "patterns_compile_s": compiled - began}
    return figures, {"patterns_vs_one_by_one": one_by_one / (done - compiled)}


def fleet_of(count: int) -> Fleet:
    """Return a fleet with this many rules: half of them name their owner."""
    rules = [
        {
            "match": f"owner{n % 300}/proj{n % 50}/fedora-.*-.*/pkg{n}"
            if n % 2
            else f"owner{n % 30}.*/proj{n % 50}/.*(x86_64|aarch64)/pkg{n}(-.*)?",
            "ask": ["extra_powerful"],
            "dirs": n % 3 == 0,
        }
        for n in range(count)
    ]
    return Fleet.model_validate({"fleet": "bench", "powerful": rules})


def names_of(count: int) -> list[str]:
    """Return names of builds, every tenth of a pull request."""
    chance = random.Random(4)  # noqa: S311 - the same names in every run, nothing secret
    return [
        f"owner{chance.randrange(300)}/proj{chance.randrange(50)}"
        f"{':pr:7' if n % 10 == 0 else ''}/fedora-{chance.randrange(38, 45)}-x86_64/"
        f"pkg{chance.randrange(1500)}"
        for n in range(count)
    ]
