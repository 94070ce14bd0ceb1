"""The samples that runs of `fleet apply` store, for the status pages."""

from datetime import datetime

from fleet.model.history import MomentFigures, RunSample
from fleet.model.values import in_utc
from tests.rigs.trial import Trial, fleet_yaml

EPOCH, END = (in_utc(datetime.fromisoformat(f"{year}-01-01T00:00Z")) for year in (2000, 2199))
CCX33 = 77_700_000


def samples_of(trial: Trial) -> tuple[RunSample, ...]:
    return trial.store().samples(EPOCH, END)


def test_samples_have_state_before_and_after_creations(trial: Trial) -> None:
    trial.write(fleet_yaml(desk="boot: 1h"))
    trial.wait_for("1", big=["2"])

    trial.apply()
    trial.apply()

    empty = MomentFigures(busy=0, idle=0, starting=0, other=0, waiting=1, nanos=0)
    before, after, later = samples_of(trial)
    assert before.pools == {"big": empty._replace(waiting=2), "builders": empty}
    assert before.fleet == empty._replace(waiting=2)
    assert after.pools["builders"] == empty._replace(starting=1, nanos=CCX33)
    assert after.fleet.starting == 2
    assert (later.pools, later.fleet) == (after.pools, after.fleet)
    assert before.at < after.at < later.at
