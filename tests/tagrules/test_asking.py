"""What a request asks for: which tags count, where each is from, which are refused and why."""

import gc
import weakref
from dataclasses import replace
from datetime import date

import pytest

from fleet.model.facts import Demand, Request, TaskHistory, Unknown
from fleet.schema.model import Fleet
from fleet.tagrules.derive import QueueContext, queue_context
from fleet.tagrules.requests import Judge, Memberships, TagRequirements
from tests.builders import NOW, a_fleet, a_request
from tests.builders.sentences import tells

TODAY = date(2026, 11, 21)
PING = {"owner": "praiskup", "project": "ping", "chroot": "fedora-42-x86_64"}


def asking(
    fleet: Fleet,
    request: Request,
    *,
    stored: bool = False,
    memberships: Memberships | None = None,
) -> TagRequirements:
    known: Memberships = {} if memberships is None else memberships
    return Judge(fleet, known, TODAY).ask_of(request, QueueContext(stored=stored))


def asked_by(*askers: object, **more: object) -> Fleet:
    return a_fleet(tags={"power": {"asked_by": list(askers), **more}})


def by(source: str, **overrides: object) -> Request:
    return a_request(required=["power"], asked={"power": source}, requester="alice", **overrides)


def test_undeclared_tag_may_be_requested_by_any_user() -> None:
    found = asking(a_fleet(), by("user"))

    assert found.ask.required == {"power"}
    assert [(o.tag, o.source) for o in found.origins] == [("power", "user")]


@pytest.mark.parametrize(
    ("source", "word"), [("user", "user"), ("task", "task"), ("ticket", "tickets")]
)
def test_asked_by_permits_only_named_source(source: str, word: str) -> None:
    others = {"user", "task", "tickets", "rules", "system"} - {word}

    assert asking(asked_by(word), by(source)).ask.required == {"power"}
    assert asking(asked_by(*sorted(others)), by(source)).ask.required == set()


def test_system_tag_counts_when_system_requests_it() -> None:
    assert asking(asked_by("system"), by("system")).ask.required == {"power"}
    assert asking(asked_by("system"), by("user")).refused


@pytest.mark.parametrize(
    ("askers", "request_"),
    [
        ({"users": ["alice"]}, by("user")),
        ({"groups": ["toolchain"]}, by("user", groups=("toolchain",))),
        ({"workspaces": ["kernel"]}, by("user", workspace="kernel")),
        ({"scopes": ["debian"]}, by("ticket")),
    ],
)
def test_named_asker_may_request_tag(askers: object, request_: Request) -> None:
    assert asking(asked_by(askers), request_).ask.required == {"power"}


def test_group_members_are_read_from_members_file() -> None:
    fleet = asked_by({"groups": ["toolchain"]})

    known = asking(fleet, by("user"), memberships={"toolchain": ["alice"]})
    other = asking(fleet, by("user"), memberships={"toolchain": ["bob"]})

    assert known.ask.required == {"power"}
    assert other.ask.required == set()


def test_unknown_group_permits_no_tag_with_reason() -> None:
    dark = Unknown(unknown="members.yaml: gone")

    found = asking(asked_by({"groups": ["toolchain"]}), by("user"), memberships=dark)

    (refusal,) = found.refused
    assert found.ask.required == set()
    assert (refusal.who, refusal.is_sure) == ("user alice", False)
    assert "group toolchain" in refusal.because
    assert "members.yaml: gone" in refusal.because


@pytest.mark.parametrize("source", ["user", "ticket"])
def test_tag_is_held_while_membership_is_unknown(
    source: str,
) -> None:
    dark = Unknown(unknown="members.yaml: gone")
    otherwise = {"after": "30m", "drop": True}
    fleet = asked_by({"groups": ["toolchain"]}, otherwise=otherwise)

    unknown = asking(fleet, by(source), memberships=dark)
    known = asking(fleet, by(source), memberships={"toolchain": ["bob"]})
    a_task_s = asking(fleet, by("task"), memberships=dark)

    assert (unknown.held, known.held, a_task_s.held) == (True, False, False)
    assert [each.tag for each in unknown.refused] == ["power"]


def test_refusal_names_asker_and_key() -> None:
    fleet = asked_by("rules", {"groups": ["toolchain"], "workspaces": ["kernel"]})

    refusal = asking(fleet, by("user")).refused[0]

    assert refusal.who == "user alice"
    assert refusal.path == ("tags", "power", "asked_by")
    assert refusal.tag == "power"
    assert "tags.power.asked_by" in refusal.because
    assert tells(refusal.because, "rules", "toolchain", "kernel")


def test_tag_counts_when_its_asker_is_unknown() -> None:
    found = asking(asked_by("system"), a_request(required=["power"]))

    assert found.ask.required == {"power"}
    assert [origin.source for origin in found.origins] == ["unknown"]


def test_minimum_is_permitted_by_the_rule_of_its_name() -> None:
    fleet = a_fleet(tags={"memory_gib": {"kind": "number", "asked_by": ["task"]}})
    request = a_request(required=["memory_gib>=64"], asked={"memory_gib": "user"})

    found = asking(fleet, request)

    assert found.ask.minimums == ()
    assert found.refused[0].tag == "memory_gib>=64"


def test_forbidden_tag_counts_when_a_rule_also_requests_it() -> None:
    fleet = a_fleet(
        tags={"power": {"asked_by": ["rules"]}},
        powerful=[{"match": "praiskup/.*/chromium", "ask": ["power"]}],
    )

    found = asking(fleet, by("user", package="chromium", **PING))

    assert found.ask.required == {"power"}
    assert found.refused == ()
    assert found.origins[0].path == ("powerful", 0)


def test_rule_tag_is_refused_when_rules_may_not_request_it() -> None:
    fleet = a_fleet(
        tags={"power": {"asked_by": ["tickets"]}},
        powerful=[{"match": "praiskup/.*/chromium", "ask": ["power"]}],
    )

    found = asking(fleet, a_request(package="chromium", **PING))

    assert found.ask.required == set()
    assert found.refused[0].who == "rule powerful[0]"


def test_matching_rules_apply_except_expired_ones() -> None:
    rules = [
        {"match": "praiskup/ping/fedora-.*-.*/chromium", "ask": ["power"]},
        {"match": "praiskup/.*", "ask": ["swap"]},
        {"match": "praiskup/.*", "ask": ["gpu"], "expires": date(2026, 11, 20)},
    ]

    found = asking(a_fleet(powerful=rules), a_request(package="chromium", **PING))

    assert found.ask.required == {"power", "swap"}


def test_tags_stored_by_queue_precede_current_rules() -> None:
    fleet = a_fleet(
        powerful=[{"match": "praiskup/.*", "ask": ["power"]}],
        derive=[{"from": "host_architecture", "ask": "worker:build-arch:{value}"}],
    )
    request = a_request(
        package="chromium",
        required=["worker:build-arch:amd64"],
        task_data={"host_architecture": "arm64"},
        **PING,
    )

    found = asking(fleet, request, stored=True)

    assert found.ask.required == {"worker:build-arch:amd64"}
    assert [(each.tag, each.path) for each in found.differences] == [
        ("power", ("powerful", 0)),
        ("worker:build-arch:arm64", ("derive", 0)),
    ]
    by_rule, derived = (each.because for each in found.differences)
    assert "powerful[0]" in by_rule
    assert "derive[0]" in derived
    assert "host_architecture: arm64" in derived


def test_stored_tag_without_permission_holds_the_request() -> None:
    found = asking(asked_by("rules"), by("user"), stored=True)

    assert found.held
    assert found.refused[0].tag == "power"


def test_refusal_ignores_unknown_groups_when_no_group_may_ask() -> None:
    dark = Unknown(unknown="members.yaml: gone")

    found = asking(asked_by({"users": ["bob"]}), by("user"), memberships=dark)

    assert found.refused[0].is_sure
    assert "members.yaml" not in found.refused[0].because


@pytest.mark.parametrize(
    ("request_", "who"),
    [
        (by("user"), "user alice"),
        (by("ticket"), "user alice (by ticket)"),
        (a_request(required=["power"], asked={"power": "user"}), "user (unknown)"),
        (by("task"), "the task"),
    ],
)
def test_refusal_names_asker_as_reported_by_queue(request_: Request, who: str) -> None:
    assert [refusal.who for refusal in asking(asked_by("system"), request_).refused] == [who]


def test_derived_tag_is_refused_when_tasks_may_not_request_it() -> None:
    fleet = a_fleet(tags={"power": {"asked_by": ["user"]}}, derive=[{"ask": "power"}])

    found = asking(fleet, a_request())

    assert found.ask.required == set()
    assert found.refused[0].who == "rule derive[0]"


@pytest.mark.parametrize(
    ("askers", "named"),
    [
        ([], "no one"),
        (["task", {"users": ["bob", "eve"]}], "task, user bob, user eve"),
        (
            [{"scopes": ["s"], "workspaces": ["w"], "groups": ["g"]}],
            "group g, workspace w, scope s",
        ),
    ],
)
def test_refusal_names_all_permitted_askers(askers: list[object], named: str) -> None:
    found = asking(asked_by(*askers), by("user"))

    assert f" {named}" in found.refused[0].because


MANY = a_fleet(
    tags={
        "memory_gib": {"kind": "number"},
        "power": {
            "asked_by": [
                {"users": ["bob"], "groups": ["g"], "workspaces": ["w"], "scopes": ["kali"]}
            ]
        },
    },
    powerful=[{"match": ".*/kernel", "ask": ["swap"]}],
    derive=[
        {"task": "lintian", "ask": "light"},
        {"source_build": True, "ask": "source"},
        {"from": "host", "ask": "on:{value}"},
        {"history": {"of": "memory", "min_runs": 1}, "ask": "memory_gib>={value}"},
    ],
)
RUNS = TaskHistory(task="sbuild", package="linux", memory_mib=(2048,))
KNOWN = queue_context(Demand(read_at=NOW, history=(RUNS,)))


@pytest.mark.parametrize(
    "difference",
    [
        {"required": ["power", "x"]},
        {"provided": ("x",)},
        {"asked": {"power": "task"}},
        {"requester": "bob"},
        {"groups": ("g",)},
        {"workspace": "w"},
        {"scope": "kali"},
        {"task": "lintian"},
        {"task_data": {"host": "arm64"}},
        {"task_data": {"build_components": ["source"]}},
        {"package": "linux"},
        {"workspace": "base", "package": "kernel"},
    ],
)
def test_requests_are_judged_separately_when_relevant_values_differ(
    difference: dict[str, object],
) -> None:
    judge = Judge(MANY, {}, TODAY)
    other = Request.model_validate(by("user").model_dump() | difference)

    first = judge.ask_of_alike(by("user"), KNOWN)

    shared, alone = judge.ask_of_alike(other, KNOWN), judge.ask_of(other, KNOWN)
    assert [(o.tag, o.path) for o in shared.origins] == [(o.tag, o.path) for o in alone.origins]
    assert replace(shared, origins=()) == replace(alone, origins=()) != replace(first, origins=())


def test_requests_are_judged_separately_per_queue_context() -> None:
    judge = Judge(MANY, {}, TODAY)
    request = by("user", package="linux")

    judge.ask_of_alike(request, KNOWN)

    assert judge.ask_of_alike(request, QueueContext()) == judge.ask_of(request, QueueContext())


@pytest.mark.parametrize(
    ("fleet", "difference"),
    [
        (MANY, {"id": "7"}),
        (a_fleet(), {"requester": "bob", "task": "lintian", "package": "linux"}),
        (a_fleet(derive=[{"ask": "x"}]), {"package": "linux"}),
    ],
)
def test_requests_are_judged_once_when_irrelevant_values_differ(
    fleet: Fleet, difference: dict[str, object]
) -> None:
    judge = Judge(fleet, {}, TODAY)
    other = by("user").altered(**difference)

    assert judge.ask_of_alike(other, KNOWN) is judge.ask_of_alike(by("user"), KNOWN)


@pytest.mark.parametrize("provided", [(), ("package:firefox",)])
def test_shared_origin_names_no_package(provided: tuple[str, ...]) -> None:
    rule = {"match": "debian/.*", "ask": ["power"], "reason": "they need memory"}
    judge = Judge(a_fleet(powerful=[rule]), {}, TODAY)
    first, second = (
        a_request(scope="debian", workspace="base", package=package)
        for package in ("dash", "firefox")
    )

    judge.ask_of_alike(first, KNOWN)

    shared = judge.ask_of_alike(second.model_copy(update={"provided": provided}), KNOWN)
    assert [(each.tag, "dash" in each.because) for each in shared.origins] == [("power", False)]


@pytest.mark.parametrize(
    ("asked", "stored", "word"),
    [
        ("user", False, "user"),
        ("task", False, "task"),
        ("ticket", True, "ticket"),
        ("system", True, "system"),
        (None, False, "request"),
        (None, True, "queue"),
    ],
)
def test_origin_of_requested_tag_has_its_asker(
    asked: str | None,
    word: str,
    *,
    stored: bool,
) -> None:
    request = a_request(required=["power"], asked={"power": asked} if asked else {})

    (origin,) = asking(a_fleet(), request, stored=stored).origins

    assert (origin.source, origin.path) == (asked or "unknown", ())
    assert f"the {word} " in origin.because


@pytest.mark.parametrize("contact", ["", "@kernel"])
def test_origin_of_a_rule_names_pattern_request_and_contact(contact: str) -> None:
    rule = {"match": ".*/chromium", "ask": ["power"]} | ({"contact": contact} if contact else {})

    (origin,) = asking(a_fleet(powerful=[rule]), a_request(package="chromium", **PING)).origins

    assert "'.*/chromium'" in origin.because
    assert "praiskup/ping/fedora-42-x86_64/chromium" in origin.because
    assert origin.because.endswith(contact)
    assert ("contact" in origin.because) == bool(contact)


def test_origins_are_sorted_by_tag_with_rule_of_derived_tag() -> None:
    fleet = a_fleet(derive=[{"task": "other", "ask": "b"}, {"ask": "a"}])

    found = asking(fleet, a_request(required=["b"]))

    assert [(o.tag, o.source, o.path) for o in found.origins] == [
        ("a", "derived", ("derive", 1)),
        ("b", "unknown", ()),
    ]


def test_stored_request_has_only_stored_tags() -> None:
    fleet = a_fleet(derive=[{"ask": "a"}])

    found = asking(fleet, a_request(required=["b"]), stored=True)

    assert found.ask.required == {"b"}
    assert [origin.tag for origin in found.origins] == ["b"]


def test_only_storing_queue_holds_forbidden_tag() -> None:
    assert not asking(asked_by("rules"), by("user")).held
    assert not asking(asked_by("user"), by("user"), stored=True).held


def test_requirements_include_minimum_from_history() -> None:
    request = a_request(package="linux")

    found = Judge(MANY, {}, TODAY).ask_of(request, KNOWN)

    assert [name for name, _ in found.ask.minimums] == ["memory_gib"]


def test_provided_tags_count_only_when_a_worker_reads_them() -> None:
    request = a_request(provided=("x",))

    looked_at = Judge(a_fleet(), {}, TODAY).ask_of(request, QueueContext())
    ignored = Judge(a_fleet(), {}, TODAY, with_provided=False).ask_of(request, QueueContext())

    assert (looked_at.ask.provided, ignored.ask.provided) == (frozenset({"x"}), frozenset())


def test_cached_judgement_is_released_with_its_reading() -> None:
    fleet, reading = a_fleet(), QueueContext()
    known: Memberships = {}
    first = Judge(fleet, known, TODAY).ask_of_alike(by("user"), reading)
    assert Judge(fleet, known, TODAY).ask_of_alike(by("user"), reading) is first
    forgotten = weakref.ref(reading)

    del reading
    gc.collect()

    assert forgotten() is None
