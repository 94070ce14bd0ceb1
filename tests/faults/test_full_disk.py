"""A full disk of fleet's own computer ends a run; it is no failed creation of a pool."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from fleet.clouds.hooks import memory
from fleet.engines.embedded import Records
from fleet.errors import StoreFailed
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

TROUBLES = {
    "disk full": errno.ENOSPC,
    "quota used up": errno.EDQUOT,
    "read-only": errno.EROFS,
    "not permitted": errno.EACCES,
    "broken disk": errno.EIO,
}
MACHINE = "{cores: 4, memory: 8GiB, price: 0.40 EUR/h}"
OWN = f"{{provider: own, machine: {MACHINE}, image: trixie, workers: {{max: 2}}}}"
COMMANDS = """\
providers:
  own: {kind: hooks, interface: resalloc, new: ["true"], delete: ["true"], list: ["true"]}
"""


def failing(number: int) -> Callable[..., None]:
    """Return a function that fails as a write to the disk does."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/srv/kept")

    return fail


def results(trial: Trial) -> set[str]:
    """Return the results of the recorded attempts to create machines."""
    with closing(sqlite3.connect(trial.folder / ".fleet/store.db")) as connection:
        return {row[0] for row in connection.execute("SELECT result FROM fleet_attempts")}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_creation_has_failed_when_notes_of_own_commands_fail(
    trial: Trial, run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    text = fleet_yaml(pools={"big": OWN}).replace("providers:\n", COMMANDS)
    trial.write(text)
    trial.wait_for("1", "2")
    monkeypatch.setattr(memory, "replace_file", failing(TROUBLES[trouble]))

    done = run_fleet("apply", cwd=trial.folder)

    assert done.returncode == 1, done
    assert results(trial) == {"gone"}, done


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_creation_has_failed_when_the_engine_cannot_record_it(
    trial: Trial, run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    trial.wait_for("1", "2")

    def put(*_: object) -> None:
        raise StoreFailed(f"/srv/embedded.db: {os.strerror(TROUBLES[trouble])}")

    monkeypatch.setattr(Records, "put", put)

    done = run_fleet("apply", cwd=trial.folder)

    assert done.returncode == 1, done
    assert results(trial) == {"gone"}, done
