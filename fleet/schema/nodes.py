"""Parse the text of a file into nodes with positions.

No function is recursive in the input. Depth and size, with aliases expanded, are limited before
nodes are created.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn

import yaml

from fleet.schema.findings import Finding, Span

MAX_DEPTH = 50
MAX_NODES = 200_000

# Stricter than YAML 1.1: no yes/no/on/off, dates, octal or sexagesimal numbers.
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})\Z")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})\.[0-9]{1,30}([eE][-+]?[0-9]{1,3})?\Z")
_NON_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF|nan|NaN|NAN)\Z")
NUMBERS = (_INTEGER, _DECIMAL, _NON_FINITE)
"""Regular expressions for unquoted values that are numbers."""
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
# Reuse PyYAML's compiled pattern, because compiling such a large class takes 3 ms.
_NOT_PRINTABLE = yaml.reader.Reader.NON_PRINTABLE
_BYTE_ORDER_MARK = "\ufeff"
_TOO_DEEP = ("too-complex", f"nested more than {MAX_DEPTH} levels deep")
_TOO_MANY = (
    "too-complex",
    f"more than {MAX_NODES} values, counting each use of an alias",
)
_SHORTER = "make it shorter and less nested"

Place = tuple[int, int]
Kind = Literal["scalar", "mapping", "list"]


@dataclass(slots=True, eq=False)
class Node:
    """A value of a YAML file with its position; lines and columns count from 0.

    `dropped` has invalid entries, which are kept only so that secrets in them are masked.
    """

    kind: Kind
    file: str
    start: Place
    end: Place
    block: bool = False
    value: Any = None
    entries: "list[tuple[Node, Node]]" = field(default_factory=list)
    items: "list[Node]" = field(default_factory=list)
    dropped: "list[tuple[Node, Node]]" = field(default_factory=list)
    size: int = 1
    height: int = 1

    @property
    def span(self) -> Span:
        """Return the position of the node, counted from 1."""
        return Span(
            self.file, self.start[0] + 1, self.start[1] + 1, self.end[0] + 1, self.end[1] + 1
        )

    def plain(self) -> object:
        """Return the value as plain data, without positions."""
        if self.kind == "mapping":
            return {key.value: value.plain() for key, value in self.entries}
        return [item.plain() for item in self.items] if self.kind == "list" else self.value


class Parsed(NamedTuple):
    """The root node of a file (None if unreadable), and findings about the text."""

    root: Node | None
    findings: tuple[Finding, ...]


def parse(text: str, file: str) -> Parsed:
    """Parse the text of a file into nodes."""
    strange = _NOT_PRINTABLE.search(text)
    at = strange.start() if strange else text.find(_BYTE_ORDER_MARK)
    if at >= 0:
        character = Finding(
            rule="not-text",
            message=f"the file contains the control character U+{ord(text[at]):04X}",
            hint="check that this is a YAML file in UTF-8",
            span=place_of(file, text, at),
        )
        return Parsed(None, (character,))
    builder = _Builder(file)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        builder.findings.append(_syntax(error, text, file))
        return Parsed(None, tuple(builder.findings))
    except _Refused as refused:
        return Parsed(None, (refused.finding,))
    return Parsed(builder.root, tuple(builder.findings))


def lines_of(text: str) -> list[str]:
    """Split a text into lines, by the line breaks that YAML defines."""
    return _LINE_BREAK.split(text)


def place_of(file: str, text: str, offset: int, length: int = 1) -> Span:
    """Return the position of `length` characters in a text. They must be in one line."""
    before = lines_of(text[:offset])
    line, column = len(before), len(before[-1]) + 1
    return Span(file, line, column, line, column + length)


def decoded(
    content: bytes, file: str, hint: str = "check that this is a YAML file in UTF-8"
) -> str | Finding:
    """Return the content of a file as text, or a finding if it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the byte 0x{content[error.start]:02X} is not UTF-8"
        span = place_of(file, content[: error.start].decode("utf-8"), error.start)
        return Finding("not-text", message, hint=hint, span=span)


def _syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = lines_of(text)
    character = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    while character != "\t" and line > 1 and (line > len(lines) or not lines[line - 1].strip()):
        # The parser reports the end of the file, but the cause is in the last line with text.
        line, column = line - 1, len(lines[line - 2].rstrip()) + 1
    message, hint = _explain_error(error, character)
    return Finding(
        rule="invalid-yaml",
        message=message,
        hint=hint,
        span=Span(file, line, column, line, column + 1),
    )


def _explain_error(error: yaml.MarkedYAMLError, character: str) -> tuple[str, str]:
    """Return a message and a hint for a YAML error. Common mistakes get clearer messages."""
    problem = error.problem or "this is not YAML"
    if character == "\t":
        return "YAML does not allow a tab here", "indent with spaces"
    if "cannot start any token" in problem:
        return f"a text cannot begin with {character}", "quote it"
    if problem.startswith("mapping values are not allowed"):
        return (
            "a colon is not expected here",
            "quote text that contains ': ', or add the space after the colon before it",
        )
    while_doing = f" ({error.context})" if error.context else ""
    hint = "check indentation, brackets and quotes here and just before"
    return f"{problem}{while_doing}", hint


def _events(text: str) -> Iterator[Any]:
    # Without libyaml, use the equivalent loader in Python, which is ten times slower.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while (event := loader.get_event()) is not None:
            yield event
    finally:
        loader.dispose()


class _Refused(Exception):
    """Signal that stops the parser, because the remaining text cannot be read."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _Builder:
    """Builder of nodes from parser events, with an explicit stack of open collections."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.findings: list[Finding] = []
        self._open: list[Node] = []
        self._keys: list[Node | None] = []
        self._written: list[dict[str, Node]] = []
        self._anchors: dict[str, Node] = {}

    def take(self, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types for events
        """Process the next event of the YAML parser."""
        match event:
            case yaml.ScalarEvent():
                self._add(self._scalar(event), event.anchor)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._start(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close(event)
            case yaml.AliasEvent():
                self._add(self._alias(event), None)
            case yaml.DocumentStartEvent() if self.root is not None:
                self._refuse(
                    event,
                    ("invalid-yaml", "a second document begins here"),
                    "keep one document; use `include` for several files",
                )

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        node = self._node("scalar", event)
        if event.tag is not None:
            self._report(node, "YAML tags (!…) are not supported", "remove it, or quote the text")
        node.value = event.value
        if "\0" in event.value:
            message = "the text contains the control character U+0000"
            self._report(node, message, "remove it", rule="not-text")
        if event.implicit[0] and event.tag is None:
            node.value = self._plain(node, event.value)
        return node

    def _plain(self, node: Node, text: str) -> object:
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.match(text):
            return int(text)
        if _DECIMAL.match(text):
            number = float(text)
            if math.isfinite(number):
                # As in JSON Schema, 20.0 is the integer 20.
                return int(number) if number.is_integer() else number
        elif not _NON_FINITE.match(text):
            return text
        self._report(node, "this is not a finite number", "write a number, or quote the text")
        return None

    def _start(self, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types for events
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        node = self._node("mapping" if is_mapping else "list", event)
        node.block = not event.flow_style
        if event.tag is not None:
            self._report(node, "YAML tags (!…) are not supported", "remove it")
        if len(self._open) >= MAX_DEPTH:
            self._refuse(event, _TOO_DEEP)
        if event.anchor:
            # An alias inside its own anchor is an error, because the anchor is not complete yet.
            self._anchors.pop(event.anchor, None)
        self._open.append(node)
        self._keys.append(None)
        self._written.append({})
        node.value = event.anchor

    def _close(self, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types for events
        node = self._open.pop()
        self._keys.pop()
        self._written.pop()
        node.end = (event.end_mark.line, event.end_mark.column)
        last = node.items[-1] if node.items else node.entries[-1][1] if node.entries else None
        if node.block and last:
            # libyaml reports the end of a block at the start of the next token, maybe lines later.
            node.end = last.end
        anchor, node.value = node.value, None
        self._add(node, anchor)

    def _alias(self, event: yaml.AliasEvent) -> Node:
        target = self._anchors.get(event.anchor or "")
        if target is None:
            self._refuse(
                event,
                ("invalid-yaml", "this alias (*…) has no anchor (&…) before it"),
                "write the anchor first, or quote text that begins with *",
            )
        if len(self._open) + target.height > MAX_DEPTH:
            self._refuse(event, _TOO_DEEP)
        return target

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if parent.size > MAX_NODES:
            self._refuse_at(parent.start, _TOO_MANY)
        if parent.kind == "list":
            parent.items.append(node)
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = node
        else:
            self._keys[-1] = None
            self._entry(parent, key, node)

    def _entry(self, parent: Node, key: Node, value: Node) -> None:
        if key.kind != "scalar" or not isinstance(key.value, str):
            self._report(key, "a key must be text", 'quote it, for example "1": …')
            parent.dropped.append((key, value))
        elif key.value == "<<":
            self._report(key, "merge keys (<<) are not supported", "write the keys out")
            parent.dropped.append((key, value))
        elif twin := self._written[-1].get(key.value):
            message = f"duplicate key, first in line {twin.start[0] + 1}"
            self._report(key, message, "keep one of them", rule="duplicate-key")
            parent.dropped.append((key, value))
        else:
            self._written[-1][key.value] = key
            parent.entries.append((key, value))

    def _node(self, kind: Kind, event: Any) -> Node:  # noqa: ANN401 - PyYAML has no types for events
        start, end = event.start_mark, event.end_mark
        return Node(kind, self.file, (start.line, start.column), (end.line, end.column))

    def _report(self, node: Node, message: str, hint: str, rule: str = "invalid-yaml") -> None:
        self.findings.append(Finding(rule, message, hint=hint, span=node.span))

    def _refuse(self, event: Any, what: tuple[str, str], hint: str = _SHORTER) -> NoReturn:  # noqa: ANN401 - as above
        self._refuse_at((event.start_mark.line, event.start_mark.column), what, hint)

    def _refuse_at(self, place: Place, what: tuple[str, str], hint: str = _SHORTER) -> NoReturn:
        rule, message = what
        line, column = place[0] + 1, place[1] + 1
        span = Span(self.file, line, column, line, column + 1)
        raise _Refused(Finding(rule, message, hint=hint, span=span))


_ANCHOR = re.compile(r"&\S+\s+")
_LITERAL = re.compile(r"(&\S+\s+)?\|")
_ESCAPED = re.compile(r"\\(?:x..|u....|U........|.)")


def narrowed(node: Node, lines: Sequence[str], part: tuple[int, int]) -> Span:
    """Return the position of the characters `part` of a node; the whole node if not found."""
    columns = _find_columns(node, lines[node.start[0]])
    first, last = part
    if isinstance(node.value, str) and _LITERAL.match(lines[node.start[0]], node.start[1]):
        return _narrowed_literal(node, node.value, lines, part) or node.span
    if columns is None or not first <= last < len(columns):
        return node.span
    begin, end = columns[first], max(columns[last], columns[first] + 1)
    number = node.start[0] + 1
    return Span(node.file, number, begin + 1, number, end + 1)


def _narrowed_literal(
    node: Node, text: str, lines: Sequence[str], part: tuple[int, int]
) -> Span | None:
    """Return the position of the characters `part` of a literal block (`|`); None if not found."""
    first, last = part
    before = text.rfind("\n", 0, first) + 1
    kept = text[before:].partition("\n")[0]
    number = node.start[0] + 1 + text.count("\n", 0, first)
    line = lines[number] if number < len(lines) else ""
    if last - before > len(kept) or not kept or not line.endswith(kept):
        return None
    begin = len(line) - len(kept) + first - before
    return Span(node.file, number + 1, begin + 1, number + 1, begin + max(last - first, 1) + 1)


def _find_columns(node: Node, line: str) -> list[int] | None:
    """Return the column of each character of a one-line text, and of its end; None if unclear."""
    if node.start[0] != node.end[0] or not isinstance(node.value, str):
        return None
    anchor = _ANCHOR.match(line, node.start[1])
    at, end = (anchor.end() if anchor else node.start[1]), node.end[1]
    quote = line[at] if line[at : at + 1] in ("'", '"') else ""
    if quote:
        at, end = at + 1, end - 1
    columns = []
    while at < end:
        columns.append(at)
        escaped = _ESCAPED.match(line, at) if quote == '"' else None
        at = escaped.end() if escaped else at + (2 if quote == "'" and line[at] == "'" else 1)
    columns.append(end)
    return columns if len(columns) == len(node.value) + 1 else None
