"""Read a file of another system, and collect the changes and errors of its import."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar, cast, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fleet.migrate.writing import YamlBlock, present, to_text
from fleet.schema.findings import Finding, Span, in_order
from fleet.schema.load import explain
from fleet.schema.nodes import Parsed, decoded, parse
from fleet.schema.source import Document
from fleet.schema.units import ConfigSection

LIMIT = 1_000_000
"""Maximum bytes of an imported file."""

Kind = Literal["changed", "never-acts", "no-equivalent", "renamed", "to-do"]

_MOST_NAMES = 10
T = TypeVar("T", bound=dict[str, Any] | list[Any])


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

    def read(self, annotation: type[T], expected: str) -> T:
        """Parse the file as a mapping or list of this type; empty if it has errors."""
        value, kind = self.document.value, cast("type[T]", get_origin(annotation))
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
