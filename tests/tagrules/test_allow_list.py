"""The allow-list: what requests are called, and which rules they fall under."""

from datetime import date, timedelta

import pytest

from fleet.model.facts import Demand, Request, Unknown
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList, BadPattern, PatternSet, compile_pattern, rules_for_name
from fleet.tagrules.names import RecordedNames, names_of, recorded_names, without_directory
from tests.builders import NOW, a_fleet, a_reading, a_request, a_world

TODAY = date(2026, 11, 21)
SEED: list[dict[str, object]] = [
    {"match": "praiskup/ping/fedora-.*-.*/chromium", "ask": ["extra_powerful"]},
    {"match": "@copr/copr-pull-requests/.*/copr-cli", "ask": ["extra_powerful"]},
]


def with_rules(*rules: dict[str, object]) -> Fleet:
    return a_fleet(powerful=list(rules))


def taken(fleet: Fleet, name: str) -> list[int]:
    found = [match.index for match in rules_for_name(fleet, name, TODAY)]
    assert [match.index for match in AllowList(fleet, TODAY).rules_for_name(name)] == found
    return found


def copr(**overrides: object) -> Request:
    defaults: dict[str, object] = {"scope": None, "owner": "praiskup", "project": "ping"}
    return a_request(**(defaults | {"chroot": "fedora-42-x86_64"} | overrides))


def debusine(**overrides: object) -> Request:
    defaults: dict[str, object] = {"scope": "debian", "workspace": "base", "package": "linux"}
    return a_request(**(defaults | overrides))


# names


def test_copr_build_name_has_owner_project_chroot_and_package() -> None:
    assert names_of(copr(package="chromium")) == ("praiskup/ping/fedora-42-x86_64/chromium",)


def test_name_of_pull_request_build_has_directory() -> None:
    request = copr(owner="@copr", project="copr-pull-requests:pr:7", package="copr-cli")

    assert names_of(request) == ("@copr/copr-pull-requests:pr:7/fedora-42-x86_64/copr-cli",)


@pytest.mark.parametrize("chroot", [None, "srpm-builds"])
def test_copr_source_build_has_chroot_srpm_builds(chroot: str | None) -> None:
    request = copr(chroot=chroot, package="chromium")

    assert names_of(request) == ("praiskup/ping/srpm-builds/chromium",)


def test_source_build_of_unknown_package_has_empty_last_part() -> None:
    assert names_of(copr(chroot=None)) == ("praiskup/ping/srpm-builds/",)


def test_build_of_unknown_package_has_no_name() -> None:
    assert names_of(copr()) == ()


@pytest.mark.parametrize(
    ("said", "architecture"),
    [
        ({"required": ("worker:build-arch:arm64", "x")}, "arm64"),
        ({"task_data": {"build_architecture": "amd64"}}, "amd64"),
        ({"task_data": {"host_architecture": "i386"}}, "i386"),
        ({"task_data": {"host_architecture": 7}}, "any"),
        ({}, "any"),
        ({"task": "makesourcepackageupload", "required": ("worker:build-arch:arm64",)}, "source"),
        ({"task_data": {"build_components": ["source"], "build_architecture": "i386"}}, "source"),
        ({"task_data": {"build_components": ["any"], "build_architecture": "i386"}}, "i386"),
    ],
)
def test_debusine_request_name_has_scope_workspace_arch_and_source(
    said: dict[str, object], architecture: str
) -> None:
    assert names_of(debusine(**said)) == (f"debian/base/{architecture}/linux",)


def test_source_package_is_read_from_tag_of_debusine() -> None:
    request = debusine(package=None, provided=("task:source-package:gcc-15", "task:x"))

    assert names_of(request) == ("debian/base/any/gcc-15",)


def test_request_with_two_architectures_has_two_names() -> None:
    request = debusine(required=("worker:build-arch:amd64", "worker:build-arch:arm64"))

    assert names_of(request) == ("debian/base/amd64/linux", "debian/base/arm64/linux")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a/b:pr:7/c/d", "a/b/c/d"),
        ("a/b/c:x/d", "a/b/c:x/d"),
        ("a:x/b/c/d", "a:x/b/c/d"),
        ("a/b:pr", "a/b"),
        ("a", "a"),
    ],
)
def test_directory_follows_colon_in_second_part(name: str, plain: str) -> None:
    assert without_directory(name) == plain


# rules


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("praiskup/ping/fedora-42-x86_64/chromium", [0]),
        ("praiskup/ping/fedora-42-x86_64/chromium-headers", []),
        ("xpraiskup/ping/fedora-42-x86_64/chromium", []),
        ("praiskup/ping/epel-9-x86_64/chromium", []),
        ("@copr/copr-pull-requests/fedora-43-x86_64/copr-cli", [1]),
        ("@copr/copr-pull-requests:pr:7/fedora-43-x86_64/copr-cli", []),
    ],
)
def test_documented_examples_match_whole_names(name: str, rules: list[int]) -> None:
    assert taken(with_rules(*SEED), name) == rules


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("@copr/copr-pull-requests/fedora-43-x86_64/copr-cli", [0]),
        ("@copr/copr-pull-requests:pr:7/fedora-43-x86_64/copr-cli", [0]),
        ("@copr/copr-pull-requests:custom:a.b/srpm-builds/copr-cli", [0]),
        ("@copr/copr-pull-requests-old:pr:7/fedora-43-x86_64/copr-cli", []),
        ("@copr/copr-pull-requests:pr:7/fedora-43-x86_64/copr-client", []),
    ],
)
def test_rule_with_dirs_matches_pull_request_directories(name: str, rules: list[int]) -> None:
    assert taken(with_rules(SEED[1] | {"dirs": True}), name) == rules


def test_dirs_apply_to_project_patterns() -> None:
    fleet = with_rules({"match": "@a/(b|c)/.*/d", "ask": ["x"], "dirs": True})

    assert taken(fleet, "@a/c:pr:7/e/d") == [0]
    assert taken(fleet, "@a/d:pr:7/e/d") == []


def test_all_matching_rules_apply_in_order_of_file() -> None:
    fleet = with_rules(
        {"match": ".*/linux", "ask": ["a"]},
        {"match": "x", "ask": ["b"]},
        {"match": "debian/.*", "ask": ["a", "c"]},
    )
    request = debusine(required=("worker:build-arch:amd64", "worker:build-arch:arm64"))

    found = AllowList(fleet, TODAY).rules_for(request)

    assert [(match.index, match.rule.ask, match.name.split("/")[2]) for match in found] == [
        (0, ["a"], "amd64"),
        (0, ["a"], "arm64"),
        (2, ["a", "c"], "amd64"),
        (2, ["a", "c"], "arm64"),
    ]


@pytest.mark.parametrize(("days", "rules"), [(0, [0]), (1, [0]), (-1, [])])
def test_rule_applies_until_end_of_its_last_day(days: int, rules: list[int]) -> None:
    expires = (TODAY + timedelta(days=days)).isoformat()

    assert taken(with_rules({"match": "a", "ask": ["x"], "expires": expires}), "a") == rules


def test_invalid_rule_matches_no_name_and_keeps_others() -> None:
    fleet = with_rules({"match": "a(", "ask": ["x"]}, {"match": "a.", "ask": ["x"]})

    assert taken(fleet, "a(") == [1]


# many at once


@pytest.mark.slow
def test_patterns_beyond_memory_limit_are_matched_individually() -> None:
    large = [f"a|{number}.{{200}}" for number in range(1500)]

    together = PatternSet(large)

    assert together.takers("a") == list(range(1500))


def test_names_are_counted_by_rule() -> None:
    fleet = with_rules({"match": "a.*", "ask": ["x"]}, {"match": "b", "ask": ["x"]})

    counted = AllowList(fleet, TODAY).count_names({"a": {""}, "ab": {""}, "c": {""}})

    assert counted == {0: ["a", "ab"], 1: []}


# what was recorded


def test_recorded_names_are_of_all_waiting_requests() -> None:
    reading = a_reading(copr(package="b", id="1"), copr(package="a", id="2"), a_request(id="3"))
    world = a_world(queues={"copr": reading})

    assert recorded_names(world).names == (
        "praiskup/ping/fedora-42-x86_64/a",
        "praiskup/ping/fedora-42-x86_64/b",
    )


@pytest.mark.parametrize(
    "demand",
    [Unknown(unknown="down"), Demand(read_at=NOW, estimate=True)],
    ids=["unknown", "sampled"],
)
def test_recorded_names_are_incomplete_when_unknown_or_sampled(demand: Demand | Unknown) -> None:
    world = a_world(queues={"copr": a_reading(), "other": a_reading(demand=demand)})

    assert recorded_names(world) == RecordedNames({}, complete=False)


# patterns


@pytest.mark.parametrize(
    ("pattern", "reason", "part"),
    [
        ("a(b", "missing )", "a(b"),
        ("a(?!b)", "invalid perl operator", "(?!"),
        (r"(a)\1", "invalid escape sequence", r"\1"),
        ("(.{1000}){1000}", "invalid repetition size", "{1000}"),
        (".{900}" * 50, "pattern too large - compile failed", ""),
    ],
)
def test_invalid_pattern_error_quotes_re2(pattern: str, reason: str, part: str) -> None:
    with pytest.raises(BadPattern) as raised:
        compile_pattern(pattern)

    assert (raised.value.reason, raised.value.part) == (reason, part)


def test_backtracking_pattern_is_matched_in_linear_time() -> None:
    assert not compile_pattern("(x+x+)+y").takes("x" * 10_000)
