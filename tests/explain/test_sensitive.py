"""Which edits whoever approves a change has to see, one kind after the other."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from fleet.explain.builds import find_reach
from fleet.explain.costs import BuildCosts
from fleet.explain.edits import FleetEdits
from fleet.explain.sensitive import TABLE, SensitiveEdit, find_sensitive
from fleet.guard import guard
from fleet.model.facts import Unknown, World
from fleet.reconcile import reconcile
from fleet.schema.model import Budget, Fleet, Guards
from fleet.schema.rules import Limits
from fleet.schema.sources import Provider, Queue
from fleet.schema.units import ConfigSection, Url
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.cases import Block, read_blocks

TAG = {"exclusive": True, "asked_by": ["rules"], "limits": {"total": 2, "per": {"owner": 1}}}
DEBIAN = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "token": {"env": "DEBUSINE_TOKEN"},
    "admin": ["debusine-admin"],
}
CASES = [*read_blocks(Path(__file__).parent / "edits")]
COPR = {"kind": "copr", "url": "https://copr.example.org"}
CLOUD = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
HOOKS = {"kind": "hooks", "new": ["new"], "delete": ["delete"], "list": ["list"]}
APPROVAL = {"guard": "delete", "pool": "x", "count": 1, "reason": "y", "expires": "2099-01-01"}


def found(base: Fleet, head: Fleet, world: World | None = None) -> tuple[SensitiveEdit, ...]:
    world = world or a_sim_world()
    plans = [guard(fleet, reconcile(fleet, world)) for fleet in (base, head)]
    edits = FleetEdits(base, head)
    costs = (BuildCosts(*each) for each in ((base, world, plans[0]), (head, world, plans[1])))
    return find_sensitive(edits, find_reach(edits, [world], *costs), plans[0])


PARTS: dict[str, dict[str, Any]] = {
    "tag": {"tags": {"big": TAG}},
    "budget": {"budgets": {"x": {"per_day": "4 EUR"}}},
    "queue": {"queues": {"q": DEBIAN}},
    "copr": {"queues": {"q": COPR}},
    "cloud": {"providers": {"p": CLOUD}},
    "hooks": {"providers": {"p": HOOKS}},
    "image": {"images": {"i": {"suite": "trixie", "architecture": "amd64"}}},
    "chat": {"notify": {"webhook": {"url": "https://chat.example.org"}}},
    "approval": {"approvals": [APPROVAL]},
}


def settings_of(text: str) -> dict[str, Any]:
    """Return the keys of a fleet: those of a part with some others, or YAML by itself."""
    name, _, keys = text.partition(" ")
    if name not in PARTS:
        return dict(yaml.safe_load(f"{{{text}}}"))
    part = deepcopy(PARTS[name])
    ((_, inner),) = part.items()
    if keys:
        ((_, said),) = inner.items()
        said |= yaml.safe_load(f"{{{keys}}}")
        for key in [key for key, value in said.items() if value is None]:
            del said[key]
    return part


def kinds(base: dict[str, Any], head: dict[str, Any]) -> list[str]:
    edits = found(a_sim_fleet(pools={}, **base), a_sim_fleet(pools={}, **head))
    return [f"{each.kind} {'.'.join(map(str, each.path))}" for each in edits]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_edit_is_sensitive_as_in_its_case(case: Block) -> None:
    base, head = map(settings_of, case.parts)
    there, _, back = case.result.partition(", and back ")

    assert kinds(base, head) == ([] if there == "nothing" else [there])
    if back:
        assert kinds(head, base) == ([] if back == "nothing" else [back])


def test_narrower_tag_rule_that_lifts_a_limit_is_sensitive() -> None:
    lifted = {"tags": {"b*": TAG, "big": {"exclusive": False, "limits": TAG["limits"]}}}

    assert kinds({"tags": {"b*": TAG}}, lifted) == ["exclusive-removed tags.big.exclusive"]


def test_raised_limits_of_a_pool_are_sensitive() -> None:
    base, head = (
        a_sim_fleet(pools={"builders": a_pool(provider="desk", **said)})
        for said in (
            {"max": 3, "max_starting": 2, "budget": {"per_day": "3 EUR"}},
            {"max": 4, "spare": 1},
        )
    )

    assert [each.path[2:] for each in found(base, head)] == [
        ("budget",),
        ("workers", "max"),
        ("workers", "max_starting"),
    ]


BUSY, IDLE = "debian-ci-builders-0001", "debian-ci-builders-0002"


def with_machines() -> World:
    return a_sim_world(
        a_worker(name=IDLE, machine=IDLE, since=ago(minutes=1)),
        a_worker(name=BUSY, machine=BUSY, state="busy", running="7", since=ago(minutes=1)),
    )


def test_removed_pool_names_busy_machines_first() -> None:
    base = a_sim_fleet(pools={"builders": a_pool(provider="desk")})

    (edit,) = found(base, a_sim_fleet(pools={}), with_machines())

    assert (edit.kind, edit.path) == ("pool-removed", ("pools", "builders"))
    assert (edit.count, edit.busy, edit.examples) == (2, 1, (BUSY, IDLE))


def test_pool_set_to_drain_counts_as_removed() -> None:
    base, head = (
        a_sim_fleet(pools={"builders": a_pool(provider="desk", mode=mode)})
        for mode in ("apply", "drain")
    )

    (edit,) = found(base, head, with_machines())

    assert (edit.kind, edit.path[2:], edit.count) == ("pool-removed", ("mode",), 2)


def test_removed_pool_has_unknown_count_when_provider_is_silent() -> None:
    base = a_sim_fleet(pools={"builders": a_pool(provider="desk")})
    silent = {"providers": {"desk": Unknown(unknown="no answer")}}

    (edit,) = found(base, a_sim_fleet(pools={}), a_sim_world().altered(**silent))

    assert (edit.kind, edit.count, edit.busy) == ("pool-removed", None, None)


def test_rule_is_sensitive_when_it_matches_more() -> None:
    chromium = {"owner": "a", "project": "b", "chroot": "c", "package": "chromium"}
    world = a_sim_world(requests=(a_request(**chromium), a_request(id="8", **chromium)))
    narrow, wide = (
        a_sim_fleet(powerful=[{"match": match, "ask": ["big"]}])
        for match in ("a/b/c/d", "a/b/c/.*")
    )

    (edit,) = found(narrow, wide, world)

    assert (edit.kind, edit.path) == ("pattern-matches-more", ("powerful", 0, "match"))
    assert (edit.before, edit.after, edit.count) == ("a/b/c/d", "a/b/c/.*", 2)
    assert edit.examples == ("a/b/c/chromium",)
    assert found(wide, narrow, world) == ()


def test_rule_with_wider_options_shows_them() -> None:
    build = a_request(owner="a", project="b:pr:7", chroot="c", package="d")
    narrow, wide = (
        a_sim_fleet(powerful=[{"match": "a/b/c/d", "ask": ["big"], "dirs": dirs}])
        for dirs in (False, True)
    )

    (edit,) = found(narrow, wide, a_sim_world(requests=(build,)))

    assert (edit.path, edit.count, edit.examples) == (("powerful", 0), 1, ("a/b:pr:7/c/d",))
    assert ("dirs: false" in edit.before, "dirs: true" in edit.after) == (True, True)


def leaves(section: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - a type
    """Yield the path of every key of a section that holds no section."""
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, ConfigSection):
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name)


def test_every_key_of_a_guard_a_budget_and_a_limit_has_a_direction() -> None:
    sections = (("guards",), Guards), (("budgets", "*"), Budget)
    limits = (("tags", "*", "limits"), Limits), (("queues", "*", "limits"), Limits)
    for path, section in (*sections, *limits):
        assert {(*path, *key) for key in leaves(section)} <= TABLE.keys()


def test_every_address_of_a_queue_or_a_provider_is_in_the_table() -> None:
    url = get_args(Url)[1].metadata
    kinds = {"queues": get_args(get_args(Queue)[0]), "providers": get_args(get_args(Provider)[0])}
    addresses = {
        (section, "*", name)
        for section, members in kinds.items()
        for member in members
        for name, field in member.model_fields.items()
        if field.metadata == url
    }
    assert addresses <= TABLE.keys()
    assert addresses
