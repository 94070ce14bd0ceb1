"""The shape of the source: everything public documented, names that say something."""

import configparser
import re
from pathlib import PurePath

from tests.architecture.source import files, modules
from tests.rigs.process import ROOT

EVERYTHING = ("fleet", "stacks", "bench", "tools", "tests")
SHIPPED = ("fleet", "stacks", "bench", "tools")
NAMED_FOR_NOTHING = {"utils", "util", "helpers", "common", "manager", "misc"}


def test_public_names_have_docstrings() -> None:
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


def test_module_names_describe_their_content() -> None:
    named = [path for path in files(*EVERYTHING) if PurePath(path).stem in NAMED_FOR_NOTHING]

    assert named == []


def test_fakes_are_classes_and_no_patches() -> None:
    imported = re.compile(
        r"^ *(from|import) (unittest\.mock|unittest import mock|mock|pytest_mock)\b", re.MULTILINE
    )
    patching = [
        name
        for name, path in files("tests").items()
        if imported.search(path.read_text(encoding="utf-8"))
    ]

    assert patching == []


def test_private_parts_of_libraries_are_not_imported() -> None:
    private = [
        f"{path}: {name}"
        for path, module in modules("fleet", "stacks").items()
        for name in sorted(module.imports)
        if not name.startswith("fleet") and "._" in name
    ]

    assert private == []


def test_core_modules_use_no_clock_and_no_file() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    rooms = contracts["importlinter:contract:pure"]["source_modules"].split()
    called = re.compile(r"\b(date|datetime)\.(now|today|utcnow)\(|(?<!def )(?<![\w.])open\(")
    calling = [
        name
        for name, path in files("fleet").items()
        if any(f"{name.removesuffix('.py').replace('/', '.')}.".startswith(f"{r}.") for r in rooms)
        and called.search(path.read_text(encoding="utf-8"))
    ]

    assert len(rooms) > 1
    assert calling == []
