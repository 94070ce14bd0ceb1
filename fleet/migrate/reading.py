"""Read a file of another system, and write an imported fleet.yaml with comments.

`share` extracts common parts of pools as templates; `ImportNotes` collects changes and errors.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar, cast, get_origin

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from fleet.schema.findings import YAML_WORDS, Finding, Span, in_order
from fleet.schema.load import explain
from fleet.schema.nodes import Parsed, decoded, parse
from fleet.schema.source import Document
from fleet.schema.units import DURATION_PATTERN, SIZE_PATTERN, ConfigSection, written

_PLAIN = re.compile(r"(?:[A-Za-z][A-Za-z0-9_./-]*|-c|[1-9][0-9]*(?:[smhd]|[MGT]iB))\Z")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]")
_NAME_LENGTH = 31
_WIDTH = 110


@dataclass
class YamlBlock:
    """A value that is written on several lines, with comments above and below."""

    value: Any
    """A mapping or list of blocks, or a scalar; any other value is on one line."""
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


def present(entries: Mapping[str, object]) -> dict[str, Any]:
    """Return the entries that are not None."""
    return {key: value for key, value in entries.items() if value is not None}


def to_text(document: YamlBlock) -> str:
    """Return a file as text, with a blank line above each section."""
    lines = [*comments(document.above), *_write_lines(document, 0)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _write_lines(block: YamlBlock, indent: int) -> Iterator[str]:
    start = " " * indent
    if isinstance(block.value, Mapping):
        for key, value in block.value.items():
            if isinstance(value, YamlBlock):
                yield from [""] * (indent == 0)
                yield from comments(value.above, indent)
                yield f"{start}{scalar(key)}:{'' if value.value else f' {flow(value.value)}'}"
                yield from _write_lines(value, indent + 2)
            else:
                yield f"{start}{scalar(key)}: {flow(value)}"
    elif isinstance(block.value, list):
        for item in block.value:
            yield from comments(item.above, indent)
            first, *more = _write_lines(item, indent + 2)
            yield from (f"{start}- {first.lstrip()}", *more)
    else:
        yield start + flow(block.value)
    yield from comments(block.below, indent)


def comments(texts: Iterable[str], indent: int = 0) -> Iterator[str]:
    """Wrap texts to comment lines; control characters are removed."""
    for text in texts:
        line = "#"
        for word in comment_text(text).split(" "):
            if len(line) + len(word) + indent >= _WIDTH and line != "#":
                yield " " * indent + line
                line = "#  "
            line += f" {word}"
        yield " " * indent + line


def comment_text(text: str) -> str:
    """Return a text for a comment, on one line and without control characters."""
    return _UNPRINTABLE.sub("?", re.sub(r"\s+", " ", text)).strip()


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return scalar(value)


def scalar(value: object) -> str:
    """Return a scalar as YAML that parses to the same scalar."""
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    text = str(value)
    if _PLAIN.match(text) and text.lower() not in YAML_WORDS:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 30)
    return quoted.rstrip("\n")


def shown(value: object) -> str:
    """Return a value on one line, as a message quotes it."""
    return comment_text(flow(value))


def duration(seconds: int) -> str:
    """Return a duration in the syntax of fleet.yaml."""
    return written(seconds, DURATION_PATTERN)


def size(mebibytes: int) -> str:
    """Return a size in the syntax of fleet.yaml."""
    return written(mebibytes, SIZE_PATTERN)


def name_of(text: str, taken: Iterable[str] = ()) -> str:
    """Return a valid name for fleet.yaml that resembles the text and is not in `taken`."""
    slug = _slug(text)
    name = slug[:_NAME_LENGTH].strip("-")
    used, number = frozenset(taken), 1
    while name in used:
        number += 1
        end = f"-{number}"
        name = slug[: _NAME_LENGTH - len(end)].strip("-") + end
    return name


def renaming(text: str, name: str) -> str:
    """Return the message about a changed name; it mentions if the name was shortened."""
    cut = f", cut to {_NAME_LENGTH} characters" * (len(_slug(text)) > _NAME_LENGTH)
    return f"now called {name}{cut}"


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return slug if slug[:1].isalpha() else f"p-{slug}".strip("-")


_MIN_SAVED = 150
"""Minimum characters that a template must save."""
_MAX_GROUPS = 200
"""Maximum groups of pools that are compared at the same time."""
_COMMENT = "#"
_Part = tuple[str, str, str]
"""A key, its inner key or "", and the value as text; or a comment."""
_Parts = dict[_Part, Any]
_Group = frozenset[int]
T = TypeVar("T")


def share(pools: Mapping[str, YamlBlock], base: str, *outer: str) -> dict[str, YamlBlock]:
    """Extract common parts of pools as templates; return the templates, the widest first.

    `base` is the name of a template for all pools; all templates extend the templates `outer`.
    """
    sharing = _Sharing(pools, {base, *outer})
    sharing.split(frozenset(range(len(pools))), base, [*outer])
    return sharing.templates


class _Sharing:
    """Pools, each with the parts that no template has yet."""

    def __init__(self, pools: Mapping[str, YamlBlock], taken: Collection[str]) -> None:
        self.templates: dict[str, YamlBlock] = {}
        self._taken = {*taken}
        self._blocks = [*pools.values()]
        self._left = [dict(_parts(block)) for block in self._blocks]
        words = (re.split(r"[^a-z0-9]+", name.lower()) for name in pools)
        self._words = [dict.fromkeys(filter(None, each)) for each in words]

    def split(self, members: _Group, name: str, outer: list[str]) -> None:
        """Write the template of a group of pools, then recursively those of its subgroups."""
        common = _common_items([self._left[number] for number in sorted(members)])
        if _count_saved(common, members) >= _MIN_SAVED:
            shared = {part: self._left[min(members)][part] for part in common}
            self.templates[name], outer = _join_parts(outer, shared), [name]
            for number in members:
                for part in common:
                    del self._left[number][part]
        while group := self._widest(members):
            self.split(group, self._name(group), outer)
            members -= group
        for number in members:
            own = _join_parts(outer, self._left[number])
            self._blocks[number].value, self._blocks[number].below = own.value, own.below

    def _widest(self, members: _Group) -> _Group:
        """Return the largest group whose template saves enough text; empty if none does."""
        where: dict[_Part, list[int]] = {}
        for number in sorted(members):
            for part in self._left[number]:
                where.setdefault(part, []).append(number)
        alike: dict[_Group, list[_Part]] = {}
        for part, numbers in where.items():
            if len(numbers) > 1:
                alike.setdefault(frozenset(numbers), []).append(part)
        for group in sorted(alike, key=lambda each: (-len(each), sorted(each)))[:_MAX_GROUPS]:
            every = [part for other in alike if group <= other for part in alike[other]]
            if _count_saved(every, group) >= _MIN_SAVED:
                return group
        return frozenset()

    def _name(self, group: _Group) -> str:
        """Return a template's name from common words of the pools' names, or common keys."""
        words = _common_items([self._words[number] for number in sorted(group)])
        of_all = {*_common_items(self._words)}
        parts = _common_items([self._left[number] for number in sorted(group)])
        keys = dict.fromkeys(below or key for key, below, _ in parts)
        name = name_of(
            "-".join([each for each in words if each not in of_all] or keys), self._taken
        )
        self._taken.add(name)
        return name


def _common_items(several: Sequence[Collection[T]]) -> list[T]:
    """Return items that all collections have; empty for only one collection."""
    first, *others = several or [[]]
    return [each for each in first if others and all(each in other for other in others)]


def _count_saved(parts: Collection[_Part], group: _Group) -> int:
    return (len(group) - 1) * sum(len("".join(part)) for part in parts)


def _parts(block: YamlBlock) -> Iterator[tuple[_Part, Any]]:
    for key, value in block.value.items():
        below = value.value.items() if isinstance(value, YamlBlock) else [("", value)]
        yield from (((key, inner, flow(each)), each) for inner, each in below)
    yield from (((_COMMENT, "", text), text) for text in block.below)


def _join_parts(extends: list[str], parts: _Parts) -> YamlBlock:
    """Return a block of these parts; the inverse of `_parts`."""
    block = YamlBlock({"extends": extends} if extends else {})
    for (key, below, _), value in parts.items():
        if below:
            block.value.setdefault(key, YamlBlock({})).value[below] = value
        elif key == _COMMENT:
            block.below.append(value)
        else:
            block.value[key] = value
    return block


LIMIT = 1_000_000
"""Maximum bytes of an imported file."""

Kind = Literal["changed", "never-acts", "no-equivalent", "renamed", "to-do"]

_MOST_NAMES = 10
Content = TypeVar("Content", bound=dict[str, Any] | list[Any])


@dataclass(frozen=True)
class Change:
    """A setting that is lost, or whose meaning changes, in an import."""

    kind: Kind
    what: str
    now: str
    place: Span
    names: tuple[str, ...] = ()
    """The recorded names of builds that the change affects."""


@dataclass(frozen=True)
class Imported:
    """The result of an import; `text` is None if the file has errors."""

    document: Document
    text: str | None = None
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    """Programs that fleet.yaml runs: relative path and content of each."""


class Foreign(ConfigSection):
    """Base class of parts of another system's file, in which unknown keys are permitted."""

    model_config = ConfigDict(extra="ignore")


@dataclass
class ImportNotes:
    """A file to import, and the changes and errors so far."""

    document: Document
    text: str = ""
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)
    """Path of a file with a long command to the file's content."""

    def change(self, kind: Kind, place: Span, what: str, now: str) -> None:
        """Record a changed or lost setting."""
        self.changes.append(Change(kind, what, now, place))

    def wrong(self, place: Span, rule: str, message: str, hint: str = "") -> None:
        """Record an error."""
        self.findings.append(Finding(rule, message, hint=hint, span=place))

    def read(self, annotation: type[Content], expected: str) -> Content:
        """Parse the file as a mapping or list of this type; empty if it has errors."""
        value, kind = self.document.value, cast("type[Content]", get_origin(annotation))
        if isinstance(value, kind):
            try:
                return TypeAdapter(annotation).validate_python(value)
            except ValidationError as error:
                found = explain(error, self.document, annotation)
                self.findings += map(self.document.locate, found)
        elif value is not None or not self.findings:
            self.wrong(self.document.span(()), "wrong-type", f"expected {expected}")
        return kind()

    def imported(self, written: YamlBlock) -> Imported:
        """Return the import, with changes in the order of the file; no text after errors."""
        if self.findings:
            return Imported(self.document, findings=in_order(self.findings, self.document.name))
        unique = dict.fromkeys(self.changes)
        changes = sorted(unique, key=lambda c: (c.place.line, c.place.column, c.kind, c.what))
        scripts = tuple(self.scripts.items())
        return Imported(self.document, to_text(written), tuple(changes), scripts=scripts)


def open_file(name: str, content: bytes, *, is_yaml: bool = True) -> ImportNotes:
    """Return the notes for a file, with positions if it is YAML; record syntax errors."""
    text = decoded(content, name, "is this the right file?")
    if isinstance(text, Finding):
        return ImportNotes(
            Document(name, root=None, texts={}, roots=(), findings=()), findings=[text]
        )
    parsed = parse(text, name) if is_yaml else Parsed(None, ())
    roots = [parsed.root] if parsed.root else []
    document = Document(
        name, root=parsed.root, texts={name: text}, roots=roots, findings=parsed.findings
    )
    return ImportNotes(document, text, findings=[*document.findings])


def fleet_yaml(system: str, name: str, fleet: str, sections: Mapping[str, object]) -> YamlBlock:
    """Return an imported fleet.yaml with the sections that are not None."""
    above = f"Written by `fleet import {system}` from {name}: read it before use."
    return YamlBlock({"fleet": fleet, **present(sections)}, [above])


def changes_to_text(changes: Iterable[Change]) -> str:
    """Return one line per change, with a position that editors and terminals can open."""
    lines = (f"{c.place}: {c.kind}: {c.what}: {c.now}{_list_names(c)}" for c in changes)
    return "\n".join(line.replace("\n", "\\n") for line in lines)


def changes_to_json(changes: Iterable[Change]) -> str:
    """Return the changes as one JSON object."""
    report = {"format": "fleet-import-1", "changes": [asdict(change) for change in changes]}
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def _list_names(change: Change) -> str:
    if not change.names:
        return ""
    more = len(change.names) - _MOST_NAMES
    names = ", ".join(change.names[:_MOST_NAMES])
    return f": {names}" + (f" and {more} more" if more > 0 else "")
