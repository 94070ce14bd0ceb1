"""What the tests of the verbs share: a trial fleet."""

from pathlib import Path

import pytest

from tests.rigs.trial import Trial


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial fleet with a store, where nothing exists and nothing waits."""
    trial = Trial(project)
    trial.init()
    return trial


@pytest.fixture
def project_trial(project: Path) -> Trial:
    """Return a trial fleet without a store."""
    return Trial(project)
