"""Each key of a rule of life has one reader, and the table of rules has each rule."""

import ast
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib import import_module

import pytest

from fleet.model.plan import REPLACEMENT_REASONS, Reason
from fleet.planner import lifecycle
from fleet.planner.lifecycle.rule import LifeRule
from fleet.planner.lifecycle.surplus import IdleRule
from fleet.planner.lifecycle.table import RULES, key_of_reason
from fleet.schema.model import ConfigSection, Pool
from fleet.schema.pools import Boot, Replace, Retire, Workers
from tests.architecture.source import files

ROOMS = tuple(
    f"fleet/{room}"
    for room in (
        *("model", "planner", "explain", "guard", "report", "apply"),
        *("images", "tickets", "simulate", "site"),
    )
)
"""All rooms that decide or show something; the schema, checks and migrate may read any key."""
LIMITS = "fleet/model/pool_limits.py"
SECTIONS: Mapping[str, type[ConfigSection]] = {
    "retire": Retire,
    "replace": Replace,
    "boot": Boot,
    "workers": Workers,
}
POOLS = frozenset({"pool", "declared"})
"""Usual names of a pool."""
WHOLE = frozenset(
    f"{section}.{key}" for section, kind in SECTIONS.items() for key in kind.model_fields
)

USED = re.compile(r"\bReason\.([A-Z_]+)")
REPLACED = re.compile(r"\breplace_by_new\(\s*\w+,\s*Reason\.([A-Z_]+)")
WITHOUT_KEY = frozenset(
    {
        *(Reason.DEAF, Reason.DISABLED, Reason.DISCONNECTED, Reason.GONE, Reason.HELD),
        *(Reason.INTERRUPTED, Reason.LIVECHECK_FAILED, Reason.NOT_KNOWN, Reason.NOT_WANTED),
        *(Reason.ORPHAN, Reason.OUTDATED, Reason.PAID_FOR, Reason.POOL_REMOVED),
        *(Reason.REGISTRATION_LOST, Reason.REPLACEMENT, Reason.STOPPED),
    }
)
"""Reasons of rules that no single key of a pool causes, so `fleet explain worker` names none."""


@cache
def read_keys(source: str) -> frozenset[str]:
    """Return the keys of these sections that a module reads; a whole section counts as all."""
    found: set[str] = set()
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in SECTIONS:
            continue
        if ast.unparse(node.value) == "args":
            continue  # an option of a command
        parent = parents[node]
        keys = SECTIONS[node.attr].model_fields
        is_call = isinstance(parent, ast.Call) and parent.func is node
        # A queue reports `workers` too, but those have no such keys.
        is_other = node.attr == "workers" and ast.unparse(node.value).split(".")[-1] not in POOLS
        if isinstance(parent, ast.Attribute) and parent.attr in keys:
            found.add(f"{node.attr}.{parent.attr}")
        elif not is_call and not is_other:
            found |= {f"{node.attr}.{key}" for key in keys}
    return frozenset(found)


def readers(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that read each key."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, source in sources.items():
        for key in read_keys(source):
            found[key].add(name)
    return found


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in files(*ROOMS).items()}


def test_each_key_of_a_rule_of_life_has_one_reader(sources: Mapping[str, str]) -> None:
    found = readers(sources)

    assert {key: names for key, names in found.items() if len(names) > 1} == {}
    assert found.keys() == WHOLE


def test_size_pace_and_boot_keys_are_read_only_in_pool_limits(sources: Mapping[str, str]) -> None:
    found = readers(sources)

    of_rules = {key for key in WHOLE if key.startswith("retire.")}
    assert {name for key in WHOLE - of_rules for name in found[key]} == {LIMITS}
    assert all(
        name.startswith("fleet/planner/lifecycle/") for key in of_rules for name in found[key]
    )


@pytest.mark.parametrize(
    "planted",
    [
        "def late(pool):\n    return pool.retire.max_age\n",
        "def late(pool_plan):\n    return pool_plan.pool.retire\n",
        "def late(fleet, name):\n    pool = fleet.pools[name]\n    return pool.boot.deadline\n",
        "def late(declared):\n    return declared.workers.spare\n",
        "def late(rack):\n    return rack.workers.max\n",
        "def late(rack):\n    section = rack.replace\n    return section.windows\n",
        "def late(pool):\n    return getattr(pool.replace, 'windows')\n",
    ],
)
def test_second_reader_of_a_key_is_found(sources: Mapping[str, str], planted: str) -> None:
    found = readers({**sources, "fleet/explain/planted.py": planted})

    assert any(len(names) > 1 for names in found.values())


def test_every_rule_of_life_is_in_the_table() -> None:
    defined = {
        kind
        for module in pkgutil.iter_modules(lifecycle.__path__, f"{lifecycle.__name__}.")
        for _, kind in inspect.getmembers(import_module(module.name), inspect.isclass)
        if issubclass(kind, LifeRule) and kind not in {LifeRule, IdleRule}
    }

    assert {type(rule) for rules in RULES.values() for rule in rules} == defined


def test_every_rule_with_a_limit_names_its_clock_and_keys() -> None:
    for rule in {type(rule) for rules in RULES.values() for rule in rules}:
        assert (rule.clock is not None) == (rule.limit is not LifeRule.limit), rule
        assert not issubclass(rule, IdleRule) or rule.reason in rule.keys
        for reason, key in rule.keys.items():
            assert isinstance(reason, Reason)
            assert key_of_reason(reason) == key
            assert key[:1] in {(), *((name,) for name in Pool.model_fields)}


def test_every_reason_of_a_rule_has_a_key_or_is_listed() -> None:
    tree = files("fleet/planner/lifecycle").values()
    used = {name for path in tree for name in USED.findall(path.read_text(encoding="utf-8"))}
    reasons = {Reason[name] for name in used}

    assert {reason for reason in reasons if not key_of_reason(reason)} == WITHOUT_KEY


def test_guards_throttle_exactly_the_reasons_of_replacements() -> None:
    tree = files("fleet/planner/lifecycle").values()
    used = {name for path in tree for name in REPLACED.findall(path.read_text(encoding="utf-8"))}

    assert {Reason[name] for name in used} == REPLACEMENT_REASONS
