"""A run of another container that is killed in the middle holds nobody up."""

import signal
import sys
from pathlib import Path

import psycopg
import pytest

from fleet.state.store import Store
from tests.ports.stores import postgres_url
from tests.rigs.hook_machines import HOOKS, write_hooks
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

__all__ = ["postgres_url"]

BOX = "machine: {cores: 4, memory: 8GiB, price: 0.40 EUR/h}"
STRIKE = """
import os, signal, psycopg
if not os.path.exists("struck"):
    open("struck", "w").close()
    with psycopg.connect({url!r}, autocommit=True) as connection:
        pid = connection.execute("SELECT owner FROM fleet_lock").fetchone()[0].rpartition(":")[2]
        connection.execute("UPDATE fleet_lock SET owner = 'ci@runner-3/5d41402a:4711'")
        os.kill(int(pid), signal.SIGKILL)
"""


@pytest.fixture
def url(postgres_url: str) -> str:
    """Return the URL of an empty schema."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS trial CASCADE; CREATE SCHEMA trial")
    return f"{postgres_url}&options=-csearch_path%3Dtrial"


@pytest.fixture
def begun(project: Path, url: str) -> Trial:
    """Return a fleet whose store is in PostgreSQL; what makes its first machine strikes first."""
    trial = Trial(project)
    (trial.folder / "strike.py").write_text(STRIKE.format(url=url))
    write_hooks(trial.folder)
    new = trial.folder / "new.sh"
    new.write_text(f"{sys.executable} strike.py || exit 1\n{new.read_text()}")
    commands = ", ".join(f"{name}: [sh, {name}.sh]" for name in HOOKS)
    text = fleet_yaml(
        pools={"builders": f"{{provider: desk, {BOX}, image: trixie, workers: {{max: 4}}}}"},
        more=f"state: {{store: '{url}'}}",
    )
    trial.write(text.replace("desk: {kind: sim, boot: 1s}", f"desk: {{kind: hooks, {commands}}}"))
    trial.init()
    trial.wait_for("r1")
    return trial


@pytest.mark.slow
def test_apply_continues_after_killed_apply_of_another_container(
    begun: Trial, url: str, fork_fleet: RunFleet
) -> None:
    killed = fork_fleet("apply")
    after = fork_fleet("apply")

    assert killed.returncode == -signal.SIGKILL
    assert (after.returncode, "ci@runner-3/5d41402a:4711" in after.stderr) == (0, True)
    assert Store(url, "trial").lock_holder() is None
    assert len(begun.recorded()) == 1
