"""What only the real engine does: its CLI, its passphrase, its locks, its own folder."""

import json
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.clouds.sim.machines import SimCloud
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiEngine
from fleet.errors import EngineAbsent, Locked, PlanRefused, SecretMissing, StackFailed
from fleet.model.facts import Listing, Unknown, WorkerInputs
from fleet.ports import StackStep
from tests.builders import NOW
from tests.fakes.engine import FixedClock
from tests.ports.engines import (
    REF,
    PulumiRig,
    a_sim_worker,
    family_of,
    quiet,
    read,
    skip_without_cli,
)

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")
CHECKPOINT = f"state/.pulumi/stacks/fleet-sim/{REF.name}.json"
LOCKS = f"state/.pulumi/locks/organization/fleet-sim/{REF.name}"


@pytest.fixture
def rig(tmp_path: Path) -> PulumiRig:
    return PulumiRig(tmp_path)


@pytest.fixture
def real(rig: PulumiRig) -> PulumiRig:
    skip_without_cli()
    return rig


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.engine
def test_prepared_change_has_no_effect_when_cli_is_killed(real: PulumiRig) -> None:
    real.engine.up(REF, [ONE], quiet)

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
        failure = child.submit(kill_the_cli_of_a_held_change, real.folder).result()

    assert failure == ((), {})
    assert real.machines() == [ONE.name]


@pytest.mark.engine
def test_leftovers_of_earlier_run_are_removed_only_by_a_change(
    real: PulumiRig,
) -> None:
    real.engine.up(REF, [ONE], quiet)
    real.die_making(TWO.name, [ONE, TWO])
    interrupted = (real.folder / CHECKPOINT).read_bytes()

    with real.engine.prepare(REF, [ONE, TWO]) as change:
        left = (real.folder / CHECKPOINT).read_bytes()
        done = change.make(quiet, {TWO.name: ""})

    assert left == interrupted
    assert done == change.steps == (StackStep(worker=TWO.name, operation="create"),)
    assert real.machines() == [ONE.name, TWO.name]


def test_forget_is_refused_while_a_killed_run_is_unfinished(rig: PulumiRig) -> None:
    write(rig.folder / CHECKPOINT, a_checkpoint(ONE, TWO))
    begin_deletion(rig.folder / CHECKPOINT, TWO.name)

    with pytest.raises(PlanRefused, match=f"{REF.name}.*`fleet apply`"):
        rig.engine.forget(REF, ONE.name)

    assert sorted(read(rig.engine).ids) == [ONE.name, TWO.name]


@pytest.mark.engine
def test_failure_quotes_provider_and_is_not_logged(
    real: PulumiRig, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    real.refuse(ONE.name)

    with pytest.raises(StackFailed, match="uniqueness_error") as caught:
        real.engine.up(REF, [ONE], quiet)

    assert "Traceback" not in str(caught.value)
    assert "<class" not in str(caught.value)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.engine
@pytest.mark.parametrize(
    ("deleted", "steps"), [(False, (StackStep(worker=TWO.name, operation="delete"),)), (True, ())]
)
def test_killed_deletion_is_finished_by_next_run(
    real: PulumiRig,
    deleted: bool,  # noqa: FBT001 - pytest passes it by name
    steps: tuple[StackStep, ...],
) -> None:
    real.engine.up(REF, [ONE, TWO], quiet)
    begin_deletion(real.folder / CHECKPOINT, TWO.name)
    if deleted:
        real.cloud.delete(read_ids(real)[TWO.name])
    interrupted = read(real.engine)

    preview = real.engine.preview(REF, interrupted.workers)
    done = real.engine.up(REF, interrupted.workers, quiet)

    assert (interrupted.interrupted, interrupted.workers) == (True, (ONE,))
    assert preview == done == steps
    assert real.machines() == [ONE.name]
    assert read(real.engine).workers == (ONE,)
    assert not read(real.engine).interrupted


@pytest.mark.engine
def test_machine_absent_from_one_listing_is_deleted(
    real: PulumiRig,
) -> None:
    real.engine.up(REF, [ONE, TWO], quiet)
    begin_deletion(real.folder / CHECKPOINT, TWO.name)
    cloud = Forgetful(real.cloud.path, FixedClock(NOW))
    settings = {"sim:path": str(cloud.path)}
    real.accounts = {"desk": ProviderAccount(cloud, settings)}

    steps = real.new_engine().up(REF, [ONE], quiet)

    assert steps == (StackStep(worker=TWO.name, operation="delete"),)
    assert real.machines() == [ONE.name]


class Forgetful(SimCloud):
    """A simulated cloud whose first listing is empty."""

    asked = False

    def list(self, fleet: str) -> Listing | Unknown:
        listing = super().list(fleet)
        if self.asked or isinstance(listing, Unknown):
            return listing
        self.asked = True
        return listing.altered(machines=())


def a_checkpoint(*workers: WorkerInputs) -> str:
    """Return what a file backend holds of a stack with these workers."""
    resources = [
        {
            "urn": f"urn:pulumi:{REF.name}::fleet-sim::sim:index:Machine::{each.name}",
            "type": "sim:index:Machine",
            "id": f"sim-{each.name}",
            "inputs": each.model_dump(mode="json"),
        }
        for each in workers
    ]
    return json.dumps({"checkpoint": {"latest": {"resources": resources}}})


def begin_deletion(path: Path, worker: str) -> None:
    """Write what a run leaves behind that was killed while it deleted this worker."""
    checkpoint = json.loads(path.read_text())
    latest = checkpoint["checkpoint"]["latest"]
    (resource,) = (each for each in latest["resources"] if each["urn"].endswith(f"::{worker}"))
    latest["pending_operations"] = [{"resource": resource, "type": "deleting"}]
    path.write_text(json.dumps(checkpoint))


def kill_the_cli_of_a_held_change(folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return what is said to be done and failed; a process of its own has no other CLI."""
    with PulumiRig(folder).engine.prepare(REF, [TWO]) as change:
        assert [step.operation for step in change.steps] == ["delete", "create"]
        for process in family_of(os.getpid())[1:]:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended by itself
                command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]
                if Path(command.decode()).name == "pulumi":
                    os.kill(process, signal.SIGKILL)
                    while Path(f"/proc/{process}").exists():
                        threading.Event().wait(0.05)
        try:
            change.make(quiet, {})
        except StackFailed as failure:
            return failure.done, failure.failed
    pytest.fail("what was killed cannot be made")


def read_ids(rig: PulumiRig) -> dict[str, str]:
    listing = rig.cloud.list("debian")
    assert isinstance(listing, Listing)
    return {machine.name: machine.id for machine in listing.machines}


def test_only_changes_need_a_cli_and_a_passphrase(
    rig: PulumiRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(rig.folder / "no-cache"))
    monkeypatch.delenv("FLEET_PULUMI", raising=False)

    assert rig.engine.preview(REF, [ONE]) == (StackStep(worker=ONE.name, operation="create"),)
    with pytest.raises(EngineAbsent, match=r"tools/pulumi_cli.py"):
        rig.engine.up(REF, [ONE], quiet)
    engine = PulumiEngine(f"file://{rig.folder}/state", rig.folder, None, rig.accounts)
    with pytest.raises(SecretMissing, match="passphrase"):
        engine.up(REF, [ONE], quiet)


def test_impossible_inputs_are_refused_without_cli(rig: PulumiRig) -> None:
    with pytest.raises(PlanRefused, match=f"{REF.name}.*'attic'"):
        rig.engine.preview(REF.altered(provider="attic"), [ONE])
    with pytest.raises(PlanRefused, match=r"workers\[0\].labels"):
        rig.engine.preview(REF, [a_sim_worker("x", labels={})])

    write(rig.folder / CHECKPOINT, "{")
    assert isinstance(rig.engine.read(REF), Unknown)


def test_stack_locked_by_another_run_is_not_changed(rig: PulumiRig) -> None:
    write(rig.folder / CHECKPOINT, a_checkpoint(ONE))
    lock = {
        "pid": os.getpid(),
        "username": "ana",
        "hostname": socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    write(rig.folder / LOCKS / "1.json", json.dumps(lock))

    for change in (
        lambda: rig.engine.up(REF, [ONE, TWO], quiet),
        lambda: rig.engine.forget(REF, ONE.name),
    ):
        with pytest.raises(Locked, match=rf"ana.*{socket.gethostname()}"):
            change()

    assert read(rig.engine).interrupted
    assert read(rig.engine).workers == (ONE,)
    assert rig.machines() == []


@pytest.mark.engine
def test_prepared_change_locks_stack_and_restores_record(real: PulumiRig) -> None:
    def recorded() -> object:
        found = json.loads((real.folder / CHECKPOINT).read_bytes())
        return found["checkpoint"]["latest"]["resources"]

    def locks() -> int:
        return len(list((real.folder / LOCKS).glob("*.json")))

    real.engine.up(REF, [ONE], quiet)
    before = recorded()
    with (
        pytest.raises(PlanRefused, match=r"stacks/sim.*workers\[0\].labels"),
        real.engine.prepare(REF, [a_sim_worker("x", labels={})]),
    ):
        pytest.fail("nothing was to be held")

    with real.engine.prepare(REF, [TWO]):
        held = locks()

    assert (held, locks(), recorded()) == (1, 0, before)
