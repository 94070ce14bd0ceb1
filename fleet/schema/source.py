"""This module turns fleet.yaml, its included files and templates into data with positions.

Whatever a person can get wrong in the text is a finding; a document always comes back, if
only with findings.
"""

import fnmatch
from collections.abc import Sequence
from posixpath import dirname, join, normpath
from typing import Protocol

from fleet.errors import FileUnreadable
from fleet.schema.document import Document
from fleet.schema.findings import Finding, Span
from fleet.schema.nodes import MAX_NODES, Node, lines_of, parse
from fleet.schema.templates import MAX_MERGED, TooMuch, apply_templates

LIMIT = 5_000_000
"""Bytes of fleet.yaml and its included files together."""

_ONLY_MAIN = ("include", "fleet", "state")


class Files(Protocol):
    """What reading needs of the port of the same name."""

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's bytes."""

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match, sorted."""


def read_document(name: str, files: Files) -> Document:
    """Return what is written in a file and in those it includes."""
    reader = _Reader(name, files)
    root = reader.read(name)
    if root is not None and root.kind != "mapping":
        reader.report(root.span, "wrong-type", "expected a mapping that begins with fleet: NAME")
        root = None
    partial: frozenset[str] = frozenset()
    if root is not None:
        reader.include(root)
        try:
            partial = apply_templates(root, reader.findings)
        except TooMuch:
            message = f"templates make more than {MAX_MERGED} values of the pools"
            reader.report(root.span, "too-complex", message, "write smaller templates")
            root = None
    return Document(
        name,
        root=root,
        texts=reader.texts,
        roots=reader.roots,
        findings=reader.findings,
        partial=partial,
    )


class _Reader:
    """Reads the main file and merges the included ones into it."""

    def __init__(self, main: str, files: Files) -> None:
        self.main = main
        self.texts: dict[str, str] = {}
        self.roots: list[Node] = []
        self.findings: list[Finding] = []
        self._files = files
        self._left = LIMIT
        self._size = 0

    def read(self, name: str) -> Node | None:
        """Return a file's nodes; what is wrong with it becomes findings."""
        try:
            content = self._files.read(name, self._left)
        except FileUnreadable as error:
            text = str(error).removeprefix(f"{name}: ")
            self.report(Span(name), "unreadable-file", text, "name another file with --file")
            return None
        self._left -= len(content)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self._not_utf_8(name, content, error)
            return None
        self.texts[name] = text
        parsed = parse(text, name)
        self.findings += parsed.findings
        if parsed.root is None and not parsed.findings:
            self._empty(name)
        return None if parsed.root is None else self._within_limit(parsed.root)

    def _within_limit(self, root: Node) -> Node | None:
        self._size += root.size
        if self._size > MAX_NODES:
            message = f"more than {MAX_NODES} values in all files together"
            span = Span(root.file)
            self.report(span, "too-complex", message, "write less, or split the fleet")
            return None
        self.roots.append(root)
        return root

    def include(self, root: Node) -> None:
        """Merge every included file into the nodes of the main one."""
        patterns = next((value for key, value in root.entries if key.value == "include"), None)
        done = {self.main}
        for item in patterns.items if patterns else ():
            for name in self._matching(item):
                if name not in done:
                    done.add(name)
                    self._merge(root, self.read(name))

    def report(self, span: Span, rule: str, message: str, hint: str = "") -> None:
        """Note something that is wrong with the text."""
        self.findings.append(Finding(rule, message, hint=hint, span=span))

    def _not_utf_8(self, name: str, content: bytes, error: UnicodeDecodeError) -> None:
        before = lines_of(content[: error.start].decode("utf-8"))
        line, column = len(before), len(before[-1]) + 1
        message = f"the byte 0x{content[error.start]:02X} is not UTF-8"
        span = Span(name, line, column, line, column + 1)
        self.report(span, "not-text", message, "is this really a YAML file, in UTF-8?")

    def _empty(self, name: str) -> None:
        if name == self.main:
            hint = "begin with fleet: NAME"
            self.report(Span(name), "empty-file", "nothing is written here", hint)

    def _matching(self, item: Node) -> Sequence[str]:
        pattern = item.value
        if not isinstance(pattern, str) or not pattern:
            return ()  # the schema says so
        full = normpath(join(dirname(self.main), pattern))
        if pattern.startswith("/") or ".." in pattern.split("/"):
            message = "an included file must stand beside or below this one"
            self.report(item.span, "invalid-include", message, "write a pattern without / or ..")
            return ()
        if fnmatch.fnmatchcase(normpath(self.main), full):
            message = "this pattern includes the file itself"
            self.report(
                item.span, "invalid-include", message, "use a folder, as in fleet.d/*.yaml"
            )
            return ()
        try:
            names = self._files.glob(full)
        except FileUnreadable as error:
            self.report(item.span, "invalid-include", str(error))
            return ()
        if not names:
            message = "no file matches this pattern"
            self.report(item.span, "invalid-include", message, f"looked for {full}")
        return names

    def _merge(self, root: Node, included: Node | None) -> None:
        if included is None:
            return
        if included.kind != "mapping":
            self.report(
                included.span, "wrong-type", "expected a mapping of sections, as in pools:"
            )
            return
        for key, value in included.entries:
            if key.value in _ONLY_MAIN:
                message = f"{key.value} may only stand in {self.main}"
                self.report(key.span, "invalid-include", message, "move it there")
            elif value.kind != "scalar" or value.value is not None:
                self._merge_section(root, key, value)

    def _merge_section(self, root: Node, key: Node, value: Node) -> None:
        place = next((n for n, (k, _) in enumerate(root.entries) if k.value == key.value), None)
        if place is None:
            root.entries.append((key, value))
            return
        there_key, there = root.entries[place]
        if there.kind == "scalar" and there.value is None:
            root.entries[place] = (key, value)
        elif there.kind == value.kind == "list":
            root.entries[place] = (there_key, _joined(there, value))
        elif there.kind == value.kind == "mapping":
            fresh = self._without_twins(there, value)
            root.entries[place] = (there_key, _joined(there, fresh))
        else:
            self._twin(key, there_key)

    def _without_twins(self, there: Node, value: Node) -> Node:
        known = {key.value: key for key, _ in there.entries}
        for key, _ in value.entries:
            if key.value in known:
                self._twin(key, known[key.value])
        entries = [entry for entry in value.entries if entry[0].value not in known]
        return Node("mapping", value.file, value.start, value.end, entries=entries)

    def _twin(self, key: Node, first: Node) -> None:
        message = f"this key is written twice, first in {first.span}"
        self.report(key.span, "duplicate-key", message, "keep one of them")


def _joined(one: Node, other: Node) -> Node:
    return Node(
        one.kind,
        one.file,
        one.start,
        one.end,
        block=one.block,
        entries=one.entries + other.entries,
        dropped=one.dropped,
        items=one.items + other.items,
    )


__all__ = ["LIMIT", "Document", "Files", "read_document"]
