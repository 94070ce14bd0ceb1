"""What the real engine writes: its state and its settings, and no secret in the clear."""

import json
import socket
from pathlib import Path

import pytest

from fleet.clouds.sim.machines import Menu
from fleet.engines.pulumi import PulumiEngine
from fleet.errors import StackFailed
from fleet.model.user_data import write_user_data
from fleet.ports import StackStep
from tests.ports.engines import REF, PulumiRig, a_sim_worker, quiet, skip_without_cli

pytestmark = pytest.mark.engine

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")
SETTINGS = f"home/work/fleet-sim/Pulumi.{REF.name}.yaml"
STATE = "state/.pulumi"


@pytest.fixture
def rig(tmp_path: Path) -> PulumiRig:
    skip_without_cli()
    return PulumiRig(tmp_path)


def write_lock(rig: PulumiRig, name: str, text: str) -> None:
    folder = rig.folder / STATE / f"locks/organization/fleet-sim/{REF.name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_failure_message_hides_user_data(rig: PulumiRig) -> None:
    rig.cloud.configure(Menu(boot=0, types={"ccx33": 0}))

    with pytest.raises(StackFailed) as caught:
        rig.engine.up(REF, [ONE], quiet, {ONE.name: "one resource_unavailable: two"})

    assert "resource_unavailable" not in str(caught.value)
    assert "***" in str(caught.value)


def test_wrong_passphrase_has_short_message(rig: PulumiRig) -> None:
    rig.engine.up(REF, [ONE], quiet)
    wrong = PulumiEngine(
        f"file://{rig.folder}/state", rig.folder / "home", lambda: "another", rig.accounts
    )

    with pytest.raises(StackFailed, match="incorrect passphrase") as caught:
        wrong.up(REF, [ONE, TWO], quiet)

    assert len(str(caught.value)) < 400
    assert rig.machines() == [ONE.name]


def test_stack_survives_loss_of_engine_folder(rig: PulumiRig) -> None:
    rig.engine.up(REF, [ONE], quiet)
    (rig.folder / "home").rename(rig.folder / "lost")

    steps = rig.engine.up(REF, [ONE, TWO], quiet)

    assert steps == (StackStep(worker=TWO.name, operation="create"),)
    assert rig.machines() == [ONE.name, TWO.name]


def test_up_succeeds_with_attribute_files_truncated_by_a_kill(rig: PulumiRig) -> None:
    rig.engine.up(REF, [ONE], quiet)
    notes = [
        f"{STATE}/{name}.attrs" for name in ("meta.yaml", f"stacks/fleet-sim/{REF.name}.json")
    ]
    for each in (SETTINGS, *notes):
        (rig.folder / each).write_bytes(b"")

    steps = rig.engine.up(REF, [ONE, TWO], quiet)

    assert steps == (StackStep(worker=TWO.name, operation="create"),)


def test_files_are_for_pulumi_by_hand_and_contain_no_secret(
    rig: PulumiRig, capfd: pytest.CaptureFixture[str]
) -> None:
    token = "a-planted-token-for-tests" * 2
    text = write_user_data("https://debusine.example.org", token)
    told: list[StackStep] = []

    rig.engine.up(REF, [ONE], told.append, {ONE.name: text})
    rig.engine.up(REF, [ONE, TWO], told.append, {TWO.name: text})
    both = (rig.folder / SETTINGS).read_text()
    rig.engine.forget(REF, ONE.name)

    files = [path for path in rig.folder.rglob("*") if path.is_file()]
    for secret in (token, "a passphrase for tests"):
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert token not in f"{told} {capfd.readouterr()}"
    assert not [path for path in files if path.suffix == ".attrs"]
    after = (rig.folder / SETTINGS).read_text()
    assert [name in both for name in (ONE.name, TWO.name)] == [True, True]
    assert [name in after for name in (ONE.name, TWO.name)] == [False, True]
    assert list((rig.folder / "home").glob("*.json")) == []


def test_locks_of_killed_runs_do_not_block_later_ones(rig: PulumiRig) -> None:
    no_process = 2**22 + 1
    write_lock(rig, "1.json", json.dumps({"pid": no_process, "hostname": socket.gethostname()}))
    write_lock(rig, "2.json.18ea4e.tmp", "")
    rig.engine.up(REF, [ONE], quiet)
    write_lock(rig, "3.json.18ea4e.tmp", "")

    rig.engine.up(REF, [ONE, TWO], quiet)

    assert rig.machines() == [ONE.name, TWO.name]
