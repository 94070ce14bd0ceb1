"""Read fleet.yaml and its included files as plain data, with the position of each value.

No message contains a secret.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from posixpath import dirname, join, normpath
from typing import Protocol

from fleet.errors import FileUnreadable
from fleet.schema.findings import IN_POOL, At, Finding, Path, Span, did_you_mean, quoted
from fleet.schema.nodes import MAX_NODES, Node, decoded, lines_of, narrowed, parse
from fleet.schema.secrets import find_secrets, holds_secret, masked, masked_source
from fleet.schema.units import NAME_PATTERN, follows

INLINE_SECRET = "inline-secret"  # noqa: S105 - the id of a rule
CHANGES = "--set"
"""File name that findings show for values of `--set` on the command line."""


class Document:
    """The data of fleet.yaml and its included files, with the position of each value."""

    def __init__(  # noqa: PLR0913 - everything that reading found
        self,
        name: str,
        *,
        root: Node | None,
        texts: dict[str, str],
        roots: Sequence[Node],
        findings: Sequence[Finding],
        partial: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.partial = partial
        """Names of pools that extend unknown templates. Keys may be missing in these pools."""
        self.files = tuple(each for each in texts if each != CHANGES) or (name,)
        self._texts = texts
        self._lines: dict[str, list[str]] = {}
        self._shown: dict[tuple[str, int], str] = {}
        """Lines with masked secrets, cached because many findings may be about one long line."""
        self._values: dict[Path, Node] = {}
        self._keys: dict[Path, Node] = {}
        self._parsed = {each.file for each in roots}
        # The merged document comes first, because its paths are valid; dropped entries come last.
        found = (secret for each in roots for secret in find_secrets(each))
        self._secrets = {id(secret.node): secret for secret in reversed([*found])}
        self.value: object = None if root is None else self._build(root, ())
        inline = (
            Finding(
                rule=INLINE_SECRET,
                message="this file contains a secret in clear text",
                path=secret.path,
                at=secret.at,
                hint="refer to it with {env: NAME}, {file: PATH} or {command: […]}, and change "
                "the secret: it has been exposed",
                span=secret.node.span,
            )
            for secret in self._secrets.values()
        )
        self.findings: tuple[Finding, ...] = (*findings, *inline)

    def place(self, path: Path, at: At = "value") -> str:
        """Return FILE:LINE:COLUMN of a path, or of its nearest parent if the path is absent."""
        return str(self.span(path, at))

    def span(self, path: Path, at: At = "value") -> Span:
        """Return the range of a path in its file, or that of its nearest parent if absent."""
        if path in self._values:
            node, key = self._values[path], self._keys.get(path)
            if key is not None and (at == "key" or (node.block and node.kind != "scalar")):
                return key.span
            return node.span
        return self.span(path[:-1]) if path else Span(self.name)

    def locate(self, finding: Finding) -> Finding:
        """Return a finding with its position in a file."""
        path = tuple("***" if holds_secret(str(part)) else part for part in finding.path)
        span = finding.span or self._part(finding) or self.span(finding.path, finding.at)
        message = finding.message
        if self._is_from_template(finding.path[:2], span) and path[2:]:
            message += f"{IN_POOL}{quoted(path[1])})"
        return replace(finding, span=span, path=path, message=message)

    def _is_from_template(self, pool: Path, span: Span) -> bool:
        """Return whether a position is in a template instead of in the pool itself."""
        node, key = self._values.get(pool), self._keys.get(pool)
        if node is None or key is None or pool[0] != "pools" or span == key.span:
            return False
        start, place, end = node.start, (span.line - 1, span.column - 1), node.end
        return span.file != node.file or not start <= place <= end

    def _part(self, finding: Finding) -> Span | None:
        """Return the position of the wrong part of a value; None if the finding has no part."""
        node = self._values.get(finding.path)
        if node is None or finding.part is None:
            return None
        return narrowed(node, self._lines_of(node.file), finding.part)

    def line(self, file: str, number: int) -> str | None:
        """Return a line, counted from 1, with masked secrets; None if there is no such line."""
        if file not in self._texts:
            return None
        lines = self._lines_of(file)
        if not 1 <= number <= len(lines):
            return None
        if (file, number) not in self._shown:
            nodes = self._secrets_by_line.get((file, number - 1), ())
            self._shown[file, number] = (
                masked(_mask(lines[number - 1], nodes, number - 1))
                if file in self._parsed
                else masked_source(lines, number - 1)
            )
        return self._shown[file, number]

    @cached_property
    def _secrets_by_line(self) -> dict[tuple[str, int], list[Node]]:
        """Return the secrets by (file, line), with lines counted from 0."""
        found: dict[tuple[str, int], list[Node]] = {}
        for secret in self._secrets.values():
            for number in range(secret.node.start[0], secret.node.end[0] + 1):
                found.setdefault((secret.node.file, number), []).append(secret.node)
        return found

    def _lines_of(self, file: str) -> list[str]:
        if file not in self._lines:
            self._lines[file] = lines_of(self._texts[file])
        return self._lines[file]

    def is_secret(self, path: Path) -> bool:
        """Return whether the value at a path is secret, so that it must not be shown."""
        within = (path[:length] for length in range(len(path) + 1))
        return any(id(self._values.get(each)) in self._secrets for each in within)

    def _build(self, node: Node, path: Path) -> object:
        self._values[path] = node
        if node.kind == "list":
            return [self._build(item, (*path, number)) for number, item in enumerate(node.items)]
        if node.kind == "scalar":
            return node.value
        built = {}
        for key, value in node.entries:
            self._keys[(*path, key.value)] = key
            built[key.value] = self._build(value, (*path, key.value))
        return built


def _mask(line: str, nodes: Iterable[Node], number: int) -> str:
    """Return a line in which each character of these nodes is replaced by a star."""
    shown = [*line]
    for node in nodes:
        start = node.start[1] if number == node.start[0] else 0
        end = node.end[1] if number == node.end[0] else len(line)
        shown[start:end] = re.sub(r"\S", "*", line[start:end])
    return "".join(shown)


MAX_CHAIN = 20
MAX_MERGED = 500_000
"""Maximum number of values in all pools together, after templates are merged."""
_MOST_SHOWN = 10


class TooManyValues(Exception):
    """Signal that templates expand to more values than permitted."""


def apply_templates(root: Node, findings: list[Finding]) -> frozenset[str]:
    """Merge templates into pools; return the names of pools that extend unknown templates.

    Raises TooManyValues.
    """
    section = next((entry for entry in root.entries if entry[0].value == "templates"), None)
    if section is not None:
        root.entries.remove(section)
        root.dropped.append(section)
    templates = _Templates(section[1] if section else None, findings)
    pools = next((value.entries for key, value in root.entries if key.value == "pools"), [])
    partial = set()
    for number, (key, pool) in enumerate(pools):
        merged, is_whole = templates.extended(pool)
        pools[number] = (key, merged)
        if not is_whole:
            partial.add(key.value)
    templates.report_unused()
    return frozenset(partial)


class _Templates:
    """The templates of a file. At first use, a template is merged with those it extends."""

    def __init__(self, section: Node | None, findings: list[Finding]) -> None:
        self._findings = findings
        self._written: dict[str, tuple[Node, Node]] = {}
        self._found: dict[str, tuple[Node, bool]] = {}
        self._bases: dict[tuple[str, ...], Node] = {}
        self._size = self._unknowns = 0
        if section is not None and (section.kind == "list" or section.value is not None):
            self._report(section, "wrong-type", "expected a mapping of names to templates")
        for key, value in section.entries if section else ():
            if not follows(NAME_PATTERN, key.value):
                message = f"expected a name like base-1, found {_show(key.value)}"
                self._report(key, "wrong-value", message)
            if value.kind == "mapping":
                self._written[key.value] = (key, value)
            else:
                self._report(key, "wrong-type", "expected a mapping with keys of a pool")
                self._found[key.value] = (_part(value), False)

    def extended(self, node: Node, within: tuple[str, ...] = ()) -> tuple[Node, bool]:
        """Return a node merged with the templates it extends, and whether all of these exist."""
        entry = next((each for each in node.entries if each[0].value == "extends"), None)
        if entry is None:
            return node, True
        own = _part(node, [each for each in node.entries if each is not entry], [entry])
        names = entry[1].items
        if entry[1].kind != "list" or not all(isinstance(name.value, str) for name in names):
            found = entry[1].value
            hint = f"write [{found}]" if isinstance(found, str) and found in self._written else ""
            self._report(entry[1], "wrong-type", "expected a list of template names", hint)
            return own, False
        key = tuple(name.value for name in names)
        if key not in self._bases:
            parts = [self._template(name, within) for name in names]
            base = reduce(self._merge_mappings, [part for part, _ in parts], _part(own))
            if not all(is_whole for _, is_whole in parts):
                return self._merge_mappings(base, own), False
            self._bases[key] = base
        return self._merge_mappings(self._bases[key], own), True

    def report_unused(self) -> None:
        """Check each template that no pool extends, and add a warning about it."""
        unused = [key for name, (key, _) in self._written.items() if name not in self._found]
        for key in unused:
            message = f"no pool extends template '{key.value}', so it is not checked"
            hint = "remove it, or name it in `extends` of a pool"
            self._findings.append(
                Finding("unused-template", message, severity="warning", hint=hint, span=key.span)
            )
            self._template(key, ())

    def _template(self, name: Node, within: tuple[str, ...]) -> tuple[Node, bool]:
        if name.value in within:
            cycle = " → ".join((*within[within.index(name.value) :], name.value))
            message = f"templates extend each other in a cycle: {cycle}"
            self._report(name, "template-cycle", message, "remove one of these names")
        elif len(within) >= MAX_CHAIN:
            message = f"templates extend each other more than {MAX_CHAIN} levels deep"
            self._report(name, "too-complex", message, "use fewer levels")
        elif name.value in self._found:
            return self._found[name.value]
        elif name.value in self._written:
            template = self._written[name.value][1]
            found = self.extended(template, (*within, name.value))
            return self._found.setdefault(name.value, found)
        else:
            self._report_unknown(name)
        return _part(name), False

    @cached_property
    def _list_known_names(self) -> list[str]:
        return sorted(each for each in self._written if not holds_secret(each))

    def _report_unknown(self, name: Node) -> None:
        known = self._list_known_names
        self._unknowns += 1
        more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
        allowed = f"; known: {', '.join(known[:_MOST_SHOWN])}{more}" if known else ""
        message = f"there is no template {_show(name.value)}{allowed}"
        hint = "" if known else "declare it under `templates`"
        if known and self._unknowns <= _MOST_SHOWN:
            hint = did_you_mean(name.value, known)
        self._report(name, "unknown-template", message, hint)

    def _merge_mappings(self, base: Node, over: Node) -> Node:
        """Return `base` overridden by the entries of `over`, at the position of `over`."""
        entries = {key.value: (key, value) for key, value in base.entries}
        for key, value in over.entries:
            _, there = entries.get(key.value, (key, value))
            both = there is not value and there.kind == value.kind == "mapping"
            entries[key.value] = (key, self._merge_mappings(there, value) if both else value)
        merged = _part(over, entries.values())
        self._size += merged.size
        if self._size > MAX_MERGED:
            raise TooManyValues
        return merged

    def _report(self, node: Node, rule: str, message: str, hint: str = "") -> None:
        self._findings.append(Finding(rule, message, hint=hint, span=node.span))


def _show(name: str) -> str:
    return "(hidden)" if holds_secret(name) else quoted(name)


def _part(
    at: Node, entries: Iterable[tuple[Node, Node]] = (), dropped: Iterable[tuple[Node, Node]] = ()
) -> Node:
    """Return a mapping with these entries at the position of another node."""
    kept = [*entries]
    size = 1 + sum(key.size + value.size for key, value in kept)
    return Node(
        "mapping",
        at.file,
        at.start,
        at.end,
        block=at.block,
        entries=kept,
        dropped=[*at.dropped, *dropped],
        size=size,
    )


LIMIT = 5_000_000
"""Maximum size in bytes of fleet.yaml and its included files together."""


def check_size(name: str, size: int, limit: int) -> None:
    """Raise FileUnreadable if a file exceeds the limit in bytes."""
    if size > limit:
        most = f"{limit // 1_000_000} MB" if limit >= 1_000_000 else f"{limit} bytes"  # noqa: PLR2004 - 1 MB
        raise FileUnreadable(f"{name}: larger than {most}")


_ONLY_MAIN = ("include", "fleet", "state")


class Files(Protocol):
    """Reader of fleet.yaml and its included files, with tests in tests/ports/test_files.py."""

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file; raises FileUnreadable, also if longer than `limit`."""

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the names of the files that match a pattern, sorted."""


def read_document(name: str, files: Files, changes: str = "") -> Document:
    """Read a file and the files it includes as one document. `load` describes `changes`."""
    reader = _IncludeReader(name, files)
    root = reader.read(name)
    if root is not None and root.kind != "mapping":
        reader.report(root.span, "wrong-type", "expected a mapping that begins with fleet: NAME")
        root = None
    partial: frozenset[str] = frozenset()
    if root is not None:
        reader.include(root)
        try:
            partial = apply_templates(root, reader.findings)
        except TooManyValues:
            message = f"templates expand the pools to more than {MAX_MERGED} values"
            reader.report(root.span, "too-complex", message, "use smaller templates")
            root = None
    if root is not None and changes:
        root = reader.change(root, changes)
    return Document(
        name,
        root=root,
        texts=reader.texts,
        roots=reader.roots,
        findings=reader.findings,
        partial=partial,
    )


class _IncludeReader:
    """Reader that merges the included files into the main file."""

    def __init__(self, main: str, files: Files) -> None:
        self.main = main
        self.texts: dict[str, str] = {}
        self.roots: list[Node] = []
        self.findings: list[Finding] = []
        self._files = files
        self._left = LIMIT
        self._size = 0

    def read(self, name: str) -> Node | None:
        """Read and parse a file and report its errors; return its root node, None if not read."""
        try:
            content = self._files.read(name, self._left)
        except FileUnreadable as error:
            message = str(error).removeprefix(f"{name}: ")
            is_absent = isinstance(error.__cause__, FileNotFoundError)
            start = "begin a fleet with `fleet init`, or " if is_absent else ""
            hint = f"{start}name another file with --file"
            if name != self.main:
                hint = f"correct `include` in {self.main}, or the file"
            self.report(Span(name), "unreadable-file", message, hint)
            return None
        self._left -= len(content)
        text = decoded(content, name)
        if isinstance(text, Finding):
            self.findings.append(text)
            return None
        self.texts[name] = text
        parsed = parse(text, name)
        self.findings += parsed.findings
        if parsed.root is None and not parsed.findings and name == self.main:
            self.report(Span(name), "empty-file", "the file is empty", "begin with fleet: NAME")
        return None if parsed.root is None else self._within_limit(parsed.root)

    def _within_limit(self, root: Node) -> Node | None:
        self._size += root.size
        if self._size > MAX_NODES:
            message = f"more than {MAX_NODES} values in all files together"
            span = Span(root.file)
            self.report(span, "too-complex", message, "shorten it, or split the fleet")
            return None
        self.roots.append(root)
        return root

    def include(self, root: Node) -> None:
        """Merge each included file into the root node of the main file."""
        patterns = next((value for key, value in root.entries if key.value == "include"), None)
        done = {self.main}
        written: dict[object, Node] = {}
        for item in patterns.items if patterns else ():
            if (first := written.setdefault(item.value, item)) is not item:
                message = f"repeated pattern, first in {first.span}"
                self.report(item.span, "invalid-include", message, "keep one of them")
                continue
            for name in self._matching(item):
                if name not in done:
                    done.add(name)
                    self._merge(root, self.read(name))

    def change(self, root: Node, changes: str) -> Node:
        """Return the root node with changed values. `changes` has one KEY: VALUE per line."""
        self.texts[CHANGES] = changes
        parsed = parse(changes, CHANGES)
        self.findings += parsed.findings
        written = None if parsed.root is None else self._within_limit(parsed.root)
        if written is not None and written.kind == "mapping":
            for key, value in written.entries:
                path = key.value.split(".")
                if path[0] in _ONLY_MAIN:
                    message = f"{path[0]} cannot be set on the command line"
                    self.report(key.span, "wrong-value", message, f"write it in {self.main}")
                else:
                    root = self._replace_value(root, key, path, value)
        elif not parsed.findings:
            self.report(Span(CHANGES), "wrong-type", "expected KEY=VALUE, as cadence=5m")
        return root

    def _replace_value(self, node: Node, key: Node, path: Sequence[str], value: Node) -> Node:
        """Return a copy of a mapping with a new value at a path. Templates share their nodes."""
        step, *rest = path
        entries = {each.value: (each, there) for each, there in node.entries}
        _, there = entries.get(step, (key, _part(key)))
        if rest and there.kind != "mapping":
            if there.value is not None or there.kind != "scalar":
                name = key.value.removesuffix(f".{'.'.join(rest)}")
                self.report(
                    key.span, "wrong-type", f"{name} is not a mapping", f"set {name} itself"
                )
                return node
            there = _part(key)
        own = Node("scalar", key.file, key.start, key.end, value=step)
        entries[step] = own, self._replace_value(there, key, rest, value) if rest else value
        return _part(node, entries.values())

    def report(self, span: Span, rule: str, message: str, hint: str = "") -> None:
        """Add a finding with this position, rule id, message and hint."""
        self.findings.append(Finding(rule, message, hint=hint, span=span))

    def _matching(self, item: Node) -> Sequence[str]:
        pattern = item.value
        if not isinstance(pattern, str) or not pattern:
            return ()  # the schema reports this
        # Only the path of the folder is literal (no import of `glob`, which reads folders).
        folder = re.sub(r"([*?[])", r"[\1]", dirname(self.main))
        full = normpath(join(folder, pattern))
        if pattern.startswith("/") or ".." in pattern.split("/"):
            message = "included files must be in this folder or below it"
            self.report(
                item.span, "invalid-include", message, "remove the leading / and every .. part"
            )
            return ()
        if fnmatch.fnmatchcase(normpath(self.main), full):
            message = "this pattern includes the file itself"
            self.report(
                item.span, "invalid-include", message, "use a folder, for example fleet.d/*.yaml"
            )
            return ()
        try:
            names = self._files.glob(full)
        except FileUnreadable as error:
            self.report(item.span, "invalid-include", str(error))
            return ()
        if not names:
            message = "no file matches this pattern"
            self.report(
                item.span,
                "invalid-include",
                message,
                f"check the path {normpath(join(dirname(self.main), pattern))}",
            )
        return names

    def _merge(self, root: Node, included: Node | None) -> None:
        if included is None:
            return
        if included.kind != "mapping":
            self.report(
                included.span, "wrong-type", "expected a mapping of sections, such as pools:"
            )
            return
        for key, value in included.entries:
            if key.value in _ONLY_MAIN:
                message = f"{key.value} is allowed only in {self.main}"
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
            root.entries[place] = (there_key, _join_nodes(there, value))
        elif there.kind == value.kind == "mapping":
            known = {each.value: each for each, _ in there.entries}
            for twin in (each for each, _ in value.entries if each.value in known):
                self._report_duplicate(twin, known[twin.value])
            fresh = [entry for entry in value.entries if entry[0].value not in known]
            root.entries[place] = (there_key, _join_nodes(there, replace(value, entries=fresh)))
        else:
            self._report_duplicate(key, there_key)

    def _report_duplicate(self, key: Node, first: Node) -> None:
        message = f"duplicate key, first in {first.span}"
        self.report(key.span, "duplicate-key", message, "keep one of them")


def _join_nodes(one: Node, other: Node) -> Node:
    entries, items = one.entries + other.entries, one.items + other.items
    return replace(one, value=None, entries=entries, items=items)
