"""This module finds characters of a text where they were written, whatever its quotes.

Only for texts on one line; of any other, the whole is meant.
"""

import re

from fleet.schema.findings import Span
from fleet.schema.nodes import Node

_ANCHOR = re.compile(r"&\S+\s+")
_ESCAPED = re.compile(r"\\(?:x..|u....|U........|.)")


def narrowed(node: Node, line: str, part: tuple[int, int]) -> Span:
    """Return where some characters of a node's text stand in its line, counted from 0."""
    columns = _columns(node, line)
    first, last = part
    if columns is None or not first <= last < len(columns):
        return node.span
    begin, end = columns[first], max(columns[last], columns[first] + 1)
    number = node.start[0] + 1
    return Span(node.file, number, begin + 1, number, end + 1)


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
