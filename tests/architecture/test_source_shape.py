"""The shape of the source: short functions, short modules, everything public documented."""

from pathlib import PurePath

from tests.architecture.source import modules

EVERYTHING = ("fleet", "stacks", "bench", "tools", "tests")
SHIPPED = ("fleet", "stacks", "bench", "tools")
LONGEST_FUNCTION = 50
LONGEST_MODULE = 600
NAMED_FOR_NOTHING = {"utils", "util", "helpers", "common", "manager", "misc"}


def test_no_function_is_longer_than_fifty_lines() -> None:
    long = {
        f"{path}:{name}": lines
        for path, module in modules(*EVERYTHING).items()
        for name, lines in module.functions
        if lines > LONGEST_FUNCTION
    }

    assert long == {}


def test_no_module_is_longer_than_six_hundred_lines() -> None:
    long = {
        path: module.last_line
        for path, module in modules(*EVERYTHING).items()
        if module.last_line > LONGEST_MODULE
    }

    assert long == {}


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        f"{path}:{name}"
        for path, module in modules(*SHIPPED).items()
        for name in module.undocumented
    ]

    assert silent == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path
        for path, module in modules(*SHIPPED).items()
        if not path.endswith("__init__.py") and not module.docstring.startswith("This module ")
    ]

    assert silent == []


def test_no_module_is_named_for_nothing() -> None:
    named = [path for path in modules(*EVERYTHING) if PurePath(path).stem in NAMED_FOR_NOTHING]

    assert named == []


def test_fakes_are_written_never_patched_in() -> None:
    patching = [
        path
        for path, module in modules("tests").items()
        if any(
            name.startswith(("unittest.mock", "mock", "pytest_mock")) for name in module.imports
        )
    ]

    assert patching == []
