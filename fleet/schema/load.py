"""Load a fleet.yaml: read its files, validate them, and turn errors of pydantic into findings.

pydantic adds the name of a union's branch to the path of an error; `follow` removes this name by
walking through the models.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import Tag, ValidationError
from pydantic.fields import FieldInfo

from fleet.schema.findings import (
    Finding,
    Path,
    did_you_mean,
    has_errors,
    in_order,
    nearest,
    quoted,
)
from fleet.schema.model import Fleet, HooksPool, Pool, StaticPool
from fleet.schema.pools import PLACE_PATTERN, SERVER_PATTERN, WINDOW_PATTERN
from fleet.schema.secrets import holds_secret
from fleet.schema.source import Document, Files, read_document
from fleet.schema.units import (
    BACKEND_PATTERN,
    CURRENCY_PATTERN,
    ENV_PATTERN,
    EXPECTED,
    STORE_PATTERN,
    TAG_PATTERN,
    URL_PATTERN,
    CommandSecret,
    ConfigSection,
    EnvSecret,
    FileSecret,
    WrongText,
    follows,
)


class Written(NamedTuple):
    """A path in fleet.yaml, and the section at that path; None if the value is not a section."""

    path: Path
    model: type[ConfigSection] | None
    is_key: bool = False


def follow(model: object, place: Path) -> Written:
    """Convert the path in a pydantic error to a path in a file. `model` is the file's type."""
    annotation: Any = model
    path: list[str | int] = []
    section: type[ConfigSection] | None = annotation if _is_section(annotation) else None
    for step in place:
        if step == "[key]":
            return Written(tuple(path), section, is_key=True)
        annotation = _strip_annotation(annotation)
        if get_origin(annotation) in (Union, UnionType):
            annotation = _strip_annotation(branches(annotation).get(str(step), Any))
        else:
            path.append(step)
            annotation = _strip_annotation(_below(annotation, step))
        section = annotation if _is_section(annotation) else None
    return Written(tuple(path), section)


def branches(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - any annotation of a field
    """Map each tag of a tagged union to the branch with this tag."""
    found: dict[str, Any] = {}
    for each in get_args(_strip_annotation(annotation)):
        bare = _strip_annotation(each)
        tags = [note.tag for note in getattr(each, "__metadata__", ()) if isinstance(note, Tag)]
        if not tags and _is_section(bare) and "kind" in bare.model_fields:
            tags = list(get_args(bare.model_fields["kind"].annotation))
        found |= dict.fromkeys(tags, each)
    return found


def fields_of(model: type[ConfigSection]) -> dict[str, FieldInfo]:
    """Map each key that a section has in fleet.yaml to the field of the model."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _below(annotation: Any, step: str | int) -> Any:  # noqa: ANN401 - any annotation of a field
    if _is_section(annotation):
        field = fields_of(annotation).get(str(step))
        return field.annotation if field else Any
    arguments = get_args(annotation)
    return arguments[-1] if get_origin(annotation) in (dict, list) else Any


def _strip_annotation(annotation: Any) -> Any:  # noqa: ANN401 - any annotation of a field
    """Return a type without its metadata and without `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType) and NoneType in get_args(annotation):
            # No union in fleet has None and several branches without tags.
            (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
        else:
            return annotation


def _is_section(annotation: Any) -> bool:  # noqa: ANN401 - any annotation of a field
    return isinstance(annotation, type) and issubclass(annotation, ConfigSection)


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "string_too_short": "text that is not empty",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le:g}",
}
_PATTERNS = {
    TAG_PATTERN: "a tag without white space",
    ENV_PATTERN: "the name of an environment variable, like HCLOUD_TOKEN",
    CURRENCY_PATTERN: "an ISO 4217 code, like EUR",
    URL_PATTERN: "a URL that begins with https://, has no user name and no port above 65535",
    SERVER_PATTERN: "the URL of a server, like https://deb.example.org, with no port above 65535",
    PLACE_PATTERN: "the name of a provider, file:///PATH or s3://BUCKET/PREFIX",
    STORE_PATTERN: "sqlite, sqlite:///PATH or postgresql://HOST/NAME",
    BACKEND_PATTERN: "file, file://PATH, s3://BUCKET, gs://BUCKET, azblob://CONTAINER or "
    "postgres://HOST/NAME",
    WINDOW_PATTERN: 'a window like "mon-fri 07:00-17:00 Europe/Berlin"',
}
_POOLS = (Pool, HooksPool, StaticPool)
_BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_MAX_COMPARED_KEYS = 200
"""Maximum number of unknown keys for which similar keys are searched; more would take minutes."""


def _explain(errors: list[Any], model: object) -> Iterator[Finding]:
    unknown = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    beside: dict[Path, list[str]] = {}
    for *outer, key in unknown:
        beside.setdefault(tuple(outer), []).append(str(key))
    guess = len(unknown) < _MAX_COMPARED_KEYS
    for error in errors:
        place = follow(model, error["loc"])
        section = follow(model, error["loc"][:-1]).model
        match error["type"]:
            case "extra_forbidden":
                yield _unknown_key(place.path, section, guess=guess)
            case "missing":
                near = beside.get(tuple(error["loc"][:-1]), [])
                if not (near and _is_misspelt(str(place.path[-1]), section, near, guess=guess)):
                    yield _missing(place.path)
            case "union_tag_not_found":
                yield _missing((*place.path, error["ctx"]["discriminator"].strip("'")))
            case "union_tag_invalid":
                known = [tag.strip(" '") for tag in error["ctx"]["expected_tags"].split(",")]
                key = error["ctx"]["discriminator"].strip("'")
                yield _not_one_of((*place.path, key), error["ctx"]["tag"], known)
            case "literal_error":
                yield _literal(place.path, error)
            case _:
                yield _wrong(place, error)


def _unknown_key(path: Path, section: type[ConfigSection] | None, *, guess: bool) -> Finding:
    key = str(path[-1])
    known = _known_keys(section) if section and guess else set()
    meant, inner = _OTHER_NAMES.get(key, key), ""
    if section and guess and meant not in known:
        inner = _section_with(key, section)
        meant = key if inner else meant
        inner = inner or _section_with(meant, section)
    return Finding(
        rule="unknown-key",
        message=f"unknown key {_show(key)}",
        path=path,
        at="key",
        hint=f"write {inner}: {{{meant}: …}}"
        if inner
        else did_you_mean(meant if meant in known else key, known),
    )


_OTHER_NAMES = {
    "user": "submitter",
    "requester": "submitter",
    "pattern": "match",
    "regex": "match",
    "max": "at_most",
    "limit": "at_most",
}
"""Key of another system to the key of fleet, for keys that are spelled differently."""


def _section_with(key: str, section: type[ConfigSection]) -> str:
    """Return the key of the only section inside a section that has this key; else empty."""
    found = [
        name
        for name, field in section.model_fields.items()
        for inner in (field.annotation, *get_args(field.annotation))
        if isinstance(inner, type) and issubclass(inner, ConfigSection) and key in fields_of(inner)
    ]
    return found[0] if len(found) == 1 else ""


def _known_keys(section: type[ConfigSection]) -> set[str]:
    """Return the keys that are valid in a section, including `templates` and `extends`."""
    more = {"templates"} if section is Fleet else {"extends"} if section in _POOLS else set()
    return {*fields_of(section), *more}


def _is_misspelt(
    key: str, section: type[ConfigSection] | None, near: list[str], *, guess: bool
) -> bool:
    """Return whether a required key seems misspelt. Another finding reports the misspelling."""
    if section in (EnvSecret, FileSecret, CommandSecret):
        return True
    if section is None or not guess:
        return False
    meant = (_OTHER_NAMES.get(each, each) for each in near)
    return any(nearest(each, fields_of(section)) == key for each in meant)


def _missing(path: Path) -> Finding:
    section = (
        _show(key) if holds_secret(key) or not key.isprintable() or len(key) > 60 else key  # noqa: PLR2004 - fits on a line
        for key in map(str, path[:-1])
    )
    return Finding(
        rule="missing-key",
        message=f"key '{path[-1]}' is missing in {'.'.join(section) or 'the file'}",
        path=path,
        hint=f"add `{path[-1]}: …`",
    )


def _literal(path: Path, error: Mapping[str, Any]) -> Finding:
    allowed = error["ctx"]["expected"].replace("'", "")
    if isinstance(error["input"], str):
        words = [each.strip() for each in allowed.replace(" or ", ", ").split(",")]
        return _not_one_of(path, error["input"], words)
    return Finding(
        rule="wrong-value",
        message=f"expected {allowed.lower()}, found {_describe_value(error['input'])}",
        path=path,
    )


def _not_one_of(path: Path, value: object, known: list[str]) -> Finding:
    close = nearest(str(value), known)
    return Finding(
        rule="wrong-value",
        message=f"{_show(value)} is not one of {', '.join(known)}",
        path=path,
        hint=f"did you mean '{close}'?" if close else "",
    )


def _wrong(place: Written, error: Mapping[str, Any]) -> Finding:
    value = error["input"]
    expected = _describe_expected(error)
    is_type = (
        error["type"] in _TYPES
        or (error["type"] == EXPECTED)
        or (error["type"] == "value_error" and not isinstance(value, str))
    )
    return Finding(
        rule="wrong-type" if is_type else "wrong-value",
        message=f"expected {expected}, found {_describe_value(value)}",
        path=place.path,
        at="key" if place.is_key else "value",
        hint=_hint(error, place),
    )


def _describe_expected(error: Mapping[str, Any]) -> str:
    context, kind = error.get("ctx", {}), error["type"]
    if kind == "value_error":
        return str(context["error"]).removeprefix("expected ")
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text like {context['pattern']}")
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    return _TYPES.get(kind, str(error["msg"]).removeprefix("expected "))


def _hint(error: Mapping[str, Any], place: Written) -> str:
    kind, value, cause = error["type"], error["input"], error.get("ctx", {}).get("error")
    if isinstance(cause, WrongText) and cause.meant:
        return f"did you mean '{cause.meant}'?"
    if kind == "int_type" and isinstance(value, str):
        is_quoted = follows(r"^(0|[1-9][0-9]{0,99})$", value)
        return f"write {value} without quotes" if is_quoted else "use digits, for example 3"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f'quote it: "{quoted(value)}"'
    if kind == "list_type" and isinstance(value, str) and len(value) < 40 and value:  # noqa: PLR2004 - fits on a line
        return f"write [{value}]" if not holds_secret(value) else ""
    if kind == "bool_type" and str(value).lower() in _BOOLEANS:
        return f"write {_BOOLEANS[str(value).lower()]}"
    keys = _known_keys(place.model) if place.model and _TYPES.get(kind) == "a mapping" else None
    return f"its keys: {', '.join(sorted(keys))}" if keys else ""


def _describe_value(value: object) -> str:
    match value:
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list():
            return "a list" if value else "an empty list"
        case str():
            return _show(value)
        case None | bool():
            return quoted(value)
        case _:
            return f"the number {quoted(value)}"


def _show(value: object) -> str:
    return "(hidden)" if isinstance(value, str) and holds_secret(value) else quoted(value)


_ATTEMPTS = 10


def salvage(value: Mapping[str, object], error: ValidationError) -> Fleet | None:
    """Return the fleet without its invalid parts; None if the remaining parts are invalid."""
    rest: Any = deepcopy(dict(value))
    for _ in range(_ATTEMPTS):
        for mistake in error.errors(include_url=False, include_context=False, include_input=False):
            path = follow(Fleet, mistake["loc"]).path
            _remove_part(rest, path[:-1] if mistake["type"] == "missing" else path)
        rest.setdefault("fleet", "unnamed")
        try:
            return Fleet.model_validate(rest)
        except ValidationError as again:
            error = again
    return None  # pragma: no cover - each attempt removes a part


def _remove_part(rest: Any, path: Path) -> None:  # noqa: ANN401 - any data
    """Remove the part at a path. An item is removed with its list, so that indices stay valid."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    for step in path[:-1]:
        is_item = isinstance(rest, list) and isinstance(step, int) and step < len(rest)
        rest = rest[step] if is_item else rest.get(step) if isinstance(rest, dict) else None
    if path and isinstance(rest, dict):
        rest.pop(path[-1], None)


class Loaded(NamedTuple):
    """A loaded fleet.yaml: `fleet` is None if it has errors; `rest` has only the valid parts."""

    fleet: Fleet | None
    rest: Fleet | None
    document: Document
    findings: tuple[Finding, ...]


def load(name: str, files: Files, changes: str = "") -> Loaded:
    """Load a file and the files that it includes.

    `changes` has lines KEY: VALUE, for example `pools.builders.workers.max: 4`, which replace
    values.
    """
    document = read_document(name, files, changes)
    rest = None
    findings = list(document.findings)
    if isinstance(document.value, dict):
        try:
            rest = Fleet.model_validate(document.value)
        except ValidationError as error:
            # The value of a number that is not finite is missing, which is no second error.
            spans = {finding.span for finding in findings}
            findings += (
                finding
                for finding in explain(error, document, Fleet)
                if document.locate(finding).span not in spans
            )
            rest = salvage(document.value, error)
    ordered = in_order(map(document.locate, findings), name)
    return Loaded(None if has_errors(ordered) else rest, rest, document, ordered)


def explain(error: ValidationError, document: Document, model: object) -> Iterator[Finding]:
    """Yield a finding per validation error in a document. No finding contains a secret."""
    errors: list[Any] = error.errors(include_url=False)
    for finding in _explain(errors, model):
        is_pools = finding.path[:1] == ("pools",) and finding.rule == "missing-key"
        if is_pools and document.partial.intersection(finding.path[1:2]):
            continue  # a template that could not be read may have the key
        if finding.at == "key" or not document.is_secret(finding.path):
            yield finding
