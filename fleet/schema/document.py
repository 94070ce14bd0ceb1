"""The text of fleet.yaml as plain data, with the place of each part, and secrets masked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleet.schema.findings import IN_POOL, At, Finding, Path, Span, quoted
from fleet.schema.nodes import Node, lines_of, narrowed
from fleet.schema.secrets import find_secrets, holds_secret, masked, masked_source

INLINE_SECRET = "inline-secret"  # noqa: S105 - the id of a rule


class Document:
    """Plain data from fleet.yaml and its included files, with the place of each part."""

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
        """Pools that extend unknown templates, so that keys may be missing."""
        self.files = tuple(texts) or (name,)
        self._texts = texts
        self._lines: dict[str, list[str]] = {}
        self._values: dict[Path, Node] = {}
        self._keys: dict[Path, Node] = {}
        self._parsed = {each.file for each in roots}
        # The merged document first, for its paths are the right ones; then what it dropped.
        found = (secret for each in roots for secret in find_secrets(each))
        self._secrets = {id(secret.node): secret for secret in reversed([*found])}
        self.value: object = None if root is None else self._build(root, ())
        self.findings: tuple[Finding, ...] = (*findings, *self._inline_secrets())

    def place(self, path: Path, at: At = "value") -> str:
        """Return the place of a path, as fleet.yaml:12:3, or of its nearest parent in the file."""
        return str(self.span(path, at))

    def span(self, path: Path, at: At = "value") -> Span:
        """Return the characters of a path, or of its nearest parent in the file."""
        if path in self._values:
            node, key = self._values[path], self._keys.get(path)
            if key is not None and (at == "key" or (node.block and node.kind != "scalar")):
                return key.span
            return node.span
        return self.span(path[:-1]) if path else Span(self.name)

    def locate(self, finding: Finding) -> Finding:
        """Return a finding with its place."""
        path = tuple("***" if holds_secret(str(part)) else part for part in finding.path)
        span = finding.span or self._part(finding) or self.span(finding.path, finding.at)
        message = finding.message
        if self._is_from_template(finding.path[:2], span) and path[2:]:
            message += f"{IN_POOL}{quoted(path[1])})"
        return replace(finding, span=span, path=path, message=message)

    def _is_from_template(self, pool: Path, span: Span) -> bool:
        """Say whether a place is outside of the pool that it belongs to."""
        node, key = self._values.get(pool), self._keys.get(pool)
        if node is None or key is None or pool[0] != "pools" or span == key.span:
            return False
        start, place, end = node.start, (span.line - 1, span.column - 1), node.end
        return span.file != node.file or not start <= place <= end

    def _part(self, finding: Finding) -> Span | None:
        """Return the place of `finding.part`, if the finding has one."""
        node = self._values.get(finding.path)
        if node is None or finding.part is None:
            return None
        return narrowed(node, self._lines_of(node.file), finding.part)

    def line(self, file: str, number: int) -> str | None:
        """Return a line of a file, counted from 1, with every secret in it masked."""
        if file not in self._texts:
            return None
        lines = self._lines_of(file)
        if not 1 <= number <= len(lines):
            return None
        if file not in self._parsed:
            return masked_source(lines, number - 1)
        line = lines[number - 1]
        for secret in self._secrets.values():
            if secret.node.file == file:
                line = _without(line, secret.node, number - 1)
        return masked(line)

    def _lines_of(self, file: str) -> list[str]:
        if file not in self._lines:
            self._lines[file] = lines_of(self._texts[file])
        return self._lines[file]

    def is_secret(self, path: Path) -> bool:
        """Say whether a value must not be shown."""
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

    def _inline_secrets(self) -> Iterator[Finding]:
        for secret in self._secrets.values():
            yield Finding(
                rule=INLINE_SECRET,
                message="this file contains a secret in clear text",
                path=secret.path,
                at=secret.at,
                hint="refer to it with {env: NAME}, {file: PATH} or {command: […]}, and change "
                "the secret: it has been exposed",
                span=secret.node.span,
            )


def _without(line: str, node: Node, number: int) -> str:
    """Return a line with a node's characters replaced by stars, one for one."""
    if not node.start[0] <= number <= node.end[0]:
        return line
    start = node.start[1] if number == node.start[0] else 0
    end = node.end[1] if number == node.end[0] else len(line)
    return line[:start] + re.sub(r"\S", "*", line[start:end]) + line[end:]
