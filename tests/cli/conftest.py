"""What the tests of the verbs share: a trial fleet."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.state.processes import Invocation, run
from tests.rigs.clocked import Clocked, moved_clock
from tests.rigs.stories import begin_idle
from tests.rigs.trial import Trial


@pytest.fixture
def trial(project: Path) -> Trial:
    """Return a trial fleet with a store, where nothing exists and nothing waits."""
    trial = Trial(project)
    trial.init()
    return trial


@pytest.fixture
def idle(trial: Trial) -> Trial:
    """Return a fleet with two idle machines, which nothing that waits needs."""
    return trial.begun(begin_idle)


@pytest.fixture
def project_trial(project: Path) -> Trial:
    """Return a trial fleet without a store."""
    return Trial(project)


@pytest.fixture
def story(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Clocked]:
    """Yield the `Story` of the module in an empty folder, at a clock that a test moves."""
    monkeypatch.chdir(tmp_path)
    with moved_clock() as clock:
        yield getattr(request.module, "Story", Clocked)(clock, capsys)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a command that hangs after a quarter of the second that its fleet.yaml gives it."""

    def run_shortly(call: Invocation) -> str:
        return run(dataclasses.replace(call, timeout=0.25) if call.timeout == 1 else call)

    monkeypatch.setattr("fleet.clouds.hooks.machines.run", run_shortly)
