"""`fleet plan --base` of a change that renames a pool which has machines."""

import json

from tests.rigs.process import RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml


def test_comparison_is_empty_when_pool_is_only_renamed(trial: Trial, run_fleet: RunFleet) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.wait_for("1")
    trial.apply()
    (trial.folder / "base.yaml").write_text((trial.folder / "fleet.yaml").read_text())
    trial.write(fleet_yaml(pools={"makers": BUILDERS.replace("{", "{previously: builders, ", 1)}))

    planned = run_fleet("plan", "--base", "base.yaml")
    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]

    assert (planned.returncode, planned.stderr) == (0, "")
    assert [change["verdict"][what] for what in ("create", "drain", "delete")] == [0, 0, 0]
    assert (change["rest_after"], change["cost_after"]) == (
        change["rest_before"],
        change["cost_before"],
    )
    assert "  pool makers\n    * name builders -> makers\n" in planned.stdout
