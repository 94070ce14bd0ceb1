"""The shape of the source: everything public documented, names that say something."""

from pathlib import PurePath

from tests.architecture.source import modules

EVERYTHING = ("fleet", "stacks", "bench", "tools", "tests")
SHIPPED = ("fleet", "stacks", "bench", "tools")
LONGEST_TEST_NAME = 80
NAMED_FOR_NOTHING = {"utils", "util", "helpers", "common", "manager", "misc"}


def test_names_of_tests_fit_eighty_columns() -> None:
    long = [
        f"{path}:{name}"
        for path, module in modules("tests").items()
        for name in module.functions
        if name.startswith("test_") and len(f"def {name}") > LONGEST_TEST_NAME
    ]

    assert long == []


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        f"{path}:{name}"
        for path, module in modules(*SHIPPED).items()
        for name in module.undocumented
    ]

    assert silent == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        path
        for path, module in modules(*SHIPPED).items()
        if not path.endswith("__init__.py") and not module.docstring
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


def test_no_private_part_of_a_library_is_imported() -> None:
    private = [
        f"{path}: {name}"
        for path, module in modules("fleet", "stacks").items()
        for name in sorted(module.imports)
        if not name.startswith("fleet") and "._" in name
    ]

    assert private == []
