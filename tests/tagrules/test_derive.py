"""Which tags a request gets from its own task data."""

import pytest

from fleet.model.facts import Request
from fleet.schema.model import DeriveRule
from fleet.tagrules.derive import (
    QueueContext,
    derive,
    find_cycle,
    find_differing_records,
    is_placeholder,
    placeholders,
)
from tests.builders import a_fleet, a_request

LOOKUP = "debian/match:codename=trixie:architecture=arm64"
ARCH = "worker:build-arch:{value.architecture}"


def derived(rules: list[object], request: Request, **overrides: object) -> set[str]:
    fleet = a_fleet(derive=rules, **overrides)
    return {found.tag for found in derive(fleet, request, request.required)}


def with_data(**task_data: object) -> Request:
    return a_request(task_data=task_data)


@pytest.mark.parametrize(
    ("path", "data", "tags"),
    [
        ("host_architecture", {"host_architecture": "arm64"}, {"on:arm64"}),
        ("input.host.arch", {"input": {"host": {"arch": "arm64"}}}, {"on:arm64"}),
        ("hosts.1", {"hosts": ["a", "b"]}, {"on:b"}),
        ("hosts", {"hosts": ["a", "b"]}, {"on:a", "on:b"}),
        ("cores", {"cores": 8}, {"on:8"}),
        ("missing.path", {"host_architecture": "arm64"}, set()),
        ("flag", {"flag": True}, set()),
        ("text", {"text": "two words"}, set()),
        ("text", {"text": "x" * 300}, set()),
    ],
)
def test_dotted_path_leads_to_the_value(
    path: str, data: dict[str, object], tags: set[str]
) -> None:
    assert derived([{"from": path, "ask": "on:{value}"}], with_data(**data)) == tags


def test_environment_is_mapped_to_its_architecture() -> None:
    rule = {"from": "environment_id", "lookup": "environments", "ask": ARCH}
    tables = {"environments": {"5": {"architecture": "arm64"}}}

    assert derived([rule], with_data(environment_id=5), lookups=tables) == {
        "worker:build-arch:arm64"
    }
    assert derived([rule], with_data(environment_id=6), lookups=tables) == set()


BY_ENVIRONMENT = {"from": "environment_id", "lookup": "environments", "ask": ARCH}


@pytest.mark.parametrize("own", [{}, {"6": {"architecture": "arm64"}}, {"5": {"vendor": "x"}}])
def test_environment_is_looked_up_in_table_of_queue(own: dict[str, dict[str, str]]) -> None:
    fleet = a_fleet(derive=[BY_ENVIRONMENT], lookups={"environments": own})
    told = QueueContext(environments={"5": {"architecture": "amd64"}})

    found = derive(fleet, with_data(environment_id=5), (), told)

    assert [each.tag for each in found] == ["worker:build-arch:amd64"]


def test_table_with_other_name_is_only_from_the_file() -> None:
    fleet = a_fleet(derive=[BY_ENVIRONMENT | {"lookup": "images"}], lookups={"images": {}})
    told = QueueContext(environments={"5": {"architecture": "amd64"}})

    assert derive(fleet, with_data(environment_id=5), (), told) == ()


def test_request_requires_both_values_when_file_and_queue_differ() -> None:
    tables = {"environments": {"5": {"architecture": "arm64"}, "6": {"architecture": "amd64"}}}
    fleet = a_fleet(derive=[BY_ENVIRONMENT], lookups=tables)
    told = QueueContext(
        environments={"5": {"architecture": "amd64"}, "6": {"architecture": "amd64"}}
    )

    found = derive(fleet, with_data(environment_id=5), (), told)

    assert {each.tag for each in found} == {"worker:build-arch:amd64", "worker:build-arch:arm64"}
    (difference,) = find_differing_records(fleet, told)
    words = ("architecture", "environment 5", "amd64", "arm64", "lookups.environments")
    assert all(word in difference for word in words)


def test_lookup_in_only_one_source_is_not_a_difference() -> None:
    tables = {"environments": {"5": {"architecture": "arm64", "vendor": "x"}, "7": {"a": "b"}}}
    fleet = a_fleet(derive=[BY_ENVIRONMENT], lookups=tables)
    theirs = {"5": {"architecture": "arm64", "suite": "y"}, "8": {"a": "c"}}

    assert list(find_differing_records(fleet, QueueContext(environments=theirs))) == []
    assert (
        list(find_differing_records(a_fleet(derive=[BY_ENVIRONMENT]), QueueContext(True, theirs)))
        == []
    )


def test_unused_tables_may_differ() -> None:
    fleet = a_fleet(lookups={"environments": {"5": {"architecture": "arm64"}}})
    told = QueueContext(environments={"5": {"architecture": "amd64"}})

    assert list(find_differing_records(fleet, told)) == []


@pytest.mark.parametrize("lookup", [{}, {"lookup": "environments"}])
def test_lookup_string_contains_architecture(lookup: dict[str, str]) -> None:
    rule = {"from": "environment", "ask": ARCH} | lookup

    found = derived([rule], with_data(environment=LOOKUP), lookups={"environments": {}})

    assert found == {"worker:build-arch:arm64"}


def test_lookup_table_overrides_lookup_string() -> None:
    rule = {"from": "environment", "lookup": "environments", "ask": ARCH}
    tables = {"environments": {LOOKUP: {"architecture": "riscv64"}}}

    assert derived([rule], with_data(environment=LOOKUP), lookups=tables) == {
        "worker:build-arch:riscv64"
    }


def test_rule_for_one_task_does_not_affect_others() -> None:
    rule = {"task": "lintian", "ask": "light"}

    assert derived([rule], a_request(task="lintian")) == {"light"}
    assert derived([rule], a_request(task="sbuild")) == set()


def test_source_builds_get_a_separate_tag() -> None:
    rules: list[object] = [
        {"source_build": True, "ask": "source"},
        {"source_build": False, "ask": "binary"},
    ]

    source = a_request(owner="o", project="p", chroot=None)
    binary = a_request(owner="o", project="p", chroot="fedora-42-x86_64")

    assert (derived(rules, source), derived(rules, binary)) == ({"source"}, {"binary"})


def test_derived_tags_chain_in_any_rule_order() -> None:
    rules: list[object] = [
        {"tag": "on:*", "ask": "native:{value}"},
        {"from": "host_architecture", "ask": "on:{value}"},
    ]

    assert derived(rules, with_data(host_architecture="arm64")) == {"on:arm64", "native:arm64"}


@pytest.mark.parametrize(
    ("rules", "cycle"),
    [
        ([{"tag": "a", "ask": "b"}, {"tag": "b", "ask": "c"}], ()),
        ([{"tag": "a", "ask": "b"}, {"tag": "b", "ask": "a"}], (0, 1)),
        ([{"tag": "x:*", "ask": "x:{value}:y"}], (0,)),
        ([{"from": "p", "ask": "{value}"}, {"tag": "a", "ask": "b"}], ()),
    ],
)
def test_cycle_of_rules_is_found_and_chain_is_accepted(
    rules: list[object], cycle: tuple[int, ...]
) -> None:
    assert find_cycle(a_fleet(derive=rules).derive) == cycle


@pytest.mark.parametrize(
    ("rule", "because"),
    [
        ({"ask": "x"}, "every request"),
        ({"task": "sbuild", "ask": "x"}, "task sbuild"),
        ({"source_build": False, "ask": "x"}, "not a source build"),
        ({"tag": "on:*", "ask": "x"}, "from tag on:arm64"),
        ({"from": "a.b", "ask": "x"}, "from a.b: 5"),
    ],
)
def test_derived_tag_names_its_origin(rule: dict[str, object], because: str) -> None:
    request = a_request(required=["on:arm64"], task_data={"a": {"b": 5}})

    found = derive(a_fleet(derive=[rule]), request, request.required)

    assert [each.because for each in found] == [because]


def test_derived_tag_of_a_source_build_names_it() -> None:
    rule = {"source_build": True, "ask": "x"}

    (found,) = derive(a_fleet(derive=[rule]), a_request(task="makesourcepackageupload"), ())

    assert found.because == "source build"


def test_rule_without_source_has_no_value_for_template() -> None:
    rules: list[object] = [{"ask": "all{value}"}, {"source_build": False, "ask": "binary{value}"}]

    assert derived(rules, a_request()) == {"all", "binary"}


def test_tag_has_at_most_200_characters() -> None:
    rule = {"from": "text", "ask": "on:{value}"}

    assert derived([rule], with_data(text="x" * 197)) == {"on:" + "x" * 197}
    assert derived([rule], with_data(text="x" * 198)) == set()


@pytest.mark.parametrize(
    ("path", "data"),
    [("hosts.2", ["a", "b"]), ("hosts.x", ["a"]), ("hosts.0", "ab"), ("hosts.-1", ["a"])],
)
def test_path_to_missing_value_gives_no_tag(path: str, data: object) -> None:
    assert derived([{"from": path, "ask": "on:{value}"}], with_data(hosts=data)) == set()


def test_missing_table_is_empty() -> None:
    rule = {"from": "environment_id", "lookup": "environments", "ask": ARCH}

    assert derived([rule], with_data(environment_id=5)) == set()


@pytest.mark.parametrize(
    ("ask", "tags"),
    [
        ("on:{value}", {f"on:{LOOKUP}"}),
        ("of:{value.collection}", {"of:debian"}),
        ("of:{value.codename}", {"of:trixie"}),
        ("of:{value.vendor}", set()),
    ],
)
def test_lookup_string_is_text_without_a_part(ask: str, tags: set[str]) -> None:
    assert derived([{"from": "environment", "ask": ask}], with_data(environment=LOOKUP)) == tags


@pytest.mark.parametrize(
    ("text", "ask", "tags"),
    [
        ("a/match:b=c/match:d=e", "of:{value.collection}", {"of:a"}),
        ("a/match:b=c=d:e", "of:{value.b}", {"of:c=d"}),
        ("a/match:b=c:e", "of:{value.e}", set()),
        ("a/nothing", "of:{value.collection}", set()),
    ],
)
def test_lookup_string_is_split_at_first_separators(text: str, ask: str, tags: set[str]) -> None:
    assert derived([{"from": "environment", "ask": ask}], with_data(environment=text)) == tags


@pytest.mark.parametrize(
    ("ask", "tag", "feeds"),
    [
        ("a", "a", True),
        ("ab", "a", False),
        ("ab", "a*", True),
        ("ba", "a*", False),
        ("a:{value}", "a:b", True),
        ("a:{value}", "a:*", True),
        ("a:{value}", "a*", True),
        ("a:{value}", "ab", False),
        ("a:{value}:{value}", "a:b", True),
        ("a:b:{value}", "a:*", True),
        ("a:b:{value}", "b*", False),
        ("a:b:{value}", "a:", False),
        ("a*", "a*", True),
    ],
)
def test_cycle_is_found_when_rule_feeds_itself(ask: str, tag: str, *, feeds: bool) -> None:
    rules = a_fleet(derive=[{"tag": tag, "ask": ask}]).derive

    assert find_cycle(rules) == ((0,) if feeds else ())


def test_parts_of_template_are_found_even_if_invalid() -> None:
    assert placeholders("a{value}b{}c{x") == ("{value}", "{}", "{")
    assert list(map(is_placeholder, ("{value}", "{value.a.b}", "{}", "{valued}"))) == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("rest", "value"), [("", ""), (":*", ":{value}")])
def test_chain_of_thousands_of_rules_is_evaluated(rest: str, value: str) -> None:
    rules = [DeriveRule(tag=f"t{n + 1}{rest}", ask=f"t{n}{value}") for n in range(5000)]

    derived = derive(a_fleet(derive=rules), a_request(), [f"t5000{rest}".replace("*", "x")])

    assert len(derived) == 5000
    assert find_cycle(rules) == ()
    assert len(find_cycle([*rules, DeriveRule(tag=f"t0{rest}", ask=f"t5000{value}")])) == 5001
