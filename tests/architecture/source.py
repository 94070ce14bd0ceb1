"""This module reads the project's own source for the tests of its shape."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef


@functools.cache
def modules(*folders: str) -> dict[str, ast.Module]:
    """Return every Python module below these folders, parsed, by its path."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def functions(tree: ast.AST) -> Iterator[Function]:
    """Return every function of a module, nested ones and methods too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def public_names(body: list[ast.stmt]) -> Iterator[Named]:
    """Return the public functions and classes, and the public methods of the latter."""
    for node in body:
        if isinstance(node, Named) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_names(node.body)


def imported(tree: ast.AST) -> Iterator[str]:
    """Return the dotted names that a module imports, deferred imports too."""
    for node in ast.walk(tree):
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
