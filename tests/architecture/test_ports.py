"""Every port has a written fake and a contract suite that runs over fake and real part."""

import ast

from tests.architecture.source import modules
from tests.process import ROOT

# What is missing today; whoever writes one takes it out here.
WITHOUT_FAKE = {"Console", "Secrets"}
WITHOUT_SUITE = {"Clock", "Console"}


def ports() -> set[str]:
    trees = modules("fleet")
    return {
        node.name
        for path in ("fleet/ports.py", "fleet/image_ports.py")
        for node in trees[path].body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    }


def fakes() -> set[str]:
    return {
        node.name.removeprefix("Fake").removeprefix("Fixed")
        for path, tree in modules("tests").items()
        if path.startswith("tests/fake")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def suites() -> set[str]:
    found = (ROOT / "tests" / "ports").glob("test_*.py")
    return {path.stem.removeprefix("test_").title().replace("_", "") for path in found}


def test_every_port_has_a_written_fake() -> None:
    assert ports() - fakes() <= WITHOUT_FAKE


def test_every_port_has_a_contract_suite() -> None:
    assert ports() - suites() <= WITHOUT_SUITE
