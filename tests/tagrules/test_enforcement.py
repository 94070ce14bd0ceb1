"""Who enforces a tag, a permission, an exclusivity or a limit at each queue."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from fleet.schema.model import Fleet
from fleet.tagrules.sources import (
    Claim,
    Enforcement,
    enforcement_of,
    is_workspace_tag,
    known_tags,
    pools_providing,
    weakest,
)
from tests.builders import a_fleet, a_pool
from tests.builders.cases import Block, read_blocks

TAG = "worker:class:powerful"


def a_guarded_fleet(*requires: str, rule: object = None, **overrides: object) -> Fleet:
    pools = {"powerful": a_pool(provides=[TAG], requires=list(requires))}
    return a_fleet(**{"pools": pools, "tags": {TAG: rule or {"exclusive": True}}} | overrides)


def judged(fleet: Fleet, claim: Claim) -> Enforcement:
    return next(each for each in enforcement_of(fleet) if each.claim == claim)


CASES = [*read_blocks(Path(__file__).parent / "enforcement")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_claims_are_enforced_as_in_their_case(case: Block) -> None:
    found = claims_of(*case.parts)

    assert describe(found) == case.result
    for claim, words in case.because:
        assert words.strip() in next(each.because for each in found if each.claim == claim)


def claims_of(text: str) -> tuple[Enforcement, ...]:
    """Return who enforces the claims of a fleet, as YAML."""
    said = yaml.safe_load(f"{{{text.replace('TAG', TAG)}}}")
    rule, requires = said.pop("rule", None), said.pop("requires", [])
    if "pools" in said:
        said["pools"] = {
            name: keys if {"static", "hooks"} & keys.keys() else a_pool(**keys)
            for name, keys in said["pools"].items()
        }
    return tuple(enforcement_of(a_guarded_fleet(*requires, rule=rule, **said)))


def describe(found: Iterable[Enforcement]) -> str:
    """Return each claim with its key, its queue, and what enforces it."""
    said = (
        f"{each.claim} at {each.queue} by {each.by}{' (recorded)' if each.recorded else ''}"
        for each in found
        if each.path in ((), ("tags", each.tag), ("tags", each.tag, each.claim))
    )
    return ", ".join(said)


def test_pool_provides_classes_that_its_machines_reach() -> None:
    big = "worker:class:big"
    pools = {"builders": a_pool(machine="ccx63"), "small": a_pool(machine="ccx13")}
    fleet = a_fleet(pools=pools, tags={big: {"exclusive": True}, "p[o]wer": {}, "worker:*": {}})

    assert pools_providing(fleet) == {
        big: ("builders",),
        "p[o]wer": (),
        "worker:*": ("builders", "small"),
    }
    assert judged(fleet, "exclusive").by == "capacity"


def test_claims_of_tickets_have_one_reason() -> None:
    rule = {"exclusive": True, "limits": {"total": 3}, "asked_by": ["rules"]}
    fleet = a_guarded_fleet(rule=rule, queues={"tickets": {"kind": "tickets"}})

    assert len({each.because for each in enforcement_of(fleet)}) == 1


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("task:fleet:drain", True),
        ("anything", True),
        ("task:scope:debian", False),
        ("task:workspace:debian:kernel", False),
        ("task:group:debian::admins", False),
        ("task:source-package:chromium", False),
    ],
)
def test_workspace_owner_can_set_most_tags_of_requests(tag: str, expected: bool) -> None:  # noqa: FBT001 - a column of the table
    assert is_workspace_tag(tag) is expected


def test_declared_provided_or_required_tag_is_listed_once() -> None:
    fleet = a_fleet(
        tags={"memory_gib": {"kind": "number"}, "a": {}},
        pools={"builders": a_pool(provides=["a", "b", "memory_gib=32"])},
        powerful=[{"match": "x", "ask": ["c", "memory_gib>=16"]}],
    )

    assert known_tags(fleet) == ("a", "b", "c", "memory_gib")


def test_weakest_enforcement_of_no_pools_is_none() -> None:
    assert weakest([]) is None
    assert weakest(["scheduler", "report", "capacity"]) == "report"


HOOKS = {"new": ["n"], "delete": ["d"], "list": ["l"]}


def test_pool_with_own_commands_provides_tags_of_its_image() -> None:
    hooked = {"provider": "hooks", "machine": {}, "hooks": HOOKS}
    images = {"trixie": {"suite": "trixie", "architecture": "amd64", "provides": [TAG]}}
    pools = {"bare": hooked, "booted": hooked | {"image": "trixie"}}

    assert pools_providing(a_guarded_fleet(pools=pools, images=images))[TAG] == ("booted",)


def test_declared_name_does_not_apply_to_longer_tag() -> None:
    fleet = a_fleet(
        tags={"class:a": {}, "class:*": {}}, pools={"builders": a_pool(provides=["class:ab"])}
    )

    assert pools_providing(fleet) == {
        "class:*": ("builders",),
        "class:a": (),
        "class:ab": ("builders",),
    }


def test_undeclared_number_is_not_a_tag() -> None:
    fleet = a_fleet(powerful=[{"match": "x", "ask": ["disk", "memory_gib>=16"]}])

    assert known_tags(fleet) == ("disk",)
