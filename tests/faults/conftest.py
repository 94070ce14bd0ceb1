"""What the tests of faults share: trial fleets."""

import os
from pathlib import Path

import pytest

from tests.faults.cloud_trial import Beginning, begin
from tests.faults.clouds import Aws, Hetzner
from tests.ports.engines import skip_without_cli
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial fleet with a store, where nothing exists and nothing waits."""
    trial = Trial(project)
    trial.init()
    return trial


@pytest.fixture(scope="session")
def at_hetzner(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: str, warm: Warm
) -> Beginning[Hetzner]:
    """Return what every trial begins with: a busy worker, and two requests that wait."""
    if not os.environ.get("FLEET_PULUMI_PLUGINS"):
        pytest.skip("FLEET_PULUMI_PLUGINS is not set; `nox -s engine` sets it")
    skip_without_cli()
    folder = tmp_path_factory.mktemp("hetzner") / "at_hetzner"
    return begin(Hetzner, folder, postgres_server, warm)


@pytest.fixture(scope="session")
def at_aws(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: str, warm: Warm
) -> Beginning[Aws]:
    """Return the same at AWS."""
    skip_without_cli()
    return begin(Aws, tmp_path_factory.mktemp("aws") / "at_aws", postgres_server, warm)
