"""A machine that starts for a request which a lower limit then stops."""

from pathlib import Path

import pytest

from fleet.words import lives
from tests.rigs.trial import Trial, fleet_yaml

POOL = (
    "{{provider: desk, machine: ccx63, image: trixie, provides: [big], workers: {{max: 4}}{more}}}"
)


@pytest.mark.parametrize(
    ("more", "waiting", "because"),
    [
        (", budget: {per_day: 0.01 EUR}", ["1"], lives.REQUESTS_STOPPED),
        ("", [], lives.UNNEEDED_BOOT),
    ],
)
def test_deletion_of_starting_machine_names_limit_or_withdrawal(
    project: Path, more: str, waiting: list[str], because: str
) -> None:
    trial = Trial(project)
    trial.write(fleet_yaml(pools={"big": POOL.format(more="")}, desk="boot: 1h"))
    trial.init()
    trial.wait_for(big=["1"])
    trial.apply()
    trial.write(fleet_yaml(pools={"big": POOL.format(more=more)}, desk="boot: 1h"))
    trial.wait_for(big=waiting)

    (action,) = trial.plan()["actions"]

    assert (action["action"], action["reason"]) == ("delete", "not-wanted")
    assert because in action["because"]
