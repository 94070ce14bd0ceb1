"""Write an imported fleet.yaml with comments and shared templates, and report the changes."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeVar

import yaml

from fleet.schema.findings import YAML_WORDS, Finding, Span, quoted
from fleet.schema.nodes import Node, Parsed, decoded, parse
from fleet.schema.source import Document
from fleet.schema.units import DURATION_PATTERN, SIZE_PATTERN, written

_PLAIN = re.compile(r"(?:[A-Za-z][A-Za-z0-9_./-]*|-c|[1-9][0-9]*(?:[smhd]|[MGT]iB))\Z")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]")
_NAME_LENGTH = 31
_WIDTH = 110


@dataclass
class Block:
    """A mapping that is written over several lines, with comments above and between."""

    entries: list[tuple[str, object]] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


def block_to_lines(name: str, block: Block, indent: int = 2) -> Iterator[str]:
    """Yield the lines of a named mapping."""
    yield from comments(block.above, indent)
    yield f"{' ' * indent}{scalar(name)}:"
    for key, value in block.entries:
        if isinstance(value, Block):
            yield from block_to_lines(key, value, indent + 2)
        else:
            yield f"{' ' * (indent + 2)}{scalar(key)}: {flow(value)}"
    yield from comments(block.below, indent + 2)


def item_to_lines(block: Block) -> Iterator[str]:
    """Yield the lines of a mapping in a list."""
    yield from comments(block.above, 2)
    for number, (key, value) in enumerate(block.entries):
        dash = "- " if number == 0 else "  "
        yield f"  {dash}{scalar(key)}: {flow(value)}"
    yield from comments(block.below, 4)


def comments(texts: Iterable[str], indent: int = 0) -> Iterator[str]:
    """Yield comment lines of screen width; the text stays within the comment."""
    for text in texts:
        line = "#"
        for word in comment_text(text).split(" "):
            if len(line) + len(word) + indent >= _WIDTH and line != "#":
                yield " " * indent + line
                line = "#  "
            line += f" {word}"
        yield " " * indent + line


def comment_text(text: str) -> str:
    """Return a text for a comment: on one line, without control codes."""
    return _UNPRINTABLE.sub("?", re.sub(r"\s+", " ", text)).strip()


def flow(value: object) -> str:
    """Return a value on one line."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return scalar(value)


def scalar(value: object) -> str:
    """Return a scalar that reads back as itself."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.match(text) and text.lower() not in YAML_WORDS:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 30)
    return quoted.rstrip("\n")


def shown(node: Node) -> str:
    """Return the text of a node, on one line."""
    return comment_text(flow(_plain(node)))


def duration(seconds: int) -> str:
    """Return a duration the way fleet.yaml writes it."""
    return written(seconds, DURATION_PATTERN)


def size(mebibytes: int) -> str:
    """Return a size the way fleet.yaml writes it."""
    return written(mebibytes, SIZE_PATTERN)


def name_of(text: str, taken: Iterable[str] = ()) -> str:
    """Return a valid name for fleet.yaml, as close to the text as possible, not one of `taken`."""
    slug = _slug(text)
    name = slug[:_NAME_LENGTH].strip("-")
    used, number = frozenset(taken), 1
    while name in used:
        number += 1
        end = f"-{number}"
        name = slug[: _NAME_LENGTH - len(end)].strip("-") + end
    return name


def header(system: str, name: str, fleet: str) -> Iterator[str]:
    """Yield the first lines of an imported fleet.yaml."""
    yield from comments([f"Written by `fleet import {system}` from {name}: read it before use."])
    yield f"fleet: {scalar(fleet)}"


def section(name: str, blocks: Iterable[tuple[str, Block]]) -> Iterator[str]:
    """Yield the lines of a section of named blocks."""
    lines = [line for key, block in blocks for line in block_to_lines(key, block)]
    yield from ("", f"{name}:" if lines else f"{name}: {{}}", *lines)


def templates_to_lines(templates: Mapping[str, Block]) -> Iterator[str]:
    """Yield the lines of the section of templates, if there are any."""
    if templates:
        yield from section("templates", templates.items())


def renaming(text: str, name: str) -> str:
    """Return the message about a new name, and whether it was cut."""
    cut = f", cut to {_NAME_LENGTH} characters" * (len(_slug(text)) > _NAME_LENGTH)
    return f"now called {name}{cut}"


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return slug if slug[:1].isalpha() else f"p-{slug}".strip("-")


def _plain(node: Node) -> object:
    if node.kind == "list":
        return [_plain(item) for item in node.items]
    if node.kind == "mapping":
        return {str(key.value): _plain(value) for key, value in node.entries}
    return "null" if node.value is None else node.value


LIMIT = 1_000_000
"""Maximum bytes of an imported file."""

Kind = Literal["changed", "never-acts", "no-equivalent", "renamed", "to-do"]

_MOST_NAMES = 10


@dataclass(frozen=True)
class Change:
    """A setting with another meaning after the import, or without any."""

    kind: Kind
    what: str
    now: str
    place: Span
    names: tuple[str, ...] = ()
    """The recorded names to which it applies."""


@dataclass(frozen=True)
class Imported:
    """The result of an import; no text if the file has errors."""

    document: Document
    text: str | None = None
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    """Programs that it refers to: paths relative to its own folder, and contents."""


@dataclass
class Notes:
    """Collects the changes and findings of an import."""

    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)
    """Contents of files for long commands, by path."""
    with_scripts: bool = False
    """If False, long commands stay in fleet.yaml."""

    def change(self, kind: Kind, place: Span, what: str, now: str) -> None:
        """Note a change of meaning."""
        self.changes.append(Change(kind, what, now, place))

    def wrong(self, place: Span, rule: str, message: str, hint: str = "") -> None:
        """Note an error."""
        self.findings.append(Finding(rule, message, hint=hint, span=place))

    def imported(self, written: Document, lines: Iterable[str]) -> Imported:
        """Return lines as a file with their changes; no text if the file has errors.

        Lines may add changes while they are written. Changes are in the order of the file.
        """
        if self.findings:
            return Imported(written, findings=tuple(self.findings))
        text = "\n".join(line.rstrip() for line in lines) + "\n"
        unique = dict.fromkeys(self.changes)
        changes = sorted(unique, key=lambda c: (c.place.line, c.place.column, c.kind, c.what))
        return Imported(written, text, tuple(changes), scripts=tuple(self.scripts.items()))


def changes_to_text(changes: Iterable[Change]) -> str:
    """Return one line per change, in the format that editors and terminals can jump to."""
    lines = (f"{c.place}: {c.kind}: {c.what}: {c.now}{_named(c)}" for c in changes)
    return "\n".join(line.replace("\n", "\\n") for line in lines)


def changes_to_json(changes: Iterable[Change]) -> str:
    """Return the changes as one JSON object."""
    report = {"format": "fleet-import-1", "changes": [asdict(change) for change in changes]}
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def short(node: Node) -> str:
    """Return a scalar as messages quote it; the kind of any other node."""
    return quoted(node.value) if node.kind == "scalar" else f"a {node.kind}"


def read_yaml(name: str, text: str) -> tuple[Document, Parsed]:
    """Return a YAML file with its positions; only text that looks like a secret is secret."""
    parsed = parse(text, name)
    roots: list[Node] = [parsed.root] if parsed.root else []
    document = Document(
        name, root=parsed.root, texts={name: text}, roots=roots, findings=parsed.findings
    )
    return document, parsed


def read_plain(name: str, text: str) -> Document:
    """Return a file that is not YAML, for its lines."""
    return Document(name, root=None, texts={name: text}, roots=(), findings=())


def read_text(name: str, content: bytes) -> str | Imported:
    """Return the text of a file, or a failed import if the file is not text."""
    text = decoded(content, name, "is this the right file?")
    return text if isinstance(text, str) else Imported(read_plain(name, ""), findings=(text,))


def _named(change: Change) -> str:
    if not change.names:
        return ""
    more = len(change.names) - _MOST_NAMES
    names = ", ".join(change.names[:_MOST_NAMES])
    return f": {names}" + (f" and {more} more" if more > 0 else "")


_MIN_SAVED = 150
"""Minimum characters that a template has to save."""
_MAX_GROUPS = 200
"""Maximum groups of pools compared at a time."""
_COMMENT = "#"
_Part = tuple[str, str, str]
"""A key, the key below it if any, and the value; or a comment."""
_Group = frozenset[int]
T = TypeVar("T")


def share(pools: Sequence[tuple[str, Block]], base: str, *outer: str) -> dict[str, Block]:
    """Move common parts of pools into templates, and return these, the widest first.

    `base` is the name of the template of all pools; `outer` are templates that all extend.
    """
    sharing = _Sharing(pools, {base, *outer})
    sharing.split(frozenset(range(len(pools))), base, [*outer])
    return sharing.templates


class _Sharing:
    """Pools, each with the parts that are not in a template yet."""

    def __init__(self, pools: Sequence[tuple[str, Block]], taken: Collection[str]) -> None:
        self.templates: dict[str, Block] = {}
        self._taken = {*taken}
        self._blocks = [block for _, block in pools]
        self._left = [dict.fromkeys(_parts(block)) for block in self._blocks]
        words = (re.split(r"[^a-z0-9]+", name.lower()) for name, _ in pools)
        self._words = [dict.fromkeys(filter(None, each)) for each in words]

    def split(self, members: _Group, name: str, outer: list[str]) -> None:
        """Write the template of these pools, then those of groups among them."""
        common = _common_items([self._left[number] for number in sorted(members)])
        if _saved(common, members) >= _MIN_SAVED:
            template = _select_parts(self._blocks[min(members)], common)
            template.entries[:0] = _extends(outer)
            self.templates[name], outer = template, [name]
            for number in members:
                for part in common:
                    del self._left[number][part]
        while group := self._widest(members):
            self.split(group, self._name(group), outer)
            members -= group
        for number in members:
            block = self._blocks[number]
            own = _select_parts(block, self._left[number])
            block.entries, block.below = [*_extends(outer), *own.entries], own.below

    def _widest(self, members: _Group) -> _Group:
        """Return the largest group whose template saves enough; else an empty group."""
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
            if _saved(every, group) >= _MIN_SAVED:
                return group
        return frozenset()

    def _name(self, group: _Group) -> str:
        """Return a name from the common words of these pools' names, or from the keys."""
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
    """Return the common items, in the order of the first; none for a single collection."""
    first, *others = several or [[]]
    return [each for each in first if others and all(each in other for other in others)]


def _saved(parts: Collection[_Part], group: _Group) -> int:
    return (len(group) - 1) * sum(len("".join(part)) for part in parts)


def _extends(names: list[str]) -> list[tuple[str, object]]:
    return [("extends", names)] if names else []


def _parts(block: Block) -> Iterator[_Part]:
    for key, value in block.entries:
        if isinstance(value, Block):
            yield from ((key, below, flow(inner)) for below, inner in value.entries)
        else:
            yield key, "", flow(value)
    yield from ((_COMMENT, "", text) for text in block.below)


def _select_parts(block: Block, parts: Collection[_Part]) -> Block:
    """Return only these parts of a block."""
    found = Block(below=[each for each in block.below if (_COMMENT, "", each) in parts])
    for key, value in block.entries:
        if isinstance(value, Block):
            inner = [each for each in value.entries if (key, each[0], flow(each[1])) in parts]
            found.entries += [(key, Block(inner))] if inner else []
        elif (key, "", flow(value)) in parts:
            found.entries.append((key, value))
    return found
