"""Import the allow-list of Copr's frontend or the limits of its backend; also read them live.

The frontend's EXTRA_BUILDCHROOT_TAGS (a list of {pattern, tags}) and EXTRA_BUILDER_TAGS (tag to
patterns) are read as literals; no code of the file is ever executed. Values that Jinja computes
are left out and reported with their line. Copr uses `re.match`, which matches a prefix: `kernel`
also matches kernel-headers. So the import appends `.*` to patterns, for a full match in RE2.
"""

import ast
import configparser
import io
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticSerializationError

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.migrate.reading import (
    Change,
    Imported,
    ImportNotes,
    Kind,
    YamlBlock,
    comment_text,
    fleet_yaml,
    open_file,
    present,
)
from fleet.model.facts import HeldRules, QueueRule, Unknown
from fleet.queues.http import Reader, ReadLimits
from fleet.schema.findings import Span
from fleet.schema.model import CoprRulesFile, CoprRulesUrl
from fleet.schema.nodes import Node, lines_of, place_of
from fleet.schema.source import Document, Files
from fleet.schema.units import TAG_PATTERN, ConfigSection, follows
from fleet.tagrules.allow import BadPattern, compile_pattern, pieces, split_top, with_brace
from fleet.tagrules.names import RecordedNames

_TAG = re.compile(r"\{%[-+]?\s*(?P<word>\w+).*?%\}", re.DOTALL)
_COMMENT = re.compile(r"^[ \t]*\{#[^\n]*#\}[ \t]*$", re.MULTILINE)
_BLOCKS = ("if", "for", "macro", "filter", "call", "block", "raw")
_INSTEAD = "Jinja decides it; import the file that Ansible wrote on the server"


def without_jinja(name: str, text: str, notes: ImportNotes) -> str:
    """Replace Jinja's statements, and the lines within them, by blanks."""
    text = _COMMENT.sub(lambda found: " " * len(found[0]), text)
    kept: list[str] = []
    done, depth = 0, 0
    first: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        first = first or tag
        ends = tag["word"].startswith("end") and tag["word"].removeprefix("end") in _BLOCKS
        depth = max(0, depth + (tag["word"] in _BLOCKS) - ends)
        if depth == 0:
            kept += _blank_out(name, text, done, first, tag.end(), notes)
            first, done = None, tag.end()
    if first is not None:
        kept += _blank_out(name, text, done, first, len(text), notes)
        done = len(text)
    return "".join(kept) + text[done:]


def is_filled_in(text: str, place: Span, what: str, notes: ImportNotes) -> bool:
    """Return whether Jinja computes a part of a value; if so, report that it is skipped."""
    if "{{" not in text:
        return False
    notes.change("no-equivalent", place, f"{what}{comment_text(text)}", _INSTEAD)
    return True


_FILLED_IN = "{{...}}"
"""Mark for a value that Jinja computes, in the form of a Jinja expression."""


def _blank_out(  # noqa: PLR0913, PLR0917 - one part of a text
    name: str, text: str, done: int, tag: re.Match[str], end: int, notes: ImportNotes
) -> Iterator[str]:
    """Yield the text before a Jinja block, then blanks of the same length as the block.

    If the block is a value, also yield a mark, so that the reader of the option reports it. Else
    report the block here, with the options that it sets.
    """
    before, part = text[done : tag.start()], text[tag.start() : end]
    blanks = re.sub(r"[^\r\n]", " ", part)
    known = before.rstrip()
    is_value = known.endswith("=") or (known == before.rstrip(" \t") and known.endswith(":"))
    if is_value or (known == before and known[-1:].isalnum()):
        yield from (known, _FILLED_IN, before[len(known) :], blanks)
        return
    place = place_of(name, text, tag.start(), len(lines_of(tag[0])[0]))
    last = place.line + len(lines_of(part)) - 1
    until = f" and the lines below it, to line {last}" if last > place.line else ""
    # Show no assigned value, which may be a password.
    what = comment_text(tag[0]) if tag["word"] in ("if", "for") else f"{{% {tag['word']} … %}}"
    found = _SETS_OPTION.finditer(text, tag.start(), end)
    lines = {each[1]: place_of(name, text, each.start(1), 1).line for each in [*found][::-1]}
    sets = [f"{option} is set conditionally at line {line}" for option, line in lines.items()]
    now = f"{', '.join(sets)}; not read; {_INSTEAD}" if sets else _INSTEAD
    notes.change("no-equivalent", place, f"{what}{until}", now)
    yield from (before, blanks)


_SECTION = re.compile(r"\s*\[(?P<name>[\w.-]+)\]\s*\Z")
_READ = "backend"
_OTHER_SECTIONS = ("builder", "ssh")
"""Other sections that Copr's backend reads; they contain no limits."""
_MARK = "\0"
_FOLDED = ("i386", "i586", "i686")
_MAX_NUMBER = 100_000
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


_OPTIONS = (
    "EXTRA_BUILDCHROOT_TAGS",
    "EXTRA_BUILDER_TAGS",
    *_PER_TAG,
    *_PER_TICKET,
    "blocked_owners",
)
_SETS_OPTION = re.compile(rf"^[^#;\n]*?\b({'|'.join(_OPTIONS)})\s*\+?[=:]", re.MULTILINE)


@dataclass(frozen=True)
class _ValueLine:
    """One line of an option's value."""

    text: str
    place: Span
    above: str
    """The comment directly above the line."""


@dataclass
class _TicketLimits:
    """The limits of all tickets, and the limits per tag."""

    tickets: dict[str, int] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """Blocked owner to the line and the reason of the block."""
    why_blocked: str = ""
    tags: dict[str, dict[str, int]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def is_backend(text: str) -> bool:
    """Return whether a text starts like an INI file, as a backend's configuration does."""
    written = (line for line in lines_of(text) if line.strip() and line.lstrip()[0] not in "#;")
    return _SECTION.match(next(written, "")) is not None


def import_limits(name: str, text: str, fleet: str, notes: ImportNotes) -> Imported:
    """Return a fleet.yaml with the limits from the configuration of a Copr backend."""
    limits = _TicketLimits()
    for section, option, parts in _options(name, text, notes):
        if section != _READ:
            is_limit = option in (*_PER_TAG, *_PER_TICKET, "blocked_owners")
            is_read = section in _OTHER_SECTIONS and not is_limit
            kind: Kind = "no-equivalent" if is_read else "never-acts"
            now = "no limit of builds" if is_read else f"Copr reads limits only in [{_READ}]"
            notes.change(kind, parts[0].place, f"[{section}] {option}", now)
        else:
            _read(option, parts, limits, notes)
    blocked = [YamlBlock(owner, [why]) for owner, why in limits.blocked.items()]
    why_blocked = [limits.why_blocked] if limits.why_blocked else []
    queue = {
        "kind": "tickets",
        "limits": _format_limits(limits.tickets) if limits.tickets else None,
        "blocked": YamlBlock(blocked, why_blocked) if blocked else None,
    }
    tags = {tag: {"limits": _format_limits(each)} for tag, each in sorted(limits.tags.items())}
    kept = [f"no equivalent: {line}" for line in limits.kept]
    has_queue = limits.tickets or limits.blocked
    sections = {
        "queues": YamlBlock({"tickets": YamlBlock(present(queue))}, kept) if has_queue else None,
        "tags": YamlBlock(tags, [] if has_queue else kept),
    }
    return notes.imported(fleet_yaml("copr", name, fleet, sections))


def _options(
    name: str, text: str, notes: ImportNotes
) -> Iterator[tuple[str, str, list[_ValueLine]]]:
    """Yield section, name and lines of each option, parsed like Copr's backend.

    ConfigParser has no line numbers, so a number is appended to each line before parsing.
    """
    lines = list(io.StringIO(text, newline=None))
    parser = configparser.RawConfigParser(default_section=_MARK)
    try:
        parser.read_file(
            f"{line.rstrip()}{_MARK}{number}\n" if line.strip() else "\n"
            for number, line in enumerate(lines, 1)
        )
    except configparser.Error as error:
        errors = getattr(error, "errors", None)
        number = errors[0][0] if errors else getattr(error, "lineno", None) or 1
        message = "expected NAME = VALUE" if errors else "duplicate option or section"
        place = Span(name, number, 1, number, len(lines[number - 1].rstrip()) + 1)
        notes.wrong(place, "invalid-ini", message, "Copr's backend does not start with it")
        return
    for section in parser.sections():
        for option, value in parser.items(section):
            marked = [line.rpartition(_MARK) for line in value.split("\n") if _MARK in line]
            yield (
                section,
                option,
                [_part(name, lines, part.strip(), int(at)) for part, _, at in marked],
            )


def _part(name: str, lines: list[str], text: str, number: int) -> _ValueLine:
    line = lines[number - 1].rstrip()
    comment: list[str] = []
    for above in reversed(lines[: number - 1]):
        if not above.lstrip().startswith(("#", ";")):
            break
        comment.insert(0, above.strip("#; \t\n"))
    place = Span(name, number, len(line) - len(text) + 1, number, len(line) + 1)
    return _ValueLine(text, place, " ".join(comment))


def _read(name: str, parts: list[_ValueLine], limits: _TicketLimits, notes: ImportNotes) -> None:
    first = parts[0].place
    whole = Span(first.file, first.line, 1, first.end_line, first.end_column)
    if name in (*_PER_TAG, *_PER_TICKET, "blocked_owners"):
        what = f"{name}: "
        parts = [each for each in parts if not is_filled_in(each.text, each.place, what, notes)]
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
        # Do not show the value, which may be a password.
        now = "the importer reads only limits of builds"
        notes.change("no-equivalent", whole, f"option {name}", now)


def _read_blocked(parts: list[_ValueLine], limits: _TicketLimits, notes: ImportNotes) -> None:
    for part in parts:
        owners, *behind = re.split(r"(?:^|\s)[#;]+", part.text, maxsplit=1)
        if behind:
            now = "now a comment; Copr's backend reads its words as owners too"
            notes.change("changed", part.place, f"blocked_owners: {part.text}", now)
        if not part.text:
            limits.why_blocked = part.above
        why = " ".join(filter(None, (part.above, *map(str.strip, behind))))
        for owner in filter(None, re.split(r"[\s,]+", owners)):
            place = f"{part.place.file}:{part.place.line}"
            limits.blocked.setdefault(owner, f"{place}: {why}" if why else place)


def _read_pairs(option: str, part: _ValueLine, limits: _TicketLimits, notes: ImportNotes) -> None:
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
            now = "Copr counts such builds as x86_64, so this limit never applies"
            notes.change("never-acts", here, f"{option} {name}={count}", now)
        else:
            limits.tags.setdefault(tag, {})[key] = int(count)


def _is_count(text: str, least: int) -> bool:
    return text.isascii() and text.isdigit() and least <= int(text[:9]) <= _MAX_NUMBER


def _format_limits(found: dict[str, int]) -> dict[str, object]:
    per = {key: count for key, count in found.items() if key != "total"}
    return present({"per": per or None, "total": found.get("total")})


LONGEST = 1000
"""Maximum characters of a pattern in fleet.yaml."""

_OTHER_MEANING = re.compile(r"\[[^\]]*\[:|\\[UuN]")
_ASCII = re.compile(r"\\[dDwWsSbB]|\(\?[a-z]*i")
"""Classes and flags that match all letters in Python, but only ASCII letters in RE2."""


class NeverMatches(Exception):
    """A pattern that Python rejects, so that Copr skips its rule."""


class NotTakenOver(Exception):
    """A pattern without an equal RE2 pattern; the message has the reason."""


def whole(pattern: str) -> str:
    """Return the RE2 pattern whose full matches equal those of a Python pattern."""
    text = "".join(r"\z" if piece == r"\Z" else piece for piece in pieces(pattern))
    translated = with_brace(text, "{0")
    return f"(?:{translated})" if len(split_top(translated, "|")) > 1 else translated


def widened(pattern: str) -> str:
    """Return the RE2 equivalent of `re.match`; raises NeverMatches or NotTakenOver."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise NeverMatches(str(error)) from None
    strange = _OTHER_MEANING.search(pattern)
    if strange:
        raise NotTakenOver(f"'{strange[0]}' has another meaning in RE2")
    wide = _open_end(whole(pattern))
    if len(wide) > LONGEST:
        raise NotTakenOver(f"longer than {LONGEST} characters")
    try:
        compile_pattern(wide)
    except BadPattern as error:
        raise NotTakenOver(f"RE2: {error.reason}") from None
    return wide


def _open_end(pattern: str) -> str:
    *_, last = ["", *pieces(pattern)]
    if last in ("$", r"\z"):
        return pattern.removesuffix(last) or pattern
    return pattern if [*pieces(pattern)][-2:] == [".", "*"] else pattern + ".*"


LIST, TABLE = "EXTRA_BUILDCHROOT_TAGS", "EXTRA_BUILDER_TAGS"
_OPTION = re.compile(rf"^[^#\n]*\b({LIST}|{TABLE})\s*\+?=", re.MULTILINE)
_TOO_DEEP = (RecursionError, MemoryError)
_LONGEST_REASON = 1000
_MAX_COMMENT = 300
"""Maximum characters of a rule's comment; a longer one probably concerns several rules."""
_CODE = re.compile(r"""[][{}(),]|["'](?:pattern|tags)["']""")
_Comments = Mapping[int, tuple[int, str]]


@dataclass(frozen=True)
class Rule:
    """One rule of the imported file, with its position and its reason."""

    pattern: str
    tags: tuple[str, ...]
    place: Span
    reason: str


def import_copr(
    name: str, content: bytes, fleet: str, recorded: RecordedNames | None = None
) -> Imported:
    """Return the fleet.yaml for a configuration of Copr's frontend or backend."""
    notes = open_file(name, content, is_yaml=False)
    whole, text = notes.text, without_jinja(name, notes.text, notes)
    if is_backend(text):
        return import_limits(name, text, fleet, notes)
    rules = [
        rule
        for rule in _rules(text, notes, whole)
        if not is_filled_in(
            f"{rule.pattern} for {', '.join(rule.tags)}", rule.place, "pattern ", notes
        )
    ]
    imported = notes.imported(fleet_yaml("copr", name, fleet, _sections(rules, notes)))
    if recorded is None:
        return imported
    changes = (_add_prefix_names(change, rules, recorded) for change in imported.changes)
    return replace(imported, changes=tuple(changes))


def read_list(name: str, content: bytes) -> tuple[Rule, ...]:
    """Return the rules of a configuration; raises FileUnreadable unless they are literals."""
    notes = open_file(name, content, is_yaml=False)
    rules = tuple(_rules(notes.text, notes))
    for finding in notes.findings:
        raise FileUnreadable(f"{finding.span}: {finding.message}")
    return rules


def find_list(text: str) -> tuple[int, int] | None:
    """Return the lines (first and last, from 1) of the last assignment; None without a list."""
    for statement in reversed(ast.parse(text).body):
        if LIST in _find_assigned_names(statement):
            return statement.lineno, statement.end_lineno or statement.lineno
    return None


def _rules(text: str, notes: ImportNotes, whole: str = "") -> Iterator[Rule]:
    """Yield the rules; `whole` is the text before the removal of Jinja blocks."""
    tree = _tree(text, notes, whole)
    if tree is None:
        return
    values: dict[str, list[ast.AST]] = {}
    filled: list[tuple[Span, str]] = []
    reader = _LiteralReader(text, notes)
    for statement in tree.body:
        for option in _find_assigned_names(statement):
            value = getattr(statement, "value", None)
            if whole and reader.is_filled_in(value):
                what = f"{option} is set conditionally at line {statement.lineno}; not read"
                filled.append((reader.span(statement), what))
                continue
            if not isinstance(statement, ast.AugAssign):
                values[option] = []  # an assignment replaces the rules of earlier ones
            values.setdefault(option, []).append(value or statement)
    for option, parts in values.items():
        for part in parts:
            yield from reader.rules(option, part)
    hidden = list(_find_hidden_changes(tree))
    for node, message in hidden:
        reader.refuse(node, f"{message}, so its value is unknown")
    _note_unread(whole, notes, filled, found=bool(values or hidden))


def _find_hidden_changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield nodes that set or change an option, except assignments outside of blocks."""
    for node in ast.walk(tree):
        if node not in tree.body and isinstance(node, ast.stmt) and [*_find_assigned_names(node)]:
            yield node, "set inside a block"
        elif isinstance(node, ast.Attribute | ast.Subscript) and _is_option(node.value):
            yield node, "changed after its assignment"


def _note_unread(
    whole: str, notes: ImportNotes, filled: list[tuple[Span, str]], *, found: bool
) -> None:
    """Report options that Jinja computes; as errors if no other option was found."""
    for place, what in filled:
        if found:
            notes.change("no-equivalent", place, what, _INSTEAD)
        else:
            notes.wrong(place, "missing-key", what, _INSTEAD)
    name = notes.document.name
    if found or filled or notes.findings:
        return
    if hidden := _OPTION.search(whole):
        place = place_of(name, whole, hidden.start(1), len(hidden[1]))
        message = f"{hidden[1]} is set only inside Jinja statements"
        notes.wrong(place, "missing-key", message, _INSTEAD)
    else:
        message = f"this file sets neither {LIST} nor {TABLE}"
        notes.wrong(Span(name), "missing-key", message, "import the configuration of the frontend")


_WRONG_FILE = "is this the right file?"


def _tree(text: str, notes: ImportNotes, whole: str) -> ast.Module | None:
    name = notes.document.name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        place = Span(name, line, column, line, column + 1)
        is_template = _TAG.search(whole) is not None
        hint = f"Jinja statements were left out; {_INSTEAD}" if is_template else _WRONG_FILE
        notes.wrong(place, "invalid-python", error.msg, hint)
    except (ValueError, *_TOO_DEEP):
        notes.wrong(Span(name), "too-complex", "nested too deeply for a configuration")
    return None


def _find_assigned_names(statement: ast.stmt) -> Iterator[str]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    for target in targets:
        if isinstance(target, ast.Name) and _is_option(target):
            yield target.id


def _is_option(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in (LIST, TABLE)


def _check_tag(text: str) -> str:
    if "{{" not in text and not follows(TAG_PATTERN, text):
        raise ValueError("expected a tag without white space")
    return text


_Tag = Annotated[str, AfterValidator(_check_tag)]


class _ListedRule(ConfigSection):
    pattern: str
    tags: Annotated[list[_Tag], Field(min_length=1)]


class _LiteralReader:
    """Reader of Python literals; it reports any other expression with its position."""

    def __init__(self, text: str, notes: ImportNotes) -> None:
        self._lines = text.splitlines()
        self._notes = notes
        self._comments = _comments(text)
        self._refused: set[Span] = set()

    def rules(self, option: str, value: ast.AST) -> Iterator[Rule]:
        """Yield the rules of a list of {pattern, tags}, or of a mapping from tag to patterns."""
        root = self._node(value)
        if self._refused:
            return
        name = self._notes.document.name
        document = Document(name, root=root, texts={}, roots=(), findings=())
        notes = ImportNotes(document, findings=self._notes.findings)
        if option == LIST:
            read = notes.read(list[_ListedRule], "a list of {pattern, tags}")
            for number, rule in enumerate(read):
                place = document.span((number, "pattern"))
                reason = self._reason(document.span((number,)))
                yield Rule(rule.pattern, tuple(rule.tags), place, reason)
        else:
            table = notes.read(dict[_Tag, list[str]], "a mapping from a tag to its patterns")
            for tag, patterns in table.items():
                for number, pattern in enumerate(patterns):
                    place = document.span((tag, number))
                    yield Rule(pattern, (tag,), place, self._reason(place))

    def _node(self, value: ast.AST | None) -> Node:
        """Return a literal as a node; report each part that is not a literal."""
        place = self.span(value)
        start, end = (place.line - 1, place.column - 1), (place.end_line - 1, place.end_column - 1)
        node = Node("scalar", place.file, start, end)
        match value:
            case ast.Constant(value=str() | int() | float() | None as text):
                node.value = text
            case ast.List(elts=items) | ast.Tuple(elts=items):
                node.kind, node.items = "list", [*map(self._node, items)]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                entries = [(self._node(key or each), self._node(each)) for key, each in pairs]
                node.kind, node.entries = "mapping", entries
            case _:
                self.refuse(value, "expected a list, a mapping or a text in quotes")
        return node

    def refuse(self, node: ast.AST | None, message: str) -> None:
        """Report an error at a node, unless the same error was already reported."""
        hint = "write literals: lists, mappings and text in quotes"
        if "{{" in self._get_source(node):
            message = "the value is set conditionally; not read"
            hint = _INSTEAD
        place = self.span(node)
        if place not in self._refused:
            self._refused.add(place)
            self._notes.wrong(place, "not-a-literal", message, hint)

    def is_filled_in(self, value: ast.expr | None) -> bool:
        """Return whether Jinja computes a whole value."""
        is_literal = isinstance(value, ast.List | ast.Tuple | ast.Dict)
        return not is_literal and "{{" in self._get_source(value)

    def _get_source(self, node: ast.AST | None) -> str:
        """Return the lines of a node."""
        first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        return "\n".join(self._lines[first - 1 : last])

    def span(self, node: ast.AST | None) -> Span:
        """Return the position of a node in characters; Python counts columns in bytes."""
        line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        start = self._column(line, getattr(node, "col_offset", 0))
        stop = self._column(end, getattr(node, "end_col_offset", 0))
        return Span(self._notes.document.name, line, start, end, stop)

    def _column(self, line: int, offset: int) -> int:
        written = self._lines[line - 1] if line <= len(self._lines) else ""
        return len(written.encode()[:offset].decode("utf-8", "ignore")) + 1

    def _reason(self, place: Span) -> str:
        """Return a rule's reason: the comments within, after or directly above the rule."""
        found = [
            text
            for number in range(place.line, place.end_line + 1)
            for column, text in filter(None, [self._comments.get(number)])
            if self._is_of(place, number, column)
        ]
        return " ".join(filter(None, found))[:_LONGEST_REASON] or self._comment_above(place.line)

    def _is_of(self, place: Span, number: int, column: int) -> bool:
        if number < place.end_line or column < place.end_column:
            return (number, column) > (place.line, place.column)
        between = self._lines[number - 1][place.end_column - 1 : column - 1]
        return not between.strip(" \t,]})")

    def _comment_above(self, first: int) -> str:
        """Return the last paragraph of the comment above a line; empty if too long."""
        lines: list[str] = []
        for line in reversed(self._lines[: first - 1]):
            text = line.strip().lstrip("# ")
            if not line.strip().startswith("#") or not text or _CODE.match(text):
                break
            lines.insert(0, text)
        reason = " ".join(lines)
        if len(reason) <= _MAX_COMMENT:
            return reason
        now = f"longer than {_MAX_COMMENT} characters, so it is not the rule's reason"
        place = Span(
            self._notes.document.name,
            first - len(lines),
            1,
            first - 1,
            len(self._lines[first - 2]) + 1,
        )
        self._notes.change("no-equivalent", place, f"a comment of {len(reason)} characters", now)
        return ""


def _comments(text: str) -> _Comments:
    """Map each line with a comment (from 1) to the comment's column and text."""
    found = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comment = token.string.lstrip("# ").rstrip()
                found[token.start[0]] = token.start[1] + 1, "" if _CODE.match(comment) else comment
    except (tokenize.TokenError, SyntaxError):
        return found
    return found


def _powerful_rule(rule: Rule, notes: ImportNotes) -> dict[str, object] | str:
    """Return the rule for fleet.yaml, or a comment if RE2 cannot express the pattern."""
    try:
        wide = widened(rule.pattern)
    except NeverMatches as reason:
        now = f"Python rejects it ({reason}), so Copr skips this rule"
        notes.change("never-acts", rule.place, f"pattern {rule.pattern}", now)
        return f"never acted: {rule.pattern} for {', '.join(rule.tags)}"
    except NotTakenOver as reason:
        notes.change("no-equivalent", rule.place, f"pattern {rule.pattern}", str(reason))
        return f"no equivalent: {rule.pattern} for {', '.join(rule.tags)}"
    if wide != rule.pattern:
        now = f"a full match on {wide} equals Copr's prefix match"
        notes.change("changed", rule.place, f"pattern {rule.pattern}", now)
    if _ASCII.search(rule.pattern):
        now = r"\d, \w, \s, \b and (?i) match ASCII letters only"
        notes.change("changed", rule.place, f"classes of pattern {rule.pattern}", now)
    tags = list(dict.fromkeys(rule.tags))
    return present({"match": wide, "ask": tags, "reason": rule.reason or None})


def _add_prefix_names(change: Change, rules: list[Rule], recorded: RecordedNames) -> Change:
    """Add to a change the recorded names that a rule matches only as a prefix, as Copr does."""
    rule = next((each for each in rules if each.place == change.place), None)
    if rule is None or change.what != f"pattern {rule.pattern}" or change.kind != "changed":
        return change
    wide, exact = compile_pattern(widened(rule.pattern)), compile_pattern(whole(rule.pattern))
    only = [n for n in recorded.names if wide.takes(n) and not exact.takes(n)]
    if not only:
        return change
    now = f"{change.now}; only the prefix match takes"
    return replace(change, now=now, names=tuple(only))


def _sections(rules: list[Rule], notes: ImportNotes) -> dict[str, object]:
    tags = sorted({tag for rule in rules for tag in rule.tags})
    asked_by = {"asked_by": ["rules", "system", "tickets"]}
    why = "users of Copr cannot ask for these; its allow-list, tickets and admins can"
    written: list[YamlBlock] = []
    left: list[str] = []
    for rule in rules:
        found = _powerful_rule(rule, notes)
        if isinstance(found, str):
            left.append(found)
        else:
            written.append(YamlBlock(found, left))
            left = []
    return {
        "tags": YamlBlock(dict.fromkeys(tags, asked_by), [why]) if tags else None,
        "powerful": YamlBlock(written, below=left),
    }


_LIMIT_BYTES = 10 * 1000 * 1000
_OK = 200


class CoprAllowList:
    """Copr's option EXTRA_BUILDCHROOT_TAGS, in the file at `name` or at a URL."""

    def __init__(self, rules: CoprRulesFile | CoprRulesUrl, name: str, files: Files) -> None:
        self._rules = rules
        self._name = name
        self._files = files

    def read(self) -> dict[str, HeldRules | Unknown]:
        """Map the file or URL to its rules; Unknown if the rules are unreadable."""
        place = self._rules.file if isinstance(self._rules, CoprRulesFile) else self._rules.url
        try:
            rules = read_list(place, self._content())
        except (FileUnreadable, SourceUnreachable) as error:
            return {place: Unknown.of(error)}
        held = {QueueRule(pattern=rule.pattern, requires=rule.tags) for rule in rules}
        try:
            return {place: HeldRules(written=tuple(sorted(held, key=QueueRule.model_dump_json)))}
        except PydanticSerializationError:
            return {place: Unknown(unknown=f"{place}: it has a pattern that is not text")}

    def _content(self) -> bytes:
        if isinstance(self._rules, CoprRulesFile):
            return self._files.read(self._name, _LIMIT_BYTES)
        url = urlsplit(self._rules.url)
        path = urlunsplit(("", "", url.path, url.query, ""))
        server = f"{url.scheme}://{url.netloc}"
        with Reader(server, limits=ReadLimits(body_bytes=_LIMIT_BYTES)) as reader:
            reply = reader.get(path, {}, {})
        if reply.status != _OK:
            raise SourceUnreachable(f"{reply.address} answered with status {reply.status}")
        return reply.body
