"""This module finds characters of a text where they were written, whatever its quotes.

Only for texts on one line and for those kept line for line (`|`); else the whole is meant.
"""

import re
from collections.abc import Sequence

from fleet.schema.findings import Span
from fleet.schema.nodes import Node

_ANCHOR = re.compile(r"&\S+\s+")
_LITERAL = re.compile(r"(&\S+\s+)?\|")
_ESCAPED = re.compile(r"\\(?:x..|u....|U........|.)")


def narrowed(node: Node, lines: Sequence[str], part: tuple[int, int]) -> Span:
    """Return where some characters of a node's text stand in its file, counted from 0."""
    columns = _columns(node, lines[node.start[0]])
    first, last = part
    if isinstance(node.value, str) and _LITERAL.match(lines[node.start[0]], node.start[1]):
        return _kept(node, node.value, lines, part) or node.span
    if columns is None or not first <= last < len(columns):
        return node.span
    begin, end = columns[first], max(columns[last], columns[first] + 1)
    number = node.start[0] + 1
    return Span(node.file, number, begin + 1, number, end + 1)


def _kept(node: Node, text: str, lines: Sequence[str], part: tuple[int, int]) -> Span | None:
    """Return where they stand in a text of several lines, if its lines are those of the file."""
    first, last = part
    before = text.rfind("\n", 0, first) + 1
    kept = text[before:].partition("\n")[0]
    number = node.start[0] + 1 + text.count("\n", 0, first)
    line = lines[number] if number < len(lines) else ""
    if last - before > len(kept) or not kept or not line.endswith(kept):
        return None
    begin = len(line) - len(kept) + first - before
    return Span(node.file, number + 1, begin + 1, number + 1, begin + max(last - first, 1) + 1)


def _columns(node: Node, line: str) -> list[int] | None:
    """Return the column of each character of a node's text, and where the text ends."""
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
