"""At night, one screen names each stopped pool, image and machine, and the command that helps."""

import json
import re

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BIG, BUILDERS, Trial, fleet_yaml

RARE = "{cores: 8, memory: 32GiB, disk: 200GiB, price: 0.10 EUR/h, stock: 0}"
DESK = f"boot: 1s, types: {{rare: {RARE}}}, faults: {{never_boots: [ccx33]}}"
ON_FAILURE = "boot: {on_failure: {hold: 1, log: 50}}"
POOLS = {
    "builders": BUILDERS.replace("workers:", f"{ON_FAILURE}, workers:"),
    "rare": BIG.replace("ccx63", "rare"),
    "stopped": BIG.replace("[big]", "[other]"),
}


def begin_night(trial: Trial) -> None:
    """Have every boot of builders fail, rare be out of stock, and a person freeze stopped."""
    trial.write(fleet_yaml(pools=POOLS, desk=DESK))
    trial.wait_for("1", "2", "3", big=["4"])
    trial.do("apply")
    trial.age(hours=1)
    trial.do("apply")
    trial.told("freeze", "--pool", "stopped", "--for", "2h", "--reason", "rack moves")


@pytest.fixture
def night(trial: Trial) -> Trial:
    return trial.begun(begin_night)


@pytest.mark.usefixtures("night")
def test_status_names_each_stop_its_next_try_and_a_command(run_fleet: RunFleet) -> None:
    shown = " ".join(run_fleet("status").stdout.split())
    assert "token is revoked" not in shown

    about = shown.partition("POOL")[0]
    assert re.search(r"pool rare: creates no machines: \S.* retried from \d{4}-", about)
    assert re.search(r"pool builders: image trixie .* retried from \d{4}-", about)
    for command in (
        "fleet explain pool rare",
        "fleet freeze --pool stopped --end",
        "fleet machine console trial-builders-0001",
    ):
        assert f"`{command}`" in about
    assert (about.count("pool builders: "), about.count("pool rare: ")) == (1, 1)


def test_doctor_never_advises_to_end_an_order_of_a_user(night: Trial) -> None:
    night.told("hold", "trial-builders-0001", "--for", "4h", "--reason", "look at disk")

    found = json.loads(night.do("doctor", "--json")[1])

    (held,) = (each for each in found["findings"] if "trial-builders-0001" in each["about"])
    assert tells(held["said"], "ends by itself", "ask")
    assert not [each["do"] for each in found["next_steps"] if "--end" in each["do"]]


@pytest.fixture
def full(trial: Trial) -> Trial:
    """Return a fleet whose only machine that provides big is reserved for another request."""
    pools = {"big": BIG.replace("ccx63", "rare"), "steady": BUILDERS.replace("max: 4", "max: 1")}
    trial.write(fleet_yaml(pools=pools, desk=DESK.replace("stock: 0", "stock: 1")))
    trial.wait_for(big=["first"])
    trial.do("apply")
    trial.age(minutes=3)
    trial.queue(
        {"id": "last", "required": ["big"]}, *({"id": each, "priority": 5} for each in ("1", "2"))
    )
    trial.do("apply")
    return trial


def test_explained_request_names_next_try_and_reason_of_an_edit(full: Trial) -> None:
    steps = " ".join(full.told("explain", "request", "last").split()).partition("change it:")[2]

    assert "the first `fleet apply` after" in steps
    assert tells(steps, "pools.steady.workers.max", "move to pool steady", "frees a machine")
