"""This module holds what an import is: a fleet.yaml, and every change of meaning on the way."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Literal

from fleet.schema.document import Document
from fleet.schema.findings import Finding, Span
from fleet.schema.nodes import Node, Parsed, lines_of, parse

LIMIT = 1_000_000
"""Bytes of a file that is imported."""

Kind = Literal["changed", "never-acts", "no-equivalent", "renamed", "to-do"]

_MOST_NAMES = 10


@dataclass(frozen=True)
class Change:
    """One thing that means something else afterwards, or nothing."""

    kind: Kind
    what: str
    now: str
    place: Span
    names: tuple[str, ...] = ()
    """Recorded names that it is about."""


@dataclass(frozen=True)
class Imported:
    """What became of a file; no text where anything is wrong with it."""

    document: Document
    text: str | None = None
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    """Programs that it refers to: paths relative to its own folder, and what they hold."""


@dataclass
class Notes:
    """Collects what an importer notices while it reads."""

    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    scripts: dict[str, str] | None = None
    """Where long commands go, by path; None: they stay in fleet.yaml."""

    def change(self, kind: Kind, place: Span, what: str, now: str) -> None:
        """Note a change of meaning."""
        self.changes.append(Change(kind, what, now, place))

    def wrong(self, place: Span, rule: str, message: str, hint: str = "") -> None:
        """Note something that cannot be read."""
        self.findings.append(Finding(rule, message, hint=hint, span=place))

    def sorted_changes(self) -> tuple[Change, ...]:
        """Return the changes in the order of the file, each once."""
        unique = dict.fromkeys(self.changes)
        return tuple(sorted(unique, key=lambda c: (c.place.line, c.place.column, c.kind, c.what)))


def changes_to_text(changes: Iterable[Change]) -> str:
    """Return one line per change, as editors and terminals can jump to."""
    lines = (f"{c.place}: {c.kind}: {c.what}: {c.now}{_named(c)}" for c in changes)
    return "\n".join(line.replace("\n", "\\n") for line in lines)


def changes_to_json(changes: Iterable[Change]) -> str:
    """Return the changes as one JSON object."""
    report = {"format": "fleet-import-1", "changes": [asdict(change) for change in changes]}
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def decoded(name: str, content: bytes) -> tuple[str | None, Finding | None]:
    """Return a file's text, or what is wrong with it."""
    try:
        return content.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        before = lines_of(content[: error.start].decode("utf-8"))
        line, column = len(before), len(before[-1]) + 1
        message = f"the byte 0x{content[error.start]:02X} is not UTF-8"
        span = Span(name, line, column, line, column + 1)
        return None, Finding("not-text", message, hint="is this the right file?", span=span)


def read_yaml(name: str, text: str) -> tuple[Document, Parsed]:
    """Return a YAML file with its positions; nothing of it is secret but what looks like it."""
    parsed = parse(text, name)
    roots: list[Node] = [parsed.root] if parsed.root else []
    document = Document(
        name, root=parsed.root, texts={name: text}, roots=roots, findings=parsed.findings
    )
    return document, parsed


def read_plain(name: str, text: str) -> Document:
    """Return a file that is no YAML, for its lines."""
    return Document(name, root=None, texts={name: text}, roots=(), findings=())


def _named(change: Change) -> str:
    if not change.names:
        return ""
    more = len(change.names) - _MOST_NAMES
    told = ", ".join(change.names[:_MOST_NAMES])
    return f": {told}" + (f" and {more} more" if more > 0 else "")
