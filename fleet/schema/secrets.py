"""Find secrets in text, so that messages and files do not repeat them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fleet.schema.findings import At, Path, nearest
from fleet.schema.nodes import Node
from fleet.schema.units import ENV_PATTERN

# The patterns are compiled at first use, which most runs never reach.
_CREDENTIAL = r"""(?ix)
    [a-z][a-z0-9+.-]{0,30}://[^/\s:@]{0,200}:(?P<url>[^/\s@]{1,500}(?:@[^/\s@"',]{1,500})*)@
    | postgres[a-z+]{0,12}://[^/\s:@]{0,200}:(?P<port>[0-9]{0,99}[^/\s@?0-9"',][^/\s@?"',]{0,500})
    | (?:password|passwd|passphrase|secret|token|api[_-]?key)=(?P<pair>[^\s&$"'{]{1,500})
    | (?P<shape>(?:gh[pousr]_|glpat-|xox[abp]-)[A-Za-z0-9_-]{10,200}|AKIA[0-9A-Z]{16})
    | (?P<block>-----BEGIN\ [A-Z\ ]{0,40}PRIVATE\ KEY)"""
_HALLMARKS = ("@", "=", "postgres", "gh", "glpat-", "xox", "akia", "-----")
_KEY_WORDS = "pass(?:word|wd|phrase)|secret|token|api[_-]?key|private[_-]?key|credentials?|dsn"
_SECRET_KEY = rf"(?i)(^|[_-])({_KEY_WORDS})$"
_SECRET_LINE = rf"(?i)(?:{_KEY_WORDS}|read)[\"']?\s*:(?P<value>.*)$"
_REFERENCE = r"\s*(\{\s*(env|file|command)\s*:|$)"


def holds_secret(text: str) -> bool:
    """Return whether a text contains a credential, in a URL or DSN or of a known format."""
    lower = text.lower()
    return any(mark in lower for mark in _HALLMARKS) and bool(re.search(_CREDENTIAL, text))


def names_secret(key: str) -> bool:
    """Return whether the value of a key with this name is a secret."""
    return re.search(_SECRET_KEY, key) is not None


def masked(text: str) -> str:
    """Return a text in which each character of a credential is replaced by a star."""
    return re.sub(_CREDENTIAL, _stars, text)


def masked_source(lines: list[str], number: int) -> str:
    """Return a line of an unparsable file. All text that may be secret is masked."""
    line = lines[number]
    if found := re.search(_SECRET_LINE, line):
        if not re.match(_REFERENCE, found["value"]):
            start = found.start("value")
            return line[:start] + re.sub(r"\S", "*", line[start:])
    elif line.strip() and _continues_secret(lines, number):
        return re.sub(r"\S", "*", line)
    return masked(line)


def _continues_secret(lines: list[str], number: int) -> bool:
    """Return whether a line continues a secret that starts on an earlier line."""
    depth = _indent(lines[number])
    for earlier in reversed(lines[max(0, number - 200) : number]):
        if earlier.strip() and (_indent(earlier) < depth or depth == 0):
            found = re.search(_SECRET_LINE, earlier)
            reference = re.match(r"\s*(env|file|command)\s*:", lines[number])
            return found is not None and not reference
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _stars(found: re.Match[str]) -> str:
    whole, name = found[0], found.lastgroup or ""
    start, end = found.start(name) - found.start(), found.end(name) - found.start()
    return whole[:start] + "*" * (end - start) + whole[end:]


_REFERENCE_KEYS = ("env", "file", "command", "environment")


class InlineSecret(NamedTuple):
    """A secret value or key in a file. No message may repeat it."""

    path: Path
    node: Node
    at: At = "value"


def find_secrets(node: Node, path: Path = (), *, secret: bool = False) -> Iterator[InlineSecret]:
    """Yield each secret in a node. With `secret`, the whole node is a secret."""
    if node.kind == "mapping":
        for key, value in (*node.entries, *node.dropped):
            yield from _find_in_entry(key, value, path, secret=secret)
    elif node.kind == "list":
        for number, item in enumerate(node.items):
            yield from find_secrets(item, (*path, number), secret=secret)
    elif (secret and node.value is not None) or _is_credential(node):
        yield InlineSecret(path, node)


def _find_in_entry(key: Node, value: Node, path: Path, *, secret: bool) -> Iterator[InlineSecret]:
    name = str(key.value)
    here = (*path, name)
    if key.kind != "scalar":
        yield from find_secrets(key, path, secret=secret)
    elif _is_credential(key):
        yield InlineSecret(here, key, "key")
    meant = nearest(name, _REFERENCE_KEYS) if secret else ""
    if meant and value.kind != "mapping":
        yield from find_secrets(value, here, secret=not _refers(meant, value))
        return
    begins = names_secret(name) or (name == "read" and path[:1] == ("queues",))
    chosen_name = len(here) == 2 and value.kind == "mapping"  # noqa: PLR2004 - as in pools.NAME
    yield from find_secrets(value, here, secret=secret or (begins and not chosen_name))


def _is_credential(node: Node) -> bool:
    return isinstance(node.value, str) and holds_secret(node.value)


def _refers(key: str, value: Node) -> bool:
    """Return whether a value only refers to a secret, for example by a file name."""
    if key == "command":
        return value.kind == "list"
    if key == "environment":
        return value.kind == "list" and all(map(_is_name, value.items))
    return value.kind != "list" and (key == "file" or _is_name(value))


def _is_name(value: Node) -> bool:
    return re.match(ENV_PATTERN, str(value.value)) is not None
