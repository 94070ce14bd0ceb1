"""The shape of the source: short functions, short modules, everything public documented."""

import ast
from pathlib import PurePath

from tests.architecture.source import functions, imported, modules, public_names

EVERYTHING = ("fleet", "stacks", "bench", "tools", "tests")
SHIPPED = ("fleet", "stacks", "bench", "tools")
LONGEST_FUNCTION = 50
LONGEST_MODULE = 400
NAMED_FOR_NOTHING = {"utils", "util", "helpers", "common", "manager", "misc"}


def test_no_function_is_longer_than_fifty_lines() -> None:
    long = {
        f"{path}:{function.name}": lines
        for path, tree in modules(*EVERYTHING).items()
        for function in functions(tree)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    }

    assert long == {}


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    long = {
        path: last
        for path, tree in modules(*EVERYTHING).items()
        if tree.body and (last := tree.body[-1].end_lineno or 0) > LONGEST_MODULE
    }

    assert long == {}


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        f"{path}:{node.name}"
        for path, tree in modules(*SHIPPED).items()
        for node in public_names(tree.body)
        if not ast.get_docstring(node)
    ]

    assert silent == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path
        for path, tree in modules(*SHIPPED).items()
        if not path.endswith("__init__.py")
        and not (ast.get_docstring(tree) or "").startswith("This module ")
    ]

    assert silent == []


def test_no_module_is_named_for_nothing() -> None:
    named = [path for path in modules(*EVERYTHING) if PurePath(path).stem in NAMED_FOR_NOTHING]

    assert named == []


def test_fakes_are_written_never_patched_in() -> None:
    patching = [
        path
        for path, tree in modules("tests").items()
        if any(
            name.startswith(("unittest.mock", "mock", "pytest_mock")) for name in imported(tree)
        )
    ]

    assert patching == []
