"""This module holds what a person wrote: plain data, where each part stands, what is secret.

Secrets written inline are noticed here, and no line shows them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleet.schema.base import ENV_PATTERN
from fleet.schema.concealed import holds_secret, masked, masked_source, names_secret
from fleet.schema.findings import At, Finding, Path, Span, nearest
from fleet.schema.nodes import Node, lines_of

INLINE_SECRET = "inline-secret"  # noqa: S105 - the id of a rule
_REFERENCE_KEYS = ("env", "file", "command")


class Document:
    """What a person wrote: plain data, and where each part of it stands."""

    def __init__(
        self,
        name: str,
        *,
        root: Node | None,
        texts: dict[str, str],
        findings: Sequence[Finding],
    ) -> None:
        self.name = name
        self.files = tuple(texts) or (name,)
        self._texts = texts
        self._lines: dict[str, list[str]] = {}
        self._values: dict[Path, Node] = {}
        self._keys: dict[Path, Node] = {}
        self._secrets: dict[Path, Node] = {}
        self._secret_keys: dict[Path, Node] = {}
        self._parsed = root is not None
        self.value: object = None if root is None else self._build(root, (), secret=False)
        self.findings: tuple[Finding, ...] = (*findings, *self._inline_secrets())

    def place(self, path: Path, at: At = "value") -> str:
        """Return where a path was written, as fleet.yaml:12:3; its parent's where it was not."""
        return str(self.span(path, at))

    def span(self, path: Path, at: At = "value") -> Span:
        """Return the characters of a path; of its nearest parent where it was not written."""
        if path in self._values:
            node, key = self._values[path], self._keys.get(path)
            if key is not None and (at == "key" or (node.block and node.kind != "scalar")):
                return key.span
            return node.span
        return self.span(path[:-1]) if path else Span(self.name)

    def locate(self, finding: Finding) -> Finding:
        """Return a finding with its place."""
        path = tuple("***" if holds_secret(str(part)) else part for part in finding.path)
        span = finding.span or self.span(finding.path, finding.at)
        return replace(finding, span=span, path=path)

    def line(self, file: str, number: int) -> str | None:
        """Return a line of a file, counted from 1, with every secret in it masked."""
        if file not in self._texts:
            return None
        if file not in self._lines:
            self._lines[file] = lines_of(self._texts[file])
        lines = self._lines[file]
        if not 1 <= number <= len(lines):
            return None
        if not self._parsed:
            return masked_source(lines, number - 1)
        line = lines[number - 1]
        for node in (*self._secrets.values(), *self._secret_keys.values()):
            if node.file == file:
                line = _without(line, node, number - 1)
        return masked(line)

    def is_secret(self, path: Path) -> bool:
        """Say whether a value must not be repeated anywhere."""
        return any(path[:length] in self._secrets for length in range(len(path) + 1))

    def _build(self, node: Node, path: Path, *, secret: bool) -> object:
        self._values[path] = node
        if node.kind == "mapping":
            return {
                key.value: self._entry(key, value, path, secret=secret)
                for key, value in node.entries
            }
        if node.kind == "list":
            return [
                self._build(item, (*path, number), secret=secret)
                for number, item in enumerate(node.items)
            ]
        if (secret and node.value is not None) or (
            isinstance(node.value, str) and holds_secret(node.value)
        ):
            self._secrets[path] = node
        return node.value

    def _entry(self, key: Node, value: Node, path: Path, *, secret: bool) -> object:
        name = key.value
        here = (*path, name)
        self._keys[here] = key
        if holds_secret(name):
            self._secret_keys[here] = key
        meant = nearest(name, _REFERENCE_KEYS) if secret else ""
        if meant and value.kind != "mapping":
            named = meant == "file" or re.match(ENV_PATTERN, str(value.value))
            fits = (value.kind == "list") == (meant == "command")
            wrong = not fits or (value.kind == "scalar" and not named)
            return self._build(value, here, secret=wrong)
        begins = names_secret(name) or (name == "read" and path[:1] == ("queues",))
        chosen_name = len(here) == 2 and value.kind == "mapping"  # noqa: PLR2004 - as in pools.NAME
        return self._build(value, here, secret=secret or (begins and not chosen_name))

    def _inline_secrets(self) -> Iterator[Finding]:
        for path, node in (*self._secrets.items(), *self._secret_keys.items()):
            yield Finding(
                rule=INLINE_SECRET,
                message="a secret is written here, where everyone who reads the file can use it",
                path=path,
                hint="refer to it: {env: NAME}, {file: PATH} or {command: […]}; "
                "and replace the secret, for this one is known now",
                span=node.span,
            )


def _without(line: str, node: Node, number: int) -> str:
    """Return a line with a node's characters replaced by stars, one for one."""
    if not node.start[0] <= number <= node.end[0]:
        return line
    start = node.start[1] if number == node.start[0] else 0
    end = node.end[1] if number == node.end[0] else len(line)
    return line[:start] + re.sub(r"\S", "*", line[start:end]) + line[end:]
