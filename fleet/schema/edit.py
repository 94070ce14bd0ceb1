"""Change one key of a pool in the text of fleet.yaml, and nothing else: comments stay.

What a template gives a pool is overridden in the pool, and a key that is not written is inserted.
An alias is not followed, for its anchor may be used elsewhere too.
"""

import difflib
import io
from collections.abc import Iterable, Iterator, Mapping

from fleet.schema.findings import Path
from fleet.schema.nodes import BYTE_ORDER_MARK, LINE_BREAK, Node, Place
from fleet.schema.source import LIMIT, Document, Files, check_size, read_document

_POOL = 2
"""How long the path of a pool is."""


class NotEditable(Exception):
    """A key cannot be changed in the text; the message says why."""


class PatchedFiles:
    """Files of which some hold another text."""

    def __init__(self, files: Files, texts: Mapping[str, str]) -> None:
        self._files = files
        self._texts = texts

    def read(self, name: str, limit: int) -> bytes:
        """Return the other text, else the file's bytes; raises FileUnreadable beyond the limit."""
        if name not in self._texts:
            return self._files.read(name, limit)
        content = self._texts[name].encode()
        check_size(name, len(content), limit)
        return content

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match."""
        return self._files.glob(pattern)


def write_keys(name: str, files: Files, values: Iterable[tuple[Path, str]]) -> dict[str, str]:
    """Return the new text of each file that changes; raises NotEditable."""
    texts: dict[str, str] = {}
    for path, value in values:
        document = read_document(name, PatchedFiles(files, texts))
        file, text = _write_key(document, path, value)
        texts[file] = text
    return texts


def write_diff(files: Files, texts: Mapping[str, str]) -> str:
    """Return what files become as a unified diff; empty where nothing changes."""
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for file, text in texts.items()
        for line in _diff(file, files.read(file, LIMIT).decode(), text)
    )


def _diff(file: str, before: str, after: str) -> Iterator[str]:
    mark = BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else ""
    return difflib.unified_diff(_lines(before), _lines(mark + after), f"a/{file}", f"b/{file}")


def _lines(text: str) -> list[str]:
    return [*io.StringIO(text, newline="\n")]


def _write_key(document: Document, path: Path, value: str) -> tuple[str, str]:
    """Return the file that a pool is in and its text with another value at a path."""
    pool = document.node(path[:_POOL])
    if pool is None or not _is_own(document, pool, path[:_POOL]):
        raise NotEditable(f"{_name(path[:_POOL])} is an alias (*…): write it out")
    source = _Source(document.text(pool.file))
    parent = pool
    for length in range(_POOL + 1, len(path) + 1):
        key, node = document.key(path[:length]), document.node(path[:length])
        if key is None or node is None or not _is_within(key, pool):
            return pool.file, _inserted(source, parent, pool, path[length - 1 :], value)
        if not _is_own(document, node, path[:length]):
            raise NotEditable(f"{_name(path[:length])} is an alias (*…): write it out")
        parent = node
    if parent.kind != "scalar" or source.at(parent.start).startswith("&"):
        raise NotEditable(f"{_name(path)} is not one plain value")
    return pool.file, source.replaced(parent.start, parent.end, value)


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _is_own(document: Document, node: Node, path: Path) -> bool:
    """Say whether a value stands after its key; that of an alias is where its anchor is."""
    key = document.key(path)
    return key is not None and node.file == key.file and node.start >= key.end


def _is_within(key: Node, pool: Node) -> bool:
    """Say whether a key is written in a pool, rather than in a template of it."""
    return key.file == pool.file and pool.start <= key.start < pool.end


def _own_entries(parent: Node, pool: Node) -> Iterator[tuple[Node, Node]]:
    """Yield what is written in a mapping itself, in the order of the file."""
    entries = (*parent.entries, *parent.dropped)
    own = (entry for entry in entries if _is_within(entry[0], pool))
    yield from sorted(own, key=lambda entry: entry[0].start)


def _inserted(source: "_Source", parent: Node, pool: Node, path: Path, value: str) -> str:
    """Return the text with a key more in a mapping; `path` goes on from there."""
    *outer, last = map(str, path)
    text = f"{last}: {value}"
    for step in reversed(outer):
        text = f"{step}: {{{text}}}"
    entries = [*_own_entries(parent, pool)]
    if parent.kind != "mapping":
        raise NotEditable(f"{parent.span} is no mapping")
    if not parent.block:
        if not entries and source.at(parent.start).startswith("{"):
            at = (parent.start[0], parent.start[1] + 1)
            return source.replaced(at, at, text)
        if not entries or entries[-1][1].start < entries[-1][0].end:
            raise NotEditable(f"{parent.span} ends with an alias or begins with an anchor")
        return source.replaced(entries[-1][1].end, entries[-1][1].end, f", {text}")
    if not entries:
        raise NotEditable(f"{parent.span} has no key of its own")
    column = " " * entries[0][0].start[1]
    for key, node in reversed(entries):
        if not node.block and node.start[0] == node.end[0] == key.start[0]:
            return source.with_line_after(node.end[0], column + text)
    at = entries[0][0].start
    return source.replaced(at, at, f"{text}{source.line_break}{column}")


class _Source:
    """A text with its lines."""

    def __init__(self, text: str) -> None:
        self._text = text
        breaks = [*LINE_BREAK.finditer(text)]
        self._starts = [0, *(each.end() for each in breaks)]
        self._ends = [*(each.start() for each in breaks), len(text)]
        self.line_break = breaks[0][0] if breaks else "\n"

    def at(self, place: Place) -> str:
        """Return the rest of a line."""
        return self._text[self._starts[place[0]] + place[1] : self._ends[place[0]]]

    def replaced(self, start: Place, end: Place, text: str) -> str:
        """Return the text with other characters between two places."""
        first, last = (self._starts[line] + column for line, column in (start, end))
        return self._text[:first] + text + self._text[last:]

    def with_line_after(self, number: int, line: str) -> str:
        """Return the text with a line more."""
        end = self._ends[number]
        return f"{self._text[:end]}{self.line_break}{line}{self._text[end:]}"
