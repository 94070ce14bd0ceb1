"""The wheel of this checkout, built once, and environments with it."""

import os
from pathlib import Path

import pytest

from tests.rigs.installed import Installed, build_wheel, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of FLEET_WHEEL, which a release tests, else one that is built now."""
    built = os.environ.get("FLEET_WHEEL")
    return Path(built) if built else build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment that can change simulated machines."""
    return install(wheel, tmp_path_factory.mktemp("installed"), ("pulumi",))


@pytest.fixture(scope="session")
def minimal(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment without any extra."""
    return install(wheel, tmp_path_factory.mktemp("minimal"))
