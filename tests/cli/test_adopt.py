"""`fleet adopt`: machines that exist become a pool's, and nothing of them changes but labels."""

import pytest

from fleet.clouds.sim.machines import menu_of
from fleet.model.facts import WorkerInputs
from fleet.schema.load import load
from fleet.state.files import LocalFiles
from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial

NAME = "builder-01"
ARGS = ("adopt", "--select", "rack=a", "--pool", "builders")


@pytest.fixture
def racked(trial: Trial) -> Trial:
    """Return a fleet beside whose machines there is one that nobody owns."""
    fleet = load(str(trial.folder / "fleet.yaml"), LocalFiles()).fleet
    assert fleet is not None
    trial.cloud.configure(menu_of(fleet, "desk").altered(boot=0))
    made = {"type": "ccx33", "image": "trixie", "labels": {"rack": "a"}}
    trial.cloud.create(WorkerInputs.model_validate({"name": NAME, **made}))
    return trial


def touched(trial: Trial) -> dict[str, bytes]:
    """Return the cloud and the stacks as they are."""
    places = (trial.folder / ".fleet").glob("*.*")
    return {p.name: p.read_bytes() for p in places if p.name in ("sim-desk.json", "embedded.db")}


def test_adopt_dry_run_lists_machines_without_changes(racked: Trial, run_fleet: RunFleet) -> None:
    before = racked.files()

    shown = run_fleet(*ARGS, "--dry-run")

    assert (shown.returncode, shown.stderr) == (0, "")
    head, machine, then = shown.stdout.splitlines()
    assert tells(head, "1 machine", "desk", "pool builders")
    assert tells(machine, "+ adopt", NAME, "ccx33", "trixie", "sim-1")
    assert tells(then, "keep", "retire.idle_after", "10m", "[idle-recently]")
    assert racked.files() == before


def test_adopted_machine_is_unchanged_by_next_apply(racked: Trial) -> None:
    code, said = racked.do(*ARGS)
    racked.wait_for("1")
    applied, then = racked.do("apply")

    assert (code, applied) == (0, 0)
    assert tells(said, "Adopted 1 machine", "pool builders")
    assert tells(then, "unchanged", "big", "builders")
    assert racked.machines() == [NAME]


def test_adopting_again_changes_nothing(racked: Trial) -> None:
    racked.do(*ARGS)
    before = touched(racked)

    said = racked.told(*ARGS)

    assert tells(said, "builder-01")
    assert touched(racked) == before


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--select", "rack=b", "--pool", "builders"), 4, "rack=b"),
        (("--select", "rack=a", "--pool", "nope"), 4, "pool nope"),
        (("--select", "rack=a", "--pool", "big"), 4, "add --outdated"),
    ],
)
def test_adopt_is_refused_without_changes_when_impossible(
    racked: Trial, args: tuple[str, ...], code: int, says: str
) -> None:
    before = touched(racked)

    refused, said = racked.do("adopt", *args)

    assert refused == code
    assert says in said
    assert touched(racked) == before
