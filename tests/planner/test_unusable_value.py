"""A request waits when a value of its task data cannot become the tag that a rule asks for."""

from typing import Any

import pytest

from fleet.model.facts import Request
from fleet.tagrules.derive import NOTHING, QueueContext
from fleet.tagrules.requests import Judge, TagRequirements
from tests.builders import NOW, a_fleet
from tests.builders.sentences import tells

MEMORY = {"from": "mem", "ask": "memory_gib>={value}"}
ARCH = {"from": "arch", "ask": "worker:build-arch:{value}"}
NESTED = {"from": "needs", "ask": "memory_gib>={value.gib}"}


def asking(data: dict[str, Any], *rules: dict[str, Any], **more: Any) -> TagRequirements:  # noqa: ANN401
    request = Request(id="1", task="sbuild", task_data=data)
    tags = {"memory_gib": {"kind": "number"}}
    fleet = a_fleet(derive=list(rules or (MEMORY,)), tags=tags, lookups=more.pop("lookups", {}))
    return Judge(fleet, {}, NOW.date()).ask_of(request, QueueContext(**more))


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        {"gib": 64},
        {},
        "64GiB",
        "64 GiB",
        "6e1",
        "",
        " ",
        -1,
        -0.5,
        0.1 + 0.2,
        1e308,
        10**400,
        10**20,
        float("nan"),
        float("inf"),
        [[64]],
        [8, {"gib": 64}],
        "x" * 300,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_request_is_held_when_value_is_not_a_number(value: object) -> None:
    found = asking({"mem": value})

    assert found.held
    assert tells(found.refused[0].because, "mem", "memory_gib>=")
    assert found.refused[0].path == ("derive", 0)
    assert len(found.refused[0].because) < 300


@pytest.mark.parametrize(
    ("value", "minimum"),
    [
        (64, "64"),
        (64.0, "64"),
        (64.5, "64.5"),
        ("64", "64"),
        ("64.0", "64"),
        ("64 ", "64"),
        ("\t64\n", "64"),
        ([64], "64"),
        ([8.0, " 64 "], "64"),
        (0, "0"),
    ],
    ids=repr,
)
def test_minimum_is_the_number_that_a_value_means(value: object, minimum: str) -> None:
    found = asking({"mem": value})

    assert not found.held
    assert [(name, f"{least:f}") for name, least in found.ask.minimums] == [
        ("memory_gib", minimum)
    ]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ({"arch": "amd64 arm64"}, ARCH),
        ({"arch": ["amd64", {"name": "arm64"}]}, ARCH),
        ({"arch": True}, ARCH),
        ({"arch": "x" * 200}, ARCH),
        ({"needs": 64}, NESTED),
        ({"needs": "64"}, NESTED),
        ({"needs": {"gib": "much"}}, NESTED),
        ({"needs": {"gib": {"least": 64}}}, NESTED),
    ],
    ids=str,
)
def test_request_is_held_when_a_value_fits_no_tag(
    data: dict[str, Any], rule: dict[str, Any]
) -> None:
    found = asking(data, rule)

    assert found.held
    assert tells(found.refused[0].because, rule["from"])


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ({}, MEMORY),
        ({"mem": None}, MEMORY),
        ({"mem": []}, MEMORY),
        ({"mem": [None]}, MEMORY),
        ({"needs": {"disk": 5}}, NESTED),
        ({"needs": {"gib": None}}, NESTED),
        ({"mem": True}, {"from": "mem", "ask": "much-memory"}),
        ({"mem": True}, MEMORY | {"task": "lintian"}),
    ],
    ids=str,
)
def test_request_is_served_when_a_value_is_absent(
    data: dict[str, Any], rule: dict[str, Any]
) -> None:
    assert not asking(data, rule).held


def test_request_is_served_when_the_queue_stored_its_tags() -> None:
    assert not asking({"mem": True}, stored=True).held


@pytest.mark.parametrize("row", ["8", 8, 8.0, " 8", "8 "], ids=repr)
def test_row_of_a_look_up_is_found_by_the_number_that_a_value_means(row: object) -> None:
    rule = {"from": "size", "lookup": "sizes", "ask": "worker:class:{value.class}"}

    found = asking({"size": row}, rule, lookups={"sizes": {"8": {"class": "big"}}})

    assert found.ask.required == {"worker:class:big"}


OF_TAG = {"tag": "wants:*", "ask": "native:{value}"}
OF_NUMBER = {"tag": "mem:*", "ask": "memory_gib>={value}"}


@pytest.mark.parametrize(
    ("tag", "rule", "gives"),
    [
        ("wants:" + "x" * 193, OF_TAG, "native:" + "x" * 193),
        ("wants:x", OF_TAG | {"tag": "wants:x", "ask": "got:{value}"}, "got:"),
        ("mem:64", OF_NUMBER, None),
        ("other:" + "x" * 190, OF_TAG, None),
    ],
    ids=lambda each: str(each)[:30],
)
def test_request_is_served_when_its_tag_gives_a_tag(
    tag: str, rule: dict[str, str], gives: str | None
) -> None:
    fleet = a_fleet(derive=[rule], tags={"memory_gib": {"kind": "number"}})

    found = Judge(fleet, {}, NOW.date()).ask_of(
        Request(id="1", task="t", required=(tag,)), NOTHING
    )

    assert not found.held
    assert gives is None or gives in found.ask.required


def test_stored_tag_counts_when_rule_derives_none() -> None:
    fleet = a_fleet(derive=[OF_TAG])
    request = Request(id="1", task="t", required=("wants:" + "x" * 194,))

    assert not Judge(fleet, {}, NOW.date()).ask_of(request, QueueContext(stored=True)).held
