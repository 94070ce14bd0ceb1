"""Which tags a request gets from its own task data."""

from pathlib import Path

import pytest
import yaml

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
from tests.builders.cases import Block, read_blocks

LOOKUP = "debian/match:codename=trixie:architecture=arm64"
ARCH = "worker:build-arch:{value.architecture}"


def derived(rules: list[object], request: Request, **overrides: object) -> set[str]:
    fleet = a_fleet(derive=rules, **overrides)
    return {found.tag for found in derive(fleet, request, request.required)}


def with_data(**task_data: object) -> Request:
    return a_request(task_data=task_data)


CASES = [*read_blocks(Path(__file__).parent / "derived")]
BY_ID = (
    '{from: environment_id, lookup: environments, ask: "worker:build-arch:{value.architecture}"}'
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_rules_derive_the_tags_of_their_case(case: Block) -> None:
    assert tags_of(*case.parts) == case.result


def tags_of(rules: str, data: str, tables: str) -> str:
    """Return the tags of a request by these rules, all as YAML."""
    texts = (f"[{rules.replace('BY_ID', BY_ID)}]", f"{{{data}}}", f"{{{tables}}}")
    derived_by, said, more = (
        yaml.safe_load(text.replace("LOOKUP", f"'{LOOKUP}'")) for text in texts
    )
    other = said.pop("of", {})
    told = QueueContext(environments=more.pop("queue", {}))
    request = a_request(**({"task_data": said} | other))
    found = derive(a_fleet(derive=derived_by, **more), request, request.required, told)
    return ", ".join(sorted(each.tag for each in found)) or "nothing"


def test_value_of_300_characters_gives_no_tag() -> None:
    assert derived([{"from": "text", "ask": "on:{value}"}], with_data(text="x" * 300)) == set()


BY_ENVIRONMENT = {"from": "environment_id", "lookup": "environments", "ask": ARCH}


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


def test_tag_has_at_most_200_characters() -> None:
    rule = {"from": "text", "ask": "on:{value}"}

    assert derived([rule], with_data(text="x" * 197)) == {"on:" + "x" * 197}
    assert derived([rule], with_data(text="x" * 198)) == set()


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
