"""Read the project's own source for the tests of its shape."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rigs.process import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef


class Source(NamedTuple):
    """What the tests ask of a module; its tree itself is too large to keep."""

    docstring: str
    undocumented: list[str]
    """Public functions and classes, and public methods of the latter, without a docstring."""
    imports: set[str]
    """The dotted names that it imports, deferred imports too."""
    classes: dict[str, set[str]]
    """Its own classes, each with the plain names among its bases."""


def modules(*folders: str) -> dict[str, Source]:
    """Return every Python module below these folders by its path."""
    return {name: _read(path) for name, path in files(*folders).items()}


def files(*folders: str) -> dict[str, Path]:
    """Return the file of each Python module below these folders by its path."""
    return {
        str(path.relative_to(ROOT)): path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@functools.cache
def _read(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Source(
        docstring=ast.get_docstring(tree) or "",
        undocumented=[
            node.name for node in _public_names(tree.body) if not ast.get_docstring(node)
        ],
        imports={name for node in _statements(tree) for name in _imported(node)},
        classes={
            node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
            for node in tree.body
            if isinstance(node, ast.ClassDef)
        },
    )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below, and no expression: those are nine tenths of a tree."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, block, ()):
            yield each
            yield from _statements(each)


def _public_names(body: list[ast.stmt]) -> Iterator[Named]:
    for node in body:
        if isinstance(node, Named) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public_names(node.body)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tracked_files() -> dict[str, Path]:
    """Return what is under version control, by its path; skips where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    names = [name for name in listed.stdout.split("\0") if name]
    return {name: ROOT / name for name in names if (ROOT / name).is_file()}
