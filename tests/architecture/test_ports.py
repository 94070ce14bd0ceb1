"""Each port has a contract suite, and a written fake if tests of other rooms need one."""

import ast
import re

from tests.architecture.source import modules
from tests.rigs.process import ROOT

WITHOUT_FAKE = {
    *("Adopter", "Console", "ConsoleReader", "ImageBuilder", "MemberReader", "PoolExecutor"),
    "RuleReader",
}
WITHOUT_SUITE = {"Clock", "Console", "PoolExecutor"}


def ports() -> set[str]:
    return {
        name
        for module in map(
            modules("fleet").__getitem__, ("fleet/ports.py", "fleet/images/records.py")
        )
        for name, bases in module.classes.items()
        if "Protocol" in bases
    }


def fakes() -> set[str]:
    return {
        name.removeprefix("Fake").removeprefix("Fixed")
        for module in modules("tests/fakes").values()
        for name in module.classes
    }


def suites() -> set[str]:
    """Return the words of the first lines of contract suites: the ports that each is of."""
    paths = (ROOT / "tests" / "ports").glob("test_*.py")
    texts = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in paths)
    return {word for text in texts for word in re.findall(r"\w+", text.partition("\n")[0])}


def test_ports_have_a_written_fake() -> None:
    assert ports() - fakes() == WITHOUT_FAKE


def test_every_port_has_a_contract_suite() -> None:
    assert ports() - suites() == WITHOUT_SUITE
