"""The JSON Schema of fleet.yaml: constraints of keys and values, and defaults as written."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from pydantic import Field

from fleet.schema.jsonschema import json_schema
from fleet.schema.model import Fleet
from fleet.schema.units import (
    DURATION_PATTERN,
    PERCENT_PATTERN,
    SIZE_PATTERN,
    ConfigSection,
    written,
)


def schema() -> dict[str, Any]:
    return json_schema("fleet", Fleet, title="fleet.yaml", direction="read")


@pytest.mark.parametrize(
    "value",
    [
        {"fleet": "x", "pools": {"na.me": {"static": ["a"]}}},
        {"fleet": "x", "pools": {"a": {"static": []}}},
        {"fleet": "x", "tags": {"a b": {}}},
        {"fleet": "x", "money": {"exchange": {"eur": {"rate": 1, "as_of": "2026-11-21"}}}},
        {"fleet": "x" * 21},
        {"fleet": "x", "cadence": 10},
        {"fleet": "x", "nope": 1},
        {},
    ],
)
def test_schema_limits_keys_and_values(value: object) -> None:
    validator = jsonschema.Draft202012Validator(schema())

    assert not validator.is_valid(value)


def test_default_is_shown_in_syntax_of_fleet_yaml() -> None:
    properties = schema()["$defs"]["Boot"]["properties"]

    assert (properties["expected"]["default"], properties["deadline"]["default"]) == ("90s", "10m")
    assert schema()["properties"]["cadence"]["default"] == "10m"


def test_key_keeps_description_equal_to_that_of_its_model() -> None:
    class Part(ConfigSection):
        """How it is."""

        size: int = 1

    class Whole(ConfigSection):
        part: Part = Field(description="How it is.")

    found = json_schema("whole", Whole, title="Whole", direction="read")

    described = {"$ref": "#/$defs/Part", "description": "How it is."}
    assert found["properties"]["part"] == described


def test_each_default_can_be_written() -> None:
    whole = schema()
    defaults = [each for each in sections(whole) if each.get("default") is not None]

    wrong = [
        each
        for each in defaults
        if not jsonschema.Draft202012Validator({"$defs": whole["$defs"], **each}).is_valid(
            each["default"]
        )
    ]

    assert len(defaults) > 100
    assert wrong == []


def sections(part: object) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
    for each in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        yield from sections(each)


def test_keys_have_no_titles_that_repeat_them() -> None:
    titled = [
        key
        for section in schema()["$defs"].values()
        for key, part in section.get("properties", {}).items()
        if "title" in part
    ]

    assert titled == []


def test_descriptions_are_one_line() -> None:
    texts = [section.get("description", "") for section in schema()["$defs"].values()]

    assert [text for text in texts if "\n" in text] == []


@pytest.mark.parametrize(
    ("value", "pattern", "text"),
    [
        (90, DURATION_PATTERN, "90s"),
        (3600, DURATION_PATTERN, "1h"),
        (604_800, DURATION_PATTERN, "7d"),
        (1536, SIZE_PATTERN, "1536MiB"),
        (65_536, SIZE_PATTERN, "64GiB"),
        (30, PERCENT_PATTERN, "30%"),
    ],
)
def test_number_is_written_in_its_largest_whole_unit(value: int, pattern: str, text: str) -> None:
    assert written(value, pattern) == text
