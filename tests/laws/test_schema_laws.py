"""The laws of fleet.yaml: the models and the published JSON Schema give the same verdict."""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.schema.load import load
from fleet.schema.model import Fleet
from fleet.schema.source import read_document
from tests.fakes.files import FakeFiles
from tests.rigs.process import ROOT

Json = Any
"""Any JSON value."""

# What no schema can forbid: secrets, wherever they stand, and files that are not there.
BEYOND_SCHEMA = {"inline-secret", "invalid-include"}
JUNK = [
    *(None, True, False, 0, 1, -1, 100_001, 0.5, 20.0, 1e9),
    *("", " ", "x", "a b", "X", "yes", "12", "a\n", "a\u00a0b", "\u00e9", "a" * 32, "x" * 1001),
    *("30m", "30 m", "0m", "4GiB", "4GB", "30%", "6 EUR", "6 eur", "0.35 EUR/h", "EUR", "EUR\n"),
    *("2026-11-21", "2026-02-30", "2026-11-21\n", "wait", "hooks", "hcloud", "https://h", "env"),
    *([], {}, ["x"], ["a b"], [1], {"x": 1}, {"env": "A"}, {"kind": "sim"}, {"static": ["a"]}),
    *({"existing": {"p": "1"}}, {"max": 1}, {"type": "t"}, {"after": "2h", "drop": True}),
]


def _ecma(
    _: object, pattern: str, instance: object, __: object
) -> Iterator[jsonschema.ValidationError]:
    """Match as JSON Schema says: `$` is the very end, not also before a last line break."""
    ends = re.sub(r"\$$", r"\\Z", pattern)
    if isinstance(instance, str) and not re.search(ends, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


@cache
def the_schema() -> Json:
    return json.loads((ROOT / "docs/schemas/fleet.json").read_text(encoding="utf-8"))


@cache
def validator() -> Json:
    extend: Json = jsonschema.validators.extend
    ecma = extend(jsonschema.Draft202012Validator, {"pattern": _ecma})
    return ecma(the_schema(), format_checker=jsonschema.FormatChecker(["date"]))


@cache
def a_whole_document() -> Json:
    files = FakeFiles(
        {"fleet.yaml": (ROOT / "tests/fixtures/whole.yaml").read_text(encoding="utf-8")}
    )
    return read_document("fleet.yaml", files).value


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every part of a document."""
    yield path
    parts: Json = value.items() if isinstance(value, dict) else ()
    for step, part in enumerate(value) if isinstance(value, list) else parts:
        yield from places(part, (*path, step))


@st.composite
def nearly_valid(draw: st.DrawFn) -> Json:
    """Return the whole of fleet.yaml with a few parts replaced, removed or added."""
    value = {"root": copy.deepcopy(a_whole_document())}
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from([each for each in places(value) if each]))
        parent: Json = value
        for step in path[:-1]:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "remove", "add", "rename"])):
            case "remove" if len(path) > 1:
                del parent[path[-1]]
            case "add" if isinstance(parent[path[-1]], dict):
                parent[path[-1]][draw(st.sampled_from(ADDED))] = draw(st.sampled_from(JUNK))
            case "rename" if isinstance(parent, dict) and len(path) > 1:
                parent[draw(st.sampled_from(ADDED))] = parent.pop(path[-1])
            case _:
                parent[path[-1]] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return value["root"]


ADDED = ["x", "Name", "a b", "max", "kind", "static", "hooks", "workers", "env", "x" * 32, "EUR"]


def verdicts(value: object) -> tuple[bool, bool, str]:
    """Return what the schema says, what the program says, and its findings for a message."""
    text = yaml.dump(value, Dumper=_Plain, allow_unicode=True, width=10_000)
    findings = load("fleet.yaml", FakeFiles({"fleet.yaml": text})).findings
    by_schema = bool(validator().is_valid(value))
    # Only those may be wrong where the schema sees nothing wrong.
    told = [each for each in findings if not by_schema or each.rule not in BEYOND_SCHEMA]
    return by_schema, not told, f"{told}\n{text}"


class _Plain(yaml.SafeDumper):
    """Writes what our reader reads back: no anchors, and every text in quotes."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML calls it with one
        return True


_Plain.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)
_Plain.add_representer(
    float, lambda dumper, number: dumper.represent_scalar("tag:yaml.org,2002:float", f"{number:f}")
)


@given(nearly_valid())
def test_models_and_schema_agree_on_nearly_valid_documents(value: Json) -> None:
    by_schema, by_program, told = verdicts(value)

    assert by_schema == by_program, told


@pytest.mark.parametrize(
    ("share", "allowed"), [("0%", False), ("1%", True), ("100%", True), ("101%", False)]
)
def test_models_and_schema_agree_on_a_percentage(share: str, *, allowed: bool) -> None:
    history = {"of": "memory", "quantile": share}
    value = {"fleet": "x", "derive": [{"ask": "memory_gib>={value}", "history": history}]}

    by_schema, by_program, told = verdicts(value)

    assert (by_schema, by_program) == (allowed, allowed), told


@given(nearly_valid())
def test_fleet_round_trips(value: Json) -> None:
    text = yaml.dump(value, Dumper=_Plain, allow_unicode=True, width=10_000)
    fleet = load("fleet.yaml", FakeFiles({"fleet.yaml": text})).fleet

    if fleet is not None:
        assert Fleet.model_validate_json(json.dumps(fleet.as_written())) == fleet


def test_fleet_with_hooks_round_trips() -> None:
    commands = {name: [name] for name in ("new", "delete", "list")}
    pool = {
        "provider": "hooks",
        "hooks": commands,
        "machine": {"cores": 1, "memory": "1GiB", "price": "0.01 EUR/h"},
        "workers": {"max": 1},
    }
    fleet = Fleet.model_validate({"fleet": "desk", "pools": {"own": pool}})

    assert fleet.providers
    assert Fleet.model_validate_json(json.dumps(fleet.as_written())) == fleet


def written(schema: Json) -> st.SearchStrategy[Json]:
    """Return what a schema allows, now and then with something else in its place."""
    return st.one_of(*[_allowed(schema)] * 19, st.sampled_from(JUNK))


def _allowed(schema: Json) -> st.SearchStrategy[Json]:
    if "$ref" in schema:
        return _section(schema["$ref"].rpartition("/")[2])
    union = schema.get("oneOf") or schema.get("anyOf")
    if union:
        # What a pool extends is nothing that a schema sees.
        return st.one_of([written(each) for each in union if "required" not in each])
    words = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    return st.sampled_from(words) if words else _plain(schema)


def _plain(schema: Json) -> st.SearchStrategy[Json]:
    strategies = {
        "object": _mapping,
        "array": lambda each: st.lists(
            written(each["items"]), min_size=each.get("minItems", 0), max_size=2
        ),
        "integer": lambda each: st.integers(each["minimum"] - 1, each["maximum"] + 1),
        "number": lambda _: st.floats(0, 2_000_000, width=32),
        "boolean": lambda _: st.booleans(),
        "null": lambda _: st.none(),
        "string": _text,
    }
    return strategies[schema["type"]](schema)


def _mapping(schema: Json) -> st.SearchStrategy[Json]:
    values = written(schema["additionalProperties"])
    least = schema.get("minProperties", 0)
    return st.dictionaries(_text(schema["propertyNames"]), values, min_size=least, max_size=2)


def _text(schema: Json) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True).filter(str.isprintable)
    return st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)


@cache
def _section(name: str) -> st.SearchStrategy[Json]:
    schema = the_schema()["$defs"][name]
    needed = {key: written(schema["properties"][key]) for key in schema.get("required", ())}
    rest = {key: part for key, part in schema["properties"].items() if key not in needed}
    return st.fixed_dictionaries(needed, optional={k: written(part) for k, part in rest.items()})


@given(st.data())
def test_models_and_schema_agree_on_generated_documents(data: st.DataObject) -> None:
    properties = the_schema()["properties"]
    key = data.draw(st.sampled_from(sorted(set(properties) - {"include", "templates"})))
    value = {"fleet": "x", key: data.draw(written(properties[key]))}

    by_schema, by_program, told = verdicts(value)

    assert by_schema == by_program, told


@given(st.text(max_size=200))
def test_any_text_is_read_without_exception(text: str) -> None:
    loaded = load("fleet.yaml", FakeFiles({"fleet.yaml": text.encode("utf-8", "replace")}))

    assert loaded.fleet is not None or loaded.findings != ()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_exception(content: bytes) -> None:
    loaded = load("fleet.yaml", FakeFiles({"fleet.yaml": content}))

    assert loaded.fleet is not None or loaded.findings != ()


@given(st.text(alphabet="{}[]&*!|>'\"%@`#,:-? \n\tab1~<", max_size=60))
def test_any_punctuation_is_read_without_exception(text: str) -> None:
    loaded = load("fleet.yaml", FakeFiles({"fleet.yaml": f"fleet: x\n{text}"}))

    assert loaded.fleet is not None or loaded.findings != ()
    assert all(finding.span is not None for finding in loaded.findings)
