"""Every field of every answer of a server or command has a range, found in its model's schema."""

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import fleet.clouds
import fleet.queues
from fleet.model import facts

FREE = {
    ("WorkRequestRow", "task_data"): "`keep` extracts plain values of bounded length",
    ("WorkRequestRow", "dynamic_task_data"): "`keep` extracts plain values of bounded length",
    ("_Collection", "data"): "sent back as it was stored",
    ("_Contents", "items"): "sent back as it was stored",
    ("_Item", "data"): "sent back as it was stored",
    ("ServerType", "deprecation"): "looked at for whether it is null",
}
"""Fields of any JSON, each with how it is bounded; 32 MiB bound the whole answer."""
FACTS: tuple[type[BaseModel], ...] = (
    facts.Request,
    facts.Machine,
    facts.Worker,
    facts.Work,
    facts.Quote,
    facts.PriceList,
)
"""Facts that SQL, tickets and commands become without another model."""
ABSURD_TIMES = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z")


def _answers() -> list[type[BaseModel]]:
    """Return the models of all answers that rooms of edges read."""
    found: dict[str, type[BaseModel]] = {}
    for package in (fleet.queues, fleet.clouds):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "plugin" in module.name:
                continue
            for each in vars(importlib.import_module(module.name)).values():
                is_model = isinstance(each, type) and issubclass(each, BaseModel)
                if is_model and each.__module__ == module.name and each.model_fields:
                    found[f"{each.__module__}.{each.__name__}"] = each
    return [found[name] for name in sorted(found)]


# What fleet itself has written: files of its own folder, which it alone reads.
OWN = (
    *("fleet.clouds.hooks.memory", "fleet.clouds.ready"),
    *("fleet.clouds.sim", "fleet.clouds.local"),
)
ANSWERS = [each for each in _answers() if not each.__module__.startswith(OWN)]


def _leaves(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a field's schema that hold one value."""
    if "$ref" in schema:
        return  # a model of its own
    kinds = {each.get("type") for each in schema.get("anyOf", ())}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in schema.get(key, ()):
            # A decimal may be written as text, which has the range of the number.
            if not (kinds >= {"number", "string"} and each.get("type") == "string"):
                yield from _leaves(each, definitions)
    match schema.get("type"):
        case "array":
            yield from _leaves(schema.get("items", {}), definitions)
        case "object":
            yield from _leaves(schema.get("additionalProperties", {}), definitions)
            yield {"type": "string"} | schema.get("propertyNames", {})
        case None if not any(key in schema for key in ("anyOf", "oneOf", "allOf", "prefixItems")):
            if "const" not in schema and "enum" not in schema:
                yield schema
        case None | "null" | "boolean":
            pass
        case _:
            yield schema


def _is_bounded(leaf: dict[str, Any]) -> bool:
    if "const" in leaf or "enum" in leaf:
        return True
    match leaf.get("type"):
        case "integer" | "number":
            low = {"minimum", "exclusiveMinimum"} & leaf.keys()
            return bool(low) and bool({"maximum", "exclusiveMaximum"} & leaf.keys())
        case "string":
            return leaf.keys() & {"maxLength", "format"} != set() or "pattern" in leaf
        case _:
            return False


def _unbounded(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema()
    if "$ref" in schema:
        schema = schema["$defs"][model.__name__]
    fields = schema.get("properties", {"root": schema})
    for name, field in fields.items():
        if (model.__name__, name) in FREE:
            continue
        for leaf in _leaves(field, schema.get("$defs", {})):
            if not _is_bounded(leaf):
                yield f"{model.__module__}.{model.__name__}.{name}: {leaf}"


@pytest.mark.parametrize("model", ANSWERS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_fields_of_an_answer_have_a_range(model: type[BaseModel]) -> None:
    assert list(_unbounded(model)) == []


def _takes(annotation: Any, kind: type) -> bool:  # noqa: ANN401 - an annotation
    return annotation is kind or any(_takes(each, kind) for each in get_args(annotation))


def _fields(kind: type) -> list[tuple[type[BaseModel], str]]:
    return [
        (model, name)
        for model in (*ANSWERS, *FACTS)
        for name, field in model.model_fields.items()
        if _takes(field.annotation, kind)
    ]


def _read(model: type[BaseModel], name: str, value: object) -> object:
    """Return a field's value as its model reads it; None if it refuses the value."""
    field = model.model_fields[name]
    annotation: Any = field.annotation
    for each in field.metadata:
        annotation = Annotated[annotation, each]
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return None


@pytest.mark.parametrize("time", ABSURD_TIMES)
def test_times_out_of_range_are_refused_or_unknown(time: str) -> None:
    fields = _fields(datetime)

    assert len(fields) > 5
    moment = datetime.fromisoformat(time)
    assert [each for each in fields if _read(*each, moment) is not None] == []


@pytest.mark.parametrize("number", [10**30, -(10**30)])
def test_numbers_out_of_range_are_refused(number: int) -> None:
    fields = [*_fields(int), *_fields(Decimal)]
    clamped = {each for each in fields if _read(*each, number) is not None}

    assert len(fields) > 30
    assert clamped == set()
