"""A static machine whose creation was interrupted stops its pool until it is forgotten."""

import sqlite3
from contextlib import closing

from tests.rigs.trial import BUILDERS, ONE, TWO, Trial, fleet_yaml


def test_pool_changes_again_when_static_machine_is_forgotten(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS, "legacy": "{static: [other]}"}))
    trial.wait_for("1", "2")
    trial.apply()
    with closing(sqlite3.connect(trial.folder / ".fleet/embedded.db")) as engine, engine:
        engine.execute(
            "update embedded_resources set state='making', id=null where name=?", (ONE,)
        )
    trial.change("[other]", f"[{ONE}]")
    trial.wait_for("1", "2", "3")

    code, refused = trial.do("apply")

    assert (code, trial.machines()) == (4, [ONE, TWO])
    assert f"would create {ONE}" in refused
    assert f"fleet machine forget {ONE}" in " ".join(refused.split())
    assert "nothing else changed" in trial.told("machine", "forget", ONE)
    assert trial.apply()
    assert len(trial.machines()) == 4
    assert {ONE, TWO} <= {*trial.machines()}
