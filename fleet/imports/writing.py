"""This module writes YAML with comments: plain data in, lines out, one way to write each value."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from fleet.schema.nodes import Node
from fleet.schema.units import DURATION_PATTERN, SIZE_PATTERN, written

_PLAIN = re.compile(r"(?:[A-Za-z][A-Za-z0-9_./-]*|-c|[1-9][0-9]*(?:[smhd]|[MGT]iB))\Z")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]")
_NAME_LENGTH = 31
_WIDTH = 110


@dataclass
class Block:
    """A mapping that is written over several lines, with comments above and between."""

    entries: list[tuple[str, object]] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


def block_to_lines(name: str, block: Block, indent: int = 2) -> Iterator[str]:
    """Yield the lines of a named mapping."""
    yield from comments(block.above, indent)
    yield f"{' ' * indent}{scalar(name)}:"
    for key, value in block.entries:
        if isinstance(value, Block):
            yield from block_to_lines(key, value, indent + 2)
        else:
            yield f"{' ' * (indent + 2)}{scalar(key)}: {flow(value)}"
    yield from comments(block.below, indent + 2)


def item_to_lines(block: Block) -> Iterator[str]:
    """Yield the lines of a mapping in a list."""
    yield from comments(block.above, 2)
    for number, (key, value) in enumerate(block.entries):
        dash = "- " if number == 0 else "  "
        yield f"  {dash}{scalar(key)}: {flow(value)}"
    yield from comments(block.below, 4)


def comments(texts: Iterable[str], indent: int = 0) -> Iterator[str]:
    """Yield comment lines that fit a screen; a comment never becomes anything else."""
    for text in texts:
        line = "#"
        for word in comment_text(text).split(" "):
            if len(line) + len(word) + indent >= _WIDTH and line != "#":
                yield " " * indent + line
                line = "#  "
            line += f" {word}"
        yield " " * indent + line


def comment_text(text: str) -> str:
    """Return a text as it may stand in a comment: on one line, without control codes."""
    return _UNPRINTABLE.sub("?", re.sub(r"\s+", " ", text)).strip()


def flow(value: object) -> str:
    """Return a value on one line."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return scalar(value)


def scalar(value: object) -> str:
    """Return a scalar that reads back as itself."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1 << 30)
    return quoted.rstrip("\n")


def shown(node: Node) -> str:
    """Return what is written at a node, on one line."""
    return comment_text(flow(_plain(node)))


def duration(seconds: int) -> str:
    """Return a duration the way fleet.yaml writes it."""
    return written(seconds, DURATION_PATTERN)


def size(mebibytes: int) -> str:
    """Return a size the way fleet.yaml writes it."""
    return written(mebibytes, SIZE_PATTERN)


def name_of(text: str, taken: Iterable[str] = ()) -> str:
    """Return a name that fleet.yaml takes, as near to the text as can be, not one of `taken`."""
    slug = _slug(text)
    name = slug[:_NAME_LENGTH].strip("-")
    used, number = frozenset(taken), 1
    while name in used:
        number += 1
        end = f"-{number}"
        name = slug[: _NAME_LENGTH - len(end)].strip("-") + end
    return name


def templates_to_lines(templates: Mapping[str, Block]) -> Iterator[str]:
    """Yield the lines of the section of templates, if there are any."""
    if templates:
        yield from ("", "templates:")
    for key, block in templates.items():
        yield from block_to_lines(key, block)


def renaming(text: str, name: str) -> str:
    """Say what a name became, and whether it lost its end."""
    cut = f", cut to the {_NAME_LENGTH} characters of a name" * (len(_slug(text)) > _NAME_LENGTH)
    return f"it is called {name}{cut}"


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return slug if slug[:1].isalpha() else f"p-{slug}".strip("-")


def _plain(node: Node) -> object:
    if node.kind == "list":
        return [_plain(item) for item in node.items]
    if node.kind == "mapping":
        return {str(key.value): _plain(value) for key, value in node.entries}
    return "null" if node.value is None else node.value


def document(lines: Iterable[str]) -> str:
    """Return lines as a file."""
    return "\n".join(line.rstrip() for line in lines) + "\n"
