"""This module turns the limits of Copr's backend configuration into limits of tickets and tags."""

import configparser
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.imports.changes import Imported, Notes
from fleet.imports.jinja import is_filled_in
from fleet.imports.writing import comments, document, flow, scalar
from fleet.schema.base import TAG_PATTERN
from fleet.schema.document import Document
from fleet.schema.findings import Span
from fleet.schema.nodes import lines_of
from fleet.schema.units import follows

_SECTION = re.compile(r"\s*\[(?P<name>[\w.-]+)\]\s*\Z")
_READ = "backend"
_MARK = "\0"
_FOLDED = ("i386", "i586", "i686")
_MOST = 100_000
_PER_TAG = {
    "builds_max_workers_tag": ("", "total"),
    "builds_max_workers_arch": ("arch_", "total"),
    "builds_max_workers_arch_per_owner": ("arch_", "owner"),
}
_PER_TICKET = {
    "builds_max_workers": "total",
    "builds_max_workers_owner": "owner",
    "builds_max_workers_sandbox": "sandbox",
}


@dataclass(frozen=True)
class _Part:
    """What one line says of a value."""

    text: str
    place: Span
    above: str
    """The comment right above it."""


@dataclass
class _Limits:
    """The limits that were read: of all tickets, and of each tag."""

    tickets: dict[str, int] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """Owners, each with its line and why."""
    why_blocked: str = ""
    tags: dict[str, dict[str, int]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def is_backend(text: str) -> bool:
    """Say whether a text begins like an INI file, as the backend's configuration does."""
    written = (line for line in lines_of(text) if line.strip() and line.lstrip()[0] not in "#;")
    return _SECTION.match(next(written, "")) is not None


def import_limits(written: Document, text: str, fleet: str, notes: Notes) -> Imported:
    """Return the fleet.yaml that the limits of a backend become."""
    limits = _Limits()
    for section, name, parts in _options(written.name, text, notes):
        if section != _READ:
            now = f"Copr's backend reads [{_READ}] only"
            notes.change("never-acts", parts[0].place, f"[{section}] {name}", now)
        else:
            _read(name, parts, limits, notes)
    if notes.findings:
        return Imported(written, findings=tuple(notes.findings))
    return Imported(written, document(_lines(written.name, fleet, limits)), notes.sorted_changes())


def _options(name: str, text: str, notes: Notes) -> Iterator[tuple[str, str, list[_Part]]]:
    """Yield section, name and lines of each option, read as Copr's backend does.

    ConfigParser does not tell lines: each one carries its number to its end.
    """
    lines = list(io.StringIO(text, newline=None))
    parser = configparser.RawConfigParser(default_section=_MARK)
    try:
        parser.read_file(
            f"{line.rstrip()}{_MARK}{number}\n" if line.strip() else "\n"
            for number, line in enumerate(lines, 1)
        )
    except configparser.Error as error:
        told = getattr(error, "errors", None)
        number = told[0][0] if told else getattr(error, "lineno", None) or 1
        said = "this option or section stands twice" if not told else "expected NAME = VALUE"
        place = Span(name, number, 1, number, len(lines[number - 1].rstrip()) + 1)
        notes.wrong(place, "invalid-ini", said, "Copr's backend does not start with it")
        return
    for section in parser.sections():
        for option, value in parser.items(section):
            marked = [line.rpartition(_MARK) for line in value.split("\n") if _MARK in line]
            yield (
                section,
                option,
                [_part(name, lines, part.strip(), int(at)) for part, _, at in marked],
            )


def _part(name: str, lines: list[str], text: str, number: int) -> _Part:
    line = lines[number - 1].rstrip()
    said: list[str] = []
    for above in reversed(lines[: number - 1]):
        if not above.lstrip().startswith(("#", ";")):
            break
        said.insert(0, above.strip("#; \t\n"))
    place = Span(name, number, len(line) - len(text) + 1, number, len(line) + 1)
    return _Part(text, place, " ".join(said))


def _read(name: str, parts: list[_Part], limits: _Limits, notes: Notes) -> None:
    first = parts[0].place
    whole = Span(first.file, first.line, 1, first.end_line, first.end_column)
    if name in (*_PER_TAG, *_PER_TICKET, "blocked_owners"):
        told = f"{name}: "
        parts = [each for each in parts if not is_filled_in(each.text, each.place, told, notes)]
    value = " ".join(filter(None, (part.text for part in parts)))
    if name in _PER_TAG:
        for part in parts:
            _read_pairs(name, part, limits, notes)
    elif name in _PER_TICKET:
        if _is_count(value, least=0):
            limits.tickets[_PER_TICKET[name]] = int(value)
        elif parts:
            message = f"expected a count, got {value!r}"
            notes.wrong(whole, "wrong-value", message, "Copr's backend does not start with it")
    elif name == "blocked_owners":
        _read_blocked(parts, limits, notes)
    elif name.startswith("builds_max_"):
        limits.kept.append(f"{name}={value}")
        now = "fleet has no such limit"
        notes.change("no-equivalent", whole, f"{name}={value}", now)
    else:
        # Its value stays untold: it may be a password.
        now = "this importer takes the limits of builds only"
        notes.change("no-equivalent", whole, f"option {name}", now)


def _read_blocked(parts: list[_Part], limits: _Limits, notes: Notes) -> None:
    for part in parts:
        owners, *behind = re.split(r"(?:^|\s)[#;]+", part.text, maxsplit=1)
        if behind:
            now = "it is a comment now; Copr's backend takes its words for owners too"
            notes.change("changed", part.place, f"blocked_owners: {part.text}", now)
        if not part.text:
            limits.why_blocked = part.above
        why = " ".join(filter(None, (part.above, *map(str.strip, behind))))
        for owner in filter(None, re.split(r"[\s,]+", owners)):
            place = f"{part.place.file}:{part.place.line}"
            limits.blocked.setdefault(owner, f"{place}: {why}" if why else place)


def _read_pairs(option: str, part: _Part, limits: _Limits, notes: Notes) -> None:
    prefix, key = _PER_TAG[option]
    for pair in re.finditer(r"[^,\s][^,]*", part.text):
        name, equals, count = (word.strip() for word in pair[0].partition("="))
        at = part.place.column + pair.start()
        here = Span(part.place.file, part.place.line, at, part.place.line, at + len(pair[0]))
        tag = prefix + name
        is_tag = follows(TAG_PATTERN, tag)
        if not equals or not _is_count(count, least=1) or not is_tag:
            message = f"expected NAME=COUNT with a count above 0, got {pair[0].strip()!r}"
            notes.wrong(here, "wrong-value", message, "Copr's backend does not start with it")
        elif prefix and name in _FOLDED:
            now = "Copr counts such builds as x86_64, so this limit never bounds anything"
            notes.change("never-acts", here, f"{option} {name}={count}", now)
        else:
            limits.tags.setdefault(tag, {})[key] = int(count)


def _is_count(text: str, least: int) -> bool:
    return text.isascii() and text.isdigit() and least <= int(text[:9]) <= _MOST


def _lines(name: str, fleet: str, limits: _Limits) -> Iterator[str]:
    yield from comments([f"Written by `fleet import copr` from {name}: read it before use."])
    yield f"fleet: {scalar(fleet)}"
    yield ""
    yield from comments(f"no equivalent: {line}" for line in limits.kept)
    if limits.tickets or limits.blocked:
        yield "queues:"
        yield "  tickets:"
        yield "    kind: tickets"
        if limits.tickets:
            yield f"    limits: {flow(_as_written(limits.tickets))}"
        if limits.blocked:
            yield from comments([limits.why_blocked] if limits.why_blocked else [], 4)
            yield "    blocked:"
        for owner, why in limits.blocked.items():
            yield from comments([why], 6)
            yield f"      - {scalar(owner)}"
        yield ""
    yield "tags:" if limits.tags else "tags: {}"
    for tag, found in sorted(limits.tags.items()):
        yield f"  {scalar(tag)}: {flow({'limits': _as_written(found)})}"


def _as_written(found: dict[str, int]) -> dict[str, object]:
    per = {key: count for key, count in found.items() if key != "total"}
    written: dict[str, object] = {"per": per} if per else {}
    if "total" in found:
        written["total"] = found["total"]
    return written
