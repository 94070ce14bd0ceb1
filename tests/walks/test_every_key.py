"""Every key that fleet.yaml may hold stands in a walk or a golden plan: none is only promised."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from tests.docs.test_documents import BLOCK
from tests.rigs.process import ROOT
from tests.walks.walking import PAGES

# Keys that only the kind beside it may have: `fleet validate` refuses them here.
REFUSED = {"HooksPool: ready"}
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/schemas/fleet.json").read_text("utf-8"))


def of_schema() -> set[str]:
    """Return every key of the schema, below the part that it belongs to."""
    parts = {"fleet.yaml": SCHEMA, **SCHEMA["$defs"]}
    # What a template has of a pool is a pool's.
    parts["Template"] = {"properties": {"extends": parts["Template"]["properties"]["extends"]}}
    return {f"{name}: {key}" for name, part in parts.items() for key in part.get("properties", ())}


def used(schema: dict[str, Any], value: Any, part: str) -> Iterator[str]:  # noqa: ANN401 - any YAML
    """Yield the keys of the schema that a value uses."""
    if "$ref" in schema:
        part = schema["$ref"].rpartition("/")[2]
        schema = SCHEMA["$defs"][part]
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if fits(json.dumps(branch), json.dumps(value)):
            yield from used(branch, value, part)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            yield from used(schema["items"], each, part)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, each in value.items():
            if key in properties:
                yield f"{part}: {key}"
                yield from used(properties[key], each, part)
            elif isinstance(others, dict):
                yield from used(others, each, part)


@cache
def fits(branch: str, value: str) -> bool:
    """Say whether a value is of this form."""
    return bool(validator(branch).is_valid(json.loads(value)))


@cache
def validator(branch: str) -> Draft202012Validator:
    return Draft202012Validator({"$defs": SCHEMA["$defs"], **json.loads(branch)})


def configurations() -> Iterator[str]:
    for page in PAGES.glob("*.md"):
        for block in BLOCK.finditer(page.read_text("utf-8")):
            if (block["file"] or "").endswith(".yaml"):
                yield block["body"]
    for path in (*ROOT.glob("tests/plans/*/fleet.yaml"), *ROOT.glob("tests/walks/*/*.yaml")):
        yield path.read_text("utf-8")


def test_every_key_is_in_a_walk_or_a_golden_plan() -> None:
    found = {
        key
        for text in configurations()
        if isinstance(value := yaml.load(text, Text), dict)  # noqa: S506 - a safe loader
        for key in used(SCHEMA, value, "fleet.yaml")
    }

    assert of_schema() - found == REFUSED


class Text(yaml.SafeLoader):
    """Reads dates as the text that they are."""


Text.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in pairs if not tag.endswith(":timestamp")]
    for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
