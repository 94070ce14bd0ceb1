"""The wheel of this checkout, built once, and environments with it."""

from pathlib import Path

import pytest

from tests.rigs.installed import Installed, build_wheel, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment that can change simulated machines."""
    return install(wheel, tmp_path_factory.mktemp("installed"), ("pulumi",))


@pytest.fixture(scope="session")
def minimal(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment without any extra."""
    return install(wheel, tmp_path_factory.mktemp("minimal"))
