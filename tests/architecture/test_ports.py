"""Every port has a written fake and a contract suite that runs over fake and real part."""

from tests.architecture.source import modules
from tests.rigs.process import ROOT

# What is missing today; whoever writes one takes it out here.
WITHOUT_FAKE = {"Console", "ConsoleReader", "PoolExecutor"}
WITHOUT_SUITE = {"Clock", "Console", "PoolExecutor"}


def ports() -> set[str]:
    return {
        name
        for module in [modules("fleet")["fleet/ports.py"]]
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
    found = (ROOT / "tests" / "ports").glob("test_*.py")
    return {path.stem.removeprefix("test_").title().replace("_", "") for path in found}


def test_every_port_has_a_written_fake() -> None:
    assert ports() - fakes() == WITHOUT_FAKE


def test_every_port_has_a_contract_suite() -> None:
    assert ports() - suites() == WITHOUT_SUITE
