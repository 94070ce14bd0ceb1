"""This module turns the limits of Copr's backend configuration into limits of tags."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.imports.changes import Imported, Notes
from fleet.imports.writing import comments, document, flow, scalar
from fleet.schema.base import TAG_PATTERN
from fleet.schema.document import Document
from fleet.schema.findings import Span
from fleet.schema.nodes import lines_of

_SECTION = re.compile(r"\s*\[(?P<name>[\w.-]+)\]\s*\Z")
_OPTION = re.compile(r"(?P<name>builds_max_\w+|blocked_owners)\s*[=:]\s*(?P<value>.*?)\s*\Z")
_FOLDED = ("i386", "i586", "i686")
_MOST = 100_000
_PER_TAG = {
    "builds_max_workers_tag": ("", "total"),
    "builds_max_workers_arch": ("arch_", "total"),
    "builds_max_workers_arch_per_owner": ("arch_", "owner"),
}


@dataclass
class _Tags:
    """Limits by tag."""

    total: dict[str, int] = field(default_factory=dict)
    owner: dict[str, int] = field(default_factory=dict)


def is_backend(text: str) -> bool:
    """Say whether a text begins like an INI file, as the backend's configuration does."""
    written = (line for line in lines_of(text) if line.strip() and line.lstrip()[0] not in "#;")
    return _SECTION.match(next(written, "")) is not None


def import_limits(written: Document, text: str, fleet: str) -> Imported:
    """Return the fleet.yaml that the limits of a backend become."""
    notes, tags, kept = Notes(), _Tags(), []
    for number, line in enumerate(lines_of(text), 1):
        found = _OPTION.match(line)
        if found:
            column = found.start("value") + 1
            place = Span(written.name, number, 1, number, len(line.rstrip()) + 1)
            pairs = _PER_TAG.get(found["name"])
            if pairs:
                _read(found, place, column, tags, notes)
            else:
                kept.append(line.strip())
                now = "fleet bounds tags, pools and budgets, not all work of an owner or a sandbox"
                notes.change("no-equivalent", place, line.strip(), now)
    if notes.findings:
        return Imported(written, findings=tuple(notes.findings))
    lines = _lines(written.name, fleet, tags, kept)
    return Imported(written, document(lines), notes.sorted_changes())


def _read(found: re.Match[str], place: Span, column: int, tags: _Tags, notes: Notes) -> None:
    prefix, key = _PER_TAG[found["name"]]
    into = tags.total if key == "total" else tags.owner
    for pair in re.finditer(r"[^,]+", found["value"]):
        name, equals, count = (part.strip() for part in pair[0].partition("="))
        at = column + pair.start()
        here = Span(place.file, place.line, at, place.line, at + len(pair[0]))
        tag = prefix + name
        is_count = count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MOST
        if not equals or not is_count or not re.match(TAG_PATTERN.removesuffix("$") + r"\Z", tag):
            message = f"expected NAME=COUNT with a count above 0, got {pair[0].strip()!r}"
            notes.wrong(here, "wrong-value", message, "Copr's backend does not start with it")
        elif prefix and name in _FOLDED:
            now = "Copr counts such builds as x86_64, so this limit never bounds anything"
            notes.change("never-acts", here, f"{found['name']} {name}={count}", now)
        else:
            into[tag] = int(count)


def _lines(name: str, fleet: str, tags: _Tags, kept: list[str]) -> Iterator[str]:
    yield from comments([f"Written by `fleet import copr` from {name}: read it before use."])
    yield f"fleet: {scalar(fleet)}"
    yield ""
    yield from comments(f"no equivalent: {line}" for line in kept)
    names = sorted({*tags.total, *tags.owner})
    yield "tags:" if names else "tags: {}"
    for tag in names:
        limits: dict[str, object] = {}
        if tag in tags.owner:
            limits["per"] = {"owner": tags.owner[tag]}
        if tag in tags.total:
            limits["total"] = tags.total[tag]
        yield f"  {scalar(tag)}: {flow({'limits': limits})}"
