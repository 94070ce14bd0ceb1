"""Generate the JSON Schemas of fleet.yaml and of the documents that fleet writes."""

import re
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from fleet.schema.units import (
    DURATION_PATTERN,
    NAME_PATTERN,
    PERCENT_PATTERNS,
    SIZE_PATTERN,
    written,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_EXTENDS = (
    "Names of `templates` to take keys from. Its own keys win, then those of later templates; "
    "mappings merge key by key, lists and single values are replaced."
)
Direction = Literal["read", "written"]
_UNITS = (DURATION_PATTERN, *PERCENT_PATTERNS, SIZE_PATTERN)


def json_schema(name: str, model: Any, *, title: str, direction: Direction) -> dict[str, Any]:  # noqa: ANN401 - a model or a dataclass
    """Return the JSON Schema of a document that fleet reads or writes."""
    mode: JsonSchemaMode = "validation" if direction == "read" else "serialization"
    schema = TypeAdapter(model).json_schema(mode=mode, schema_generator=_Generator)
    head = {"$schema": DIALECT, "$id": f"urn:fleet:schema:{name}", "title": title}
    return head | {key: part for key, part in schema.items() if key != "title"}


def with_templates(schema: dict[str, Any]) -> dict[str, Any]:
    """Add `templates` and `extends` to the schema of a Fleet, where both are already merged."""
    parts = schema["$defs"]
    pools = schema["properties"]["pools"]
    names = {"items": {"pattern": NAME_PATTERN, "type": "string"}, "type": "array"}
    keys = {
        key: _partial(part, parts)
        for name in ("HooksPool", "StaticPool", "Pool")
        for key, part in parts[name]["properties"].items()
    }
    parts["Template"] = {
        "additionalProperties": False,
        "description": "Keys of a pool, none required.",
        "properties": {"extends": {"description": _EXTENDS, **names}, **keys},
        "type": "object",
    }
    template = {"$ref": "#/$defs/Template"}
    branches = pools["additionalProperties"]
    branches["oneOf"] = [*branches["oneOf"], template | {"required": ["extends"]}]
    section = {
        "additionalProperties": template,
        "default": {},
        "description": "Named parts of pools, for `extends`.",
        "propertyNames": {"pattern": NAME_PATTERN},
        "type": "object",
    }
    properties: dict[str, Any] = {}
    for key, part in schema["properties"].items():
        properties |= {"templates": section, key: part} if key == "pools" else {key: part}
    return schema | {"properties": properties}


def _partial(part: Any, parts: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Return a copy of a part of a schema in which all keys are optional."""
    if "anyOf" in part:
        return part | {"anyOf": [_partial(each, parts) for each in part["anyOf"]]}
    found = parts.get(part.get("$ref", "").rpartition("/")[2], {})
    if "required" not in found:
        return part
    described = {key: value for key, value in part.items() if key != "$ref"}
    return {key: value for key, value in found.items() if key != "required"} | described


class _Generator(GenerateJsonSchema):
    """Schema generator of pydantic, with restricted map keys, and defaults as in fleet.yaml."""

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Return a schema that restricts each map key. `patternProperties` would permit others."""
        found = super().dict_schema(schema)
        for pattern, values in found.pop("patternProperties", {}).items():
            found["additionalProperties"] = values
            names = self.generate_inner(schema["keys_schema"])
            found["propertyNames"] = {"pattern": pattern} | {
                key: value for key, value in names.items() if key in ("minLength", "maxLength")
            }
        return found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return a schema in which defaults in seconds or MiB are written with a unit."""
        found = super().default_schema(schema)
        if isinstance(found.get("default"), int):
            for form in (found, *found.get("anyOf", ())):
                if (pattern := form.get("pattern")) in _UNITS:
                    found["default"] = written(found["default"], pattern)
                    break
        return found

    def handle_ref_overrides(self, json_schema: JsonSchemaValue) -> JsonSchemaValue:
        """Keep the attributes of a key next to the reference to its model, even if they are equal.

        pydantic removes equal attributes only if it generated the schema of the model first, which
        depends on earlier validations in this process.
        """
        return json_schema

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's own
        """Return False: a title would only repeat the key."""
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Sort keys, and put each description in one line, so that the output is stable."""
        found = super().sort(value, parent_key)
        _one_line(found)
        return found


def _one_line(schema: Any) -> None:  # noqa: ANN401 - any JSON value
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            schema["description"] = re.sub(r"\s+", " ", schema["description"])
        for part in schema.values():
            _one_line(part)
    elif isinstance(schema, list):
        for part in schema:
            _one_line(part)
