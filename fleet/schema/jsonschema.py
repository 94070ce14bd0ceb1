"""This module publishes JSON Schemas: of fleet.yaml, and of the documents fleet writes.

They say what the models say: constraints of keys, units as patterns, defaults as written.
"""

import re
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from fleet.schema.units import DURATION_PATTERN, PERCENT_PATTERN, SIZE_PATTERN, written

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Direction = Literal["read", "written"]
_UNITS = (DURATION_PATTERN, PERCENT_PATTERN, SIZE_PATTERN)


def json_schema(name: str, model: Any, *, title: str, direction: Direction) -> dict[str, Any]:  # noqa: ANN401 - a model or a dataclass
    """Return the JSON Schema of a document that fleet reads, or of one that it has written."""
    mode: JsonSchemaMode = "validation" if direction == "read" else "serialization"
    schema = TypeAdapter(model).json_schema(mode=mode, schema_generator=_Generator)
    head = {"$schema": DIALECT, "$id": f"urn:fleet:schema:{name}", "title": title}
    return head | {key: part for key, part in schema.items() if key != "title"}


class _Generator(GenerateJsonSchema):
    """pydantic's generator, but strict about keys and with defaults the way they are written."""

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Bind every key: patternProperties would let other keys pass."""
        found = super().dict_schema(schema)
        for pattern, values in found.pop("patternProperties", {}).items():
            found["additionalProperties"] = values
            names = self.generate_inner(schema["keys_schema"])
            found["propertyNames"] = {"pattern": pattern} | {
                key: value for key, value in names.items() if key in ("minLength", "maxLength")
            }
        return found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Write a default of seconds or MiB with its unit."""
        found = super().default_schema(schema)
        pattern = found.get("pattern")
        if pattern in _UNITS and isinstance(found.get("default"), int):
            found["default"] = written(found["default"], pattern)
        return found

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's own
        """Leave titles out: they would repeat the key."""
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Sort keys and turn docstrings into one line, so that the text is stable."""
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
