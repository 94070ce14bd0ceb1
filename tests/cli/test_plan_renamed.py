"""`fleet plan --base` of a change that renames a pool which has machines."""

from tests.rigs.process import RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml


def test_a_pool_that_is_only_renamed_makes_no_difference(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.wait_for("1")
    trial.apply()
    (trial.folder / "base.yaml").write_text((trial.folder / "fleet.yaml").read_text())
    trial.write(fleet_yaml(pools={"makers": BUILDERS.replace("{", "{previously: builders, ", 1)}))

    planned = run_fleet("plan", "--base", "base.yaml")

    assert (planned.returncode, planned.stderr) == (0, "")
    assert "  when nothing waits: no difference (0.00 EUR/h)\n" in planned.stdout
    assert "  pool makers\n    * name builders -> makers\n" in planned.stdout
