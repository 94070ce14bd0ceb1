"""Who enforces a tag, a permission, an exclusivity or a limit at each queue."""

import pytest

from fleet.schema.model import Fleet, Pool
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
from tests.builders.sentences import tells

TAG = "worker:class:powerful"


def a_guarded_fleet(*requires: str, rule: object = None, **overrides: object) -> Fleet:
    pools = {"powerful": a_pool(provides=[TAG], requires=list(requires))}
    return a_fleet(**{"pools": pools, "tags": {TAG: rule or {"exclusive": True}}} | overrides)


def judged(fleet: Fleet, claim: Claim) -> Enforcement:
    return next(each for each in enforcement_of(fleet) if each.claim == claim)


def test_required_tag_is_enforced_by_debusine_scheduler() -> None:
    assert judged(a_guarded_fleet(), "tag").by == "scheduler"


def test_debusine_does_not_enforce_numbers() -> None:
    pools = {"powerful": a_pool(provides=["memory_gib=64"])}
    fleet = a_fleet(pools=pools, tags={"memory_gib": {"kind": "number"}})

    found = judged(fleet, "tag")

    assert (found.tag, found.by) == ("memory_gib", "capacity")
    assert tells(found.because, "fleet export debusine")


@pytest.mark.parametrize(
    ("requires", "by"),
    [
        ([], "capacity"),
        (["task:scope:debian"], "capacity"),
        (["task:fleet:powerful"], "scheduler"),
        (["task:scope:debian", "task:x"], "scheduler"),
    ],
)
def test_exclusivity_is_enforced_by_required_tags_of_workers(requires: list[str], by: str) -> None:
    found = judged(a_guarded_fleet(*requires), "exclusive")

    assert found.by == by
    assert all(tag in found.because for tag in requires)


def test_exclusivity_has_enforcement_of_weakest_pool() -> None:
    pools = {
        "kept": a_pool(provides=[TAG], requires=["task:fleet:powerful"]),
        "open": a_pool(provides=[TAG]),
    }

    assert judged(a_guarded_fleet(pools=pools), "exclusive").by == "capacity"


def test_exclusivity_of_static_machines_is_only_reported() -> None:
    pools = {"legacy": {"static": ["builder-01"], "provides": [TAG]}}

    assert judged(a_guarded_fleet(pools=pools), "exclusive").by == "report"


def test_tag_without_providing_pool_is_only_reported() -> None:
    found = judged(a_guarded_fleet(pools={"builders": a_pool()}), "exclusive")

    assert found.by == "report"


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


def test_limits_are_not_enforced_by_debusine() -> None:
    rule = {"limits": {"per": {"submitter": 1}, "total": 3}}

    assert judged(a_guarded_fleet(rule=rule), "limits").by == "capacity"


def test_total_limit_is_enforced_on_exclusive_machines() -> None:
    rule = {"exclusive": True, "limits": {"total": 3}}

    assert judged(a_guarded_fleet("task:fleet:powerful", rule=rule), "limits").by == "scheduler"
    assert judged(a_guarded_fleet("task:scope:debian", rule=rule), "limits").by == "capacity"
    assert judged(a_guarded_fleet(rule=rule), "limits").by == "capacity"


@pytest.mark.parametrize(
    ("askers", "requires", "by"),
    [
        ([{"scopes": ["debian"]}], ["task:scope:debian"], "scheduler"),
        ([{"groups": ["debian::kernel"]}], ["task:group:debian::kernel"], "scheduler"),
        ([{"scopes": ["debian"]}, {"groups": ["a::b"]}], ["task:scope:debian"], "scheduler"),
        ([{"scopes": ["debian"]}], ["task:scope:kali"], "report"),
        ([{"scopes": ["debian"]}], ["task:fleet:powerful"], "report"),
        ([{"scopes": ["debian"]}, "rules"], ["task:scope:debian"], "report"),
        ([{"scopes": ["debian"], "users": ["bob"]}], ["task:scope:debian"], "report"),
        (["rules"], ["task:fleet:powerful", "task:scope:debian"], "report"),
        ([], ["task:scope:debian"], "report"),
        ([{"scopes": ["debian"]}], [], "report"),
    ],
)
def test_permission_is_enforced_when_workers_require_the_tag(
    askers: list[object], requires: list[str], by: str
) -> None:
    fleet = a_guarded_fleet(*requires, rule={"asked_by": askers})

    assert judged(fleet, "asked_by").by == by


def test_permission_has_enforcement_of_weakest_pool() -> None:
    pools = {
        "kept": a_pool(provides=[TAG], requires=["task:scope:debian"]),
        "open": a_pool(provides=[TAG]),
    }
    rule = {"asked_by": [{"scopes": ["debian"]}]}

    found = judged(a_guarded_fleet(pools=pools, rule=rule), "asked_by")

    assert found.by == "report"
    assert "task:scope:debian" not in found.because


def test_tag_that_any_user_may_request_has_no_claim() -> None:
    claims = {each.claim for each in enforcement_of(a_guarded_fleet())}

    assert claims == {"tag", "exclusive"}


@pytest.mark.parametrize(
    "queue", [{"kind": "tickets"}, {"kind": "copr", "url": "https://copr.example.org"}]
)
def test_tickets_are_assigned_by_fleet(queue: object) -> None:
    rule = {"exclusive": True, "limits": {"total": 3}, "asked_by": ["rules"]}
    fleet = a_guarded_fleet(rule=rule, queues={"tickets": queue})

    found = enforcement_of(fleet)

    assert [each.by for each in found] == ["scheduler"] * 4
    assert len({each.because for each in found}) == 1


def test_recorded_queue_enforces_no_claim() -> None:
    queues = {"trial": {"kind": "world", "path": "world.json"}}

    found = enforcement_of(a_guarded_fleet(queues=queues))

    assert {(each.by, each.recorded) for each in found} == {("report", True)}


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


def test_claim_names_its_queue_and_key() -> None:
    rule = {"asked_by": ["rules"], "exclusive": True, "limits": {"total": 3}}

    found = enforcement_of(a_guarded_fleet(rule=rule))

    assert [(each.claim, each.queue, each.path) for each in found] == [
        ("tag", "debian", ("tags", TAG)),
        ("asked_by", "debian", ("tags", TAG, "asked_by")),
        ("exclusive", "debian", ("tags", TAG, "exclusive")),
        ("limits", "debian", ("tags", TAG, "limits")),
    ]


def test_only_provided_tag_claims_only_its_provision() -> None:
    fleet = a_fleet(pools={"builders": a_pool(provides=["plain"])})

    assert [(each.tag, each.claim, each.by) for each in enforcement_of(fleet)] == [
        ("plain", "tag", "scheduler")
    ]


def test_pool_of_other_queue_does_not_enforce_tag() -> None:
    queues = {
        "debian": {
            "kind": "debusine",
            "url": "https://debusine.example.org",
            "scopes": ["debian"],
            "token": {"env": "DEBUSINE_TOKEN"},
        },
        "trial": {"kind": "tickets"},
    }
    pools = {"powerful": a_pool(provides=[TAG], serves=["trial"])}

    assert judged(a_guarded_fleet(queues=queues, pools=pools), "tag").by == "report"


def test_pool_provides_tags_only_at_its_queue() -> None:
    pools = {"powerful": a_pool(provides=[TAG], serves=["debian"])}

    assert judged(a_guarded_fleet(pools=pools), "tag").by == "scheduler"


POWERFUL = ["task:fleet:powerful"]
HOOKS = {"new": ["n"], "delete": ["d"], "list": ["l"]}


@pytest.mark.parametrize(
    ("claim", "pool", "by", "tags"),
    [
        ("tag", a_pool(), "scheduler", ""),
        ("asked_by", a_pool(), "report", ""),
        (
            "asked_by",
            a_pool(requires=["task:scope:a", "task:group:b", "x"]),
            "scheduler",
            "task:group:b, task:scope:a",
        ),
        ("exclusive", a_pool(), "capacity", ""),
        (
            "exclusive",
            a_pool(requires=["task:scope:a", "task:scope:b"]),
            "capacity",
            "task:scope:a, task:scope:b",
        ),
        (
            "exclusive",
            a_pool(requires=["x", "task:scope:a", "y", "task:scope:b"]),
            "scheduler",
            "x, y",
        ),
        ("exclusive", {"static": ["builder-01"]}, "report", ""),
        ("exclusive", {"provider": "hooks", "machine": {}, "hooks": HOOKS}, "capacity", ""),
        ("limits", a_pool(), "capacity", ""),
        ("limits", a_pool(requires=POWERFUL), "scheduler", ""),
    ],
)
def test_claim_at_debusine_names_the_required_tags(
    claim: Claim, pool: object, by: str, tags: str
) -> None:
    askers = [{"scopes": ["a"]}, {"groups": ["b"]}]
    rule = {"exclusive": True, "limits": {"total": 3}, "asked_by": askers}
    keys = pool.model_dump(exclude_unset=True) if isinstance(pool, Pool) else pool
    assert isinstance(keys, dict)
    fleet = a_guarded_fleet(rule=rule, pools={"powerful": keys | {"provides": [TAG]}})

    found = judged(fleet, claim)

    assert found.by == by
    assert tags in found.because


def test_first_of_equally_weak_pools_is_the_reason() -> None:
    pools = {
        "a": a_pool(provides=[TAG], requires=["task:scope:debian"]),
        "b": a_pool(provides=[TAG]),
    }

    assert "task:scope:debian" in judged(a_guarded_fleet(pools=pools), "exclusive").because


def test_permission_is_enforced_only_by_pools_with_requires() -> None:
    pools = {
        "kept": a_pool(provides=[TAG], requires=["task:scope:debian"]),
        "legacy": {"static": ["builder-01"], "provides": [TAG]},
    }
    rule = {"asked_by": [{"scopes": ["debian"]}]}

    assert judged(a_guarded_fleet(pools=pools, rule=rule), "asked_by").by == "report"


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
