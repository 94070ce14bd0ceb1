"""`state.store` and `state.backend` in a form that no store has: an error with its place."""

from pathlib import Path

import pytest

from tests.rigs.process import RunFleet
from tests.rigs.trial import fleet_yaml


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ("{backend: 'file://~/x'}", "x/store.db"),
        ("{store: 'sqlite:///~/y.db'}", "y.db"),
        ("{images: ~/z, store: 'sqlite:///~/y.db'}", "y.db"),
    ],
)
def test_state_is_below_home_when_its_path_begins_with_a_tilde(
    run_fleet: RunFleet, project: Path, tmp_path: Path, state: str, place: str
) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=f"state: {state}"))
    ran = run_fleet("state", "init")

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "home" / place).is_file()
    assert not (project / "~").exists()
